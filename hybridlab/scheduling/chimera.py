"""Chimera: two 1F1B pipelines in opposite directions, each in the idle time of the other."""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions


def chimera(ranks: int, microbatches: int) -> Schedule:
    """Units of p microbatches: half run down the ranks, half run up; each direction starts a microbatch every two
    slots.

    Placement:   replica 0: stage s on rank s; replica 1: stage s on rank p-1-s
    Order:       by slots of one F or one B; a unit starts 2p slots after the one before
    Needs:       p even, m even
    Bubble:      p-2 slots: bubble_fraction (p-2)/(2m+p-2), F = B, m a multiple of p
    Peak:        between p/2+1 and p activations
    Source:      Li and Hoefler 2021, arXiv:2107.06925, "direct" concatenation; 2 copies of the weights

    raises  ValueError when p or m is odd

    >>> print(chimera(ranks=2, microbatches=2))
    rank 0: 0F0 1F1@1 1B1@1 0B0
    rank 1: 0F1@1 1F0 1B0 0B1@1
    """
    for what, number in (("ranks", ranks), ("microbatches", microbatches)):
        if number % 2:
            raise ValueError(
                f"{what}={number} is odd, and chimera divides it between two directions: give {number + 1}"
            )
    half = microbatches // 2
    slotted = [[] for _ in range(ranks)]
    for replica in (0, 1):
        for i in range(half):
            unit, turn = divmod(i, ranks // 2)
            enters = 2 * ranks * unit + 2 * turn
            for stage in range(ranks):
                rank = stage if replica == 0 else ranks - 1 - stage
                for kind, slot in (("F", enters + stage), ("B", enters + 2 * ranks - 1 - stage)):
                    slotted[rank].append((slot, actions(kind, stage, [replica * half + i], replica)))
    programs = [np.concatenate([rows for _, rows in sorted(one, key=lambda x: x[0])]) for one in slotted]
    place = {(s, 0): s for s in range(ranks)} | {(s, 1): ranks - 1 - s for s in range(ranks)}
    replica_of = (0,) * half + (1,) * half
    return Schedule.of("chimera", programs, place, microbatches, replica_of=replica_of)
