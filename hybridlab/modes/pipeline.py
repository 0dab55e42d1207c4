"""Pipeline parallelism: every rank owns some stages of the model and plays its list of actions, in order.

The list is the one that was drawn and simulated: `Player` binds each action of a lowered schedule to the call that
does it, once, and then plays the calls, noting when each began and ended. What a stage computes is the business of a
*work* (see `modes.work`): `ModelWork` runs slices of a real model, `EmulatedWork` waits in place of computing, so that
bubbles can be watched on a machine with fewer cores than ranks. Messages are real in both.

An action waits for its message only when it needs it; a send never keeps its rank from computing. That is the
convention that `predict.simulate` follows with rendezvous=True, which is how gloo hands messages over.

Relatives: schedules in `schedules/`, prediction in `predict.simulate`, the picture in `show.draw`, notebooks 10 to 15.
"""

import time

import torch

from hybridlab.core.action import MESSAGES
from hybridlab.core.schedule import Schedule

PLAYABLE = ("F", "B", *MESSAGES, "REDUCE_GRAD")


class Player:
    """One rank's part in a lowered schedule: its calls, and the values that wait between them.

    comm  the door to the other ranks;  work  what a stage does (`ModelWork` or `EmulatedWork`)

    raises  ValueError when the schedule holds an action that cannot be played
    """

    def __init__(self, comm, schedule: Schedule, work):
        self.comm, self.schedule, self.work = comm, schedule, work
        self.program = schedule.program[comm.rank]
        for action in self.program:
            if action.kind not in PLAYABLE:
                raise ValueError(f"{schedule.name} holds {action}: ranks can play {', '.join(PLAYABLE)} so far")
        self.calls = [(getattr(self, f"_{action.kind.lower()}"), action) for action in self.program]

    def step(self) -> torch.Tensor:
        """Play the program once; returns (actions, 4) times in ns, on the clock of this machine.

        Of a compute action: ready, begin, end, end. Of a message: posting starts, posted, known to be over, and when a
        receiver first looked for it.
        """
        self.times = [[0, 0, 0, 0] for _ in self.calls]
        self.activations, self.gradients, self.outgoing = {}, {}, []
        self.comm.barrier()
        for index, (call, action) in enumerate(self.calls):
            call(index, action)
        for index, message in self.outgoing:
            message.wait()
            self.times[index][2] = time.perf_counter_ns()
        return torch.tensor(self.times, dtype=torch.int64).reshape(-1, 4)

    def _f(self, index, action):
        x = self._arrived(self.activations, index, (action.stage, action.microbatch))
        self._compute(index, self.work.forward, action, x)

    def _b(self, index, action):
        gradient = self._arrived(self.gradients, index, (action.stage, action.microbatch))
        self._compute(index, self.work.backward, action, gradient)

    def _compute(self, index, do, action, incoming):
        """Do one action; what it makes goes to the neighbouring stage, which may be on this very rank."""
        forward = action.kind == "F"
        begin = time.perf_counter_ns()
        outgoing = do(action.stage, action.microbatch, incoming)
        end = time.perf_counter_ns()
        self.times[index][1:] = begin, end, end
        there = action.stage + (1 if forward else -1)
        if 0 <= there < self.schedule.stages:
            (self.activations if forward else self.gradients)[there, action.microbatch] = outgoing

    def _arrived(self, values, index, key):
        """Take the value that an action needs, waiting for its message if that is on its way; None at either end."""
        value = values.pop(key, None)
        if isinstance(value, _Awaited):
            self.times[value.index][3] = time.perf_counter_ns()
            asked, value = value.index, value.message.wait()
            self.times[asked][2] = time.perf_counter_ns()
        self.times[index][0] = time.perf_counter_ns()
        return value

    def _send_f(self, index, action):
        self._send(index, action, self.activations.pop((action.stage + 1, action.microbatch)), action.stage + 1)

    def _send_b(self, index, action):
        self._send(index, action, self.gradients.pop((action.stage - 1, action.microbatch)), action.stage - 1)

    def _recv_f(self, index, action):
        self._receive(index, action, self.activations, action.stage - 1)

    def _recv_b(self, index, action):
        self._receive(index, action, self.gradients, action.stage + 1)

    def _send(self, index, action, value, other):
        self.times[index][0] = time.perf_counter_ns()
        message = self.comm.isend(value, self._home(action, other), self._tag(action, other))
        self.times[index][1] = time.perf_counter_ns()
        self.outgoing.append((index, message))

    def _receive(self, index, action, values, other):
        self.times[index][0] = time.perf_counter_ns()
        message = self.comm.irecv(self.work.boundary(), self._home(action, other), self._tag(action, other))
        self.times[index][1] = time.perf_counter_ns()
        values[action.stage, action.microbatch] = _Awaited(message, index)

    def _reduce_grad(self, index, action):
        begin = time.perf_counter_ns()
        self.work.reduce(self.comm, action.stage)
        end = time.perf_counter_ns()
        self.times[index] = [begin, begin, end, end]

    def _home(self, action, stage):
        return self.schedule.place[stage, action.replica]

    def _tag(self, action, other):
        """One number for each message: the same on both sides, and used once in a step."""
        edge, forward = min(action.stage, other), action.kind.endswith("F")
        return 2 * (edge * len(self.schedule.replica_of) + action.microbatch) + forward


class _Awaited:
    """A value still on its way, and the index of the RECV that asked for it."""

    def __init__(self, message, index):
        self.message, self.index = message, index
