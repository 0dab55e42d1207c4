"""The player: executes one rank's actions of a lowered schedule.

It is the same list that was drawn and simulated. `Player` binds each action once to its call and to the slots of its
values. Then it runs the calls, and records when each began and ended:

    program   RECV 1F0    1F0        SEND 1F0       ...     bound once, when the player is made
                 |         |             |
    slots     [activation] -> [activation] -> isend         a value waits in its slot for the action that uses it

The player depends on the edges of the stage graph and on no schedule: replicas, several stages on one rank, skips and
fused pairs need more slots, not more cases. A *work* (see `runtime.work`) computes a stage: with slices of a real
model, or by waiting instead of computing, which shows bubbles on a machine with fewer cores than ranks. Messages are
real in both.

An action waits for its message only when it needs it. A send never stops its rank's compute, and a sent tensor is
freed. `predict.time.simulate` has the same convention with rendezvous=True, which models the messages of gloo.
Collectives overlap with compute actions too: the rank waits for a reduction at the end of the step, or at an update
that uses it, and for gathered weights when their stage needs them.

A list with VALID may begin again: if VALID has undone an optimizer step, the forwards before it are useless. Their
messages are received and dropped, and the list runs from its beginning (`scheduling.norms`).

On a GPU all actions are queued ahead of time: the host runs through its list, and the device's streams wait. Times are
then events on the stream (see `world.talk.clock`), and are read when the step is over.

Relatives: `runtime.work`, which computes; `predict.time.simulate`, which predicts.
"""

from functools import partial

import torch

from hybridlab.core.when.action import COLLECTIVES, MESSAGES, SWAPS
from hybridlab.core.when.law import takes
from hybridlab.core.when.schedule import Schedule
from hybridlab.runtime.copies import copies_before
from hybridlab.runtime.links import pairs_of
from hybridlab.runtime.loans import Loan, carry_on, until_over
from hybridlab.runtime.norms import KINDS as NORMS
from hybridlab.runtime.norms import NormLine
from hybridlab.runtime.wiring import Wiring


class Player:
    """Executes one rank's actions of a lowered schedule; holds its calls and the values between them.

    comm   the communicator of this rank;  work  computes its stages (`ModelWork` or `EmulatedWork`)
    watch  called as watch(step, index, begin, end) after each compute action, times in ns; the host then waits for it
    room   memory capacity of the device: an action that would not fit waits for copies to the host, as in the law

    The ranks that run together must create their players at the same time, because ranks that communicate connect
    first.

    raises  ValueError if the schedule has an action that cannot be run
    """

    def __init__(self, comm, schedule: Schedule, work, watch=None, room=None):
        self.comm, self.schedule, self.work, self.watch = comm, schedule, work, watch
        self.line = comm.mesh.line(comm.rank)
        self.program, self.played = schedule.program[self.line.index(comm.rank)], 0
        self.clock = comm.clock(work.device)
        self.brought = copies_before(schedule, self.line.index(comm.rank), room)
        self._wiring = Wiring(schedule, self.line, comm.rank, work.widest)
        self.norms = NormLine(comm, schedule, work)
        self.calls = [self._bound(index, action) for index, action in enumerate(self.program)]
        self.until = len(self.calls)
        pairs = pairs_of(schedule, self.line)
        comm.greet({pair for some in pairs.values() for pair in some} | self.norms.pairs, work.device)

    def step(self) -> torch.Tensor:
        """Run the program once, and read the times."""
        self.play()
        return self.read()

    def pause(self, kind: str):
        """Make `play` stop before the first action of this kind, if there is one; `go_on` then runs the rest."""
        self.until = next((at for at, action in enumerate(self.program) if action.kind == kind), len(self.program))

    def play(self):
        """Run the program once; on a GPU it is then queued."""
        self.times = [[0, 0, 0, 0] for _ in self.calls]
        self.slots, self.gathering = [None] * len(self._wiring.numbers), {}
        self.outgoing, self.sums, self.exchanging, self.copies, self.loans = [], {}, {}, {}, []
        self._run(0, self.until)
        self.played += 1

    def go_on(self):
        """Run the actions after a pause."""
        self._run(self.until, len(self.calls))

    def settle(self):
        """Run the VALID action of the last optimizer step, which still waits for its norm because no further step
        follows."""
        for index, action in enumerate(self.program):
            if action.kind == "VALID":
                self._valid(index)
        self._all_over()

    def _run(self, index: int, end: int):
        """Make the calls up to an index, and wait for all sends; after a VALID that undid a step, begin again."""
        first = index
        while index < end:
            again = self.calls[index]()
            if again:
                self._drop()
            index = first if again else index + 1
        self._all_over()

    def _all_over(self):
        """Wait for all messages that this rank has sent, and for its reductions."""
        for index, copy in self.copies.items():  # first, because others may wait for a loan
            until_over(copy, self.loans)
            self.times[index][1:] = copy.begin, copy.end, copy.end
        for index, under_way in self.outgoing + [*self.sums.values()]:
            self._over(index, *under_way)
        self.outgoing = []

    def read(self) -> torch.Tensor:
        """The times of the latest run, (actions, 4) in ns, on the clock of this machine; waits until it is over.

        For a compute action: ready, begin, end, end. For a message: start of posting, end of posting, the time when it
        is known to be over, and the first time when a receiver waited for it.
        """
        self.comm.settle()
        times = [[self.clock.read(mark) for mark in row] for row in self.times]
        self.clock.anchor()
        return torch.tensor(times, dtype=torch.int64).reshape(-1, 4)

    # binding, once: the call of each action, and its slots

    def _bound(self, index, action):
        if action.kind in COLLECTIVES:
            return partial(getattr(self, f"_{action.kind.lower()}"), index, action)
        if action.lent:
            return partial(self._lend, index, action, *self._wiring.move(action))
        if action.kind in SWAPS:
            return partial(self._swap, index, action)
        if action.kind in NORMS:
            return partial(getattr(self, f"_{action.kind.lower()}"), index)
        if action.kind in MESSAGES:
            sends, beside = action.kind.startswith("SEND"), action.edge in self.schedule.exchanges
            if beside:
                do = self._exchange if sends else self._exchanged
            else:
                do = self._send if sends else self._receive
            return partial(do, index, *self._wiring.message(action))
        bound = [(self.work.bind(action, part), *self._wiring.slots(part)) for part in action.each]
        taken = [(part.stage, part.version) for part in action.each if "summed" in takes(part.kind)]
        return partial(self._compute, index, {part.stage for part in action.each}, taken, bound)

    # execution, every step

    def _compute(self, index, stages, sums, bound):
        for stage in stages & self.gathering.keys():
            self._over(*self.gathering.pop(stage))
        for one in sums:
            self._over(self.sums[one][0], *self.sums.pop(one)[1])
        carry_on(self.loans)
        for copy in self._copies_before(index):
            until_over(copy, self.loans)
        arrived = [[self._arrived(slot) for slot in takes] for _, takes, _ in bound]
        begin = self.clock.mark()
        leaving = [do(values) for (do, _, _), values in zip(bound, arrived)]
        end = self.clock.mark()
        self.times[index][:] = begin, begin, end, end
        for (_, _, gives), values in zip(bound, leaving):
            for slot, value in zip(gives, values):
                self.slots[slot] = value
        if self.watch:
            self.watch(self.played, index, self.clock.read(begin), self.clock.read(end))

    def _norm(self, index):
        for at, sums in self.sums.values():
            self._over(at, *sums)
        begin, sent = self.clock.mark(), self.norms.add()
        self._met(index, begin, sent)

    def _valid(self, index):
        """Returns whether the list begins again: its forwards so far used weights that no longer exist."""
        begin, (again, sent) = self.clock.mark(), self.norms.learn()
        self._met(index, begin, sent)
        return again

    def _met(self, index, begin, sent):
        end = self.clock.mark()
        self.times[index][:] = begin, begin, end, end
        self.outgoing.append((index, sent))

    def _drop(self):
        """Drop all forwards so far, and the messages that come for them."""
        self.work.drop()
        for value in (one for one in self.slots if isinstance(one, _Awaited)):
            for message in value.messages:
                message.wait()
        self._all_over()
        self.slots = [None] * len(self._wiring.numbers)

    def _arrived(self, slot):
        """The tensors in a slot; if they are still in transit, wait for them."""
        value, self.slots[slot] = self.slots[slot], None
        if isinstance(value, _Awaited):
            row = self.times[value.index]
            row[3] = self.clock.mark()
            value = tuple(until_over(message, self.loans) for message in value.messages)
            self.work.arrived(value)
            row[2] = row[2] or self.clock.mark()
        return value

    def _send(self, index, slot, edge, name, to, tag):
        value, self.slots[slot] = self.slots[slot], None
        self._let_go()
        self.times[index][0] = self.clock.mark()
        messages = [self.comm.isend(x, to, tag + i) for i, x in enumerate(value)]
        self.times[index][1] = self.clock.mark()
        self.outgoing.append((index, messages))

    def _let_go(self):
        """Drop the messages that have been sent: a boundary tensor is kept no longer than the schedule requires."""
        gone = [one for one in self.outgoing if all(message.done() for message in one[1])]
        for index, messages in gone:
            self._over(index, *messages)
            self.outgoing.remove((index, messages))

    def _receive(self, index, slot, edge, name, source, tag):
        row = self.times[index]
        row[0] = self.clock.mark()
        room = self.work.room(edge, name)
        messages = [self.comm.irecv(x, source, tag + i) for i, x in enumerate(room)]
        row[1] = self.clock.mark()
        if self.clock.sees:
            messages[-1].when_over(lambda mark: row.__setitem__(2, mark), self.clock)
        self.slots[slot] = _Awaited(messages, index)

    def _exchange(self, index, slot, edge, name, to, tag):
        """Start exchanging tokens with the other ranks along ep, instead of a message from this rank to itself."""
        value, self.slots[slot] = self.slots[slot], None
        self.times[index][0] = self.clock.mark()
        messages = self.work.exchange(self.comm, self.program[index], edge, value)
        self.times[index][1] = self.clock.mark()
        self.outgoing.append((index, messages))
        self.exchanging[slot] = messages

    def _exchanged(self, index, slot, edge, name, source, tag):
        row = self.times[index]
        row[0] = row[1] = self.clock.mark()
        messages = self.exchanging.pop(slot)
        for message in messages:  # the last one to finish determines the time
            message.when_over(lambda mark: row.__setitem__(2, mark), self.clock)
        self.slots[slot] = _Awaited(messages, index)

    def _reduce_grad(self, index, action):
        self.sums[action.stage, action.version] = index, [self._started(index, self.work.reduce, action)]

    def _unshard(self, index, action):
        self.gathering[action.stage] = index, self._started(index, self.work.unshard, action)

    def _reshard(self, index, action):
        self.work.reshard(action)
        self.times[index][:] = [self.clock.mark()] * 4

    def _swap(self, index, action):
        """Submit a copy to the engine of its direction, which waits for its inputs; the rank continues."""
        self.times[index][0] = self.clock.mark()
        self.copies[index] = self.work.swap(action, self._copies_before(index))

    def _lend(self, index, action, other, tag):
        """Submit one half of a move between two ranks, which begins when the copies before it are over."""
        self.times[index][0] = self.clock.mark()
        post = partial(self.work.move, self.comm, action, other, tag)
        self.copies[index] = Loan(post, self._copies_before(index), self.clock)
        self.loans.append(self.copies[index])
        carry_on(self.loans)

    def _copies_before(self, index) -> list:
        return [self.copies[before] for before in self.brought.get(index, ())]

    def _started(self, index, start, action):
        """Start a collective; its end is recorded at the first check after it is over."""
        row = self.times[index]
        row[0] = row[1] = row[3] = self.clock.mark()
        collective = start(self.comm, action)
        collective.when_over(lambda mark: row.__setitem__(2, mark), self.clock)
        return collective

    def _over(self, index, *under_way):
        for one in under_way:
            one.wait()
        self.times[index][2] = self.times[index][2] or self.clock.mark()


class _Awaited:
    """A value still in transit, and the index of the RECV that waits for it."""

    def __init__(self, messages, index):
        self.messages, self.index = messages, index
