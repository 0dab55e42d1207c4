"""Plans: a model and its batch divided among n devices, as p stages, t ways of tensor parallelism and d copies.

`plan` is one division or many; `performance` gives its time, `footprint` its memory, `arithmetic` its operations.
`space` lists all legal plans, `planner` takes the best, `reasons` says why another is not, `by_schedule` plays one as a
schedule. `partition` and `replicated` cut layers into stages.
"""
