"""Measurements on this machine: matmuls, bandwidth, steps of a model on one device, and the resulting `Machine`."""

from hybridlab.measuring.here import here, in_turns
from hybridlab.measuring.one_device import bandwidth, product, quickest, steps

__all__ = ["bandwidth", "here", "in_turns", "product", "quickest", "steps"]
