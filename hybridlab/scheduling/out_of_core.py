"""Out of core: saved activations are swapped to the host, or recomputed, instead of staying on the device.

Copies to the host and back overlap with compute actions, on one engine for each direction, so the order of the actions
determines how much of them is hidden. A forward that saves nothing is recomputed right before its backward.

Sources: recomputation, Chen et al. 2016, arXiv:1604.06174; both mixed, Wahib et al. 2020, KARMA, arXiv:2008.11421.
"""

import math
from bisect import bisect_left
from collections.abc import Collection

import numpy as np

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.room import Room, during
from hybridlab.core.when.schedule import Schedule
from hybridlab.signatures import typed

BACKWARDS = ("B", "I")  # what takes the saved tensors of a forward


@typed
def recomputed(schedule: Schedule, which: Collection | None = None) -> Schedule:
    """The same schedule with recomputation: C, which saves only its input, instead of F, and R right before the
    backward.

    schedule  the schedule whose forwards are recomputed
    which     forwards: stages, or (stage, microbatch) pairs; None: all

    >>> import hybridlab as hl
    >>> print(hl.recomputed(hl.Schedule.from_csv("0F0,1F0,1B0,0B0"), {0}))
    rank 0: 0C0 1F0 1B0 0R0 0B0
    """
    return schedule.with_programs([_with_repeats(program, _places(program, which)) for program in schedule.program])


@typed
def swapped(schedule: Schedule, which: Collection | None = None, room: Room | None = None, ahead: int = 1) -> Schedule:
    """The same schedule with activations swapped to the host: SWAP_OUT right after the forward, SWAP_IN before the
    backward.

    schedule  the schedule whose activations are swapped
    which     forwards: stages, or (stage, microbatch) pairs; None: all
    room      memory capacity of each device: a SWAP_IN comes only when there is enough memory for it
    ahead     the maximum number of backwards between a SWAP_IN and its backward

    raises  ValueError if `ahead` is negative

    >>> import hybridlab as hl
    >>> print(hl.swapped(hl.Schedule.from_csv("0F0,1F0,2F0,2B0,1B0,0B0"), {0, 1}))
    rank 0: 0F0 0SWAP_OUT0 1F0 1SWAP_OUT0 2F0 1SWAP_IN0 2B0 0SWAP_IN0 1B0 0B0
    """
    if ahead < 0:
        raise ValueError(f"ahead={ahead} would swap activations in after their backward: give 0 or more")
    late = schedule.with_programs([_with_swaps(program, _places(program, which)) for program in schedule.program])
    if room is None:
        room, held = Room(math.inf, keeps=0), np.zeros(len(late.rows))
    else:
        held = during(Flow(late), room)
    held = np.split(held, np.cumsum([len(program) for program in late.program])[:-1])
    return late.with_programs([_brought_forward(*one, room, ahead) for one in zip(late.program, held)])


def _places(program, which):
    """The (stage, microbatch) pairs of the forwards that are meant."""
    forwards = [(one.stage, one.microbatch) for action in program for one in action.each if one.kind == "F"]
    return {place for place in forwards if which is None or place[0] in which or place in which}


def _of(action, kinds, places):
    """The parts of an action that are of these kinds and at these places."""
    return [one for one in action.each if one.kind in kinds and (one.stage, one.microbatch) in places]


def _with_repeats(program, places):
    """One rank's list. A fused pair is split if one of the two is recomputed."""
    done = []
    for action in program:
        for one in action.each if _of(action, ("F", *BACKWARDS), places) else (action,):
            again = _of(one, BACKWARDS, places)
            done += [part._replace(kind="R") for part in again]
            done.append(one._replace(kind="C") if _of(one, ("F",), places) else one)
    return done


def _with_swaps(program, places):
    """One rank's list, every SWAP_IN right before its backward."""
    done = []
    for action in program:
        done += [one._replace(kind="SWAP_IN") for one in _of(action, BACKWARDS, places)]
        done.append(action)
        done += [one._replace(kind="SWAP_OUT") for one in _of(action, ("F",), places)]
    return done


def _brought_forward(program, held, room, ahead):
    """One rank's list, every SWAP_IN at its earliest place; they stay in the order of their backwards.

    held  what the rank holds while it does each action; what is brought earlier is held for longer
    """
    backwards = [i for i, action in enumerate(program) if any(one.kind in BACKWARDS for one in action.each)]
    earlier, least = [[] for _ in program], 0
    for i, action in enumerate(program):
        if action.kind == "SWAP_IN":
            before = bisect_left(backwards, i)
            wanted = backwards[max(0, before - ahead)] if before else i
            least = max(least, wanted, program.index(action._replace(kind="SWAP_OUT")) + 1)
            at, weight = i, room.kept(action.stage)
            while at > least and held[at - 1] + weight <= room.capacity:
                at -= 1
            held[at:i] += weight
            earlier[at].append(action)
            least = at
    return [
        one
        for action, some in zip(program, earlier)
        for one in [*some, *([action] if action.kind != "SWAP_IN" else [])]
    ]
