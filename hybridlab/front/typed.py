"""Typed collectives: each has a type for its input and output along an axis (replicated, partial, varying), which
determines its backward: `hl.typed.all_gather(comm, x, "tp", 0, to="R")`.
"""

from hybridlab.core.where.states import CONJUGATE
from hybridlab.doors import door, one_of
from hybridlab.world.talk.typed import (
    MOVES,
    all_gather,
    all_reduce,
    all_to_all,
    conjugate,
    enter,
    fold,
    reduce_scatter,
    split,
    stated,
    transposed,
    window,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "conjugate",
    "enter",
    "fold",
    "reduce_scatter",
    "split",
    "stated",
    "transposed",
    "window",
]

conjugate = door(conjugate, arrow=one_of([f"{before}->{after}" for before in CONJUGATE for after in CONJUGATE]))
stated, transposed = door(stated), door(transposed, move=one_of(MOVES))
