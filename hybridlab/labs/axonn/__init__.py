"""Notebook 36, AxoNN's layer: on real ranks, every word counted and every message timed (`on_ranks`); a full GPT on
every grid of 8 ranks (`factorisations`); `pictures` of the parts on each rank, and of matmuls and messages.

Its exercises are in `tasks`, their solutions in `solutions`; `trial` runs the code of students.
"""

from hybridlab.lazily import room

# names that the notebook uses
__getattr__, __all__ = room(
    __name__, {"factorisations": "SMALL picture table twice", "on_ranks": "counted timed", "pictures": "homes step"}
)
