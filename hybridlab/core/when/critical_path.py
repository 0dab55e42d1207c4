"""The critical path: the chain of actions that determines the length of a step, and the last wait of every action."""

import numpy as np

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lanes import COMPUTE, IN, OUT, messages


def chain(cause: np.ndarray, end: np.ndarray) -> list[int]:
    """The critical path as action numbers, first to last. It is traced backwards: start at the action that ends
    last, and repeatedly go to the action that the current one waited for last.

    cause  as `waited_for` gives it; a message is in the chain once, as its SEND
    """
    found, action = [], int(np.argmax(end)) if len(end) else -1
    while action >= 0 and len(found) < len(cause):
        found.append(action)
        action = int(cause[action])
    return found[::-1]


def waited_for(flow: Flow, lane: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For every action, the action that it waited for last: the one of its predecessors that ended last.

    The predecessors are the makers of its inputs and the action before it on its rank. For a copy to the host or back,
    also the one before it on its engine; for a message, the one before it on its link, and the action before its
    receive. A received message is given as its SEND; -1 means that the action did not wait.

    lane, begin, end  one entry per action
    """
    own = np.arange(flow.actions)
    sends, receives = messages(flow, lane)
    before = _before(flow, lane == COMPUTE)
    links = _sent_before(flow, sends, receives)
    copies = [np.flatnonzero(lane == engine) for engine in (OUT, IN)]
    copied = [_before(flow, lane == engine)[its] for engine, its in zip((OUT, IN), copies)]
    held = np.concatenate([flow.takes.owners, own, sends, sends, *copies])
    cause = np.concatenate([flow.maker[flow.takes.values], before, before[receives], links, *copied])
    could = (cause >= 0) & (end[cause] <= begin[held]) & (cause != held)
    held, cause = held[could], cause[could]
    order = np.lexsort((cause, end[cause], held))
    last = np.full(flow.actions, -1)
    last[held[order]] = cause[order]  # the last of each stays
    last[receives] = last[sends]
    send_of = own.copy()
    send_of[receives] = sends
    return np.where(last >= 0, send_of[last], -1)


def _before(flow, meant):
    """For every action, the last earlier action of its rank's program that has a flag; -1 if there is none."""
    number = np.where(meant, np.arange(flow.actions), -1)
    before = np.concatenate([[-1], np.maximum.accumulate(number)[:-1]]) if flow.actions else number
    return np.where(before >= flow.program[flow.rank], before, -1)


def _sent_before(flow, sends, receives):
    """For every SEND, the one before it over the same link; -1 if it is the first."""
    link = flow.rank[sends] * flow.schedule.ranks + flow.rank[receives]
    order = np.lexsort((sends, link))
    before = np.full(len(sends), -1)
    follows = np.flatnonzero(np.diff(link[order]) == 0) + 1
    before[order[follows]] = sends[order[follows - 1]]
    return before
