"""Search for the fastest strategy for a graph of operators on a machine, with seven methods to compare.

The cost of a strategy: `pieces` (one rank's part of an operator), `profile` (the time of a piece and of a move on a
machine), `problem` (a strategy's seconds and bytes; `played` computes them with a schedule), `terms` (the cost as a
sum, for methods that need a sum).

The methods: `data_parallel`, `one_rule` (Mesh-TensorFlow's table) and `megatron`; `exhaustive` for small graphs;
`chain` and `elimination`, which are exact; `mcmc`, FlexFlow's. Each returns a `found`, with the trace of its search.
"""
