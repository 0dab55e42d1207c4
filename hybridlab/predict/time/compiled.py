"""The compiled simulator: turn the `Flow` of a schedule into records for the machine code in `events`.

It must agree with the plain simulator tick by tick (`tests/predict/test_compiled.py`). Without messages and collectives
the order of events is fixed, and the longest path is enough. Otherwise all events are simulated.
"""

from typing import TYPE_CHECKING

import numpy as np

from hybridlab.core.when.lanes import COMPUTE, LANES, RECEIVE, REDUCE, SEND, messages
from hybridlab.core.when.play import fast, machine_code
from hybridlab.predict.time.events import ACTION, MEETING, NOBODY, RANK, play

if TYPE_CHECKING:
    from hybridlab.predict.time.case import Case

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


def columns(case: "Case") -> Columns | None:
    """(ready, begin, end) of all actions; None if some rank waits forever."""
    if (case.lane == COMPUTE).all():
        alike = len(set(case.carried)) == 1
        found = fast(case.flow, case.duration, case.carried[:1] if alike else case.flow.on_every_edge(case.carried))
        if found is not None:
            ready, begin, end = found
            return ready, begin, end
    actions = _actions(case)
    if actions is None:
        return None
    ranks = _ranks(case, actions)
    flow, modes = case.flow, (case.blocking, case.rendezvous and not case.early)
    lists = (flow.takes.starts, flow.takes.values, flow.makes.starts, flow.makes.values)
    late = case.late() if not flow.lowered and any(case.carried) else np.zeros(0, np.int64)
    times = np.zeros((flow.actions, 3), np.int64)
    play(*lists, late, np.where(flow.given, 0, -1), actions, times, ranks, _meetings(case, actions), *modes)
    ready, begin, end = times.T
    return (ready, begin, end) if (ranks["position"] >= ranks["stop"]).all() else None


def _ranks(case, actions) -> np.ndarray:
    """The records of ranks and engines: engine `rank + ranks · lane`. It starts with its first action."""
    count, ranks = case.flow.schedule.ranks, np.zeros(case.flow.schedule.ranks * len(LANES), RANK)
    ranks["position"][:count], ranks["stop"][:count] = case.flow.program[:-1], case.flow.program[1:]
    ranks["waits_for"] = NOBODY
    beside = np.flatnonzero(case.lane >= REDUCE)
    beside = beside[np.argsort(actions["engine"][beside], kind="stable")]
    engines, first = np.unique(actions["engine"][beside], return_index=True)
    ranks["position"][engines] = beside[first]
    same = np.diff(actions["engine"][beside], append=NOBODY) == 0
    actions["following"][beside] = np.where(same, np.roll(beside, -1), len(actions))
    return ranks


def _meetings(case, actions) -> np.ndarray:
    several = case.flow.attendance
    alone = int((actions["meeting"] >= len(several)).sum())
    meetings = np.zeros(len(several) + alone, MEETING)
    meetings["attendance"], meetings["last"] = [*several, *[1] * alone], -1
    return meetings


def _actions(case) -> np.ndarray | None:
    flow, lane, action = case.flow, case.lane, np.zeros(case.flow.actions, ACTION)
    sends, receives = messages(flow, lane)
    action["rank"], action["lane"], action["duration"] = flow.rank, lane, case.duration
    action["partner"] = -1
    action["partner"][sends], action["partner"][receives] = receives, sends
    if (sends < 0).any() or (action["partner"][(lane == SEND) | (lane == RECEIVE)] < 0).any():
        return None
    edge = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
    action["carried"][sends] = np.array(case.carried, dtype=np.int64)[edge]
    action["unheard"] = case.unheard()
    link = _links(case.resources, flow.rank[sends], flow.rank[receives])
    action["link"][sends], action["other_link"][sends] = link.T
    action["engine"] = flow.rank + flow.schedule.ranks * lane
    alone = np.flatnonzero((lane >= REDUCE) & (flow.meeting < 0))  # a meeting of one
    action["meeting"] = flow.meeting
    action["meeting"][alone] = len(flow.attendance) + np.arange(len(alone))
    return action


def _links(resources, senders, receivers) -> np.ndarray:
    """The links that each message occupies, as two numbers, 0 for none; calls `resources` once per pair of ranks."""
    ranks = 1 + max(senders.max(initial=0), receivers.max(initial=0))
    numbers, table = {}, np.zeros((ranks * ranks, 2), np.int64)
    pairs = senders * ranks + receivers
    for pair in np.flatnonzero(np.bincount(pairs)).tolist():
        for at, part in enumerate(resources(*divmod(pair, ranks))):
            table[pair, at] = numbers.setdefault(part, 1 + len(numbers))
    return table[pairs]


AVAILABLE = machine_code(_links) is not None
