"""Notebook 36, AxoNN's layer: on real ranks, every word counted and every message timed (`on_ranks`); a whole GPT on
every grid of 8 ranks (`factorisations`); `pictures` of who holds what, and of products and messages.

Its exercises are in `tasks`, their solutions in `solutions`; what a student writes is tried in `trial`.
"""

from hybridlab.lazily import room

# what the notebook uses
__getattr__, __all__ = room(
    __name__, {"factorisations": "SMALL picture table twice", "on_ranks": "counted timed", "pictures": "homes step"}
)
