"""Measure one device: the parts of a training step, matmuls, memory bandwidth. It uses one thread, as a rank does.

Seconds are those of `timed.own_clock`: on a CPU, the time of other programs does not count. Everything is measured
several times and the fastest counts, since other programs can still empty a cache. The device is a core, or a named one
such as "cuda".

Relatives: `predict.plans.arithmetic` (the same by formula), notebook 02.
"""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple

import torch

from hybridlab.core.what.shape import Shape
from hybridlab.measuring.timed import least, own_clock
from hybridlab.training.data.text import Text
from hybridlab.training.models.gpt import GPT, token_loss

ENOUGH, ENOUGH_FOR_A_GPU = 10**7, 10**10  # multiplications that take much longer than to read the clock
MOST = 5_000  # matmuls between two clock readings: a GPU does the smallest ones faster than the host launches them


class Parts(NamedTuple):
    """Seconds of the parts of one training step, in order."""

    read: float
    forward: float
    loss: float
    backward: float
    update: float


class Product(NamedTuple):
    """A timed matmul of an m×k matrix with a k×n one, in seconds."""

    m: int
    k: int
    n: int
    seconds: float

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return 2 * self.m * self.k * self.n / self.seconds


def _on_one_thread(measure: Callable) -> Callable:
    @wraps(measure)
    def alone(*arguments, **more):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return measure(*arguments, **more)
        finally:
            torch.set_num_threads(threads)

    return alone


@_on_one_thread
def steps(shape: Shape, batch: int, count: int = 6, device: str = "cpu") -> list[Parts]:
    """The measured steps of a sequential training loop with AdamW, after one warm-up step.

    shape   of the model
    batch   sequences in each step
    count   measured steps
    device  "cpu" or a GPU's name
    """
    device = torch.device(device)
    model, text, clock = GPT(shape).to(device), Text.of(), own_clock(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for step in range(count + 1):
        times = [clock()]
        tokens_BT, targets_BT = (torch.from_numpy(x).to(device) for x in text.batch(step, batch, shape.context))
        times.append(clock())
        scores_BTV = model(tokens_BT)
        times.append(clock())
        loss = token_loss(scores_BTV, targets_BT) / tokens_BT.numel()
        times.append(clock())
        loss.backward()
        times.append(clock())
        optimizer.step()
        optimizer.zero_grad()
        times.append(clock())
        found.append(Parts(*(after - before for before, after in zip(times, times[1:]))))
    return found[1:]


def quickest(found: list[Parts]) -> Parts:
    """The fastest of the measured steps.

    found  the measured steps

    >>> quickest([Parts(1, 2, 3, 4, 5), Parts(1, 1, 1, 1, 1)]).update
    1
    """
    return min(found, key=sum)


@_on_one_thread
def matmul(m: int, k: int, n: int, repeat: int = 5, device: str = "cpu") -> Product:
    """A timed matmul in single precision; small ones are repeated between two readings of the clock.

    m, k, n  the sizes of the matrices
    repeat   number of matmuls; the fastest counts
    device   "cpu" or a GPU's name
    """
    a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
    enough = ENOUGH if a.device.type == "cpu" else ENOUGH_FOR_A_GPU
    times = 1 + min(MOST, enough // (m * k * n))
    return Product(m, k, n, least(lambda: torch.mm(a, b), a.device, repeat, times))


@_on_one_thread
def bandwidth(numbers: int = 2**24, repeat: int = 10, device: str = "cpu") -> float:
    """The bandwidth, in bytes per second, between a core or a GPU and its memory, from copies larger than any cache.

    numbers  how many 32-bit numbers are copied
    repeat   number of copies; the fastest counts
    device   "cpu" or a GPU's name
    """
    x = torch.ones(numbers, device=device)
    y = torch.empty_like(x)
    return 2 * x.nbytes / least(lambda: y.copy_(x), x.device, repeat)
