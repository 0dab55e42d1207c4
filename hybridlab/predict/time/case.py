"""The input of both simulators: a schedule with its times in integer ticks.

Relatives: `simulate`, which executes it event by event in Python; `compiled`, which does the same in machine code.
"""

import numpy as np

from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.lanes import RECEIVE, REDUCE, lanes
from hybridlab.core.when.play import play
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.time.costs import Costs

LINKS = {  # the links that a message from rank a to rank b occupies
    "directed": lambda a, b: [(a, b)],
    "pair": lambda a, b: [(min(a, b), max(a, b))],
    "rank": lambda a, b: [a, b],
    "compute": lambda a, b: [],
}
LAST_TICK = 2.0**62


class Case:
    """The input of both engines: a schedule with its times in integer ticks."""

    def __init__(
        self, schedule: Schedule, costs: Costs, link: str, rendezvous: bool, post: str, room: Room | None = None
    ):
        costs.refuse(schedule)
        self.costs, self.flow, self.tick = costs, flow_of(schedule, room), costs.tick()
        self.resources, self.blocking = LINKS[link], link == "compute"
        self.rendezvous = rendezvous or self.blocking
        self.early = post == "early" and not self.blocking
        self.lane = lanes(self.flow)
        self._refuse_what_comes_later()
        every = range(len(self.flow.edges))
        self.carried = [self._ticks(costs.of_message(edge)) for edge in every]
        self.asked = [self._ticks(costs.of_handshake(edge)) for edge in every]
        self.duration = self._durations()

    def _refuse_endless(self, longest: float):
        """Raise ValueError if all actions and messages in sequence take more ticks than the clock can count."""
        longest = max(longest, *self.carried, *self.asked, 0)
        if 2.0 * len(self.flow.kind) * longest > LAST_TICK:
            told = f"costs up to {longest * float(self.tick):g}, counted in steps of {float(self.tick):g},"
            raise ValueError(
                f"{told} are too many steps for the simulator's clock: give all durations in a larger unit"
            )

    def _ticks(self, cost):
        return round(cost / self.tick) if isinstance(cost, int) else round(float(cost) / float(self.tick))

    def unheard(self) -> np.ndarray:
        """For every action, the ticks until the other side learns that it has been posted: a handshake for receives, 0
        for sends.
        """
        flow, unheard = self.flow, np.zeros(self.flow.actions, np.int64)
        if self.rendezvous and not self.early and any(self.asked):
            receives = np.flatnonzero(self.lane == RECEIVE)
            edge = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
            unheard[receives] = np.array(self.asked)[edge]
        return unheard

    def _durations(self):
        flow = self.flow
        ticks = self.costs.table(flow.schedule)
        ticks /= float(self.tick)
        self._refuse_endless(float(ticks.max(initial=0)))
        duration = np.rint(ticks, out=ticks).astype(np.int64)
        if not flow.schedule.fused:
            return duration
        duration = duration[flow.first_row]
        for row in flow.schedule.fused:
            stages = flow.schedule.rows[row : row + 2, 1].tolist()
            duration[flow.action_of[row]] = self._ticks(self.costs.of_pair(*stages))
        return duration

    def _refuse_what_comes_later(self):
        """Raise ValueError if an action on an engine takes a value that its rank makes later: an engine does not stop
        its rank.
        """
        takers = np.flatnonzero(self.lane >= REDUCE)
        if len(takers):
            maker, takers = self.flow.maker[self.flow.takes.values], self.flow.takes.owners
            later = (self.lane[takers] >= REDUCE) & (maker > takers) & (self.flow.rank[maker] == self.flow.rank[takers])
            if later.any():
                play(self.flow)  # the error names the ranks that wait for each other

    def late(self) -> np.ndarray:
        """For every entry of `takes`, the delay of a value: the time of its message, unless the schedule has
        messages."""
        flow = self.flow
        late = np.zeros(len(flow.takes.values), dtype=np.int64)
        if not flow.lowered and any(self.carried):
            maker = flow.maker[flow.takes.values]
            edge = flow.edge_of(flow.takes.values)
            travels = flow.takes.values < flow.named("gradient").stop
            away = (flow.rank[maker] != flow.rank[flow.takes.owners]) | (travels & flow.exchanged[edge])
            crosses = (maker >= 0) & away & travels  # a loan takes the time of its swaps
            late[crosses] = np.array(self.carried)[edge[crosses]]
        return late
