"""Lifetimes: the number of values of one kind that are produced, freed and held, action by action."""

import numpy as np

from hybridlab.core.when.flow import Flow


def lives(flow: Flow, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(made, freed): for every action, how many values of one name it makes, and how many it is the last to take."""
    block = flow.named(name)
    made = (flow.makes.values >= block.start) & (flow.makes.values < block.stop)
    taken = (flow.takes.values >= block.start) & (flow.takes.values < block.stop)
    last = np.zeros(flow.size, dtype=np.int64)
    np.maximum.at(last, flow.takes.values[taken], flow.takes.owners[taken])
    freed = last[np.unique(flow.takes.values[taken])]
    return np.bincount(flow.makes.owners[made], minlength=flow.actions), np.bincount(freed, minlength=flow.actions)


def held(flow: Flow, name: str) -> list[np.ndarray]:
    """For every rank, how many values of one name it holds while it does each of its actions.

    A value is held from the action that makes it (a given one from the start) to the last action that takes it; to
    the end, if none does. An action makes before it frees; only an update writes new weights over those it takes.
    """
    made, freed = lives(flow, name)
    given = np.zeros(flow.schedule.ranks, dtype=np.int64)
    block = flow.named(name)
    for value in np.flatnonzero(flow.given[block]) + block.start:
        stage, replica, _ = flow.where(name, value)
        given[flow.schedule.place[stage, replica]] += 1
    during = np.maximum(made - freed, 0) if name == "weights" else made
    return [
        given[rank] + np.cumsum((made - freed)[a:b]) - (made - freed)[a:b] + during[a:b]
        for rank, (a, b) in enumerate(zip(flow.program, flow.program[1:]))
    ]
