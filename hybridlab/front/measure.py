"""Measurements on this machine: matmuls, bandwidth, steps of a model on one device, and the resulting `Machine`."""

import torch

from hybridlab.doors import COUNT, FEW, doors
from hybridlab.measuring.here import here, in_turns
from hybridlab.measuring.one_device import bandwidth, matmul, quickest, steps


def usable(name: str, value: str) -> None:
    """Raise ValueError unless this machine has the device."""
    try:
        torch.empty(0, device=value)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition("\n")[0].rstrip(".")
        raise ValueError(f"{name}={value!r} cannot be used ({why}): give cpu, or a GPU of this machine") from None


bandwidth, matmul, steps = doors(
    bandwidth, matmul, steps, numbers=COUNT, repeat=COUNT, m=FEW, k=FEW, n=FEW, batch=COUNT, count=COUNT,
    device=usable,
)  # fmt: skip
here, in_turns, quickest = doors(here, in_turns, quickest, count=COUNT, batch=COUNT, rounds=COUNT)
product = matmul  # the old name, until the next release

__all__ = ["bandwidth", "here", "in_turns", "matmul", "product", "quickest", "steps"]
