"""Search: the fastest strategy for a graph of operators on a machine, with seven methods to compare.

What a strategy costs: `pieces` (what one rank does of an operator), `profile` (what that and a move take on a machine),
`problem` (a strategy's seconds and bytes; the same as a schedule is in `played`), `terms` (its cost as a sum, for those
who can use that). Who searches: `data_parallel`, `one_rule` (Mesh-TensorFlow's table), `megatron`; `exhaustive` on
toys; `chain` and `elimination`, which are exact; `mcmc`, FlexFlow's. Each gives what it `found`, with the trace of its
search.
"""
