"""Compute what each rank of a grid sends and holds for a convolution, in elements.

Samples, space, channels or filters may be sharded.

Y = X∗W, of samples, C channels, F filters, rows and columns of pixels. A grid has the axes dp (samples), h and w (rows
and columns), c (channels) and f (filters). Ranks that differ only in c or f shard the channels of X and the filters of
Y (`modes.products.channel_splits`).

  tensor          among           forward                         backward
  channels        ranks along f   all-gather of X                 reduce-scatter of dX
                  ranks along c   reduce-scatter of Y             all-gather of dY
  halo            ranks along h   rows that a neighbour needs     gradients of these
                  and w           columns, the same               the same
  weights         dp, h, w                                        all-reduce of the block of dW, and of db

Sizes are in elements. Gathers and scatters use a ring, with parts padded to the longest; a halo is not padded.

Which form sends the least? "X stays" (only axis c) sends Y, so it is best for a small Y: fewer filters than channels,
or a stride. "Y stays" (only f) sends X. "W stays" (both) sends a part of both, and with C = F it is best for four ranks
or more.

Source: Dryden et al. 2019, SC, *Channel and Filter Parallelism for Large-Scale CNN Training*, doi
10.1145/3295500.3356207. See also `modes.products.channel_splits`, `predict.bytes.spatial` (halos),
`predict.time.strips` (the seconds of strips) and notebook 34.
"""

import itertools
from functools import cache
from math import prod
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.where.layout import even
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.spans import Sight
from hybridlab.doors import AMOUNT, COUNT, guarded
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.spatial import moved

AXES = ("dp", "h", "w", "c", "f")
COPIES = ("dp", "h", "w")  # ranks along these hold the same block of W


@guarded(COUNT, padding=AMOUNT)
class Conv(NamedTuple):
    """The sizes of a convolution with a square kernel.

    samples        images in the batch
    channels       of an input
    filters        channels of an output
    rows, columns  of an input
    kernel         rows of the kernel, and columns
    stride         places from one output to the next
    padding        places added on each side
    dilation       places from one element of the kernel to the next

    >>> first = Conv(samples=1, channels=3, filters=64, rows=224, columns=224, kernel=7, stride=2, padding=3)
    >>> [first.numbers(name) for name in "XWY"]
    [150528, 9408, 802816]
    """

    samples: int
    channels: int
    filters: int
    rows: int
    columns: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    dilation: int = 1

    @property
    def sight(self) -> Sight:
        """The `Sight` of its outputs, the same along rows and columns."""
        return Sight(self.kernel, self.stride, self.padding, self.padding, self.dilation)

    def numbers(self, name: str) -> int:
        """The number of elements of X, Y, W or b."""
        outputs = self.sight.outputs
        return {
            "X": self.samples * self.channels * self.rows * self.columns,
            "Y": self.samples * self.filters * outputs(self.rows) * outputs(self.columns),
            "W": self.filters * self.channels * self.kernel**2,
            "b": self.filters,
        }[name]

    @property
    def flops(self) -> int:
        """The FLOPs of the forward; the backward has twice as many."""
        return 2 * self.numbers("Y") * self.channels * self.kernel**2


class Sent(NamedTuple):
    """Elements that one rank sends."""

    forward: float
    backward: float


def sent(conv: Conv, mesh: Mesh, rank: int) -> dict[str, Sent]:
    """The elements that one rank sends: {purpose: elements}, for the purposes "channels", "halo" and "weights".

    >>> conv = Conv(samples=1, channels=8, filters=8, rows=6, columns=6)
    >>> [sent(conv, mesh, 0)["channels"].forward for mesh in (Mesh(c=4), Mesh(f=4), Mesh(c=2, f=2))]
    [216.0, 216.0, 144.0]
    >>> sent(conv, Mesh(h=3), 1)["halo"]  # a row to each of two neighbours
    Sent(forward=96, backward=96)
    """
    here = Here(conv, mesh, rank)
    return {"channels": here.channels(), "halo": here.halo(), "weights": here.weights()}


def sent_in_all(conv: Conv, mesh: Mesh) -> float:
    """The elements that the busiest rank sends, forward and backward, for all purposes."""
    return max(added(map(added, sent(conv, mesh, rank).values())) for rank in range(mesh.size))


def ranked(conv: Conv, ranks: int, axes: tuple[str, ...] = ("c", "f")) -> list[tuple[float, Mesh]]:
    """All grids of `ranks` ranks over some axes, with the elements of the busiest rank; the grid that sends the least
    is first.

    raises  ValueError if there is none: no axis can have more ranks than elements

    A residual block of ResNet-50 has one convolution for each of the three forms:

    >>> wide, narrow = 256, 64
    >>> for channels, filters, kernel in ((wide, narrow, 1), (narrow, narrow, 3), (narrow, wide, 1)):
    ...     (least, grid), *others = ranked(Conv(1, channels, filters, 56, 56, kernel, padding=kernel // 2), 4)
    ...     print(grid, f"{least:,.0f}; others", *(f"{much:,.0f}" for much, _ in others))
    Mesh(c=4) 301,056; others 501,760 1,204,224
    Mesh(c=2, f=2) 200,704; others 301,056 301,056
    Mesh(f=4) 301,056; others 501,760 1,204,224

    Over all axes, it is best to shard the samples of an early layer, and the channels and filters of a late layer:

    >>> for conv in (Conv(8, 64, 64, 224, 224), Conv(8, 512, 512, 7, 7)):
    ...     (least, grid), *others = ranked(conv, 4, AXES)
    ...     print(grid, f"sends {least:,.0f}, {others[-1][1]} {others[-1][0] / least:.0f} times as much")
    Mesh(dp=4) sends 55,392, Mesh(f=4) 696 times as much
    Mesh(c=2, f=2) sends 200,704, Mesh(w=4) 18 times as much
    """
    found = []
    for lengths in itertools.product(_divisors(ranks), repeat=len(axes)):
        mesh = Mesh(**{axis: length for axis, length in zip(axes, lengths) if length > 1})
        if prod(lengths) == ranks and fits(conv, mesh):
            found.append((sent_in_all(conv, mesh), mesh))
    if not found:
        raise ValueError(f"{ranks} ranks cannot divide {conv} along {', '.join(axes)}: use fewer ranks, or other axes")
    return sorted(found, key=lambda one: (one[0], repr(one[1])))


def fits(conv: Conv, mesh: Mesh) -> bool:
    """Whether every rank has work."""
    outputs = map(conv.sight.outputs, (conv.rows, conv.columns))
    there = conv.samples, *outputs, conv.channels, conv.filters
    return all(mesh[axis] <= length for axis, length in zip(AXES, there))


class Here:
    """One rank of a grid: the lengths of its shards, and the elements that it sends.

    >>> Here(Conv(samples=3, channels=8, filters=8, rows=6, columns=6), Mesh(dp=2, c=2), rank=0).held()
    {'X': 288, 'W': 288, 'Y': 576}
    """

    def __init__(self, conv: Conv, mesh: Mesh, rank: int):
        self.conv, self.mesh = conv, mesh
        place = mesh.coordinates(rank)
        self.at = {axis: place.get(axis, 0) for axis in AXES}
        self.samples = self._part(conv.samples, "dp")
        self.channels_here, self.filters_here = self._part(conv.channels, "c"), self._part(conv.filters, "f")

    def channels(self) -> Sent:
        pixels_in, pixels_out = self.pixels()
        gathered = _around(self.channels_here, self.mesh["f"], self.samples * pixels_in)
        scattered = _around(self.filters_here, self.mesh["c"], self.samples * pixels_out)
        return Sent(gathered + scattered, gathered + scattered)

    def halo(self) -> Sent:
        of_it = self.samples * self.channels_here
        here = tuple(self.at[axis] for axis, _ in _pixels(self.conv) if self.mesh[axis] > 1)
        uncut = prod(length for axis, length in _pixels(self.conv) if self.mesh[axis] == 1)
        messages = _messages(self.conv, self.mesh).items()
        there, back = (added(pixels for ends, pixels in messages if ends[end] == here) for end in (0, 1))
        return Sent(of_it * uncut * there, of_it * uncut * back)

    def weights(self) -> Sent:
        copies = prod(self.mesh[axis] for axis in COPIES)
        bias = self._part(self.filters_here, "c")
        block = self.filters_here * self.channels_here * self.conv.kernel**2
        return Sent(0, cost("all_reduce", copies, block + bias).bytes)

    def held(self) -> dict[str, int]:
        """The elements that this rank convolves: those of the gathered X without its halo, of W, and of Y before its
        partial sums are scattered."""
        pixels_in, pixels_out = self.pixels()
        return {
            "X": self.samples * self.channels_here * pixels_in,
            "W": self.filters_here * self.channels_here * self.conv.kernel**2,
            "Y": self.samples * self.filters_here * pixels_out,
        }

    def pixels(self) -> tuple[int, int]:
        """(pixels of an input on this rank, pixels of an output that it computes)"""
        lengths = [(axis, length, self.conv.sight.outputs(length)) for axis, length in _pixels(self.conv)]
        of_input, of_output = (prod(self._part(one[which], one[0]) for one in lengths) for which in (1, 2))
        return of_input, of_output

    def _part(self, length, axis) -> int:
        begin, end = even(length, self.mesh[axis])[self.at[axis]]
        return end - begin


@cache
def _messages(conv: Conv, mesh: Mesh) -> dict:
    """{(sender, receiver): pixels} of one channel of one sample; ranks are coordinates along the axes that shard
    pixels."""
    spans = [even(length, mesh[axis]) for axis, length in _pixels(conv) if mesh[axis] > 1]
    return moved(spans, [conv.sight] * len(spans))


def _pixels(conv: Conv) -> tuple[tuple[str, int], ...]:
    return ("h", conv.rows), ("w", conv.columns)


def _around(length: int, parts: int, each: int) -> float:
    """The elements that a ring of ranks sends to gather or scatter `length` rows of `each` numbers."""
    return cost("all_gather", parts, -(-length // parts) * parts * each).bytes


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]
