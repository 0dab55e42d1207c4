"""Copies of memory to the host and back, during compute, with one engine for each direction.

Each engine runs its copies in the order in which they were submitted. A copy that has to wait blocks its engine, not
its rank. There are three kinds of engines:

    Threads  two threads that copy memory: a rank on a CPU
    Streams  two streams of a GPU, and pinned memory on the host
    Timed    no engine: nothing is copied, time passes (emulated work)

A *load* has three methods: `room` allocates the destination, `carry` copies, `over` frees the source or marks the
arrival. `start` submits a load to an engine, with the copies that must finish first. It returns a copy with `wait`, and
with `begin` and `end`, the times on the rank's clock.

On a GPU the host runs ahead of its device. For the host, a copy is over after a `wait`: the compute stream then waits
too, so later tensors may reuse the memory. The destination is allocated when the program reaches the copy. If another
copy must finish first, the host waits for it while the device continues its queue.

Relatives: `runtime.arena`, whose storages are loads; `runtime.player`, which starts copies and waits.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from hybridlab.core.when.action import CODE, SWAPS
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.schedule import Schedule
from hybridlab.runtime.arena import Kept
from hybridlab.world.talk.message import twin

OUT, IN = "SWAP_OUT", "SWAP_IN"
now = time.perf_counter_ns


def engines(device: torch.device) -> "Threads | Streams":
    """The two engines of a device."""
    return Threads() if device.type in ("cpu", "meta") else Streams(device)


class Leaving:
    """The activations that a swap moves to the host.

    kept  the saved tensors of the forward
    """

    def __init__(self, kept: list[Kept]):
        self.kept = kept

    def room(self):
        """Allocate memory on the host."""
        self.hosts = [twin(one.flat) for one in self.kept]

    def carry(self):
        """Copy the tensors."""
        for one, host in zip(self.kept, self.hosts):
            host.copy_(one.flat, non_blocking=True)

    def over(self):
        """Free the memory on the device."""
        for one, host in zip(self.kept, self.hosts):
            one.end()
            one.host = host


class Coming:
    """The activations that a swap moves back to the device, as a forward saved them.

    kept    the saved tensors of the forward
    device  the destination
    doing   the action of the swap, for an error message
    """

    def __init__(self, kept: list[Kept], device: torch.device, doing: str):
        self.kept, self.device, self.doing = kept, device, doing

    def room(self):
        """Allocate memory on the device."""
        self.rooms = [torch.empty_like(one.host, device=self.device) for one in self.kept]
        for one, room in zip(self.kept, self.rooms):
            one.arena.take(room.untyped_storage(), self.doing)

    def carry(self):
        """Copy the tensors."""
        for one, room in zip(self.kept, self.rooms):
            room.copy_(one.host, non_blocking=True)

    def over(self):
        """Mark the tensors as arrived."""
        for one, room in zip(self.kept, self.rooms):
            one.flat, one.host = room, None


class Threads:
    """Two threads that copy."""

    def __init__(self):
        self._pools = {way: ThreadPoolExecutor(1, way) for way in (OUT, IN)}

    def start(self, way: str, load, before=()) -> "Copied":
        """Start a copy on the engine for this direction ("SWAP_OUT" or "SWAP_IN")."""
        copy = Copied()
        copy.future = self._pools[way].submit(copy.run, load, before)
        return copy


class Copied:
    """A copy by a thread."""

    begin = end = 0

    def run(self, load, before):
        """Copy the load, after the copies `before` are over."""
        for one in before:
            one.wait()
        self.begin = now()
        load.room()
        load.carry()
        load.over()
        self.end = now()

    def wait(self):
        """Wait until the copy is over; re-raises its error."""
        self.future.result()

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self.future.done()

    def when_over(self, note, clock):
        """Call note(time in ns) when it is over."""
        self.future.add_done_callback(lambda _: note(self.end))


class Streams:
    """Two streams of a device, next to the compute stream."""

    def __init__(self, device: torch.device):
        self.device, self._under_way = device, []
        self._streams = {way: torch.Stream(device=device) for way in (OUT, IN)}

    def start(self, way: str, load, before=()) -> "Streamed":
        """Start a copy on the engine for this direction ("SWAP_OUT" or "SWAP_IN")."""
        for one in before:
            one.over()
        for one in [one for one in self._under_way if one.end.query()]:
            one.over()
        self._under_way = [one for one in self._under_way if one.load]
        load.room()
        self._reached(self._streams[way])
        with self._streams[way]:
            begin = self._mark()
            load.carry()
            copy = Streamed(load, begin, self._mark())
        self._under_way.append(copy)
        return copy

    def _reached(self, stream):
        """Make a stream wait until the copied tensors are computed and the destination is free."""
        stream.wait_event(self._mark())

    def _mark(self):
        event = torch.Event(device=self.device, enable_timing=True)
        event.record()
        return event


class Streamed:
    """A copy by a stream; `begin` and `end` are events."""

    def __init__(self, load, begin, end):
        self.load, self.begin, self.end = load, begin, end

    def wait(self):
        """Make the compute stream wait."""
        self.end.wait()
        self._settle()

    def done(self) -> bool:
        """Whether `over` would return at once."""
        return self.end.query()

    def when_over(self, note, clock):
        """Call note(event); the device records the event when the copy is over."""
        note(self.end)

    def over(self):
        """Make the host wait."""
        self.end.synchronize()
        self._settle()

    def _settle(self):
        if self.load:
            self.load.over()
            self.load = None


class Timed:
    """A copy of a given duration, which starts when its engine is free and its inputs are ready; times in ns."""

    def __init__(self, ready: int, taken: int):
        self.begin, self.end = ready, ready + taken

    def wait(self):
        """Wait until it is over."""
        time.sleep(max(0.0, (self.end - now()) * 1e-9))

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return now() >= self.end


def copies_before(schedule: Schedule, seat: int, room=None) -> dict[int, list[int]]:
    """{index in a rank's program: the indices of the copies that bring its inputs, or free memory for it}."""
    if not any(action.kind in SWAPS for action in schedule.program[seat]):
        return {}
    flow = flow_of(schedule, room)
    copies = np.isin(flow.kind[flow.first_row], [CODE[kind] for kind in SWAPS])
    first, last = flow.program[seat : seat + 2]
    found = {}
    for action in range(first, last):
        makers = np.unique(flow.maker[flow.takes[action]])
        here = (makers >= first) & (makers < last)
        found[action - first] = (makers[here & copies[makers]] - first).tolist()
    return found
