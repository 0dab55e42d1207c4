"""The simulator: play a schedule with durations.

An action begins when its rank is free and everything that it takes has arrived. Messages between two ranks use
their own lane, one at a time per direction; sending never keeps a rank from computing, and an action waits for its
message only when it needs it. Where the schedule has no SEND and RECV, each crossing simply costs its message time.
"""

import numpy as np

from hybridlab.core.lanes import RECEIVE, REDUCE, SEND, lanes
from hybridlab.core.law import Flow
from hybridlab.core.play import play
from hybridlab.core.schedule import Schedule
from hybridlab.core.timeline import Timeline
from hybridlab.predict.costs import Costs


def simulate(
    schedule: Schedule, costs: Costs | None = None, *, rendezvous: bool = False, post: str = "program"
) -> Timeline:
    """The predicted timeline of a schedule.

    rendezvous  a message of a lowered schedule starts only when its receive has been posted too (as in gloo)
    post        when receives are posted: "program", where they stand; "early", at the start

    raises  Stuck when the schedule waits on itself; ValueError for an unknown option

    >>> from hybridlab.schedules.registry import schedule
    >>> t = simulate(schedule("1f1b", ranks=4, microbatches=8), Costs(F=1, B=2))
    >>> t.length, t.peak_live
    (33.0, [4, 3, 2, 1])
    """
    if post not in ("program", "early"):
        raise ValueError(f'post={post!r} is no time to post a receive: choose "program" or "early"')
    return _Simulation(schedule, costs or Costs(), rendezvous, post == "early").timeline()


class _Simulation:
    """The clocks of one simulation, in ticks: when each rank, lane and value is free."""

    def __init__(self, schedule, costs, rendezvous, early):
        self.schedule, self.costs, self.rendezvous, self.early = schedule, costs, rendezvous, early
        self.flow = flow = Flow(schedule)
        self.tick = costs.tick()
        self.duration = self._durations()
        self.message = [self._ticks(costs.of_message(edge)) for edge in range(len(flow.edges))]
        self.makes_at, self.makes = flow.makes.starts.tolist(), flow.makes.values.tolist()
        self.born = [0] * flow.size
        self.ready, self.begin, self.end = ([0] * flow.actions for _ in range(3))
        self.lane = lanes(flow).tolist()
        self.clock = [0] * schedule.ranks
        self.lane_free, self.present = {}, {}

    def _ticks(self, cost):
        return round(cost / self.tick) if isinstance(cost, int) else round(float(cost) / float(self.tick))

    def _durations(self):
        flow, rows = self.flow, self.costs.table(self.schedule)
        duration = [self._ticks(cost) for cost in rows[flow.first_row].tolist()]
        for row in self.schedule.fused:
            stages = self.schedule.rows[row : row + 2, 1].tolist()
            duration[flow.action_of[row]] = self._ticks(self.costs.of_pair(*stages))
        return duration

    def timeline(self) -> Timeline:
        flow = self.flow
        order, _ = play(flow)
        rank_of, meeting = flow.rank.tolist(), flow.meeting.tolist()
        takes_at, takes = flow.takes.starts.tolist(), flow.takes.values.tolist()
        arrival = self._arrivals(takes, rank_of)
        for action in order.tolist():
            rank = rank_of[action]
            ready = max(map(arrival, range(takes_at[action], takes_at[action + 1])), default=0)
            self.ready[action] = ready
            if meeting[action] >= 0 or self.lane[action] == REDUCE:
                self._reduce(action, max(ready, self.clock[rank]))
            elif self.lane[action] == SEND:
                self.clock[rank] += self.duration[action]
                self._set(action, max(ready, self.clock[rank]), 0)
            elif self.lane[action] == RECEIVE:
                self.clock[rank] += self.duration[action]
                self._receive(action, rank)
            else:
                self._set(action, max(ready, self.clock[rank]), self.duration[action])
                self.clock[rank] = self.end[action]
        columns = (np.array([column], dtype=np.int64) for column in (self.ready, self.begin, self.end))
        told = {name: value for name, value in vars(self.costs).items() if value is not None}
        return Timeline(
            self.schedule, *columns, np.array(self.lane), float(self.tick), costs=told, origin={"kind": "simulated"}
        )

    def _set(self, action, begin, duration):
        self.begin[action], self.end[action] = begin, begin + duration
        for at in range(self.makes_at[action], self.makes_at[action + 1]):
            self.born[self.makes[at]] = begin + duration

    def _arrivals(self, takes, rank_of):
        """When the value at a place in `takes` arrives: when it is born, or a message later if it crosses unwritten."""
        born, flow = self.born, self.flow
        if self.schedule.lowered or not any(self.message):
            return lambda at: born[takes[at]]
        taker, maker = flow.rank[flow.takes.owners], flow.maker[flow.takes.values]
        crosses = (maker >= 0) & (flow.rank[maker] != taker)
        late = np.zeros(len(takes), dtype=np.int64)
        late[crosses] = np.array(self.message)[flow.edge_of(flow.takes.values[crosses])]
        late = late.tolist()
        return lambda at: born[takes[at]] + late[at]

    def _receive(self, action, rank):
        """One message: it starts when it is sent, when it is awaited (rendezvous), and when its lane is free."""
        (wire,) = self.flow.takes[action].tolist()
        send = int(self.flow.maker[wire])
        lane = (int(self.flow.rank[send]), rank)
        posted = self.begin[send] if not self.rendezvous or self.early else max(self.begin[send], self.clock[rank])
        begin = max(posted, self.lane_free.get(lane, 0))
        self._set(action, begin, self.message[self.flow.edge_of(wire)])
        self.begin[send], self.end[send] = begin, self.end[action]
        self.lane_free[lane] = self.end[action]

    def _reduce(self, action, arrived):
        """A joint sum begins when its last rank has come, on a lane of its own."""
        meeting = int(self.flow.meeting[action])
        there = self.present.setdefault(meeting if meeting >= 0 else -1 - action, [])
        there.append((action, arrived))
        if meeting >= 0 and len(there) < self.flow.attendance(meeting):
            return
        lanes = [(REDUCE, int(self.flow.rank[one])) for one, _ in there]
        begin = max([came for _, came in there] + [self.lane_free.get(lane, 0) for lane in lanes])
        duration = max(self.duration[one] for one, _ in there) if meeting >= 0 else 0
        for (one, _), lane in zip(there, lanes):
            self._set(one, begin, duration)
            self.lane_free[lane] = begin + duration
