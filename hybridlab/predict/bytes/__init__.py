"""Compute the bytes that ranks hold and send.

Memory: `memory` (weights, gradients, optimizer state), `activations` (by the papers' formulas), `saved` (of the
reference model, tensor by tensor), `live` (over time, in a schedule).

Communication: `collectives` (each operation, and its time), `traffic` (messages between stages), `context` (keys and
values along cp), `experts` (tokens along ep), `copied_experts` (even loads), `spatial` (halos along h and w),
`of_cuts` (a stack of layers under three knives),
`convolution` (grids that shard samples, pixels, channels or filters), `sharing` (all-reduces and all-gathers of a
step), `local_steps` (copies that train alone), `matmul` (on grids of ranks; `matmul_by_rank` for each rank), `arrows`
(collectives between sharded operators; `halos` of convolutions). Each of these returns a `transfer`, or the elements
that one rank sends.
"""
