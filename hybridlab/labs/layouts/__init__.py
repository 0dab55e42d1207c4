"""Notebook 35, named layouts: what follows from a table of rules, in `tables`; layouts on real ranks, held against one
device and against what was derived (`on_ranks`); `pictures` of who holds what, and of what is sent between.

Its exercises are in `tasks`, their solutions in `solutions`; a student's derivation is tried in `products`, layers on
ranks in `trial`.
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(
    __name__,
    {"tables": "arrows compared program refused work", "on_ranks": "counted every repeated seconds some"},
    "pictures",
)
