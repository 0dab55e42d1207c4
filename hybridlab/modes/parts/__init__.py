"""Parts of modes: modules that a mode adds to a model, and functions that it calls.

Data parallelism: `replicated` (a rank's weights, and the reduction of their gradients), and `apart` (for copies that
train alone). ZeRO: `sharded` (a shard of each weight), and `two_levels` (shards of shards, and second copies). Tensor
parallelism: `plain_layers` (the layers that may be cut, also along x), `tp_boundaries` (the places of f and g),
`inner_draws` (random layers between them), `sequence_parallel`, `overlapped` (in pieces), `vocabulary_parallel`,
`cut_experts`, and `scatter_gather` (each rank sends its part to the next stage). Expert parallelism: `routed` (the
layers with experts), `dispatch` (how tokens travel), `token_order` (in which order) and `lent_experts` (copies).
Context parallelism: `ring_attention`, and `circle`, which makes its hops. Spatial parallelism: `halos`, `cut_layers`,
and `pixelwise` (whether a layer needs no halo). Full matrices: `newton_schulz`.
"""
