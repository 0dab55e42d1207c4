"""The dry run: one rank of a job of any size, with everything but the arithmetic. Bytes and messages are real.

`dry_run` is the public function. `one_rank` runs one rank without the others, `counted` divides the memory of a
training rank into kinds, even if activations move (`moving`), `alive` counts bytes as they come and go, and `known` has
the numbers that a forward may read. The result is a `core.dry.DryRun`. `dry_layer`, public too, assigns the messages of
one layer to their places.
"""
