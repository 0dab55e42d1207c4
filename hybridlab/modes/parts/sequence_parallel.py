"""Sequence parallelism: between the matrices, the work that tensor parallelism repeats on every rank is sharded along
the sequence.

Norms, dropout, residuals and biases treat every position by itself, so each rank keeps 1/t of the positions. Before the
matrices the parts are all-gathered; after them the partial sums are reduce-scattered. A sum is a reduce-scatter and a
gather, so the bytes on the wire are those of tensor parallelism; activations shrink by t everywhere.

That holds only if the gathered input is not kept for the backward, and every matrix wants to keep it. So only the part
is kept; the backward gathers it again, once for all matrices that read it. (A backward in two halves does so in each of
them.)

Source: Korthikanti et al. 2022, arXiv:2205.05198. Relatives: `tensor_parallel`, which it is a variant of.
"""

import torch
from torch.autograd.graph import saved_tensors_hooks

from hybridlab.core.what.seams import Positions
from hybridlab.core.where.layout import even
from hybridlab.modes.parts.plain_layers import first, first_is
from hybridlab.world.talk.typed import all_gather, reduce_scatter


def part_sizes(context: int, comm) -> tuple[int, ...]:
    """The number of positions that each rank along tp has of a sequence."""
    return tuple(high - low for low, high in even(context, comm.mesh["tp"]))


class CutStream:
    """The residual stream, cut along the sequence over tp: how modules that are cut read from it and write to it.

    comm  this rank's door;  context  the positions that ranks along tp share, cut as evenly as possible
    """

    def __init__(self, comm, context: int):
        self.comm, self.sizes = comm, part_sizes(context, comm)
        self.positions = slice(*even(context, comm.mesh["tp"])[comm.coordinates["tp"]])

    def enter(self, module):
        """Have a module called with the whole sequence, gathered from the parts and gathered again for its backward."""
        on_whole = module.forward

        def on_part(*args, **named):
            part_BTD = first(args, named)
            whole_BTD = all_gather(self.comm, part_BTD, "tp", 1, to="R", sizes=self.sizes)
            again = GatheredAgain(self, part_BTD, whole_BTD)
            with saved_tensors_hooks(again.keep, again.find):
                args, named = first_is(whole_BTD, args, named)
                return on_whole(*args, **named)

        module.forward = on_part

    def leave(self, summand_BTD):
        """This rank's positions of the sum of the partial sums."""
        return reduce_scatter(self.comm, summand_BTD, "tp", 1, sizes=self.sizes)

    def place(self, module, entered: list[str]):
        """Tell the layers that depend on the position which positions are here; but not those inside an entered module,
        which are called with all positions, or with those of a rank along cp."""
        start = self.positions.start
        for name, layer in module.named_modules():
            if name and isinstance(layer, Positions) and not any(name.startswith(f"{one}.") for one in entered):
                first = layer.first  # one for each position, where cp has cut them before
                layer.first = start + (first[self.positions] if isinstance(first, torch.Tensor) else first)


class GatheredAgain:
    """The full input of some matrices, gathered again in the backward for the first of them, and freed after the last.

    part, whole  what this rank has of it, which is kept; what the forward gathered, which is not
    """

    def __init__(self, stream, part_BTD, whole_BTD):
        self.stream, self.part, self.memory = stream, part_BTD.detach(), whole_BTD.untyped_storage()._cdata
        self.readers = self.left = 0

    def keep(self, tensor):
        """What autograd keeps in a tensor's place: of the whole input, only the shape in which it was read."""
        if tensor.untyped_storage()._cdata != self.memory:
            return tensor.detach()  # the tensor itself may be what its node made: a circle that is never let go
        self.readers += 1
        return tensor.shape

    def find(self, kept):
        """The tensor that autograd once wanted to keep."""
        if isinstance(kept, torch.Tensor):
            return kept
        if not self.left:
            self.whole, self.left = self.stream.comm.all_gather(self.part, "tp", 1, self.stream.sizes), self.readers
        whole, self.left = self.whole.view(kept), self.left - 1
        if not self.left:
            del self.whole
        return whole
