"""GPipe: all forwards, then all backwards; optionally with recomputation."""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions, alternate

RECOMPUTE = ("never", "except_last", "always")


def gpipe(ranks: int, microbatches: int, backward: str = "fifo", recompute: str = "never") -> Schedule:
    """Every rank does all its forwards, then all its backwards.

    Placement:   stage s on rank s
    Order:       F × m, then B × m; backward="fifo" in the order of the forwards, "lifo" in reverse
    Needs:       nothing
    Bubble:      bubble_fraction (p-1)/(m+p-1); bubble_overhead (p-1)/m; recomputation makes the step m·R longer
    Peak:        m activations on every rank; with recompute="always" 1, and only the inputs of the others
    Source:      Huang et al. 2019, arXiv:1811.06965 (its memory result uses recomputation); torchgpipe does not
                 recompute the microbatch whose backward comes first: recompute="except_last", which is the last one
                 with backward="lifo"

    raises  ValueError when `backward` or `recompute` is not known

    >>> print(gpipe(ranks=2, microbatches=3, backward="lifo"))
    rank 0: 0F0 0F1 0F2 0B2 0B1 0B0
    rank 1: 1F0 1F1 1F2 1B2 1B1 1B0
    >>> print(gpipe(ranks=1, microbatches=2, backward="lifo", recompute="except_last"))
    rank 0: 0C0 0F1 0B1 0R0 0B0
    """
    if backward not in ("fifo", "lifo"):
        raise ValueError(f'backward={backward!r} is not an order: choose "fifo" or "lifo"')
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute={recompute!r} is not known: choose one of {', '.join(RECOMPUTE)}")
    m = np.arange(microbatches)
    back = m if backward == "fifo" else m[::-1]
    again = {"never": m[:0], "always": back, "except_last": back[1:]}[recompute]
    programs = [np.concatenate([_forwards(r, m, again), _backwards(r, back, again)]) for r in range(ranks)]
    return Schedule.of("gpipe", programs, {(r, 0): r for r in range(ranks)}, microbatches)


def _forwards(stage, order, again):
    rows = actions("F", stage, order)
    rows[np.isin(order, again)] = actions("C", stage, order[np.isin(order, again)])
    return rows


def _backwards(stage, order, again):
    """B of each microbatch, with its R before it in case of recomputation."""
    kept = order[: len(order) - len(again)]
    repeated = alternate(actions("R", stage, again), actions("B", stage, again))
    return np.concatenate([actions("B", stage, kept), repeated])
