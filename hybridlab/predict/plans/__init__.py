"""Plans: a model and its batch divided among n devices: stages, tensor parallelism, copies, and more axes if asked.

`plan` is one division or many; `performance` gives its time, `footprint` its memory, `arithmetic` its operations.
`software` is what programs hide and fuse, `copies` what ranks with the same weights send; `rates` are a machine's,
`measured` those of your own, and `inside` is what waits for messages along cp and ep; `hot` says what a popular expert
costs. `divisions` are the rules that plans and ranks keep alike. `space` lists all legal plans, `planner` takes the
best, `reasons` says why another is not, `refusals` why there is none, `trust` how far off all that may be.
`by_schedule` plays one as a schedule, `jobs` has it done, replicated stages too, and `scaled` makes it so small that it
can be done here. `held` are the weights of one rank, `sent` the bytes that it sends. `partition` and `replicated` cut
layers into stages.
"""
