"""Notebook 31, parallel matrix products: products on real ranks, with every word counted (`on_ranks`); the spans that
each rank holds, wants and sends in each step (`moves`); grids compared (`grids`); `pictures` of these.

Its exercises are in `tasks`, their solutions in `solutions`; a student's product is tried in `trial`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "compared": "grids",
    "counted": "on_ranks",
    "kept": "on_ranks",
    "seconds": "on_ranks",
}
_MODULES = {"grids": "grids", "pictures": "pictures"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
