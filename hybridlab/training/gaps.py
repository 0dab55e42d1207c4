"""The differences between a layout's numbers and those of one device, and their tolerances.

Every tensor has its own *gap*: its largest difference, divided by the largest entry that one device has there. Of a
weight that entry is how far the weight has come, not its size: an optimizer that never steps has a gap of 1.

Allowed is what the dtype allows, or `FACTOR` times the noise of rounding that the reference has measured of this very
tensor. Where noise is as large as the tensor itself, as in the bias of attention keys, whose true gradient is zero, a
tensor that is all zero would pass: it is *not proved*, unless its gap happens to be small. Where one device has nothing
but zeros, as of a weight that never moves, a layout that does nothing would pass too: it is not proved either.
"""

import math
from dataclasses import dataclass, field

import torch

from hybridlab.training.job import Job

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 2e-2}
FACTOR = 3  # what a layout may be off by, in noise that was measured; docs/decisions/proof.md says why
STILL = math.inf  # what a tensor that is all 0 on one device may be off by, in what it is
NEAR = 0.75  # the share of a weight's elements that have to be near where Adam brought them on one device


@dataclass
class Gaps:
    """All gaps of a proof.

    tolerance  what is allowed at least, by the dtype
    found      {name: gap};  allowed  {name: what is allowed}, of those whose noise allows more
    still      names of what is all 0 on one device
    """

    tolerance: float
    found: dict[str, float] = field(default_factory=dict)
    allowed: dict[str, float] = field(default_factory=dict)
    still: list[str] = field(default_factory=list)

    def add(self, name: str, off: float, own: float, noise: float, loudest: float, trained: bool = False):
        """Note the gap of one tensor.

        off      its largest difference;  own  the largest entry of one device;  noise  that was measured
        loudest  the largest entry among all tensors of its kind: even where noise hides a tensor, it may not be as loud
        trained  whether it is of a weight that is trained, of which zeros prove nothing
        """
        scale = own or loudest or 1.0
        self.found[name] = off / scale
        allowed = max(self.tolerance, FACTOR * noise / scale)
        if allowed >= 1:
            allowed = max(allowed, self.tolerance * loudest / scale)
        if allowed > self.tolerance:
            self.allowed[name] = allowed
        if trained and own == 0:
            self.still.append(name)

    def fits(self, name: str) -> bool:
        """Whether a gap is no larger than allowed; one that is not a number is larger."""
        return self.found[name] <= self.allowed.get(name, self.tolerance)

    @property
    def unproved(self) -> dict[str, float]:
        """{name: what is allowed} of those that fit although nothing is known of them: all zero they would fit too.
        Of what is all zero, `STILL`."""
        hidden = lambda name, allowed: allowed >= 1 and self.tolerance < self.found[name] and self.fits(name)
        noisy = {name: allowed for name, allowed in self.allowed.items() if hidden(name, allowed)}
        return noisy | {name: STILL for name in self.still if self.fits(name)}


def tolerance_of(job: Job) -> float:
    """The tolerance of a gap, unless rounding noise needs more."""
    return max(TOLERANCE[one] for one in (job.dtype, job["sum_dtype"], job["master_dtype"]))


def largest(x: torch.Tensor) -> float:
    """The largest size of an element; 0 where there is none.

    >>> largest(torch.tensor([1.0, -3.0])), largest(torch.empty(0))
    (3.0, 0.0)
    """
    return float(x.detach().abs().max()) if x.numel() else 0.0


def difference(mine: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest difference of two tensors; not a number where one of them is not."""
    return largest(mine.double() - reference.double())


def worst(gaps) -> float:
    """The largest of some gaps, infinite where there is none: a tensor that nobody holds is not equal.

    >>> worst([0.0, float("nan"), 1.0]), worst([])
    (nan, inf)
    """
    return max(gaps, key=lambda gap: (gap != gap, gap), default=float("inf"))


def nearer(off: torch.Tensor, move: torch.Tensor) -> float:
    """The share of a weight's elements that are off by less than half of their move. A weight that never moved has
    none, and one that moved at random half of them."""
    return float((off <= move / 2).double().mean()) if move.numel() else 1.0
