"""GPipe: all forwards, then all backwards."""

import numpy as np

from hybridlab.core.schedule import Schedule, actions


def gpipe(ranks: int, microbatches: int, backward: str = "fifo") -> Schedule:
    """Every rank does all its forwards, then all its backwards.

    Placement:   stage s on rank s
    Order:       F × m, then B × m; backward="fifo" in the order of the forwards, "lifo" the other way round
    Needs:       nothing
    Bubble:      bubble_fraction (p-1)/(m+p-1); bubble_overhead (p-1)/m
    Peak:        m activations on every rank
    Source:      Huang et al. 2019, arXiv:1811.06965

    raises  ValueError when `backward` is neither "fifo" nor "lifo"

    >>> print(gpipe(ranks=2, microbatches=3, backward="lifo"))
    rank 0: 0F0 0F1 0F2 0B2 0B1 0B0
    rank 1: 1F0 1F1 1F2 1B2 1B1 1B0
    """
    if backward not in ("fifo", "lifo"):
        raise ValueError(f'backward={backward!r} is no order: choose "fifo" or "lifo"')
    m = np.arange(microbatches)
    back = m if backward == "fifo" else m[::-1]
    programs = [np.concatenate([actions("F", r, m), actions("B", r, back)]) for r in range(ranks)]
    return Schedule.of("gpipe", programs, {(r, 0): r for r in range(ranks)}, microbatches)
