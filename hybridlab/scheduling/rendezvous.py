"""Rendezvous: check whether a lowered schedule would hang with stricter message conventions.

There are two conventions. "blocking": a rank waits at its SEND or RECV until the other side has reached it. "in_order":
messages overlap with compute actions, but run one after another on each rank, in program order and without tags, as on
one communicator of a GPU library; the first message in a rank's queue blocks all messages after it.
"""

from collections import deque

from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.lanes import RECEIVE, SEND, lanes, messages
from hybridlab.core.when.play import Stuck, play
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.validate import Invalid
from hybridlab.signatures import typed

CONVENTIONS = ("blocking", "in_order")


@typed
def check_rendezvous(schedule: Schedule, convention: str = "blocking") -> Schedule:
    """The schedule itself, if no rank deadlocks and every receive gets the right message.

    schedule    lowered
    convention  "blocking": a rank waits at its SEND or RECV until the other side has reached it; "in_order": messages
                overlap with compute actions, one after another on each rank, without tags

    raises  Stuck, naming the action of each rank and the rank it waits for; Invalid if, without tags, a receive would
            take the wrong message; ValueError for a schedule without messages, or an unknown convention

    >>> import hybridlab as hl
    >>> hl.check_rendezvous(hl.lower(hl.Schedule.from_csv("0F0,0B0\\n1F0,1B0"))).lowered
    True
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"convention={convention!r} is not known: choose one of {', '.join(CONVENTIONS)}")
    if not schedule.lowered and len(set(schedule.place.values())) > 1:
        raise ValueError(f"{schedule.name} has no messages yet: check hl.lower(schedule)")
    flow = flow_of(schedule)
    if convention == "blocking":
        play(flow, blocking=True)
    else:
        _Queues(flow).play()
    return schedule


class _Queues:
    """Ranks that compute in program order, each with one queue of messages."""

    def __init__(self, flow):
        self.flow, self.lane = flow, lanes(flow)
        sends, receives = (column.tolist() for column in messages(flow, self.lane))
        self.partner = dict(zip([*sends, *receives], [*receives, *sends]))
        self.made = flow.given.copy()
        self.position = flow.program[:-1].tolist()
        self.queues = [deque() for _ in range(flow.schedule.ranks)]

    def play(self):
        """Go on until all is done; Stuck if no rank can continue."""
        ends = self.flow.program[1:].tolist()
        moved = True
        while moved:
            moved = any([self._compute(rank, end) for rank, end in enumerate(ends)])
            moved = any([self._exchange(rank) for rank in range(len(ends))]) or moved
        if self.position != ends or any(self.queues):
            raise self._stuck(ends)

    def _compute(self, rank, end):
        """Continue a rank as far as possible; its messages only join its queue."""
        start = self.position[rank]
        while self.position[rank] < end:
            action = self.position[rank]
            if self.lane[action] != RECEIVE and not self.made[self.flow.takes[action]].all():
                break
            if self.lane[action] in (SEND, RECEIVE):
                self.queues[rank].append(action)
            else:
                self.made[self.flow.makes[action]] = True
            self.position[rank] += 1
        return self.position[rank] > start

    def _exchange(self, rank):
        """Deliver the first message of a rank's queue, if the other rank's queue begins with a receive from here."""
        if not self.queues[rank] or self.lane[self.queues[rank][0]] != SEND:
            return False
        send = self.queues[rank][0]
        meant = self.partner[send]
        there = self.queues[self.flow.rank[meant]]
        if not there or self.lane[there[0]] != RECEIVE or self.flow.rank[self.partner[there[0]]] != rank:
            return False
        if there[0] != meant:
            got, wanted = self.flow.action(send), self.flow.action(there[0])
            why = f"without tags {wanted} on rank {self.flow.rank[meant]} would take what {got} on rank {rank} sends"
            raise Invalid(self.flow.schedule, int(self.flow.first_row[there[0]]), why)
        for action in (self.queues[rank].popleft(), there.popleft()):
            self.made[self.flow.makes[action]] = True
        return True

    def _stuck(self, ends):
        waiting, whom, marks = {}, {}, []
        for rank, end in enumerate(ends):
            if self.queues[rank]:
                first = self.queues[rank][0]
                other = self.partner[first]
                what = f"{self.flow.action(other)} on rank {self.flow.rank[other]}, the other side of its message"
                waiting[rank], whom[rank] = (str(self.flow.action(first)), what), int(self.flow.rank[other])
                marks.append(first)
            elif self.position[rank] < end:
                action = self.position[rank]
                missing = next(v for v in self.flow.takes[action] if not self.made[v])
                waiting[rank] = (str(self.flow.action(action)), f"the {self.flow.describe(missing)}")
                by = int(self.flow.maker[missing])
                whom[rank] = int(self.flow.rank[by]) if by >= 0 else -1
                marks.append(action)
        grid = self.flow.schedule.grid(mark=int(self.flow.first_row[marks[0]]))
        done = [now - begin for now, begin in zip(self.position, self.flow.program.tolist())]
        return Stuck(self.flow.schedule.name, waiting, grid, done, whom)
