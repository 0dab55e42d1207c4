"""Clocks: the time of an operation on the device, which differs from the time of its launch on the host.

On a CPU, the host waits while the device computes, so the host's clock is exact. A GPU receives work long before it
runs it: a *mark* on its stream is an event, and its time is known when the device has reached it. All times are
nanoseconds of the host's `perf_counter_ns`. An *anchor* ties events to it: one event whose time on the host is known,
because nothing was queued.

Relatives: `runtime.player` and `runtime.message_driven`, which record times; `world.talk.message`.
"""

import time

import torch

FIRST = -1  # the priority of streams that only wait


class HostClock:
    """The clock of a device that computes while the host waits.

    sees  whether it knows the arrival time of a message that no one has waited for yet
    """

    sees = False
    mark = staticmethod(time.perf_counter_ns)

    def read(self, mark: int) -> int:
        """The time of a mark."""
        return mark

    def anchor(self):
        """Nothing to do: this is the host's clock."""


class StreamClock:
    """The clock of a device with streams; marks are events on the current stream, or times on the host.

    sees  as in `HostClock`: true if messages are on streams too
    """

    def __init__(self, device: torch.device, sees: bool):
        self.device, self.sees = device, sees
        self.anchor()

    def mark(self) -> torch.Event:
        """A mark for now, in the order of the current stream; the host continues."""
        event = torch.Event(device=self.device, enable_timing=True)
        event.record()
        return event

    def aside(self, wait) -> torch.Event:
        """A mark for the time at which `wait`, a function that makes an otherwise idle stream wait, lets this stream
        continue.

        torch has 32 streams of each priority on a device, and uses them in turn. NCCL's communicators use those of the
        default priority. A mark on one of these would delay the next message on it, for which the other side may wait.
        """
        with torch.Stream(device=self.device, priority=FIRST):
            wait()
            return self.mark()

    def anchor(self):
        """Tie the events to the host's clock; this waits until the device has no work left.

        The two clocks drift apart by some µs per second, so this is repeated whenever the host has waited anyway.
        """
        torch.accelerator.synchronize(self.device)
        event = self.mark()
        event.synchronize()
        self._anchor = event, time.perf_counter_ns()

    def read(self, mark: torch.Event | int) -> int:
        """The time of a mark; waits until the device has reached it."""
        if isinstance(mark, int):
            return mark
        mark.synchronize()
        event, at = self._anchor
        return at + round(event.elapsed_time(mark) * 1e6)


def clock_of(device: torch.device, streams: bool) -> HostClock | StreamClock:
    """The clock of a device; `streams`: its messages are operations on its streams, as NCCL's are."""
    return HostClock() if device.type in ("cpu", "meta") else StreamClock(device, streams)
