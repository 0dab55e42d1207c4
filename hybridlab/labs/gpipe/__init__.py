"""Notebook 11, GPipe: partitions and microbatches swept on real ranks, sizes of a microbatch, and activation
recomputation (`sweeps`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__, {"sweeps": "Published again against_formula bottom left_behind picture printed sizes speeds sweep valley"}
)
