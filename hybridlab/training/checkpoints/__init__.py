"""Checkpoints on the disk: `checkpoint` (saved under one layout, loaded under any other), `index` (its record) and
`folder` (the checkpoints of a run). `stored` reads weights, also those of other programs, and `export` writes weights
for other programs.

`training.resume` defines the content of a checkpoint, and resumes a run from it.
"""
