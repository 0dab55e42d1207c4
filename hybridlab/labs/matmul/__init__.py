"""Notebook 31, parallel matmuls: matmuls on real ranks, with every word counted (`on_ranks`); grids compared (`grids`);
`pictures` of these.

Its exercises are in `tasks`, their solutions in `solutions`; `trial` runs a student's matmul.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(__name__, {"grids": "compared", "on_ranks": "counted kept seconds"}, "grids pictures")
