"""Halos: layers that use neighbouring pixels, on images that are sharded into strips or tiles.

A rank's outputs determine the inputs that it needs (`core.where.spans`). Its *halo* is the part of them that it does
not hold: rows and columns of its neighbours, beyond its border. Halos are fetched one dim after another. So pixels
across a corner arrive through a neighbour, without a separate message. Only the outer border of an image has padding.

    h cuts rows, w cuts columns     first rows, from above and below; then columns of all rows that are here by then

While a halo is in transit, the rank computes its interior: the outputs that need no halo. Gradients take the same way
back. The rank first computes the gradients of its borders. Then it sends back the part of the halo (the fold), and
meanwhile computes the gradients of the interior.

The layout of pixels is {axis of the mesh: Cut(dim, spans)}, as in a parameter's record. Outputs are sharded evenly, so
a rank may have none while others have some. It still takes part, because the folds of the other ranks wait for it.

Source: Dryden et al. 2019, arXiv:1903.06681 (LBANN). Relatives: `spatial_parallel`, which fits models with these;
`world.talk.windows`; `predict.bytes.spatial`; notebook 34.

Shape suffixes
    B batch · C input channels, F output channels · Y rows of pixels, X columns · K rows of a kernel, L columns
"""

import math

import torch
from torch.nn import functional

from hybridlab.core.where.layout import Cut
from hybridlab.core.where.spans import Repeat, Sight, Span, overlap, wanted
from hybridlab.world.talk import ahead
from hybridlab.world.talk.typed import all_reduce, window

ROWS, COLUMNS = 2, 3
Cuts = dict[str, Cut]
Box = dict[int, Span]  # {dim: a span of outputs}


def convolved(comm, x_BCYX, weight_FCKL, bias_F, cuts: Cuts, sights: dict[int, Sight], groups=1, bring=ahead.window):
    """This rank's outputs of a convolution, from its part of the pictures; the arguments are those of `looked`."""
    stride, dilation = zip(*((sights[dim].stride, sights[dim].dilation) for dim in (ROWS, COLUMNS)))
    make = lambda x_BCYX, pad: functional.conv2d(x_BCYX, weight_FCKL, bias_F, stride, pad, dilation, groups)
    return looked(comm, x_BCYX, cuts, sights, make, bring=bring)


def looked(comm, x_BCYX, cuts: Cuts, sights: dict[int, Sight], make, fill=0.0, bring=ahead.window):
    """This rank's outputs of a layer that looks beyond a pixel: the interior while halos arrive, then the borders.

    cuts    the layout of x's pixels;  sights  {ROWS: …, COLUMNS: …}: the inputs that outputs see
    make    the layer: make(x, padding) computes all outputs that x allows;  fill  the value of the padding
    bring   starts fetching a halo, and returns a handle to wait for
    """
    view = View(comm, x_BCYX, cuts, sights, make, fill)
    wants = {axis: wanted(have, sights[dim])[1] for axis, (dim, have) in cuts.items()}
    lacking = {axis: cut for axis, cut in cuts.items() if wants[axis] != cut.spans}
    box, dim = view.interior(lacking), ROWS
    y_BFYX, todo = None, [box]
    for axis, (following, have) in lacking.items():
        coming = bring(comm, view.x_BCYX, axis, following, have=have, want=wants[axis])
        y_BFYX, dim = view.joined(y_BFYX, todo, dim), following
        view.saw(coming.wait(), dim, wants[axis][comm.coordinates[axis]])
        todo = [box | {dim: border} for border in _beside(box[dim], view.mine[dim])]
        box = box | {dim: view.mine[dim]}
    return view.joined(y_BFYX, todo, dim)


class View:
    """A rank's part of the pixels, and the outputs that it computes.

    whole  {dim: length of the picture};  here  {dim: the inputs that x covers};  mine  {dim: its outputs}
    own    whether x is still the rank's own part, without a halo
    """

    def __init__(self, comm, x_BCYX, cuts, sights, make, fill):
        self.x_BCYX, self.sights, self.make, self.fill, self.own = x_BCYX, sights, make, fill, True
        self.whole = {dim: x_BCYX.shape[dim] for dim in sights}
        self.here = {dim: (0, length) for dim, length in self.whole.items()}
        self.mine = {dim: (0, sights[dim].outputs(length)) for dim, length in self.whole.items()}
        for axis, (dim, have) in cuts.items():
            place, (made, _) = comm.coordinates[axis], wanted(have, sights[dim])
            self.whole[dim], self.here[dim], self.mine[dim] = have[-1][1], have[place], made[place]

    def interior(self, cuts: Cuts) -> Box:
        """The outputs that see only local inputs, along the dims of these cuts."""
        within = lambda dim: self.sights[dim].within(self.here[dim])
        return self.mine | {dim: overlap(within(dim), self.mine[dim]) for dim, _ in cuts.values()}

    def saw(self, x_BCYX, dim: int, span: Span):
        """Take the pixels that have arrived: all of a span along one dim."""
        self.x_BCYX, self.here[dim], self.own = x_BCYX, span, False

    def part(self, box: Box):
        """The outputs of a box, from local pixels."""
        if any(low == high for low, high in box.values()):
            return self._nothing(box)
        x_BCYX, padding, rest = self.x_BCYX, [], []
        for dim, outputs in box.items():
            seen = self.sights[dim].seen(outputs)
            first, last = overlap(seen, (0, self.whole[dim]))
            x_BCYX = x_BCYX.narrow(dim, first - self.here[dim][0], last - first)
            before, after = first - seen[0], seen[1] - last
            padding.append(before if before == after else 0)  # the layer pads without a copy
            rest = [before, after, *rest] if before != after else [0, 0, *rest]
        if any(rest):
            x_BCYX = functional.pad(x_BCYX, rest, value=self.fill)
        elif not self.own:
            x_BCYX = x_BCYX.clone()  # so that only a few rows are saved for the backward, and not all that arrived
        return self.make(x_BCYX, padding)

    def _nothing(self, box: Box):
        """Outputs without elements, which still depend on the weights and the halo: the folds of other ranks wait for
        them.
        """
        blank_BCKL = self.x_BCYX.new_zeros((*self.x_BCYX.shape[:2], *(sight.reach for sight in self.sights.values())))
        sizes = [high - low for low, high in box.values()]
        return self.make(blank_BCKL, 0).expand(-1, -1, *sizes) + self.x_BCYX.narrow(ROWS, 0, 0).sum()

    def joined(self, y_BFYX, boxes: list[Box], dim: int):
        """The outputs so far, placed between those of a first box and those of a second one."""
        first, *second = [self.part(box) for box in boxes]
        return first if y_BFYX is None else torch.cat([first, y_BFYX, *second], dim)


def _beside(inner: Span, outer: Span) -> tuple[Span, Span]:
    """The parts of a span on both sides of a span inside it."""
    return (outer[0], inner[0]), (inner[1], outer[1])


def stretched(comm, x_BCYX, cuts: Cuts, times: dict[int, int]):
    """This rank's part of pictures that are enlarged by nearest neighbour: every pixel is repeated along each dim."""
    first, mine = {}, {}
    for axis, (dim, have) in cuts.items():
        made, want = wanted(have, Repeat(times[dim]))
        if want != have:
            x_BCYX = window(comm, x_BCYX, axis, dim, have=have, want=want)
        place = comm.coordinates[axis]
        first[dim], mine[dim] = want[place][0] * times[dim], made[place]
    for dim, factor in times.items():
        x_BCYX = x_BCYX.repeat_interleave(factor, dim)
    for dim, (low, high) in mine.items():
        x_BCYX = x_BCYX.narrow(dim, low - first[dim], high - low)
    return x_BCYX


def mean(comm, x_BCYX, cuts: Cuts, ranks):
    """The mean over all pixels of each picture, (B, C, 1, 1): the same on all ranks that have parts of the picture."""
    return all_reduce(comm, x_BCYX.sum((ROWS, COLUMNS), keepdim=True), ranks, to="R") / pixels(x_BCYX, cuts)


def pixels(x_BCYX, cuts: Cuts) -> int:
    """The number of pixels of a full picture, of which x is a part."""
    whole = {dim: x_BCYX.shape[dim] for dim in (ROWS, COLUMNS)} | {dim: have[-1][1] for dim, have in cuts.values()}
    return math.prod(whole.values())
