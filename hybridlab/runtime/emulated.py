"""Emulated work: an action waits instead of computing, so bubbles show on a machine with fewer cores than ranks.

Processes, messages and collectives are real. Relatives: `runtime.work`, which computes, and describes what a `Player`
expects; `predict.time.costs`, the durations.
"""

import math
import time
from collections import Counter
from functools import partial
from itertools import repeat

import numpy as np
import torch

from hybridlab.core.when.law import makes, takes
from hybridlab.runtime.copies import OUT, Timed

CPU = torch.device("cpu")


class EmulatedWork:
    """Work that waits instead of computing: with real processes, real messages and collectives, and given durations (in
    seconds per stage).

    elements  the number of elements of a message;  latency  seconds added to each message
    jitter    relative standard deviation of durations, the same for one action in every order and run

    `pace` is 1; with 0 there is no waiting, so a warm-up step costs only its messages. `offset`, in seconds, aligns
    this rank's clock with the others, see `world.talk.offset`.
    """

    widest, device = 1, CPU

    def __init__(self, costs, elements: int = 256, latency: float = 0.0, jitter: float = 0.0):
        self.costs, self.elements, self.latency, self.jitter = costs, elements, latency, jitter
        self.live = self.peak_live = 0
        self.pace, self.offset = 1.0, 0.0
        self.unsettled = False  # whether an optimizer step waits for its norm
        self.copies = {}  # {stage: the ranks that hold it}
        self.free = 0.0  # the predicted end of the last collective
        self.free_at = Counter()  # {direction: the end of its last copy, in ns}

    def meet(self, comm, schedule):
        """Open the groups of the ranks that hold copies of a stage, for their reductions. All ranks call it."""
        self.copies = dict(enumerate(schedule.holders))
        comm.open(*sorted(set(schedule.holders)))

    def bind(self, action, part):
        """A call that waits for the duration of the action; a fused pair waits at its end."""
        if not action.parts:
            seconds = self.costs.of(part.kind, part.stage)
        elif part is action.parts[-1]:
            seconds = self.costs.of_pair(*(one.stage for one in action.parts))
        else:
            seconds = 0.0
        return partial(self._wait, seconds * self._luck(part), part.kind)

    def room(self, edge: int, name: str) -> list:
        """A receive buffer for one message."""
        return [torch.empty(self.elements, dtype=torch.float64)]

    def arrived(self, tensors):
        """Wait until the given latency has passed since the message was sent; it contains that time."""
        left = float(tensors[0][0]) + self.latency * self.pace - self._now()
        if self.latency and left > 0:
            time.sleep(left)

    def reduce(self, comm, action):
        """A real all-reduce of one message's size over a stage's copies, which takes at least the given time."""
        return self._beside(comm.iall_reduce(torch.zeros(self.elements), self.copies[action.stage]), action)

    def exchange(self, comm, action, edge: int, value) -> list:
        """A real all-to-all of one message's size with the ranks along ep, which takes at least the given time; the
        exchanges of one rank run one after another.
        """
        self.free = max(self.free, time.perf_counter()) + self.pace * self.costs.of_message(edge)
        until = torch.full((self.elements,), self.free + self.offset, dtype=torch.float64)
        return [_Exchanged(comm.iall_to_all(until, "ep"), self.offset)]

    def unshard(self, comm, action):
        """A real all-gather of one message's size, which takes at least the given time."""
        return self._beside(comm.iall_gather(torch.zeros(self.elements), "dp"), action)

    def reshard(self, action):
        """Nothing to free: nothing was gathered."""

    def squares(self, before) -> torch.Tensor:
        """A number to send instead of the squares."""
        self.unsettled, self.summed = True, torch.zeros((), dtype=torch.float64)
        return self.summed

    def settled(self, total) -> bool:
        """No emulated optimizer step is undone, so no forward is repeated."""
        self.unsettled = False
        return False

    def swap(self, action, before: list) -> Timed:
        """A copy to the host or back that takes the given time, on an engine that runs copies one after another."""
        ready = max([time.perf_counter_ns(), self.free_at[action.kind], *(one.end for one in before)])
        copy = Timed(ready, round(self.pace * self.costs.of(action.kind, action.stage) * 1e9))
        self.free_at[action.kind] = copy.end
        return copy

    def move(self, comm, action, other: int, tag: int):
        """A real message with lent activations: it takes the given time on each copy engine, the sender's first."""
        if action.kind == OUT:
            copy = self.swap(action, [])
            until = torch.full((self.elements,), copy.end * 1e-9 + self.offset, dtype=torch.float64)
            return _Lasting(comm.isend(until, other, tag), copy.end * 1e-9)
        return _Landing(self, comm.irecv(torch.empty(self.elements, dtype=torch.float64), other, tag), action)

    def landed(self, sent: float, action) -> float:
        """The time at which a move ends, given the time at which another rank's engine sent it."""
        begin = max(sent - self.offset, self.free_at[action.kind] * 1e-9)
        self.free_at[action.kind] = round((begin + self.pace * self.costs.of(action.kind, action.stage)) * 1e9)
        return self.free_at[action.kind] * 1e-9

    def _beside(self, message, action):
        """A rank's collectives run one after another, overlapped with compute."""
        self.free = max(self.free, time.perf_counter()) + self.pace * self.costs.of(action.kind, action.stage)
        return _Lasting(message, self.free)

    def _wait(self, seconds, kind, _):
        self.live += ("input" in makes(kind)) - ("input" in takes(kind))
        self.peak_live = max(self.peak_live, self.live)
        if seconds:
            time.sleep(seconds * self.pace)
        stamped = torch.full((self.elements,), self._now(), dtype=torch.float64)
        return repeat((stamped,))  # on every outgoing edge

    def _now(self) -> float:
        return time.perf_counter() + self.offset

    def _luck(self, part) -> float:
        if not self.jitter:
            return 1.0
        draw = np.random.default_rng([part.stage, part.microbatch + 1, ord(part.kind[0])]).normal()
        return max(0.0, 1 + self.jitter * float(draw))


class _Exchanged:
    """An all-to-all that is over at the latest end that its ranks report; its result needs no further latency."""

    def __init__(self, message, offset: float):
        self.message, self.offset = message, offset

    def wait(self):
        until = float(self.message.wait().max()) - self.offset
        time.sleep(max(0.0, until - time.perf_counter()))
        return torch.full_like(self.message.wait(), -math.inf)

    def done(self):
        return self.message.done() and time.perf_counter() + self.offset >= float(self.message.wait().max())

    def when_over(self, note, clock):
        self.message.when_over(lambda at: note(max(at, self._end())), clock)

    def _end(self):
        return round((float(self.message.wait().max()) - self.offset) * 1e9)


class _Landing:
    """A move of a loan that is over when the engine of its receiver has taken its time."""

    def __init__(self, work, message, action):
        self.work, self.message, self.action, self.until = work, message, action, math.inf

    def wait(self):
        self._arrive()
        time.sleep(max(0.0, self.until - time.perf_counter()))

    def done(self):
        if self.message.done():
            self._arrive()
        return time.perf_counter() >= self.until

    def _arrive(self):
        if self.until == math.inf:
            self.until = self.work.landed(float(self.message.wait()[0]), self.action)
            self.note(round(self.until * 1e9))

    def when_over(self, note, clock):
        self.note = note


class _Lasting:
    """A message that is over when it has arrived, but not before a given time."""

    def __init__(self, message, until: float):
        self.message, self.until = message, until

    def wait(self):
        self.message.wait()
        time.sleep(max(0.0, self.until - time.perf_counter()))

    def done(self):
        return self.message.done() and time.perf_counter() >= self.until

    def when_over(self, note, clock):
        self.message.when_over(lambda at: note(max(at, round(self.until * 1e9))), clock)
