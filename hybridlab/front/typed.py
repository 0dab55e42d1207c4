"""Typed collectives: each states what a tensor is along an axis before and after (replicated, partial, varying),
so that its backward is known: `hl.typed.all_gather(comm, x, "tp", 0, to="R")`.
"""

from hybridlab.world.talk.typed import (
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
