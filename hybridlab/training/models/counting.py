"""The base of layers that count: a tally, settled once a step (see `runtime.tallies`)."""

import torch
from torch import nn

from hybridlab.core.what.seams import Tallies


class Counting(nn.Module, Tallies):
    """A layer with a tally: a sum over all data in the forwards of a step.

    tally  of the given shape. It is a sum, so that replicas can add theirs, and float64 for any dtype of the model. It
           is
           zero between steps, so no checkpoint contains it

    A subclass counts in its forward. Its method `conclude()` updates the layer when the counts of all ranks are added:
    nothing changes if nothing was counted. `conclude()` must not read the numbers, because the host would wait for
    them.
    """

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.register_buffer("tally", torch.zeros(shape, dtype=torch.float64), persistent=False)

    @torch.no_grad()
    def settle(self):
        """Update the layer from the tally, and start a new one."""
        self.conclude()
        self.tally.zero_()

    def _apply(self, function, recurse=True):
        """Called by `.to(dtype)` and similar: the tally moves to the device, but keeps its dtype."""
        tally = self.tally
        super()._apply(function, recurse)
        self.tally = tally.to(self.tally.device)
        return self
