"""Published results, as printed and as inputs for predictions.

`published` has the tables as printed. `sc21` has SC'21's rows as shapes and plans, with the fit on them.
`long_and_sparse` has runs with long contexts and experts, to which nothing is fitted. `googlenet` has GoogLeNet's
branches.
"""
