"""Bytes that ranks hold and send.

Held: `memory` (weights, gradients, optimizer state), `activations` (by the papers' formulas), `saved` (the reference
model's, thing by thing), `live` (over time, in a schedule). Sent: `collectives` (each operation, and its time),
`traffic` (messages between stages), `context` (keys and values along cp), `experts` (tokens along ep), `spatial` (halos
along h and w), `convolution` (grids that cut samples, pixels, channels or filters), `sharing` (sums and gathers of a
step), `matmul` (multiplication on grids of ranks, of which `matmul_by_rank` tells each), `arrows` (what follows from
operators whose dims are cut; `halos`, what those fetch that look on); each of these speaks of a `transfer` or of what
one rank sends.
"""
