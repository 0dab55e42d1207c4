"""Sequence parallelism: between the matrices, the work that tensor parallelism repeats on every rank is sharded along
the sequence.

Norms, dropout, residuals and biases treat every position separately, so each rank keeps 1/t of the positions. Before
the matrices the parts are all-gathered; after them the partial sums are reduce-scattered. An all-reduce is a
reduce-scatter and an all-gather, so the bytes on the wire are those of tensor parallelism, while all activations shrink
by t.

That holds only if the gathered input is not saved for the backward. By default, every matrix saves it. Here only the
part is saved. The backward gathers it again, once for all matrices that read it. (If the backward is split in two
halves, each half gathers it.)

Source: Korthikanti et al. 2022, arXiv:2205.05198. Relatives: `tensor_parallel`, of which it is a variant.
"""

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from hybridlab.core.what.seams import Positions
from hybridlab.core.where.layout import even
from hybridlab.modes.parts.plain_layers import first, first_is
from hybridlab.world.talk.typed import all_gather, reduce_scatter


def part_sizes(context: int, comm) -> tuple[int, ...]:
    """The number of positions of a sequence on each rank along tp."""
    return tuple(high - low for low, high in even(context, comm.mesh["tp"]))


def uncut(job, option: str) -> str:
    """The reason why `option`, "sequence" or "scatter", cannot shard the positions of a job; "" if it can."""
    if "T" not in job.sizes:
        return "no dimension of this model has that name"
    if job.schedule.pieces and option == "sequence":
        return f"the pieces of the head in {job.schedule.name} read all of them"
    return ""


class CutStream:
    """The residual stream, sharded along the sequence over tp: how sharded modules read from it and write to it.

    comm  this rank's communicator;  context  the positions that ranks along tp divide, as evenly as possible
    """

    def __init__(self, comm, context: int):
        self.comm, self.sizes = comm, part_sizes(context, comm)
        self.positions = slice(*even(context, comm.mesh["tp"])[comm.coordinates["tp"]])

    def enter(self, module):
        """Call a module with the full sequence: it is gathered from the parts, and gathered again for the backward."""
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
        """This rank's positions of the all-reduced partial sums."""
        return reduce_scatter(self.comm, summand_BTD, "tp", 1, sizes=self.sizes)

    def multiplied(self, x_BTF, weight_DF):
        """This rank's positions of the output of a linear layer sharded by its inputs."""
        return self.leave(functional.linear(x_BTF, weight_DF))

    def place(self, module, entered: list[str]):
        """Tell the layers that depend on positions which positions are here. Layers inside an entered module are left
        out: they receive all positions, or those of a rank along cp."""
        start = self.positions.start
        for name, layer in module.named_modules():
            if name and isinstance(layer, Positions) and not any(name.startswith(f"{one}.") for one in entered):
                first = layer.first  # one per position, if cp has cut them before
                layer.first = start + (first[self.positions] if isinstance(first, torch.Tensor) else first)


class GatheredAgain:
    """The full input of some matrices. The backward gathers it for the first of them and frees it after the last.

    part   this rank's part, which is saved;  whole  the gathered input of the forward, which is not saved
    """

    def __init__(self, stream, part_BTD, whole_BTD):
        self.stream, self.part, self.memory = stream, part_BTD.detach(), whole_BTD.untyped_storage()._cdata
        self.readers = self.left = 0

    def keep(self, tensor):
        """The object that autograd saves for a tensor: for the full input, only the shape in which it was read."""
        if tensor.untyped_storage()._cdata != self.memory:
            return tensor.detach()  # the tensor may be its node's output: a cycle that is never freed
        self.readers += 1
        return tensor.shape

    def find(self, kept):
        """The tensor that autograd asked to save."""
        if isinstance(kept, torch.Tensor):
            return kept
        if not self.left:
            self.whole, self.left = self.stream.comm.all_gather(self.part, "tp", 1, self.stream.sizes), self.readers
        whole, self.left = self.whole.view(kept), self.left - 1
        if not self.left:
            del self.whole
        return whole
