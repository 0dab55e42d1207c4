"""Hanayo: stages run through the ranks in waves, down and up, so that each turn needs no message."""

from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.most_urgent import most_urgent_first


def hanayo(ranks: int, microbatches: int, waves: int = 1) -> Schedule:
    """2w thin stages per rank, placed in a zigzag over the ranks; each rank always runs the most urgent action that is
    ready.

    Placement:   a snake: stages 0 … p-1 on ranks 0 … p-1, p … 2p-1 on ranks p-1 … 0, and so on; 2w chunks per rank
    Order:       by time with B = 2F: backwards first, then lower microbatches, then deeper stages
    Needs:       nothing
    Bubble:      bubble_fraction (2p-2)/(3pw+2p-2) for w = 1, B = 2F and m = p; at least (p-1)/(2wm+p-1)
    Peak:        about p activations of a whole rank (2wp chunks) for m = p, more for more microbatches
    Source:      Liu et al. 2023, arXiv:2308.15762; the order is our own list scheduling (no reference is known)

    raises  ValueError if `waves` is not positive

    >>> print(hanayo(ranks=2, microbatches=1))
    rank 0: 0F0 3F0 3B0 0B0
    rank 1: 1F0 2F0 2B0 1B0
    """
    if not isinstance(waves, int) or waves < 1:
        raise ValueError(f"waves={waves!r} is not possible: give a whole number, 1 or more")
    stages = 2 * waves * ranks
    home = [s % ranks if s // ranks % 2 == 0 else ranks - 1 - s % ranks for s in range(stages)]
    programs = most_urgent_first(home, [(s, s + 1) for s in range(stages - 1)], microbatches)
    place = {(stage, 0): rank for stage, rank in enumerate(home)}
    return Schedule.of("hanayo", programs, place, microbatches, chunks=2 * waves)
