"""Pipeline parallelism: every rank owns some stages of the model and plays its list of actions, in order.

The list is the one that was drawn and simulated. `Player` binds each action of a lowered schedule once to the call that
does it and to the slots where its values wait, and then plays the calls, noting when each began and ended. It knows
the edges of the stage graph and no schedule: replicas, several stages on one rank, skips and fused pairs are more
slots, not more cases. What a stage computes is the business of a *work* (see `modes.work`): slices of a real model,
or waiting in place of computing, so that bubbles can be watched on a machine with fewer cores than ranks. Messages
are real in both.

An action waits for its message only when it needs it; a send never keeps its rank from computing. That is the
convention that `predict.time.simulate` follows with rendezvous=True, which is how gloo hands messages over.
Collectives run beside the compute actions too: a sum is waited for when the step ends, gathered weights when their
stage needs them.

On a mesh with other axes than dp and pp, as many pipelines play side by side as these have coordinates: the ranks that
cut a stage between them (tp) play one program.

Relatives: schedules in `schedules/`, prediction in `predict.time.simulate`, the picture in `show.timelines.draw`;
notebooks 10 to 15.
"""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import torch

from hybridlab.core.action import COLLECTIVES, MESSAGES
from hybridlab.core.law import makes, takes
from hybridlab.core.schedule import Schedule
from hybridlab.modes.message_driven import NUMBER
from hybridlab.modes.mode import Mode
from hybridlab.predict.bytes.transfer import Transfer, transfer


class Player:
    """One rank's part in a lowered schedule: its calls, and the values that wait between them.

    comm   the door to the other ranks;  work  what a stage does (`ModelWork` or `EmulatedWork`)
    watch  called as watch(step, index, begin, end) after each compute action, times in ns

    raises  ValueError when the schedule holds an action that cannot be played
    """

    def __init__(self, comm, schedule: Schedule, work, watch=None):
        self.comm, self.schedule, self.work, self.watch = comm, schedule, work, watch
        self.line = comm.mesh.line(comm.rank)
        self.program, self.played = schedule.program[self.line.index(comm.rank)], 0
        self._numbers = {}
        self.calls = [self._bound(index, action) for index, action in enumerate(self.program)]

    def step(self) -> torch.Tensor:
        """Play the program once; returns (actions, 4) times in ns, on the clock of this machine.

        Of a compute action: ready, begin, end, end. Of a message: posting starts, posted, known to be over, and when a
        receiver first looked for it.
        """
        self.times = [[0, 0, 0, 0] for _ in self.calls]
        self.slots, self.outgoing, self.gathering = [None] * len(self._numbers), [], {}
        for call in self.calls:
            call()
        for index, messages in self.outgoing:
            self._over(index, *messages)
        self.played += 1
        return torch.tensor(self.times, dtype=torch.int64).reshape(-1, 4)

    # binding, once: which call does an action, and on which slots

    def _bound(self, index, action):
        if action.kind in COLLECTIVES:
            return partial(getattr(self, f"_{action.kind.lower()}"), index, action)
        if action.kind in MESSAGES:
            do = self._send if action.kind.startswith("SEND") else self._receive
            return partial(do, index, *self._message(action))
        bound = [(self.work.bind(action, part), *self._slots(part)) for part in action.each]
        return partial(self._compute, index, {part.stage for part in action.each}, bound)

    def _slots(self, part) -> tuple[list[int], list[int]]:
        """The slots of what an action takes and of what it gives, edge by edge."""
        taken, made = takes(part.kind), makes(part.kind)
        # An activation leaves its slot once, for the action that hands one on; the work keeps it for the others.
        taken = [value for value in taken if value != "activation<" or "activation>" in made]
        return self._slots_of(taken, part), self._slots_of(made, part)

    def _slots_of(self, values, part) -> list[int]:
        """The slots of those values that travel on edges."""
        on_edges = [(value[:-1], value[-1]) for value in values if value[-1] in "<>"]
        return [self._slot(name, edge, part.microbatch) for name, mark in on_edges for edge in self._edges(part, mark)]

    def _edges(self, part, mark) -> list[int]:
        """The numbers of the edges into a stage (<) or out of it (>); not of the one behind the model."""
        at = "><".index(mark)
        inside = [i for i in range(len(self.schedule.edges)) if i != self.schedule.stages - 1]
        return [i for i in inside if self.schedule.edges[i][at] == part.stage]

    def _slot(self, *value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _message(self, action) -> tuple:
        """(slot, edge, value name, other rank, tag) of a SEND or RECV; a tag is used once in a step."""
        name = "activation" if action.kind.endswith("F") else "gradient"
        (other,) = {*action.edge} - {action.stage}
        edge = self.schedule.edges.index(action.edge)
        number = 2 * (edge * len(self.schedule.replica_of) + action.microbatch) + (name == "activation")
        slot = self._slot(name, edge, action.microbatch)
        return slot, edge, name, self.line[self.schedule.place[other, action.replica]], number * self.work.widest

    # playing, every step

    def _compute(self, index, stages, bound):
        for stage in stages & self.gathering.keys():
            self._over(*self.gathering.pop(stage))
        arrived = [[self._arrived(slot) for slot in takes] for _, takes, _ in bound]
        begin = time.perf_counter_ns()
        leaving = [do(values) for (do, _, _), values in zip(bound, arrived)]
        end = time.perf_counter_ns()
        self.times[index][:] = begin, begin, end, end
        for (_, _, gives), values in zip(bound, leaving):
            for slot, value in zip(gives, values):
                self.slots[slot] = value
        if self.watch:
            self.watch(self.played, index, begin, end)

    def _arrived(self, slot):
        """The tensors that wait in a slot; where they are still on their way, wait for them."""
        value, self.slots[slot] = self.slots[slot], None
        if isinstance(value, _Awaited):
            self.times[value.index][3] = time.perf_counter_ns()
            index, value = value.index, tuple(message.wait() for message in value.messages)
            self.work.arrived(value)
            self.times[index][2] = time.perf_counter_ns()
        return value

    def _send(self, index, slot, edge, name, to, tag):
        value, self.slots[slot] = self.slots[slot], None
        self.times[index][0] = time.perf_counter_ns()
        messages = [self.comm.isend(x, to, tag + i) for i, x in enumerate(value)]
        self.times[index][1] = time.perf_counter_ns()
        self.outgoing.append((index, messages))

    def _receive(self, index, slot, edge, name, source, tag):
        self.times[index][0] = time.perf_counter_ns()
        room = self.work.room(edge, name)
        messages = [self.comm.irecv(x, source, tag + i) for i, x in enumerate(room)]
        self.times[index][1] = time.perf_counter_ns()
        self.slots[slot] = _Awaited(messages, index)

    def _reduce_grad(self, index, action):
        self.outgoing.append((index, [self._started(index, self.work.reduce, action)]))

    def _unshard(self, index, action):
        self.gathering[action.stage] = index, self._started(index, self.work.unshard, action)

    def _reshard(self, index, action):
        self.work.reshard(action)
        self.times[index][:] = [time.perf_counter_ns()] * 4

    def _started(self, index, start, action):
        """Start a collective; when it is over, its end is noted by whoever sees it first."""
        row = self.times[index]
        row[0] = row[1] = row[3] = time.perf_counter_ns()
        collective = start(self.comm, action)
        collective.when_over(lambda at: row.__setitem__(2, at))
        return collective

    def _over(self, index, *under_way):
        for one in under_way:
            one.wait()
        self.times[index][2] = self.times[index][2] or time.perf_counter_ns()


class _Awaited:
    """A value still on its way, and the index of the RECV that asked for it."""

    def __init__(self, messages, index):
        self.messages, self.index = messages, index


class Pipeline(Mode):
    """What the runtime asks of this mode; what plays on a rank is a `Player`."""

    name, axis, purpose = "pipeline parallelism", "pp", "messages"

    def takes_part(self, mesh, chosen):
        return True

    def title(self, job):
        return "messages between stages"

    def transfers(self, job) -> Iterator[Transfer]:
        """Every line of ranks that play the schedule together sends what crosses its cuts: all of it, or its part."""
        number = NUMBER if job.driven else 0
        for line in sorted({job.mesh.line(rank) for rank in range(job.mesh.size)}):
            rooms = job.rooms(line[0])
            for (edge, one, other), times in _crossings(job).items():
                tensors = rooms[edge]
                back = [x for x in tensors if x.is_floating_point()]  # what can have a gradient
                for what, sender, receiver, sent in (
                    ("activations", one, other, tensors),
                    ("gradients", other, one, back),
                ):
                    size = job.accumulate * times * (sum(x.nbytes for x in sent) + number)
                    yield transfer(job.mesh, what, "isend", (line[sender], line[receiver]), size)


def _crossings(job) -> Counter:
    """{(edge, rank of the line, another): messages forward in one play}."""
    schedule, times = job.schedule, Counter()
    for edge, (a, b) in enumerate(schedule.edges):
        for replica in schedule.replica_of if (a, b) in job.links.crossing else ():
            one, other = schedule.place[a, replica], schedule.place[b, replica]
            times[edge, one, other] += one != other
    return +times


MODE = Pipeline()
