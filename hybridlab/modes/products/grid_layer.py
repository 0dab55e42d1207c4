"""AxoNN's linear layer on a grid of ranks: plain, and with its messages overlapped with its matmuls.

A layer makes Y = X·Wᵀ. Its inputs are sharded along one axis of the grid, `inner`, its outputs along another, `outer`.
The rows of the batch are sharded along a third, z, and along z each block of W is sharded once more. The next layer
swaps inner and outer, so that the output of one layer has the layout of the next one's input.

  message                             when plain                    overlapped
  all-gather of W's block along z     before the matmul             starts during the previous layer
  all-reduce of Y along inner         after the matmul              the same
  all-reduce of dX along outer        after both matmuls            between them, during the matmul dW
  reduce-scatter of dW along z        before the next dX            ends during the previous layer

One line of code causes the first and the last: a gather prefetched in the forward is a reduce-scatter deferred in the
backward (`world.talk.ahead`). With only one axis, the layer is a well-known one: sharded data parallelism with z,
Megatron's column-parallel layer with outer, its row-parallel layer with inner.

Source: Singh et al. 2023, arXiv:2305.13525. Relatives: `modes.grid_parallel`, which puts a full model on a grid;
`modes.products.matmul.cube`, the same matmul of three sharded matrices; `predict.bytes.matmul` ("axonn"), its bytes;
notebook 36.

Shape suffixes   B  rows on this rank;   I, O  inputs and outputs on this rank
"""

import torch
from torch import nn

from hybridlab.core.where.layout import even
from hybridlab.core.where.rules import part
from hybridlab.world.talk import ahead
from hybridlab.world.talk.typed import all_gather, all_reduce, enter


class Product(torch.autograd.Function):
    """Y = X·Wᵀ. Its backward computes dX and then dW; with `send`, the all-reduce of dX overlaps with dW.

    args, kwargs  those of `torch.autograd.Function`: call `Product.apply`
    """

    @staticmethod
    def forward(ctx, x_BI, w_OI, multiply, send):
        ctx.save_for_backward(x_BI, w_OI)
        ctx.multiply, ctx.send = multiply, send
        return multiply(x_BI, w_OI.T)

    @staticmethod
    def backward(ctx, g_BO):
        x_BI, w_OI = ctx.saved_tensors
        by_x = ctx.multiply(g_BO, w_OI) if ctx.needs_input_grad[0] else None
        coming = ctx.send(by_x) if ctx.send and by_x is not None else None
        by_w = ctx.multiply(g_BO.T, x_BI)
        return coming.wait() if coming else by_x, by_w, None, None


class GridLinear(nn.Module):
    """A linear layer without bias: this rank keeps a shard of one block of its weight.

    w_OI    the full matrix, outputs × inputs
    inner, outer the axes that cut its inputs and its outputs; z shards its blocks
    overlapped   whether its messages overlap with its matmuls: call `begin` one layer early
    multiply     the function that multiplies two matrices
    """

    def __init__(self, comm, w_OI, inner: str, outer: str, overlapped: bool = False, multiply=torch.matmul):
        super().__init__()
        self.comm, self.inner, self.outer, self.multiply = comm, inner, outer, multiply
        self.overlapped, self.coming = overlapped, None
        self.sizes = [end - begin for begin, end in even(len(block(comm, w_OI, inner, outer)), comm.mesh["z"])]
        self.share = nn.Parameter(share(comm, w_OI, inner, outer).clone())

    def begin(self):
        """Start gathering the block along z."""
        self.coming = ahead.all_gather(self.comm, self.share, "z", 0, to="R", sizes=self.sizes)

    def forward(self, x_BI):
        if self.overlapped:
            send = lambda by_x: self.comm.iall_reduce(by_x, self.outer)
            y_BO = Product.apply(x_BI, self.coming.wait(), self.multiply, send)
        else:
            w_OI = all_gather(self.comm, self.share, "z", 0, to="R", sizes=self.sizes)
            y_BO = Product.apply(enter(self.comm, x_BI, self.outer), w_OI, self.multiply, None)
        return all_reduce(self.comm, y_BO, self.inner, to="I")


class GridChain(nn.Module):
    """Linear layers on a grid with GELU between them; inner and outer are swapped from each layer to the next,
    beginning with x and y.

    comm     the communicator of this rank
    weights  the full weight of each layer, (out, in)
    more     as in `GridLinear`
    """

    def __init__(self, comm, weights, **more):
        super().__init__()
        ways = [("x", "y"), ("y", "x")]
        self.layers = nn.ModuleList(GridLinear(comm, w, *ways[i % 2], **more) for i, w in enumerate(weights))

    def forward(self, x_BI):
        if self.layers[0].overlapped:
            self.layers[0].begin()
        for layer, after in zip(self.layers, [*self.layers[1:], None]):
            if layer.overlapped and after:
                after.begin()
            x_BI = layer(x_BI)
            x_BI = nn.functional.gelu(x_BI) if after else x_BI
        return x_BI


def here(comm, x_BF, axis: str):
    """This rank's part of inputs, outputs or their gradients: its rows, and its features along `axis`."""
    return part(x_BF, "B F", {"B": "z", "F": axis}, comm.mesh, comm.rank)


def block(comm, w_OI, inner: str, outer: str):
    """This rank's block of a weight or of its gradient, as used in the matmul."""
    return part(w_OI, "O I", {"O": outer, "I": inner}, comm.mesh, comm.rank)


def share(comm, w_OI, inner: str, outer: str):
    """This rank's shard of the block between steps: its rows, sharded along z."""
    return part(block(comm, w_OI, inner, outer), "O I", {"O": "z"}, comm.mesh, comm.rank)
