"""Notebook 20, collectives: done on ranks, drawn and timed (`on_ranks`); one moment of a ring (`ring_picture`); a
student's ring, run and judged (`trial`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(__name__, {"on_ranks": "chart fitted pictured ring"})
