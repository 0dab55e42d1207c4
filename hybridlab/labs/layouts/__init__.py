"""Notebook 35, named layouts: the consequences of a table of rules (`tables`); layouts on real ranks, compared with one
device and with the derived messages (`on_ranks`); `pictures` of the parts on each rank and of the messages.

Its exercises are in `tasks`, their solutions in `solutions`; `products` judges a student's derivation, `trial` runs
layers on ranks.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__,
    {"tables": "arrows compared program refused work", "on_ranks": "counted every repeated seconds some"},
    "pictures",
)
