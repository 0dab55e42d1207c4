"""Schedules: a file for each family, and the functions that turn their lists into programs for ranks.

`registry` finds them by name: `naive`, `gpipe`, `one_f_one_b`, `interleaved`, `looped_bfs`, `zero_bubble`,
`controllable` (V-Half, V-Min), `dualpipe`, `chimera`, `hanayo`, `pipedream`, `pipeoffload`, `bpipe`. `validate` says
whether a list is a training step, `lower` writes its messages, `rendezvous` says whether it would hang with stricter
messages. Around a schedule: `replicate` (data parallelism), `sums` (shared weights), `sharded` (gathered weights),
`out_of_core`, `dispatched` (stages with experts), `subgraph` (branches), `token_slices` (slices of a row), `vocabulary`
(the head in pieces), `rerouted` (lost ranks), `norms` (clipping, several steps in a row). Two files make orders:
`most_urgent`, and `by_hand` for the game.
"""
