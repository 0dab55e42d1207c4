"""V-Half and V-Min: one pattern of six slots, repeated for every microbatch, for a given fraction of the memory."""

import itertools

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions
from hybridlab.scheduling.zero_bubble import in_a_v

PERIOD = 6  # slots of one microbatch on a rank: F, I, W of both chunks


def v_half(ranks: int, microbatches: int) -> Schedule:
    """A V-shaped schedule with half the activations of 1F1B, and half its bubble: every second hop takes two slots.

    Placement:   stages r and 2p-1-r on rank r
    Order:       a pattern that repeats every six slots, with hops of 1 and 2 slots in turn
    Needs:       nothing
    Bubble:      idle time 3p - 4 at F = I = W, for p > 1; 6(p - 1) for 1F1B
    Peak:        p + 2 chunks on every rank (p/2 + 1 of a whole rank's), p + 1 for an odd p, until W (m ≥ p)
    Source:      Qi et al. 2024, arXiv:2405.15362 (controllable memory); the long hops and the waits at the turns were
                 found by a search for p up to 12, which minimizes first the memory, then the idle time

    >>> v_half(ranks=4, microbatches=8)
    <schedule v_half: 4 ranks, 8 stages, 8 microbatches, 192 actions>
    """
    waits = [(0, 0, 0)] if ranks % 2 else [(3, 0, 0)]
    return _patterned("v_half", ranks, microbatches, ((1, 2), (2, 1), (1, 2), (1, 2)), waits)


def v_min(ranks: int, microbatches: int) -> Schedule:
    """A V-shaped schedule with a third of the activations of 1F1B: every hop takes one slot, the shortest possible
    lifetime.

    Placement:   stages r and 2p-1-r on rank r
    Order:       a pattern that repeats every six slots, with hops of 1 slot
    Needs:       nothing
    Bubble:      idle time 11 (p = 4) and 27 (p = 8) at F = I = W and m = 4p; 18 and 42 for 1F1B
    Peak:        about 2p/3 + 2 chunks on every rank (p/3 + 1 of a whole rank's), until W
    Source:      Qi et al. 2024, arXiv:2405.15362 (controllable memory); the turns are the shortest that fit
    """
    return _patterned("v_min", ranks, microbatches, ((1,), (1,), (1,), (1,)), _waits())


def _patterned(name, ranks, microbatches, hops, waits):
    """Place one microbatch in slots, repeat it every PERIOD slots, and let every rank follow its slots in order."""
    slots = next(found for wait in waits if (found := _slots(ranks, hops, wait)) is not None)
    programs = []
    for own in slots:
        rows = np.concatenate([actions(kind, stage, range(microbatches)) for kind, stage, _ in own])
        times = np.concatenate([slot + PERIOD * np.arange(microbatches) for _, _, slot in own])
        programs.append(rows[np.argsort(times, kind="stable")])
    return in_a_v(name, programs, ranks, microbatches)


def _waits():
    """The slots to wait at the three turns, fewest first."""
    return sorted(itertools.product(range(PERIOD), repeat=3), key=lambda waits: (sum(waits), waits))


def _slots(ranks, hops, waits):
    """One microbatch's slots, per rank [(kind, stage, slot)]; None if two passes of a rank fall on one slot.

    hops  slots from rank 0 to 1, from 1 to 2, and so on, repeated: of F down and up the V, of I down and up
    """
    down, up, back_down, back_up = (_from_rank_0(ranks, hop) for hop in hops)
    turn_f = down[-1] + 1 + waits[0]  # F of the second chunk, on the last rank
    turn_i = turn_f + up[-1] + 1 + waits[1]  # its I, on rank 0
    turn_back = turn_i + back_down[-1] + 1 + waits[2]  # I of the first chunk, on the last rank
    slots = []
    for r in range(ranks):
        own = [
            ("F", r, down[r]),
            ("F", 2 * ranks - 1 - r, turn_f + up[-1] - up[r]),
            ("I", 2 * ranks - 1 - r, turn_i + back_down[r]),
            ("I", r, turn_back + back_up[-1] - back_up[r]),
        ]
        taken = {slot % PERIOD for _, _, slot in own}
        if len(taken) < len(own):
            return None
        for _, stage, slot in own[2:]:  # each W in the first free slot after its I
            free = next(s for s in range(slot + 1, slot + PERIOD + 1) if s % PERIOD not in taken)
            taken.add(free % PERIOD)
            own.append(("W", stage, free))
        slots.append(own)
    return slots


def _from_rank_0(ranks, hops):
    """For each rank, the number of slots on the way from rank 0 to it."""
    return [0, *itertools.accumulate(itertools.islice(itertools.cycle(hops), ranks - 1))]
