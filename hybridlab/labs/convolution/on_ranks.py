"""Notebook 34 on real ranks: halos counted word by word, statistics of a batch norm, and a step of a strip, timed.

A *word* is one number. In `timed` rows and the link are emulated: a rank waits instead of computing an output row, and
messages arrive with a delay. The layers, the messages and the waits for them are real.
"""

import time
from typing import NamedTuple

from hybridlab.labs.rows import table
from hybridlab.labs.trials.against import dense, gap, words_of
from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.bytes.convolution import Conv, sent
from hybridlab.predict.time.overlap import Piece, length
from hybridlab.predict.time.strips import Speed, played, strip

FORMS = {"plain": False, "overlapped": True}
PLACE = 1  # the rank whose step is shown: with more than two strips it has two neighbours
HALO = "h"


# --- words --------------------------------------------------------------------------------------------------------


def counted(pool, conv: Conv) -> Table:
    """A convolution of cut images and its backward, rank by rank: counted and predicted words of halos."""
    lines, gaps = [], []
    for rank, (off, *words) in enumerate(pool.run(_convolved, tuple(conv))):
        foreseen, gaps = sent(conv, pool.mesh, rank)["halo"], [*gaps, off]
        place = tuple(pool.mesh.coordinates(rank)[axis] for axis in pool.mesh.axes)
        lines.append((f"{rank} at {place}", *(f"{one:,} / {other:,}" for one, other in zip(words, foreseen))))
    equal = "Y and dX are those of one device" if max(gaps) < 1e-12 else f"Y or dX is off by {max(gaps):.1e}"
    return Table(("rank", "forward: counted / predicted", "backward: counted / predicted"), tuple(lines), f"{equal}.")


def cuts_of(mesh, conv: Conv) -> dict:
    """The layout of the pixels of its input and output on a mesh: {axis: Cut}."""
    from hybridlab.core.where.layout import Cut, even
    from hybridlab.modes.parts.halos import COLUMNS, ROWS

    lengths = {"h": (ROWS, conv.rows), "w": (COLUMNS, conv.columns)}
    return {axis: Cut(lengths[axis][0], even(lengths[axis][1], mesh[axis])) for axis in mesh.axes}


def inputs(conv: Conv):
    """(X, W, b, the gradient of Y), the same on every rank."""

    outputs = conv.sight.outputs(conv.rows), conv.sight.outputs(conv.columns)
    return (
        dense((conv.samples, conv.channels, conv.rows, conv.columns), 1),
        dense((conv.filters, conv.channels, conv.kernel, conv.kernel), 2),
        dense((conv.filters,), 3),
        dense((conv.samples, conv.filters, *outputs), 4),
    )


def alone(conv: Conv):
    """({name: X, W, b, Y}, {name: their gradients}) on one device."""
    from torch.nn import functional

    X, W, b, G = inputs(conv)
    leaves = [one.requires_grad_() for one in (X, W, b)]
    Y = functional.conv2d(*leaves, conv.stride, conv.padding, conv.dilation)
    Y.backward(G)
    values = {"X": X.detach(), "W": W.detach(), "b": b.detach(), "Y": Y.detach()}
    return values, {"X": X.grad, "W": W.grad, "b": b.grad, "Y": G}


def rows(x, held, span):
    """The rows of a span, of an x that covers `held`: a view."""
    return x[:, :, span[0] - held[0] : span[1] - held[0]]


def part(comm, x, cuts):
    """This rank's pixels of a picture."""
    for axis, (dim, spans) in cuts.items():
        first, last = spans[comm.coordinates[axis]]
        x = x.narrow(dim, first, last - first)
    return x


def _convolved(comm, sizes):
    from hybridlab.modes.parts.halos import COLUMNS, ROWS, convolved

    conv = Conv(*sizes)
    values, gradients = alone(conv)
    cuts = cuts_of(comm.mesh, conv)
    outputs = conv._replace(rows=conv.sight.outputs(conv.rows), columns=conv.sight.outputs(conv.columns))
    x, after = part(comm, values["X"], cuts).clone().requires_grad_(), cuts_of(comm.mesh, outputs)
    start = len(comm.ledger)
    y = convolved(comm, x, values["W"], values["b"], cuts, {ROWS: conv.sight, COLUMNS: conv.sight})
    middle = len(comm.ledger)
    forward = words_of(comm.ledger, start)
    y.backward(part(comm, gradients["Y"], after))
    of_y, of_x = gap(y.detach(), part(comm, values["Y"], after)), gap(x.grad, part(comm, gradients["X"], cuts))
    return max(of_y, of_x), forward, words_of(comm.ledger, middle)


# --- statistics ---------------------------------------------------------------------------------------------------


def statistics(pool, side: int = 8):
    """Mean and variance of a picture that grows brighter from row to row, and the output of a batch norm for its rows:
    for each strip separately, with sums over all strips, and on one device."""
    ranks = range(pool.mesh.size)
    for_each, summed, whole = zip(*pool.run(_normalised, side))
    lines = [(f"strip {rank}, by itself", *for_each[rank]) for rank in ranks]
    lines += [(f"strip {rank}, sums over all", *summed[rank]) for rank in ranks]
    lines.append(("one device", *whole[0]))
    return table("statistics of | mean | variance | its first row becomes | its last row becomes", lines)


def _normalised(comm, side):
    import torch

    from hybridlab.core.where.layout import Cut, even
    from hybridlab.modes.parts.cut_layers import normalised
    from hybridlab.modes.parts.halos import ROWS

    x = torch.arange(side, dtype=torch.float64)[None, None, :, None].expand(1, 1, side, side)
    cut = {"h": Cut(ROWS, even(side, comm.mesh["h"]))}
    here, scale = part(comm, x, cut), (torch.ones(1), torch.zeros(1), 0.0)
    every, me = tuple(range(comm.size)), (comm.rank,)
    comm.open(every, *((rank,) for rank in every))
    found = []
    for seen, cuts, ranks in ((here, {}, me), (here, cut, every), (x, {}, me)):
        y = normalised(seen, *scale, comm=comm, cuts=cuts, ranks=ranks)
        mean = comm.all_reduce(seen.mean(), ranks) / len(ranks)
        spread = comm.all_reduce((seen - mean).square().mean(), ranks) / len(ranks)
        found.append([round(float(one), 4) for one in (mean, spread, y[0, 0, 0, 0], y[0, 0, -1, 0])])
    return found


# --- a step of a strip --------------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """A forward and a backward of one strip: predicted from its pieces, and measured; plain and overlapped."""

    predicted: dict[str, list[Piece]]
    measured: dict[str, list[Piece]]

    @property
    def lengths(self) -> dict[str, tuple[float, float]]:
        """{form: seconds predicted and measured}, in the form for `labs.machines`."""
        return {form: (length(self.predicted[form]), length(self.measured[form])) for form in self.predicted}


def timed(pool, conv: Conv, row: float, link: float, times: int = 5) -> Timed:
    """A convolution on strips with emulated rows and an emulated link; the fastest of several runs counts.

    row   seconds that a rank waits instead of computing an output row, in the backward twice as long
    link  seconds that a halo takes at least
    """
    strips = pool.mesh["h"]
    its = Speed(rate=conv.flops / conv.sight.outputs(conv.rows) / row, link=Link(0, 0))
    one, other = (strip(conv, strips, PLACE, its, products)._replace(halo=link) for products in (1, 2))
    predicted = {form: played(one, other, over) for form, over in FORMS.items()}
    measured = {form: pool.run(_recorded, tuple(conv), over, row, link, times)[PLACE] for form, over in FORMS.items()}
    return Timed(
        {form: [each._replace(track=_track(each.track)) for each in its] for form, its in predicted.items()},
        {form: [Piece(*each) for each in its] for form, its in measured.items()},
    )


def _track(track: str) -> str:
    return HALO if track == "halo" else track


# --- on a rank ----------------------------------------------------------------------------------------------------


class Held:
    """A rank's comm with a slow link: a message arrives after at least `seconds`; each message is recorded.

    note  note(track, name, begin, end), in ns;  name  the name of the messages that begin now
    """

    def __init__(self, comm, seconds: float, note):
        self._comm, self._seconds, self._note, self.name = comm, seconds, note, "halo"

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def irecv(self, room, source):
        begin, name = time.perf_counter_ns(), self.name
        until = begin + int(1e9 * self._seconds)
        message = self._comm.irecv(room, source)
        message.when_over(lambda end: self._note(HALO, name, begin, max(end, until)))
        return message.then(lambda x: _held(x, until))


def _held(x, until):
    time.sleep(max(0, until - time.perf_counter_ns()) / 1e9)
    return x


def _recorded(comm, sizes, overlapped, row, link, times):
    """The pieces of the fastest step, in seconds from its beginning."""
    steps = [_step(comm, Conv(*sizes), overlapped, row, link) for _ in range(times + 1)][1:]
    return min(steps, key=length)


def _step(comm, conv, overlapped, row, link):
    import torch

    from hybridlab.modes.parts.halos import COLUMNS, ROWS, looked

    found = []
    note = lambda *about: found.append(about)
    slow, cuts = Held(comm, link, note), cuts_of(comm.mesh, conv)
    x = torch.zeros(conv.samples, conv.channels, conv.rows, conv.columns)
    x = part(comm, x, cuts).clone().requires_grad_()
    names = iter(("interior", "border", "border") if overlapped else ("all",))
    waited = _waited()
    make = lambda seen, padding: waited.apply(seen, padding, conv, row, names, note)
    sights = {ROWS: conv.sight, COLUMNS: conv.sight}
    comm.barrier()
    start = time.perf_counter_ns()
    y = looked(slow, x, cuts, sights, make) if overlapped else _plain(slow, x, cuts, sights, make)
    slow.name = "fold"
    y.sum().backward()
    comm.barrier()  # by then every message is noted
    pieces = [Piece(track, name, (begin - start) / 1e9, (end - start) / 1e9) for track, name, begin, end in found]
    return sorted(pieces, key=lambda one: one.begin)


def _plain(comm, x, cuts, sights, make):
    """All rows that a strip wants, and then all its outputs."""
    from hybridlab.core.where.spans import wanted
    from hybridlab.modes.parts.halos import ROWS, View
    from hybridlab.world.talk.typed import window

    have = cuts["h"].spans
    _, want = wanted(have, sights[ROWS])
    view = View(comm, x, cuts, sights, make, 0.0)
    view.saw(window(comm, x, "h", ROWS, have=have, want=want), ROWS, want[comm.coordinates["h"]])
    return view.part(view.mine)


def _waited():
    """A convolution that only takes time: some seconds for a row of outputs, and twice that in the backward."""
    import torch

    class Waited(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, padding, conv, row, names, note):
            above, beside = padding or (0, 0)
            rows, here = x.shape[2] + 2 * above - conv.kernel + 1, x.shape[3] + 2 * beside - conv.kernel + 1
            ctx.shape, ctx.note, ctx.name = x.shape, note, next(names)
            ctx.seconds = row * rows if here == conv.columns else 0.0  # a blank input takes no time
            _taking(ctx.seconds, ctx.name, note)
            return x.new_zeros(len(x), 1, rows, here)

        @staticmethod
        def backward(ctx, gradient):
            _taking(2 * ctx.seconds, f"back: {ctx.name}", ctx.note)
            return gradient.new_zeros(ctx.shape), None, None, None, None, None

    return Waited


def _taking(seconds, name, note):
    if seconds:
        begin = time.perf_counter_ns()
        time.sleep(seconds)
        note("compute", name, begin, time.perf_counter_ns())
