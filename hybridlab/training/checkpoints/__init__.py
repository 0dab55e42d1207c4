"""Checkpoints on the disk: `checkpoint` (saved under one layout, loaded under any other), `index` (its record) and
`folder` (those of a run).

`training.resume` defines its content, and resumes a run from it.
"""
