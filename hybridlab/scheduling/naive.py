"""Naive model parallelism: one microbatch passes all stages forward and backward before the next one starts."""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions, alternate


def naive(ranks: int, microbatches: int) -> Schedule:
    """Every rank does F then B of microbatch 0, then of microbatch 1, …; only one rank works at a time.

    Placement:   stage s on rank s
    Order:       F, B of one microbatch after another
    Needs:       nothing
    Bubble:      bubble_fraction (p-1)/p, for every m; bubble_overhead p-1
    Peak:        1 activation on every rank
    Source:      the starting point of every lecture on pipelines; utilization 1/p

    >>> print(naive(ranks=2, microbatches=2))
    rank 0: 0F0 0B0 0F1 0B1
    rank 1: 1F0 1B0 1F1 1B1
    """
    m = np.arange(microbatches)
    programs = [alternate(actions("F", r, m), actions("B", r, m)) for r in range(ranks)]
    return Schedule.of("naive", programs, {(r, 0): r for r in range(ranks)}, microbatches)
