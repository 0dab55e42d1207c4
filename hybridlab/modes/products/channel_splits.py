"""One convolution with its channels and filters sharded, in three forms: X, Y or W stays on its ranks.

Every filter of Y = X∗W is a sum over all channels. A grid cuts the channels of W along its axis c, the filters along f.
X is sharded by channels over all c·f ranks, Y by filters, so that neither is replicated. The messages are:

  stays  grid    forward                                       backward
  X      c       channels here → partial sums of all filters;  all-gather of dY, which dX and dW both use
                 reduce-scatter of Y
  Y      f       all-gather of X; all channels → filters here  reduce-scatter of dX
  W      c × f   all-gather of X along f, matmul,              all-gather of dY along c, matmuls,
                 reduce-scatter of Y along c                   reduce-scatter of dX along f

The last row is the implementation. The other two rows are its grids with one rank along f, or along c. The backward
follows from the two collectives. Samples may be sharded too, along dp, and pixels along h and w (`on_tiles`). Ranks
with the same block of W then have different data, and all-reduce its gradients.

The Y of one layer has the layout of the next layer's X if the inner and outer axes are swapped from layer to layer.

A 1×1 convolution is a matmul for every pixel. Its three forms are Megatron's row-parallel layer, its column-parallel
layer, and a matmul on a two-dimensional grid, all three with the gathers and scatters of sequence parallelism.

Source: Dryden et al. 2019, SC, *Channel and Filter Parallelism for Large-Scale CNN Training*, doi
10.1145/3295500.3356207; LLNL/DiHydrogen, legacy/include/distconv/dnn_backend/convolution.hpp, which calls the forms X,
Y and W; X is its default. Relatives: `predict.bytes.convolution`, the bytes of each form; `modes.parts.halos`;
`modes.products.grid_layer`, the same for a linear layer; notebook 34.

Shape suffixes   B  samples, C  channels, F  filters, Y  rows, X  columns on this rank;   K  the kernel
"""

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.where.layout import Cut, even
from hybridlab.core.where.spans import Sight
from hybridlab.modes.parts.halos import COLUMNS, ROWS, convolved
from hybridlab.modes.products.matmul import home
from hybridlab.world.talk.typed import all_gather, enter, reduce_scatter

COPIES = ("dp", "h", "w")  # ranks along these hold the same block of W


class SplitConv(nn.Module):
    """A convolution with its channels sharded over c ranks and its filters over f: this rank keeps one block of W.

    comm          the communicator of this rank
    w_FCKK        the full weight;  b_F  the full bias: a rank keeps the part of its output filters
    convolve      the function that convolves an input with a weight: `conv2d` with its stride, padding and dilation, or
                  `on_tiles`
    inner, outer  the axes that cut its channels and its filters

    raises  ValueError if some rank would have no channel or no filter
    """

    def __init__(self, comm, w_FCKK, b_F, convolve=functional.conv2d, inner: str = "c", outer: str = "f"):
        super().__init__()
        _refuse(comm.mesh, w_FCKK.shape, (outer, inner))
        self.comm, self.convolve = comm, convolve
        self.copies, self.inner, self.outer = (meet(comm, *axes) for axes in (COPIES, (inner,), (outer,)))
        self.weight = nn.Parameter(here(comm, w_FCKK, "W", inner, outer).clone())
        self.bias = nn.Parameter(here(comm, b_F, "b", inner, outer).clone())

    def forward(self, x_BCYX):
        channels, sums = self.comm.for_purpose("channels"), self.comm.for_purpose("weights")
        of_filters, of_channels, *_ = self.weight.shape
        x_BCYX = all_gather(channels, x_BCYX, self.outer, 1, to="R", sizes=_lengths(of_channels, len(self.outer)))
        y_BFYX = self.convolve(x_BCYX, enter(sums, self.weight, self.copies))
        y_BFYX = reduce_scatter(channels, y_BFYX, self.inner, 1, sizes=_lengths(of_filters, len(self.inner)))
        return y_BFYX + enter(sums, self.bias, self.copies)[:, None, None]


def on_tiles(comm, rows: int, columns: int, sight: Sight):
    """A `convolve` for pictures of this many rows and columns, cut along h, w or both: it fetches halos."""
    lengths = {"h": (ROWS, rows), "w": (COLUMNS, columns)}
    ways = {axis: length for axis, length in comm.mesh.axes.items() if axis in lengths and length > 1}
    cuts = {axis: Cut(lengths[axis][0], even(lengths[axis][1], parts)) for axis, parts in ways.items()}
    return lambda x, w: convolved(comm.for_purpose("halo"), x, w, None, cuts, {ROWS: sight, COLUMNS: sight})


def homes(inner: str = "c", outer: str = "f") -> dict[str, tuple[tuple[str, ...], ...]]:
    """The layouts of X, W, b and Y: for each dim the axes that cut it, in order."""
    return {
        "X": (("dp",), (inner, outer), ("h",), ("w",)),
        "W": ((outer,), (inner,), (), ()),
        "b": ((outer, inner),),
        "Y": (("dp",), (outer, inner), ("h",), ("w",)),
    }


def here(comm, whole: torch.Tensor, name: str, inner: str = "c", outer: str = "f"):
    """This rank's part of X, W, b or Y, or of its gradient: a view."""
    return whole[home(comm.mesh, comm.coordinates, whole.shape, homes(inner, outer)[name])]


def meet(comm, *axes: str) -> tuple[int, ...]:
    """The ranks that differ from this one along these axes only; afterwards they can be named as an axis.

    Every rank must make the same calls. An axis that the mesh does not name has one rank.
    """
    comm.open(*comm.mesh.groups(axes))
    return comm.mesh.group(comm.rank, axes)


def _lengths(length, parts) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in even(length, parts))


def _refuse(mesh, shape, axes):
    for what, length, axis in zip(("filters", "channels"), shape, axes):
        if mesh[axis] > length:
            raise ValueError(
                f"{mesh} shards {length} {what} over {mesh[axis]} ranks of {axis}: give {axis} at most {length}"
            )
