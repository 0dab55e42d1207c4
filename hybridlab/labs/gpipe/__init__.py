"""Notebook 11, GPipe: partitions and microbatches swept on real ranks, and forwards done again (`sweeps`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "MICROBATCHES": "sweeps",
    "again": "sweeps",
    "formula": "sweeps",
    "left_behind": "sweeps",
    "picture": "sweeps",
    "printed": "sweeps",
    "sizes": "sweeps",
    "speeds": "sweeps",
    "sweep": "sweeps",
    "valley": "sweeps",
}
__all__ = [*_HOME]
__getattr__ = lazily(__name__, _HOME)
