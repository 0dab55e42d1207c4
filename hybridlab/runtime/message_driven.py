"""Message-driven pipelining has no written order: a rank runs an action whose message has arrived.

Two receivers, one for each direction, wait for messages and put them into a queue. The rank takes a message from the
queue, backwards first, computes, and sends the result. Stage 0 starts a new microbatch only when fewer than `in_flight`
are in flight, which bounds the memory as 1F1B does. The last stage runs each backward right after its forward. No
weights are stale: they change only after the last backward.

A message contains its microbatch's number, because the order is not known in advance; messages over one link stay in
their order. gloo does not report to a polling rank that a receive is complete, so the receivers are threads that block.
On a GPU, too, a message counts as arrived when its tensor is there, and not when the device has been instructed to wait
for it.

The executed actions, in their actual order, are a schedule like any other: it can be drawn and simulated.

Source: Singh and Bhatele 2021, arXiv:2110.13005 (AxoNN's inter-layer mode). Relatives: `player.Player`, which executes
a written order; `scheduling.one_f_one_b`; notebook 12.
"""

import itertools
import queue
import threading
import time

import torch

from hybridlab.core.when.action import Action
from hybridlab.core.when.schedule import Schedule

FORWARD, BACKWARD = "F", "B"
TAGS = {FORWARD: 0, BACKWARD: 2}  # a message; the next tag sends the number of its microbatch
ROOM = 3  # tags between two tensors of one message
NUMBER = 8  # bytes of the number
now = time.perf_counter_ns


class MessageDriven:
    """One rank of a pipeline without a written order: one stage on each rank, and no split backward.

    schedule   gives the ranks of stages, the microbatches, and the final reductions; its order is not used
    in_flight  the maximum number of microbatches that stage 0 has started and not finished: by default the number of
               stages
    watch      as in `player.Player`

    The ranks that run together must create theirs at the same time, because neighbours connect first.

    raises  as `one_chain` does
    """

    def __init__(self, comm, schedule: Schedule, work, in_flight: int | None = None, watch=None):
        self.comm, self.work, self.watch, self.played = comm, work, watch, 0
        ((self.stage, self.replica),) = (home for home, rank in one_chain(schedule).place.items() if rank == comm.rank)
        self.before, self.after = (schedule.place.get((self.stage + way, self.replica)) for way in (-1, 1))
        self.mine = [m for m, replica in enumerate(schedule.replica_of) if replica == self.replica]
        self.sums = [action for action in schedule.program[comm.rank] if action.kind == "REDUCE_GRAD"]
        self.in_flight, self.clock = in_flight or schedule.stages, comm.clock(work.device)
        chains = range(schedule.stages - 1)
        ends = [
            (schedule.place[s, one], schedule.place[s + 1, one]) for one in range(schedule.replicas) for s in chains
        ]
        comm.greet(ends, work.device)

    def step(self) -> torch.Tensor:
        """Run one step, and read the times, as `player.Player.step` does."""
        self.play()
        return self.read()

    def read(self) -> torch.Tensor:
        """The times of the latest step, as `player.Player.read` returns them."""
        self.comm.settle()
        times = [[self.clock.read(mark) for mark in row] for row in self.times]
        self.clock.anchor()
        return torch.tensor(times, dtype=torch.int64).reshape(-1, 4)

    def play(self):
        """Run one step; afterwards `program` is the list of executed actions."""
        self.program, self.times, self.outgoing = [], [], []
        self.inbox, self.returned = queue.PriorityQueue(), 0
        receivers = [threading.Thread(target=self._receive, args=link) for link in self._links()]
        for receiver in receivers:
            receiver.start()
        waiting = list(self.mine) if self.before is None else []
        while self.returned < len(self.mine):
            under_way = len(self.mine) - len(waiting) - self.returned
            if waiting and under_way < self.in_flight and self.inbox.empty():
                self._do(FORWARD, waiting.pop(0), [])
            else:
                self._take()
        for receiver in receivers:
            receiver.join()
        for index, messages in self.outgoing:
            for message in messages:
                message.over()
            self.times[index][2] = now()
        for action in self.sums:
            begin = self.clock.mark()
            self.work.reduce(self.comm, action).wait()
            self._note(action, begin, begin, self.clock.mark())
        self.played += 1

    def _links(self):
        """(direction, source rank of its messages, edge), for each neighbour."""
        if self.before is not None:
            yield FORWARD, self.before, self.stage - 1
        if self.after is not None:
            yield BACKWARD, self.after, self.stage

    def _receive(self, direction, source, edge):
        """Runs in a separate thread: puts every message of one direction into the inbox, backwards before forwards."""
        try:
            if self.work.device.type != "cpu":
                torch.accelerator.set_device_index(self.work.device.index)  # every thread starts with device 0
            for count in range(len(self.mine)):
                asked = now()
                number = self._came(torch.empty(1, dtype=torch.int64), source, TAGS[direction] + 1)
                room = self.work.room(edge, "activation" if direction == FORWARD else "gradient")
                tags = itertools.count(TAGS[direction] + ROOM, ROOM)
                value = tuple(self._came(x, source, tag) for x, tag in zip(room, tags))
                self.inbox.put((direction, count, number.item(), value, asked))
        except Exception as error:  # reported to the thread that waits for messages
            self.inbox.put(("", TAGS[direction], error))

    def _came(self, x, source, tag):
        return self.comm.irecv(x, source, tag).over()

    def _take(self):
        """Wait for a message, and run its action."""
        looked = now()
        direction, *rest = self.inbox.get()
        if not direction:
            raise rest[-1]
        _, microbatch, value, asked = rest
        self.work.arrived(value)
        self._note(self._action(f"RECV_{direction}", microbatch), asked, asked, now(), looked)
        self._do(direction, microbatch, [value])

    def _do(self, direction, microbatch, arrived):
        """Compute, and send the result; after the last stage the backward begins."""
        action = self._action(direction, microbatch)
        call, begin = self.work.bind(action, action), self.clock.mark()
        leaving = call(arrived)
        end = self.clock.mark()
        if self.watch:
            self.watch(self.played, len(self.program), self.clock.read(begin), self.clock.read(end))
        self._note(action, begin, begin, end)
        if direction == BACKWARD:
            self.returned += 1
        to = self.after if direction == FORWARD else self.before
        if to is not None:
            self._send(direction, microbatch, next(iter(leaving)), to)
        elif direction == FORWARD:
            self._do(BACKWARD, microbatch, [])

    def _send(self, direction, microbatch, value, to):
        begin = now()
        number = torch.tensor([microbatch])
        messages = [self.comm.isend(number, to, TAGS[direction] + 1)]
        tags = itertools.count(TAGS[direction] + ROOM, ROOM)
        messages += [self.comm.isend(x, to, tag) for x, tag in zip(value, tags)]
        self.outgoing.append((len(self.program), messages))
        self._note(self._action(f"SEND_{direction}", microbatch), begin, now(), 0)

    def _action(self, kind, microbatch):
        return Action(kind, self.stage, microbatch, self.replica)

    def _note(self, action, ready, begin, end, looked=0):
        self.program.append(action)
        self.times.append([ready, begin, end, looked or end])


def one_chain(schedule: Schedule) -> Schedule:
    """The schedule itself, if it can be run in message order; otherwise an error.

    raises  ValueError if a rank holds several stages, or messages would skip stages
    """
    if len(schedule.place) != schedule.ranks or schedule.replicas != schedule.dp or schedule.skips:
        raise ValueError(f"{schedule.name} is not a chain with one stage on each rank: give driven=False")
    return schedule


def as_done(schedule: Schedule, programs: list[list[str]]) -> Schedule:
    """The actions of the ranks, in their actual order, as a schedule."""
    lists = [[Action.parse(text) for text in program] for program in programs]
    return schedule.with_programs(lists, name="message_driven")
