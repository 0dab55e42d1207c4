"""Measurements on this machine: matmuls, bandwidth, steps of a model on one device, and the resulting `Machine`."""

from hybridlab.measuring.here import here, in_turns
from hybridlab.measuring.one_device import bandwidth, matmul, quickest, steps

product = matmul  # the old name, until the next release

__all__ = ["bandwidth", "here", "in_turns", "matmul", "product", "quickest", "steps"]
