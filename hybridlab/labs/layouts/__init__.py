"""Notebook 35, named layouts: what follows from a table of rules, in `tables`; layouts on real ranks, held against one
device and against what was derived (`on_ranks`); `pictures` of who holds what, and of what is sent between.

Its exercises are in `tasks`, their solutions in `solutions`; a student's derivation is tried in `products`, layers on
ranks in `trial`.
"""

from hybridlab.lazily import lazily

_HOME = {  # what the notebook uses
    "arrows": "tables",
    "compared": "tables",
    "program": "tables",
    "refused": "tables",
    "work": "tables",
    "counted": "on_ranks",
    "every": "on_ranks",
    "repeated": "on_ranks",
    "seconds": "on_ranks",
    "some": "on_ranks",
}
_MODULES = {"pictures": "pictures"}
__all__ = [*_HOME, *_MODULES]
__getattr__ = lazily(__name__, _HOME, _MODULES)
