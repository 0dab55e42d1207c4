"""Notebook 31, parallel matrix products: products on real ranks, with every word counted (`on_ranks`); the spans that
each rank holds, wants and sends in each step (`moves`); grids compared (`grids`); `pictures` of these.

Its exercises are in `tasks`, their solutions in `solutions`; a student's product is tried in `trial`.
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(__name__, {"grids": "compared", "on_ranks": "counted kept seconds"}, "grids pictures")
