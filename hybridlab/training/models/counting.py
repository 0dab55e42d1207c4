"""The base of layers that count: a tally, settled once a step (see `runtime.tallies`)."""

import torch
from torch import nn

from hybridlab.core.what.seams import Tallies


class Counting(nn.Module, Tallies):
    """A layer with a tally: a sum over all that a step's forwards saw.

    tally  of the given shape. Sums, so that replicas add theirs; float64 whatever the model's dtype is. It is zero
           between steps: no checkpoint has it

    A subclass counts in its forward. It has a method `conclude()`, which does what follows when the counts of all ranks
    are there: nothing, if nothing was counted, and without asking the numbers, for which a host would wait.
    """

    def __init__(self, shape: tuple[int, ...]):
        super().__init__()
        self.register_buffer("tally", torch.zeros(shape, dtype=torch.float64), persistent=False)

    @torch.no_grad()
    def settle(self):
        """Do what follows from the tally, and begin a new one."""
        self.conclude()
        self.tally.zero_()

    def _apply(self, function, recurse=True):
        """What `.to(dtype)` and its like go through: the tally goes to the device, not to the dtype."""
        tally = self.tally
        super()._apply(function, recurse)
        self.tally = tally.to(self.tally.device)
        return self
