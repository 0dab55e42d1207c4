"""Scatter/gather: each rank along tp sends its part to the next stage over the slow link; the fast link gathers the
parts.

The stream is the same on all t ranks of a stage, so each of them would send all of it to the next stage. In a narrowed
stage, each rank sends 1/t of it, and an all-gather inside the next stage joins the parts.

Source: the scatter/gather optimization, Narayanan et al. 2021, arXiv:2104.04473, section 4.1. Relatives:
`tensor_parallel`, which has it as the option `scatter`; `sequence_parallel`, which cuts the stream inside a stage too.
"""

import torch
from torch import nn

from hybridlab.modes.parts.sequence_parallel import part_sizes
from hybridlab.world.talk.typed import all_gather, split


class Narrowed(nn.Module):
    """A stage that receives and sends parts. The input is this rank's part along the sequence and is gathered; the
    output is the same on all ranks and is split.

    sizes  the length of each rank's part
    """

    def __init__(self, stage, comm, sizes):
        super().__init__()
        self.stage, self.comm, self.sizes = stage, comm, sizes

    def forward(self, *arrived):
        leaving = self.stage(*map(self._joined, arrived))
        if not self.stage.leaves:
            return leaving
        return tuple(tuple(split(self.comm, x, "tp", 1, of="I", sizes=self.sizes) for x in edge) for edge in leaving)

    def _joined(self, x):
        """The full tensor of a part; the batch, which may be a tuple, is full already."""
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return all_gather(self.comm, x, "tp", 1, to="I", sizes=self.sizes)


def narrowed(stage, comm, context: int) -> Narrowed:
    """A stage that sends and receives 1/t of every tensor on each of t ranks, instead of the full tensor on each.

    Not for sequence parallelism, where the stream is sharded anyway.
    """
    return Narrowed(stage, comm, part_sizes(context, comm))
