"""1F1B: after a short warm-up every forward is followed by a backward, so few activations are held."""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions, alternate


def one_f_one_b(ranks: int, microbatches: int) -> Schedule:
    """Warm up with a few forwards, then alternate one forward with one backward, then drain.

    Placement:   stage s on rank s
    Order:       F × w, then (F, B) × (m-w), then B × w, with warm-up w = min(p-1-r, m)
    Needs:       nothing (m < p is legal)
    Bubble:      bubble_fraction (p-1)/(m+p-1); bubble_overhead (p-1)/m: the same as GPipe
    Peak:        min(p-r, m) activations on rank r
    Source:      PipeDream-flush, Narayanan et al. 2021, arXiv:2006.09503; DAPPLE, Fan et al. 2021, arXiv:2007.01045

    >>> print(one_f_one_b(ranks=2, microbatches=3))
    rank 0: 0F0 0F1 0B0 0F2 0B1 0B2
    rank 1: 1F0 1B0 1F1 1B1 1F2 1B2
    """
    m = np.arange(microbatches)
    programs = []
    for r in range(ranks):
        forwards, backwards, w = actions("F", r, m), actions("B", r, m), min(ranks - 1 - r, microbatches)
        steady = alternate(forwards[w:], backwards[: microbatches - w])
        programs.append(np.concatenate([forwards[:w], steady, backwards[microbatches - w :]]))
    return Schedule.of("1f1b", programs, {(r, 0): r for r in range(ranks)}, microbatches)
