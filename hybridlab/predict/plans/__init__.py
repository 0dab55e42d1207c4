"""Plans: a model and its batch divided among n devices: stages, tensor parallelism, copies, and more axes if asked.

`plan` is one plan or many, and `meanings` explains its fields. `performance` predicts its time (`parts_of_a_step` has
the terms), `footprint` predicts its memory (`memory_of_plan` with the assumptions about a machine), and `arithmetic`
counts its FLOPs. `software` describes the overlap and fusion of programs, `rates` has the speed of a machine, `usual`
has the assumptions about it, and `measured` finds the speed of your machine. `kinds` counts each rank's blocks with
experts and without, and `heaviest` counts the weights of the fullest rank. Parts of the time are in `time_of_gradients`
(messages between ranks with the same weights), `time_of_moves` (between copies that train alone; `fragments` counts the
weights that they exchange at a time, and `link_needed` is the network that they need), `time_of_pieces` (tp's messages
in pieces), `time_of_context_and_experts` (waiting along cp and ep), `time_of_muon` (its operations) and `hot_expert`
(the cost of a popular expert). Parts of the memory and of the traffic are in `weights_of_rank` and `bytes_of_rank`.

`divisions` has the rules for plans and for ranks, `equal_parts` has those for experts and slices of one plan, `ranges`
has the ranges of their numbers, and `given` has the wider search that given fields need. `space` lists all legal plans,
and `planner` finds the best, a `choice`. `reasons` says why another plan is slower, `what_if` changes as little as
possible, `refusals` says why no plan exists, and `trust` says how large the errors of predictions are. `by_schedule`
simulates a plan with its schedule, and `with_schedule` keeps the plans of one schedule. `jobs` turns a plan, also one
with replicated stages, into the arguments of a run, and `scaled` makes it small enough for this machine. `partition`
and `replicated` cut layers into stages, `on_submeshes` (Alpa) also gives each stage a submesh; `branches` compares this
with sub-graph parallelism. `slicing` cuts rows into slices of equal cost.
"""
