"""Notebook 20, collectives: they are run on ranks, drawn and timed (`on_ranks`); a run of a student's ring, and the
verdict on it (`trial`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(__name__, {"on_ranks": "chart fitted pictured ring_sums"})
