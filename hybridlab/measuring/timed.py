"""Define the clocks that measure work, for any device.

A CPU has finished its work when a call returns. A GPU may only have received it, so the host waits for the GPU before
it reads a clock.

See also `world.talk`, whose clocks record the start of the parts of a step without waiting.
"""

import time
from collections.abc import Callable
from functools import partial

import torch


def finish(device: torch.device):
    """Wait until the device has finished its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def now(device: torch.device) -> float:
    """The host's clock in seconds, read after the device has finished its work."""
    finish(device)
    return time.perf_counter()


def own_clock(device: torch.device) -> Callable[[], float]:
    """A clock for one device that works alone, in seconds: `now`, but on a CPU the time in which this thread had a
    core.

    The CPU clock stops while other programs have the core (`time.thread_time`).

    >>> clock = own_clock(torch.device("cpu"))
    >>> begin = clock()
    >>> time.sleep(0.1)
    >>> clock() - begin < 0.05
    True
    """
    return time.thread_time if device.type == "cpu" else partial(now, device)


def least(work: Callable[[], object], device: torch.device, repeat: int, times: int = 1) -> float:
    """The time of the fastest repetition of a piece of work, in seconds; see `repeated`."""
    return min(repeated(work, device, repeat, times))


def repeated(work: Callable[[], object], device: torch.device, repeat: int, times: int = 1) -> list[float]:
    """The time of every repetition of a piece of work, in seconds, after one warm-up.

    repeat  the number of repetitions;  times  how often each one does the work between two readings of the clock
    """
    work()
    clock, found = own_clock(device), []
    for _ in range(repeat):
        begin = clock()
        for _ in range(times):
            work()
        found.append((clock() - begin) / times)
    return found
