"""Split the gap between a measured step and its prediction into causes that add up to it.

The longest path through the program's own dependencies is computed several times, each time with one more thing as it
was measured: first the mean time of each kind of action, then that of each stage, then every action's own time, then
the messages. The contribution of each of these to the length is one cause. What no path explains is waiting: ranks that
were ready and did not run.
"""

from typing import TYPE_CHECKING

import numpy as np

from hybridlab.core.when.action import MESSAGES
from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lanes import COMPUTE, RECEIVE, REDUCE, SEND
from hybridlab.core.when.play import GIVEN, longest_path

if TYPE_CHECKING:
    from hybridlab.core.when.timeline import Timeline

TICK = 1e-9  # the resolution, in the unit of the two timelines


def causes(predicted: "Timeline", real: "Timeline") -> dict[str, float]:
    """The difference between two lengths of one program (real minus predicted), broken down by cause; the parts add up
    to it.

    compute    actions took longer on average, kind by kind
    imbalance  some stages took longer than others
    jitter     single actions took longer than those like them
    sending    messages and collectives took longer
    waiting    the rest: ranks that were ready to continue and did not
    """
    path = _Paths(real)
    mine, other = path.times(predicted), path.times(real)
    whole = {"compute": path.length(path.by_kind(other)) - path.length(path.by_kind(mine))}
    staged = path.length(path.by_stage(other))
    whole["imbalance"] = staged - path.length(mine) - whole["compute"]
    whole["jitter"] = path.length(other) - staged
    late, beside = path.sending(real)
    with_messages = path.length(other, late, beside)
    whole["sending"] = with_messages - path.length(other) - (predicted.length - path.length(mine))
    whole["waiting"] = real.length - with_messages
    return whole


def longest(timeline: "Timeline") -> float:
    """The length of the longest path through a timeline's program: actions take their own times, messages none."""
    path = _Paths(timeline)
    return path.length(path.times(timeline))


class _Paths:
    """Longest paths through one program without its messages; the travel time of each value is given separately."""

    def __init__(self, timeline):
        schedule = timeline.schedule
        programs = [[a for a in program if a.kind not in MESSAGES] for program in schedule.program]
        self.flow = Flow(schedule.with_programs(programs))
        rows = self.flow.schedule.rows[self.flow.first_row]
        pairs = np.diff(self.flow.first_row, append=len(self.flow.kind))
        self.kind, self.stage = np.where(pairs > 1, -1, rows[:, 0]), rows[:, 1]

    def times(self, timeline) -> np.ndarray:
        """The time of every compute action of the typical step; collectives overlap with them, and count as
        messages."""
        return np.where(timeline.lane == COMPUTE, _seconds(timeline), 0.0)[_stays(timeline)]

    def by_kind(self, times) -> np.ndarray:
        """Every action's time replaced by the mean of its kind."""
        return _means(times, [self.kind])

    def by_stage(self, times) -> np.ndarray:
        """Every action's time replaced by the mean of its kind on its stage."""
        return _means(times, [self.kind, self.stage])

    def sending(self, timeline) -> tuple[np.ndarray, np.ndarray]:
        """(the travel time of each value, the time of each collective)."""
        late, seconds = np.zeros(self.flow.size), _seconds(timeline)
        for send in np.flatnonzero(timeline.lane == SEND):
            late[timeline.flow.unsent(timeline.flow.takes[send][0])] = seconds[send]
        beside = np.where(timeline.lane == REDUCE, seconds, 0.0)
        return late, beside[_stays(timeline)]

    def length(self, times: np.ndarray, late: np.ndarray | tuple = (0.0,), beside: np.ndarray | float = 0.0) -> float:
        """The length of the longest path, in the unit of the times."""
        flow = self.flow
        maker = np.full(flow.size, -1, dtype=np.int64)
        maker[flow.given] = GIVEN
        duration, late = (np.rint(np.asarray(x) / TICK).astype(np.int64) for x in (times + beside, late))
        ready, begin, over = np.zeros((3, flow.actions), dtype=np.int64)
        lists = (flow.takes.starts, flow.takes.values, flow.makes.starts, flow.makes.values)
        longest_path(*lists, maker, flow.program, flow.meeting, flow.attendance, duration, late, ready, begin, over)
        return float(over.max(initial=0)) * TICK


def _means(times, keys):
    _, which = np.unique(np.stack(keys), axis=1, return_inverse=True)
    which = which.reshape(-1)
    return (np.bincount(which, times) / np.bincount(which))[which]


def _seconds(timeline):
    return (timeline.end - timeline.begin)[timeline.typical] * timeline.tick


def _stays(timeline):
    """One flag per action: is it also in the program without messages?"""
    return (timeline.lane != SEND) & (timeline.lane != RECEIVE)
