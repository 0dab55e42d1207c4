"""Sharded weights around a schedule: every stage's weights are gathered before use and freed after it; gradients are
reduced.

Gathers and reductions overlap with compute actions, on a separate lane, so their order determines how much of them is
hidden. Breadth-first schedules gather each chunk once per pass; depth-first schedules gather it again for every group.
"""

import numpy as np

from hybridlab.core.when.action import CODE, COLLECTIVES, MESSAGES, SWAPS, Action, last_backwards
from hybridlab.core.when.schedule import Schedule
from hybridlab.signatures import typed

GATHERS = ("UNSHARD", "RESHARD")


@typed
def sharded(schedule: Schedule, active: int = 2) -> Schedule:
    """The same schedule with UNSHARD, RESHARD and REDUCE_GRAD actions, for data parallelism with sharded weights.

    schedule  the schedule whose weights are sharded
    active    the number of stages whose weights a rank holds at a time: the one in use and those gathered ahead

    raises  ValueError if active is not positive

    >>> import hybridlab as hl
    >>> print(hl.sharded(hl.Schedule.from_csv("0F0,1F0,1B0,0B0"), active=1))
    rank 0: 0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 1B0 1RESHARD 1REDUCE_GRAD 0UNSHARD 0B0 0RESHARD 0REDUCE_GRAD
    """
    if active < 1:
        raise ValueError(f"active={active} leaves no memory for the stage in use: give 1 or more")
    tied = {stage for group in schedule.tied for stage in group}
    own = lambda program: [one for one in program if one.kind not in (*MESSAGES, *COLLECTIVES)]
    programs = [_with_gathers(own(program), active, tied, schedule.copy_of) for program in schedule.program]
    return schedule.with_programs(programs)


def without_gathers(schedule: Schedule) -> Schedule:
    """The same schedule without UNSHARD and RESHARD, for ranks that hold their full weights.

    >>> import hybridlab as hl
    >>> print(without_gathers(sharded(hl.Schedule.from_csv("0F0,0B0"))))
    rank 0: 0F0 0B0 0REDUCE_GRAD
    """
    if not np.isin(schedule.rows[:, 0], [CODE[kind] for kind in GATHERS]).any():
        return schedule
    programs = [[action for action in one if action.kind not in GATHERS] for one in schedule.program]
    return schedule.with_programs(programs)


def _with_gathers(program, active, tied, copy_of):
    """One rank's list: before each action, free the stages that are not among the next ones, and gather those that are.

    A stage is reduced after its last backward; one that shares weights with another stage, after all backwards.
    Replicas that have a stage on the same rank share its weights, so they gather and reduce them as one.
    """
    used = [_places(action, copy_of) for action in program]
    upcoming, last = _next_places(used, active), {}
    for place, number in last_backwards(program).items():
        shared = place[0], copy_of[place]
        last[shared] = max(number, last.get(shared, 0))
    done, held = [], []
    for i, action in enumerate(program):
        needed = upcoming[i]
        done += [_on(place, "RESHARD") for place in held if place not in needed]
        done += [_on(place, "UNSHARD") for place in needed if place not in held]
        held = [place for place in held if place in needed] + [place for place in needed if place not in held]
        done.append(action)
        ends = [place for place in used[i] if last.get(place) == i]
        later = {place for places in used[i + 1 :] for place in places} if ends else set()
        for place in ends:
            if place not in later:
                done.append(_on(place, "RESHARD"))
                held.remove(place)
            done += [_on(place, "REDUCE_GRAD")] if place[0] not in tied else []
    late = [_on(place, "REDUCE_GRAD") for place in sorted(last) if place[0] in tied]
    return done + [_on(place, "RESHARD") for place in held] + late


def _next_places(used, count):
    """For every action, the next `count` different (stage, replica) places that will compute, itself first."""
    upcoming, ahead = [], []
    for own in reversed(used):
        ahead = own + [place for place in ahead if place not in own]
        upcoming.append(ahead[: max(count, len(own))])
    return upcoming[::-1]


def _places(action, copy_of):
    """The (stage, replica) whose weights an action uses, each once; the copy of an activation uses none."""
    if action.kind in SWAPS:
        return []
    places = [(part.stage, copy_of[part.stage, part.replica]) for part in action.each]
    return list(dict.fromkeys(places))


def _on(place, kind):
    return Action(kind, place[0], replica=place[1])
