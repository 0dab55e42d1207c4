"""Models and machines: the sizes of models, the machines they run on, and graphs of operators with named dims.

`shape` has the sizes of a transformer, and `valid_sizes` refuses others; `routing` describes how tokens choose their
experts. `catalog` has the sizes of published models and machines, `machines` reads a machine from a file, and
`frameworks` has the lecture's table. `operators` are operators with named dims and their strategies, `programs` are
small graphs of them, and `wiring` checks that a graph fits together. `seams` are the attributes of a layer that a mode
may use, and how layers declare them.
"""
