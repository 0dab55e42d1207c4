"""Notebook 10, naive pipelines: bytes across each cut, unequal stages, and whether two runs learn the same (`cuts`).

Its exercises are in `tasks`, their solutions in `solutions`.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(__name__, {"cuts": "apart blocks by_link handed_on imbalance seconds_of_layers shares"})
