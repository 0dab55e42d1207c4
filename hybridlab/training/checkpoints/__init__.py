"""Checkpoints on the disk: `checkpoint` (saved under one layout, loaded under any other), `index` (its record) and
`folder` (those of a run). `stored` reads weights, also those of other programs, and `export` writes them for such.

`training.resume` defines its content, and resumes a run from it.
"""
