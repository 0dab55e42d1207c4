"""The dry run: one rank of a job of any size, with everything but the arithmetic. Bytes and messages are real.

`dry_run` is what is asked. `one_rank` plays a rank whose others are not there, `counted` tells kinds of memory apart
while a rank trains, and `alive` counts bytes as they come and go. The result is a `core.dry.DryRun`.
"""
