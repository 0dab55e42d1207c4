"""The public namespaces of the package, one a file, each served as `hl.<name>` when it is first used.

What users write rests on these names; the modules behind them may move.

Sizes and machines: `catalog`. What is sent: `typed`, `ring`, `bytes`. Who holds which part: `spans`, `layouts`,
`parallel`. Models and what plays them: `models`, `seams`, `engine`, `orders`. Predictions: `times`, `plans`,
`search`, `papers`. What is seen and measured: `pictures`, `measure`.
"""
