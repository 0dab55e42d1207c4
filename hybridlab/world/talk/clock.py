"""Clocks: the time of an operation on the device, which differs from the time of its launch on the host.

A CPU computes while the host waits, so the host's clock tells. A GPU is given work long before it does it: a *mark* on
its stream is an event, and its time is known when the device has come to it. All times are nanoseconds of the host's
`perf_counter_ns`, to which events are tied by an *anchor*: one event whose time on the host is known, because nothing
was queued.

Relatives: `runtime.player` and `runtime.message_driven`, which note times; `world.talk.message`.
"""

import time

import torch

FIRST = -1  # the priority of streams that only wait


class HostClock:
    """The clock of a device that computes while the host waits.

    sees  whether it tells when a message has come that nobody has waited for yet
    """

    sees = False
    mark = staticmethod(time.perf_counter_ns)

    def read(self, mark: int) -> int:
        """The time of a mark."""
        return mark

    def anchor(self):
        """Nothing: this is the host's clock."""


class StreamClock:
    """The clock of a device with streams; marks are events on the current stream, and times on the host as they are.

    sees  as in `HostClock`: true where messages are on streams too
    """

    def __init__(self, device: torch.device, sees: bool):
        self.device, self.sees = device, sees
        self.anchor()

    def mark(self) -> torch.Event:
        """Now, in the order of the current stream; the host goes on."""
        event = torch.Event(device=self.device, enable_timing=True)
        event.record()
        return event

    def aside(self, wait) -> torch.Event:
        """A mark of when a stream with nothing else to do gets past `wait`, a function that makes it wait.

        torch has 32 streams of each priority on a device, taken in turns. NCCL's communicators have theirs of the usual
        one: a mark on a stream of these would keep what is sent there next, for which the other side may wait.
        """
        with torch.Stream(device=self.device, priority=FIRST):
            wait()
            return self.mark()

    def anchor(self):
        """Tie the events to the host's clock, which costs a wait until the device has nothing left to do.

        Two clocks run apart, by some µs in a second, so this is done again whenever the host has waited anyway.
        """
        torch.accelerator.synchronize(self.device)
        event = self.mark()
        event.synchronize()
        self._anchor = event, time.perf_counter_ns()

    def read(self, mark: torch.Event | int) -> int:
        """The time of a mark; waits until the device has come to it."""
        if isinstance(mark, int):
            return mark
        mark.synchronize()
        event, at = self._anchor
        return at + round(event.elapsed_time(mark) * 1e6)


def clock_of(device: torch.device, streams: bool) -> HostClock | StreamClock:
    """The clock of a device; `streams`: its messages are operations on its streams, as NCCL's are."""
    return HostClock() if device.type in ("cpu", "meta") else StreamClock(device, streams)
