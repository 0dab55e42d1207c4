"""Timed: the clocks that measure work, for any device.

A CPU has done its work when a call returns. A GPU has only been told of it then, so the host waits for it before it
looks at a clock.

Relatives: `world.talk`, whose own clocks tell when the parts of a step began, without waiting.
"""

import time
from collections.abc import Callable
from functools import partial

import torch


def finish(device: torch.device):
    """Wait until the device has done all that it was given."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def now(device: torch.device) -> float:
    """The host's clock in seconds, when the device has done all that it was given."""
    finish(device)
    return time.perf_counter()


def own_clock(device: torch.device) -> Callable[[], float]:
    """A clock for one device that works alone, in seconds: `now`, and on a CPU the time that this thread had a core.

    The latter stands still while other programs have the core (`time.thread_time`).

    >>> clock = own_clock(torch.device("cpu"))
    >>> begin = clock()
    >>> time.sleep(0.1)
    >>> clock() - begin < 0.05
    True
    """
    return time.thread_time if device.type == "cpu" else partial(now, device)
