"""Pipeline parallelism: every rank owns some stages of the model and plays its list of actions, in order.

The list is the one that was drawn and simulated. `Player` binds each action of a lowered schedule once to the call that
does it and to the slots where its values wait, and then plays the calls, noting when each began and ended. It knows
the edges of the stage graph and no schedule: replicas, several stages on one rank, skips and fused pairs are more
slots, not more cases. What a stage computes is the business of a *work* (see `modes.work`): slices of a real model,
or waiting in place of computing, so that bubbles can be watched on a machine with fewer cores than ranks. Messages
are real in both.

An action waits for its message only when it needs it; a send never keeps its rank from computing. That is the
convention that `predict.simulate` follows with rendezvous=True, which is how gloo hands messages over.

Relatives: schedules in `schedules/`, prediction in `predict.simulate`, the picture in `show.draw`, notebooks 10 to 15.
"""

import time
from functools import partial

import torch

from hybridlab.core.action import COMPUTE, MESSAGES
from hybridlab.core.schedule import Schedule

PLAYABLE = (*COMPUTE, *MESSAGES, "REDUCE_GRAD")
TAKES = {**dict.fromkeys("FC", ("activation", "in")), **dict.fromkeys("BI", ("gradient", "out"))}
GIVES = {**dict.fromkeys("FC", ("activation", "out")), **dict.fromkeys("BI", ("gradient", "in"))}


class Player:
    """One rank's part in a lowered schedule: its calls, and the values that wait between them.

    comm   the door to the other ranks;  work  what a stage does (`ModelWork` or `EmulatedWork`)
    watch  called as watch(step, index, begin, end) after each compute action, times in ns

    raises  ValueError when the schedule holds an action that cannot be played
    """

    def __init__(self, comm, schedule: Schedule, work, watch=None):
        self.comm, self.schedule, self.work, self.watch = comm, schedule, work, watch
        self.program, self.played = schedule.program[comm.rank], 0
        self._numbers = {}
        self.calls = [self._bound(index, action) for index, action in enumerate(self.program)]

    def step(self) -> torch.Tensor:
        """Play the program once; returns (actions, 4) times in ns, on the clock of this machine.

        Of a compute action: ready, begin, end, end. Of a message: posting starts, posted, known to be over, and when a
        receiver first looked for it.
        """
        self.times = [[0, 0, 0, 0] for _ in self.calls]
        self.slots, self.outgoing = [None] * len(self._numbers), []
        for call in self.calls:
            call()
        for index, messages in self.outgoing:
            for message in messages:
                message.wait()
            self.times[index][2] = time.perf_counter_ns()
        self.played += 1
        return torch.tensor(self.times, dtype=torch.int64).reshape(-1, 4)

    # binding, once: which call does an action, and on which slots

    def _bound(self, index, action):
        parts = action.parts or (action,)
        if any(part.kind not in PLAYABLE for part in parts):
            raise ValueError(f"{self.schedule.name} holds {action}: ranks can play {', '.join(PLAYABLE)}")
        if action.kind == "REDUCE_GRAD":
            return partial(self._reduce, index, action)
        if action.kind not in MESSAGES:
            slots = [(self._slots(part, TAKES), self._slots(part, GIVES)) for part in parts]
            bound = [(self.work.bind(action, part), *its) for part, its in zip(parts, slots)]
            return partial(self._compute, index, bound)
        do = self._send if action.kind.startswith("SEND") else self._receive
        return partial(do, index, *self._message(action))

    def _slots(self, part, table) -> list[int]:
        """The slots of what an action takes or gives: one for each edge into its stage, or out of it."""
        name, side = table.get(part.kind, (None, None))
        at = 1 if side == "in" else 0
        inside = [i for i, edge in enumerate(self.schedule.edges) if i != self.schedule.stages - 1 and name]
        edges = [i for i in inside if self.schedule.edges[i][at] == part.stage]
        return [self._slot(name, edge, part.microbatch) for edge in edges]

    def _slot(self, *value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _message(self, action) -> tuple:
        """(slot, edge, value name, other rank, tag) of a SEND or RECV; a tag is used once in a step."""
        name = "activation" if action.kind.endswith("F") else "gradient"
        down = action.kind in ("SEND_F", "RECV_B")  # the other stage stands later in the model
        other = action.peer if action.peer >= 0 else action.stage + (1 if down else -1)
        edge = self.schedule.edges.index((min(action.stage, other), max(action.stage, other)))
        number = 2 * (edge * len(self.schedule.replica_of) + action.microbatch) + (name == "activation")
        slot = self._slot(name, edge, action.microbatch)
        return slot, edge, name, self.schedule.place[other, action.replica], number * self.work.widest

    # playing, every step

    def _compute(self, index, bound):
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

    def _reduce(self, index, action):
        begin = time.perf_counter_ns()
        self.work.reduce(self.comm, action)
        end = time.perf_counter_ns()
        self.times[index][:] = begin, begin, end, end


class _Awaited:
    """A value still on its way, and the index of the RECV that asked for it."""

    def __init__(self, messages, index):
        self.messages, self.index = messages, index
