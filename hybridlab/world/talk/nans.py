"""Nans: the rank of the first one, and a maximum of numbers that may include nans.

`FirstNan` records a sum of every tensor that a rank computes or receives, in order; a sum that is nan reveals a nan. At
the end of a step the records show which tensor was the first, and whether the rank received it from another rank.
"""

import time
from typing import NamedTuple

import torch

WHOLE = {2: torch.int32, 4: torch.int32, 8: torch.int64}  # by the size of a float; gloo has no int16


class First(NamedTuple):
    """The first tensor of a rank with a nan: its name, whether it came from other ranks, and the time (ns)."""

    what: str
    came: bool
    at: int


class Unwatched:
    """Watches nothing. A tensor's name is given as a function, `what`, which is called only when the name is needed."""

    def made(self, what, x):
        """A tensor that this rank has computed."""

    def came(self, what, x):
        """A tensor to which other ranks contributed."""

    def decides(self, what, x):
        """Register a tensor that this rank has computed and that must not contain a nan."""


class FirstNan(Unwatched):
    """The tensors of one rank, in order, since the last `begin`."""

    def __init__(self):
        self.begin()

    def begin(self):
        """Start a step."""
        self._notes, self._deciding = [], []

    def made(self, what, x):
        self._note(what, x, False)

    def came(self, what, x):
        self._note(what, x, True)

    def decides(self, what, x):
        self._note(what, x, False)
        self._deciding.append((self._notes[-1][3], x))

    def _note(self, what, x, came):
        if x.is_floating_point():
            self._notes.append((what, came, time.perf_counter_ns(), x.detach().sum()))

    def well(self) -> bool:
        """Whether all deciding tensors are free of nans. A sum may overflow although its terms are finite."""
        by_device: dict[torch.device, list] = {}
        for total, _ in self._deciding:
            by_device.setdefault(total.device, []).append(total.double())
        if all(bool(torch.stack(totals).isfinite().all()) for totals in by_device.values()):
            return True
        return all(bool(x.isfinite().all()) for _, x in self._deciding)

    def first(self) -> First | None:
        """The first tensor with a nan; if there is none, the first with an infinite sum."""
        for wrong in (torch.isnan, torch.isinf):
            for what, came, at, total in self._notes:
                if wrong(total):
                    return First(what(), came, at)
        return None


UNWATCHED = Unwatched()


def ordered(x, op: str) -> torch.Tensor:
    """Floats as integers in the same order, in which nan is the largest for op="max", the smallest for "min".

    gloo compares, and loses a nan: every comparison with it is false. Convert them back with `floats`.

    >>> x = torch.tensor([1.5, -0.5, float("nan"), float("-inf")])
    >>> torch.equal(ordered(x, "max").argsort(), x.argsort()), int(ordered(x, "min").argmin())
    (True, 2)
    """
    wide = x.float() if x.element_size() == 2 else x
    bits = wide.contiguous().view(WHOLE[x.element_size()])
    high = torch.iinfo(bits.dtype).max
    return torch.where(wide.isnan(), high if op == "max" else -high, bits ^ (bits >> bits.itemsize * 8 - 1 & high))


def floats(bits, dtype: torch.dtype) -> torch.Tensor:
    """The floats from which `ordered` was computed."""
    high = torch.iinfo(bits.dtype).max
    wide = torch.float64 if bits.itemsize == 8 else torch.float32
    return (bits ^ (bits >> bits.itemsize * 8 - 1 & high)).view(wide).to(dtype)
