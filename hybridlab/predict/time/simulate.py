"""Simulate a schedule with given durations, event by event.

A rank runs its actions in order. A compute action begins when its rank is free and all values that it takes have
arrived. A collective or a copy runs on an *engine* of the rank, one for each lane, in order: a wait stops the engine
and not the rank. A message of a lowered schedule uses a *link*, during compute actions; an action waits for it only
when it needs it. Links differ in the number of messages that they carry at a time:

    "directed"  one in each direction between two ranks (the default)
    "pair"      one between two ranks, in either direction
    "rank"      one in or out of each rank
    "compute"   none during compute: both ranks stop for it, as with blocking send and receive

In a schedule without SEND and RECV, each edge between ranks costs its message time. If several messages can
start, the one that was ready first starts first, then the one of the lower rank.
"""

import heapq
import itertools
import math
from collections import defaultdict, deque
from dataclasses import asdict

import numpy as np

from hybridlab.core.when.lanes import COMPUTE, RECEIVE, REDUCE, SEND, messages
from hybridlab.core.when.play import LARGE, play
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.case import LINKS, Case
from hybridlab.predict.time.costs import Costs
from hybridlab.signatures import typed

ENGINES = ("auto", "plain", "compiled")


@typed
def simulate(
    schedule: Schedule,
    costs: Costs | None = None,
    *,
    link: str = "directed",
    rendezvous: bool = False,
    post: str = "program",
    engine: str = "auto",
    room: Room | None = None,
) -> Timeline:
    """The predicted timeline of a schedule.

    schedule    the schedule to simulate
    costs       the times of actions and messages; None: `Costs()`
    link        the number of messages at a time: "directed", one in each direction between two ranks; "pair", one
                between two ranks; "rank", one in or out of a rank; "compute", none during compute
    rendezvous  a message of a lowered schedule starts only when its sender knows that its receive has been posted too
                (as in gloo)
    post        when receives are posted: "program", at their place in the program; "early", at the start
    engine      "plain": event by event, in Python; "compiled": the same ticks in machine code (needs numba, the extra
                `fast`); "auto": compiled for large schedules if numba is installed
    room        memory capacity of each device: an action that would not fit waits for the swaps before it

    raises  Stuck if the ranks wait for each other; ValueError for an unknown option

    >>> import hybridlab as hl
    >>> t = hl.simulate(hl.schedule("1f1b", ranks=4, microbatches=8), hl.Costs(F=1, B=2))
    >>> t.length, t.peak_live
    (33.0, [4, 3, 2, 1])
    """
    if link not in LINKS:
        raise ValueError(f"link={link!r} is not a kind of link: choose one of {', '.join(LINKS)}")
    if post not in ("program", "early"):
        raise ValueError(f'post={post!r} is not known: choose "program" or "early"')
    if engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is not known: choose one of {', '.join(ENGINES)}")
    case = Case(schedule, costs or Costs(), link, rendezvous, post, room)
    columns = None if engine == "plain" or engine == "auto" and len(schedule.rows) < LARGE else _compiled(case, engine)
    ready, begin, end = (np.asarray(column, np.int64)[None] for column in columns or _Simulation(case).play())
    told = {name: value for name, value in vars(case.costs).items() if value is not None}
    origin = {"kind": "simulated", "link": link} | ({"room": asdict(room)} if room else {})
    unit, tick = case.costs.unit, float(case.tick)
    return Timeline(schedule, ready, begin, end, case.lane, tick, unit=unit, costs=told, origin=origin)


def _compiled(case, engine):
    """(ready, begin, end) from the machine code; None without numba, or if the plain engine must report an error."""
    from hybridlab.predict.time import compiled

    if engine == "compiled" and not compiled.AVAILABLE:
        raise ValueError('engine="compiled" needs numba: pip install "hybridlab[fast]", or leave out engine')
    return compiled.columns(case) if compiled.AVAILABLE else None


class _Simulation:
    """The clocks of ranks, links and values, in integer ticks, and the pending events."""

    def __init__(self, case):
        self.flow = flow = case.flow
        self.resources, self.blocking = case.resources, case.blocking
        self.rendezvous, self.early = case.rendezvous, case.early
        self.duration, self.carried, self.lane = case.duration.tolist(), case.carried, case.lane.tolist()
        self.unheard = case.unheard().tolist()
        self.rank, self.meeting, self.program = flow.rank.tolist(), flow.meeting.tolist(), flow.program.tolist()
        self.takes = [flow.takes.values.tolist(), flow.takes.starts.tolist()]
        self.makes = [flow.makes.values.tolist(), flow.makes.starts.tolist()]
        self.late = case.late().tolist()
        self.partner = self._partners()
        self.born = [0 if given else math.inf for given in flow.given.tolist()]
        self.waiters: dict[int, list[int]] = {}
        self.ready, self.begin, self.end = ([0] * flow.actions for _ in range(3))
        self.ranks = flow.schedule.ranks
        self.position, self.free = self.program[:-1], [0] * self.ranks
        self.engine = (flow.rank + self.ranks * case.lane).tolist()  # of rank r: r for itself, then one for each lane
        self.todo, self.engine_free = defaultdict(deque), defaultdict(int)
        self.posted, self.queue, self.occupied, self.present = {}, [], set(), {}
        self.events, self.order = [], itertools.count()
        for rank in range(self.ranks):
            self._later(0, rank, self._advance, rank)

    def _partners(self):
        """SEND → its RECV and RECV → its SEND."""
        sends, receives = (column.tolist() for column in messages(self.flow, np.array(self.lane)))
        return dict(zip([*sends, *receives], [*receives, *sends]))

    def play(self):
        """Process all events in order of time, with ties broken by rank, and return (ready, begin, end)."""
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                *_, happen, what = heapq.heappop(self.events)
                happen(now, what)
            self._start_messages(now)
        if self.position != self.program[1:] or any(self.todo.values()):
            play(self.flow, blocking=self.blocking)  # the error names the ranks that wait for each other
        return self.ready, self.begin, self.end

    def _later(self, time, rank, happen, what):
        heapq.heappush(self.events, (time, rank, next(self.order), happen, what))

    def _advance(self, now, rank):
        """Continue a rank until it is busy or must wait."""
        while self.position[rank] < self.program[rank + 1] and self.free[rank] <= now:
            action = self.position[rank]
            if self.lane[action] >= REDUCE:
                self.position[rank] += 1
                self.todo[self.engine[action]].append(action)
                self._work(now, self.engine[action])
                continue
            arrival, missing = self._arrival(action)
            if missing is not None:
                self.waiters.setdefault(missing, []).append(rank)
                return
            if arrival > now:
                return self._later(arrival, rank, self._advance, rank)
            self.ready[action] = arrival
            self.position[rank] += 1
            free = now + self.duration[action]
            if self.lane[action] == COMPUTE:
                self.begin[action], self.end[action], self.free[rank] = now, free, free
                self._later(free, rank, self._finish, action)
            else:  # posting a message takes its time too
                self.free[rank] = math.inf if self.blocking else free
                self._later(free + self.unheard[action], rank, self._posted, action)
                if self.unheard[action]:
                    self._later(free, rank, self._advance, rank)

    def _work(self, now, engine):
        """Start the next actions of an engine, one after the other, until a value is missing."""
        todo = self.todo[engine]
        while todo:
            arrival, missing = self._arrival(todo[0])
            if missing is not None:
                self.waiters.setdefault(missing, []).append(engine)
                return
            if arrival > now:
                return self._later(arrival, engine % self.ranks, self._work, engine)
            self.ready[todo[0]] = arrival
            self._join(now, todo.popleft())

    def _arrival(self, action):
        """(arrival of the last value that an action takes, None), or (0, a value that does not exist yet)."""
        values, starts = self.takes
        if self.lane[action] == RECEIVE:
            return 0, None  # posting a receive needs nothing
        arrival = 0
        for at in range(starts[action], starts[action + 1]):
            born = self.born[values[at]]
            if born == math.inf:
                return 0, values[at]
            arrival = max(arrival, born + self.late[at])
        return arrival, None

    def _finish(self, now, action):
        """The result of an action is available: the ranks that waited for it continue, and so does its own rank."""
        values, starts = self.makes
        awake = {self.rank[action]}
        for at in range(starts[action], starts[action + 1]):
            self.born[values[at]] = now
            awake.update(self.waiters.pop(values[at], ()))
        for engine in sorted(awake):
            self._later(now, engine % self.ranks, self._advance if engine < self.ranks else self._work, engine)

    def _posted(self, now, action):
        """A message can start when its SEND has been posted, and, by rendezvous, its RECV too."""
        self.posted[action] = now
        send = action if self.lane[action] == SEND else self.partner[action]
        receive = self.partner[send]
        if send in self.posted and (receive in self.posted or self.early or not self.rendezvous):
            if action == send or (self.rendezvous and not self.early):
                heapq.heappush(self.queue, (now, self.rank[send], send))
        self._later(now, self.rank[action], self._advance, self.rank[action])

    def _start_messages(self, now):
        """Start every message that is ready and whose link is free, first come first served."""
        waiting = []
        while self.queue:
            ready, rank, send = heapq.heappop(self.queue)
            receive = self.partner[send]
            link = self.resources(rank, self.rank[receive])
            if any(part in self.occupied for part in link):
                waiting.append((ready, rank, send))
                continue
            self.occupied.update(link)
            edge = int(self.flow.edge_of(self.takes[0][self.takes[1][receive]]))
            end = now + self.carried[edge]
            for action in (send, receive):
                self.ready[action], self.begin[action], self.end[action] = ready, now, end
            self._later(end, rank, self._arrived, send)
        self.queue = waiting

    def _arrived(self, now, send):
        receive = self.partner[send]
        self.occupied.difference_update(self.resources(self.rank[send], self.rank[receive]))
        if self.blocking:
            self.free[self.rank[send]] = self.free[self.rank[receive]] = now
        self._finish(now, send)
        self._finish(now, receive)

    def _join(self, now, action):
        """A collective starts when its last rank has arrived and all have finished the previous one. A copy has one
        rank."""
        meeting = self.meeting[action]
        there = self.present.setdefault(meeting if meeting >= 0 else -1 - action, [])
        there.append(action)
        if meeting >= 0 and len(there) < self.flow.attendance[meeting]:
            return
        begin = max(now, *(self.engine_free[self.engine[one]] for one in there))
        duration = max(self.duration[one] for one in there)
        for one in there:
            self.begin[one], self.end[one] = begin, begin + duration
            self.engine_free[self.engine[one]] = begin + duration
            self._later(begin + duration, self.rank[one], self._finish, one)
