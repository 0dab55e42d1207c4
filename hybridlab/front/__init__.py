"""The public namespaces of the package, one per file, each loaded as `hl.<name>` when it is first used.

Users' code depends only on these names; the modules that implement them may move.

Sizes and machines: `catalog`. Communication: `typed`, `ring`, `bytes`. Sharding: `spans`, `layouts`, `parallel`. Models
and their execution: `models`, `seams`, `engine`, `orders`. Predictions: `times`, `plans`, `search`, `papers`. Pictures
and measurements: `pictures`, `measure`.
"""
