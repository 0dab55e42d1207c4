"""Notebook 20, collectives: run on ranks, drawn and timed (`on_ranks`); the picture of one step of a ring
(`ring_picture`); the run and the verdict of a student's ring (`trial`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(__name__, {"on_ranks": "chart fitted pictured ring"})
