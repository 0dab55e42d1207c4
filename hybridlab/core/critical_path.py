"""The critical path: which chain of actions decides how long a step takes."""

import numpy as np

from hybridlab.core.flow import Flow
from hybridlab.core.lanes import COMPUTE, RECEIVE, SEND, messages


def critical_path(flow: Flow, lane: np.ndarray, begin: np.ndarray, end: np.ndarray) -> list[int]:
    """The chain as action numbers, first to last; from the last end back, always to what was waited for last.

    lane, begin, end  one entry per action; a message stands in the chain once, as its SEND
    """
    waited_for = _WaitedFor(flow, lane)
    path, seen = [], set()
    action = int(np.argmax(end)) if len(end) else -1
    while action >= 0:
        seen.add(action)
        if lane[action] == RECEIVE:
            action = int(flow.maker[flow.takes[action][0]])
        path.append(action)
        over = [cause for cause in waited_for(action) if end[cause] <= begin[action] and cause not in seen]
        action = max(over, key=lambda cause: (end[cause], cause), default=-1)
    return path[::-1]


class _WaitedFor:
    """Everything whose end could have held an action back: makers, its rank, a message's link and peer."""

    def __init__(self, flow, lane):
        self.flow, self.lane = flow, lane
        sends, receives = (column.tolist() for column in messages(flow, lane))
        self.receive_of = dict(zip(sends, receives))
        self.computed_before = self._computed_before()
        self.sent_before = self._sent_before()

    def __call__(self, action: int) -> list[int]:
        causes = {int(self.flow.maker[value]) for value in self.flow.takes[action]} | {self.computed_before[action]}
        if self.lane[action] == SEND:
            causes |= {self.computed_before[self.receive_of[action]], self.sent_before[action]}
        return [cause for cause in causes if cause >= 0]

    def _computed_before(self):
        """For every action, the compute action before it in its rank's program; -1 where there is none."""
        before = np.where(self.lane == COMPUTE, np.arange(self.flow.actions), -1)
        for a, b in zip(self.flow.program, self.flow.program[1:]):
            before[a:b] = np.concatenate([[-1], np.maximum.accumulate(before[a:b])])[: b - a]
        return before.tolist()

    def _sent_before(self):
        """For every SEND, the one before it over the same link."""
        last, before = {}, {}
        for send, receive in sorted(self.receive_of.items()):
            link = (self.flow.rank[send], self.flow.rank[receive])
            before[send] = last.get(link, -1)
            last[link] = send
        return before
