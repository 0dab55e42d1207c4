"""Plans: a model and its batch divided among n devices: stages, tensor parallelism, copies, and more axes if asked.

`plan` is one division or many; `performance` gives its time, `footprint` its memory, `arithmetic` its operations.
`software` is what programs hide and fuse; `rates` are a machine's, `usual` the assumptions about one, `measured` the
rates of your own. Parts of the time:
`time_of_gradients` (messages between ranks with the same weights), `time_of_context_and_experts` (waiting along cp and
ep), `hot_expert` (the cost of a popular expert). Parts of the memory and of the traffic: `weights_of_rank` and
`bytes_of_rank`.
`divisions` are the rules that plans and ranks keep alike. `space` lists all legal plans, `planner` takes the best,
`reasons` says why another is not, `refusals` why there is none, `trust` how far off all that may be.
`by_schedule` plays one as a schedule, `jobs` has it done, replicated stages too, and `scaled` makes it so small that it
can be done here. `partition` and `replicated` cut layers into stages, `branches` has sub-graph parallelism beside that.
"""
