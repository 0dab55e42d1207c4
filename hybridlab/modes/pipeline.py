"""Pipeline parallelism: every rank owns some stages of the model and plays its list of actions, in order.

The list is the one that was drawn and simulated: `Player` binds each action of a lowered schedule to the call that
does it, once, and then plays the calls, noting when each began and ended. What a stage computes is the business of a
*work*: `ModelWork` runs slices of a real model, `EmulatedWork` waits in place of computing, so that bubbles can be
watched on a machine with fewer cores than ranks. Messages are real in both.

An action waits for its message only when it needs it; a send never keeps its rank from computing. That is the
convention that `predict.simulate` follows with rendezvous=True, which is how gloo hands messages over.

Relatives: schedules in `schedules/`, prediction in `predict.simulate`, the picture in `show.draw`, notebooks 10 to 15.
"""

import statistics
import time

import numpy as np
import torch

from hybridlab.core.action import MESSAGES
from hybridlab.core.lanes import COMPUTE, lanes, messages
from hybridlab.core.law import Flow
from hybridlab.core.schedule import Schedule
from hybridlab.core.timeline import Timeline
from hybridlab.modes.data_parallel import reduce_gradients

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
        """Play the program once; returns (actions, 3): ready, begin and end of each in ns, on the clock of this machine.

        A message is ready when its posting starts, begins when it has been posted, and ends when it is known to be over.
        """
        self.times = [[0, 0, 0] for _ in self.calls]
        self.activations, self.gradients, self.outgoing = {}, {}, []
        self.comm.barrier()
        for index, (call, action) in enumerate(self.calls):
            call(index, action)
        for index, message in self.outgoing:
            message.wait()
            self.times[index][2] = time.perf_counter_ns()
        return torch.tensor(self.times, dtype=torch.int64).reshape(-1, 3)

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
        self.times[index][1:] = begin, end
        there = action.stage + (1 if forward else -1)
        if 0 <= there < self.schedule.stages:
            (self.activations if forward else self.gradients)[there, action.microbatch] = outgoing

    def _arrived(self, values, index, key):
        """Take the value that an action needs, waiting for its message if it is still on its way; None at either end."""
        value = values.pop(key, None)
        if isinstance(value, _Awaited):
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
        self.times[index] = [begin, begin, time.perf_counter_ns()]

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


class ModelWork:
    """What a stage does for real: forward through a slice of the model, backward by autograd.

    stages    {stage: module}, those of this rank
    last      the number of the last stage, where the loss is taken
    loss      loss(scores, targets) -> the summed loss of one microbatch
    tokens    of the global batch: every microbatch's loss is divided by it
    example   a boundary tensor: its shape and dtype are those of every message
    """

    def __init__(self, stages: dict, last: int, loss, tokens: int, example):
        self.stages, self.last, self.loss, self.tokens, self.example = stages, last, loss, tokens, example

    def load(self, inputs: list, targets: list):
        """Take a global batch, cut into microbatches, and forget the gradients of the one before."""
        self.inputs, self.targets = inputs, targets
        self.kept, self.total_loss = {}, torch.zeros((), dtype=torch.float64)
        for stage in self.stages.values():
            stage.zero_grad()

    def boundary(self):
        """Room for one incoming message."""
        return torch.empty_like(self.example)

    def forward(self, stage, microbatch, x):
        """The activation that leaves the stage; behind the last one, the loss."""
        x = self.inputs[microbatch] if stage == 0 else x.requires_grad_()
        y = self.stages[stage](x)
        if stage == self.last:
            y = scaled(self.loss(y, self.targets[microbatch]), self.tokens)
            self.total_loss += y.detach()
        self.kept[stage, microbatch] = x, y
        return y.detach()

    def backward(self, stage, microbatch, gradient):
        """The gradient of the loss by what entered the stage; weight gradients are added where the weights are."""
        x, y = self.kept.pop((stage, microbatch))
        torch.autograd.backward(y, gradient)
        return x.grad

    def reduce(self, comm, stage):
        """Sum this stage's gradients over the replicas."""
        reduce_gradients(comm, self.stages[stage].parameters())


def scaled(loss, tokens):
    """The one loss rule: a local *sum*, divided by the tokens of the global batch."""
    return loss / tokens


class EmulatedWork:
    """Waiting in place of computing: real processes, real messages, durations as stated (in seconds per stage)."""

    def __init__(self, costs, elements: int = 256):
        self.costs, self.elements = costs, elements

    def boundary(self):
        """Room for one incoming message."""
        return torch.empty(self.elements)

    def forward(self, stage, microbatch, x):
        """Wait as long as a forward takes."""
        time.sleep(self.costs.of("F", stage))
        return torch.zeros(self.elements)

    def backward(self, stage, microbatch, gradient):
        """Wait as long as a backward takes."""
        time.sleep(self.costs.of("B", stage))
        return torch.zeros(self.elements)

    def reduce(self, comm, stage):
        """A real all-reduce of one boundary tensor."""
        comm.all_reduce(torch.zeros(self.elements), "dp")


def link_latency(comm, laps: int = 20, elements: int = 256, hold: float = 0.002) -> float:
    """Seconds from a message having been posted to its receiver being awake with it, the receive posted before.

    A token travels round all ranks; each holds it for a while, asleep, as it will between messages of a pipeline. The
    median lap, less the time that the token was held, divided by its hops. 0 for one rank.
    """
    if comm.size == 1:
        return 0.0
    token, ahead, behind = torch.zeros(elements), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    held, lap = torch.zeros(laps, dtype=torch.float64), []
    for i in range(laps):
        arriving = comm.irecv(torch.empty(elements), behind)
        begin = time.perf_counter()
        if comm.rank > 0:
            arriving.wait()
            begin = time.perf_counter()
        time.sleep(hold)
        leaving = comm.isend(token, ahead)
        held[i] = time.perf_counter() - begin
        if comm.rank == 0:
            arriving.wait()
        lap.append(time.perf_counter() - begin)
        leaving.wait()
    comm.all_reduce(held)
    return statistics.median((torch.tensor(lap) - held).tolist()) / comm.size if comm.rank == 0 else 0.0


def measured(schedule: Schedule, times: list[list[torch.Tensor]], origin: dict, **more) -> Timeline:
    """The timeline of a run, from `times[rank][step]` as `Player.step` returns them.

    Each step starts with its first compute action. A message begins when both sides have come to post it and ends when
    its receiver knows that it is there: what happens on the wire between cannot be seen.
    """
    ready, begin, end = np.concatenate([np.stack([t.numpy() for t in rank], axis=1) for rank in times]).transpose(
        2, 1, 0
    )
    flow = Flow(schedule)
    lane = lanes(flow)
    sends, receives = messages(flow, lane)
    posting = np.median((begin - ready)[:, [*sends, *receives]]) * 1e-9 if len(sends) else 0.0
    begin[:, receives] = begin[:, sends] = np.maximum(ready[:, receives], ready[:, sends])
    end[:, sends] = end[:, receives]
    start = np.where(lane == COMPUTE, begin, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    columns = (np.maximum(column - start, 0) for column in (ready, begin, end))
    origin = {"kind": "measured", "post": float(posting)} | origin
    return Timeline(schedule, *columns, lane, tick=1e-9, unit="s", origin=origin, **more)
