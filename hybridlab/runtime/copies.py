"""Copies: what carries memory to the host and back, beside the compute, one engine for each way.

Each engine does its copies in the order in which it was given them. A copy that lacks something keeps its engine
waiting, and not its rank. Three kinds of engines:

    Threads  two threads that copy memory: a rank on a CPU
    Streams  two streams of a GPU, and pinned memory on the host
    Timed    a copy without engine: nothing is carried, time passes (emulated work)

What is carried is a *load*, with three calls: `room` makes room where it goes, `carry` copies, `over` lets go of where
it was, or says that it has come. `start` gives a load to an engine, with the copies that must be over before. It
returns a copy with `wait`, and with `begin` and `end`, marks on the rank's clock, which are there when it is over.

On a GPU the host is ahead of its device. A copy is over for the host when somebody has waited for it: the stream that
computes has been told to wait too, so whatever is put where the load was comes later. Room is made when the program
comes to the copy. Where another copy must be over before, the host waits for that one; the device meanwhile does what
it has been given.

Relatives: `runtime.arena`, whose storages are loads; `runtime.player`, who starts and waits.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import torch

from hybridlab.runtime.arena import Kept
from hybridlab.world.talk.message import twin

OUT, IN = "SWAP_OUT", "SWAP_IN"
now = time.perf_counter_ns


def engines(device: torch.device) -> "Threads | Streams":
    """The two engines of a device."""
    return Threads() if device.type in ("cpu", "meta") else Streams(device)


class Leaving:
    """What a forward has kept, on its way to the host."""

    def __init__(self, kept: list[Kept]):
        self.kept = kept

    def room(self):
        """Room on the host."""
        self.hosts = [twin(one.flat) for one in self.kept]

    def carry(self):
        """Copy it."""
        for one, host in zip(self.kept, self.hosts):
            host.copy_(one.flat, non_blocking=True)

    def over(self):
        """Let go of the memory on the device."""
        for one, host in zip(self.kept, self.hosts):
            one.end()
            one.host = host


class Coming:
    """What a forward has kept, on its way back. `doing`: the action that brings it, for an error.

    kept    what the forward has kept
    device  to which it comes
    doing   the action that brings it, for an error
    """

    def __init__(self, kept: list[Kept], device: torch.device, doing: str):
        self.kept, self.device, self.doing = kept, device, doing

    def room(self):
        """Room on the device."""
        self.rooms = [torch.empty_like(one.host, device=self.device) for one in self.kept]
        for one, room in zip(self.kept, self.rooms):
            one.arena.take(room.untyped_storage(), self.doing)

    def carry(self):
        """Copy it."""
        for one, room in zip(self.kept, self.rooms):
            room.copy_(one.host, non_blocking=True)

    def over(self):
        """It is there."""
        for one, room in zip(self.kept, self.rooms):
            one.flat, one.host = room, None


class Threads:
    """Two threads that copy."""

    def __init__(self):
        self._pools = {way: ThreadPoolExecutor(1, way) for way in (OUT, IN)}

    def start(self, way: str, load, before=()) -> "Copied":
        """Give a load to the engine of a way."""
        copy = Copied()
        copy.future = self._pools[way].submit(copy.run, load, before)
        return copy


class Copied:
    """A copy by a thread."""

    begin = end = 0

    def run(self, load, before):
        """Carry the load, when the copies before are over."""
        for one in before:
            one.wait()
        self.begin = now()
        load.room()
        load.carry()
        load.over()
        self.end = now()

    def wait(self):
        """Wait until it is over; raises what went wrong in it."""
        self.future.result()

    def when_over(self, note, clock):
        """Call note(time in ns) when it is over."""
        self.future.add_done_callback(lambda _: note(self.end))


class Streams:
    """Two streams of a device, beside the one that computes."""

    def __init__(self, device: torch.device):
        self.device, self._under_way = device, []
        self._streams = {way: torch.Stream(device=device) for way in (OUT, IN)}

    def start(self, way: str, load, before=()) -> "Streamed":
        """Give a load to the engine of a way."""
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
        """Have a stream wait until what is carried is computed, and whoever had the room before is done with it."""
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
        """Have the stream that computes wait."""
        self.end.wait()
        self._settle()

    def when_over(self, note, clock):
        """Call note(event), which the device comes to when it is over."""
        note(self.end)

    def over(self):
        """Have the host wait."""
        self.end.synchronize()
        self._settle()

    def _settle(self):
        if self.load:
            self.load.over()
            self.load = None


class Timed:
    """A copy that takes as long as stated, from when its engine is free and what it needs is there; times in ns."""

    def __init__(self, ready: int, taken: int):
        self.begin, self.end = ready, ready + taken

    def wait(self):
        """Wait until it is over."""
        time.sleep(max(0.0, (self.end - now()) * 1e-9))
