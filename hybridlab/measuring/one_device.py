"""One device, measured: the parts of a training step, matrix products, the way to memory. One thread, as a rank has.

Seconds are those in which the thread had a core (`time.thread_time`): time that other programs take does not count. And
everything is done a few times and the quickest counts, since others can still empty a cache.

Relatives: `predict.plans.arithmetic` (the same by formula), notebook 02.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import NamedTuple

import torch

from hybridlab.core.shape import Shape
from hybridlab.train.models.gpt import GPT, token_loss
from hybridlab.train.text import Text

ENOUGH = 10_000_000  # multiplications: to look at the clock takes as long as some thousands of them


class Parts(NamedTuple):
    """Seconds of the parts of one training step, in their order."""

    read: float
    forward: float
    loss: float
    backward: float
    update: float


class Product(NamedTuple):
    """A product of an m×k matrix with a k×n one, and the seconds that it took."""

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
def steps(shape: Shape, batch: int, count: int = 6) -> list[Parts]:
    """The sequential loop: so many steps with AdamW, after one to warm up, each with a batch of so many sequences."""
    model, text, clock = GPT(shape), Text.of(), time.thread_time
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for step in range(count + 1):
        times = [clock()]
        tokens_BT, targets_BT = map(torch.from_numpy, text.batch(step, batch, shape.context))
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
    """The step that was over soonest.

    >>> quickest([Parts(1, 2, 3, 4, 5), Parts(1, 1, 1, 1, 1)]).update
    1
    """
    return min(found, key=sum)


@_on_one_thread
def product(m: int, k: int, n: int, repeat: int = 5) -> Product:
    """A product in single precision; small ones are done many times for one look at the clock."""
    a, b = torch.randn(m, k), torch.randn(k, n)
    return Product(m, k, n, _least(lambda: torch.mm(a, b), repeat, 1 + ENOUGH // (m * k * n)))


@_on_one_thread
def bandwidth(numbers: int = 2**24, repeat: int = 10) -> float:
    """Bytes per second between this core and its memory: a copy reads and writes more than any cache holds."""
    x = torch.ones(numbers)
    y = torch.empty_like(x)
    return 2 * x.nbytes / _least(lambda: y.copy_(x), repeat)


def _least(work, repeat, times=1) -> float:
    work()
    found = []
    for _ in range(repeat):
        begin = time.thread_time()
        for _ in range(times):
            work()
        found.append((time.thread_time() - begin) / times)
    return min(found)
