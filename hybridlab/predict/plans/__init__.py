"""Plans: a model and its batch divided among n devices: stages, tensor parallelism, copies, and more axes if asked.

`plan` is one division or many; `performance` gives its time, `footprint` its memory, `arithmetic` its operations.
`rates` are a machine's and `inside` is what waits for messages along cp and ep; `hot` says what a popular expert costs.
`space` lists all legal plans, `planner` takes the best, `reasons` says why another is not, `by_schedule` plays one as a
schedule. `partition` and `replicated` cut layers into stages.
"""
