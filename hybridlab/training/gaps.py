"""The differences between a layout's numbers and those of one device, and their tolerances.

Every tensor has its own *gap*: its largest difference, divided by the largest entry that it has on one device. For a
weight, the divisor is the distance that it has moved, not its size: an optimizer that never steps has a gap of 1.

The tolerance depends on the dtype; or it is `FACTOR` times the rounding noise that the reference has measured for this
tensor. Noise may be as large as the tensor itself, as in the bias of attention keys, whose true gradient is zero. Then
a tensor of zeros would also pass, so the tensor counts as *not proved*, unless its gap is small. If one device has only
zeros, as for a weight that never moves, a layout that does nothing would pass too. Then the tensor is not proved
either.
"""

import math
from dataclasses import dataclass, field

import torch

from hybridlab.training.job import Job

TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "bfloat16": 2e-2}
FACTOR = 3  # the tolerance in units of measured noise; docs/decisions/proof.md gives the reason
STILL = math.inf  # the tolerance of a tensor that is all 0 on one device
NEAR = 0.75  # the fraction of a weight's elements that must be near the result of Adam on one device


@dataclass
class Gaps:
    """All gaps of a proof.

    tolerance  the minimum tolerance, from the dtype
    found      {name: gap};  allowed  {name: tolerance}, for tensors whose noise allows more
    still      names of tensors that are all 0 on one device
    """

    tolerance: float
    found: dict[str, float] = field(default_factory=dict)
    allowed: dict[str, float] = field(default_factory=dict)
    still: list[str] = field(default_factory=list)

    def add(self, name: str, off: float, own: float, noise: float, loudest: float, trained: bool = False):
        """Record the gap of one tensor.

        off      its largest difference;  own  its largest entry on one device;  noise  its measured noise
        loudest  the largest entry among all tensors of its kind, a bound on a tensor even if noise hides it
        trained  whether it belongs to a trained weight, for which zeros prove nothing
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

    def limit(self, name: str) -> float:
        """The tolerance of a gap."""
        return self.allowed.get(name, self.tolerance)

    def fits(self, name: str) -> bool:
        """Whether a gap is within its tolerance; a gap that is nan is not."""
        return self.found[name] <= self.limit(name)

    @property
    def unproved(self) -> dict[str, float]:
        """{name: tolerance} of tensors that are within tolerance but prove nothing, because zeros would also be within
        tolerance. For a tensor of zeros, `STILL`."""
        hidden = lambda name, allowed: allowed >= 1 and self.tolerance < self.found[name] and self.fits(name)
        noisy = {name: allowed for name, allowed in self.allowed.items() if hidden(name, allowed)}
        return noisy | {name: STILL for name in self.still if self.fits(name)}


def tolerance_of(job: Job) -> float:
    """The tolerance of a gap, unless rounding noise needs more."""
    return max(TOLERANCE[one] for one in (job.dtype, job["sum_dtype"], job["master_dtype"]))


def largest(x: torch.Tensor) -> float:
    """The largest absolute value of an element; 0 if there is none.

    >>> largest(torch.tensor([1.0, -3.0])), largest(torch.empty(0)), largest(torch.tensor([True]))
    (3.0, 0.0, 1.0)
    """
    x = x.detach() if x.dtype.is_signed else x.double()  # a flag has no absolute value
    return float(x.abs().max()) if x.numel() else 0.0


def difference(mine: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest difference of two tensors; nan if one of them contains a nan.

    >>> difference(torch.tensor(1 + 2j), torch.tensor(1 + 0j)), difference(torch.tensor(1), torch.tensor(3))
    (2.0, 2.0)
    """
    return largest(_wide(mine) - _wide(reference))


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def worst(gaps) -> float:
    """The largest of some gaps; infinite if there are none, because a tensor that no rank holds is not equal.

    >>> worst([0.0, float("nan"), 1.0]), worst([])
    (nan, inf)
    """
    return max(gaps, key=lambda gap: (gap != gap, gap), default=float("inf"))


def nearer(off: torch.Tensor, move: torch.Tensor) -> float:
    """The fraction of a weight's elements whose error is less than half of their update. It is 0 for a weight that was
    never updated, and one half for a random update."""
    return float((off <= move / 2).double().mean()) if move.numel() else 1.0
