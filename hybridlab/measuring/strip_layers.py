"""Measure a convolution with sharded rows on real ranks, in three forms, with real or emulated work.

    one device   the first rank has the full image, the others nothing
    plain        the halo is received, then all outputs are computed
    overlapped   the halo is received while the interior is computed

A form is one forward and one backward. Real work is a convolution. With emulated work, each row of outputs and each
message takes a given time on any machine: the program, its order and its messages are real, but its arithmetic is not.
So overlap is visible even if ranks share cores.

See also `predict.time.strips` (the prediction), `modes.parts.halos` (the layer), notebook 34 and `bench/halos.py`.
"""

import copy
import random
import statistics
import time
from functools import partial
from typing import NamedTuple

import torch
from torch.nn import functional

from hybridlab.core.where.layout import Cut, even
from hybridlab.core.where.spans import wanted
from hybridlab.measuring.grid_layers import tries
from hybridlab.measuring.timed import now
from hybridlab.modes.parts.halos import COLUMNS, ROWS, View, looked
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.bytes.convolution import Conv
from hybridlab.predict.time.overlap import length
from hybridlab.predict.time.strips import Speed, Strip, played, step
from hybridlab.world.talk.message import Message
from hybridlab.world.talk.typed import fold, window

FORMS = ("one device", "plain", "overlapped")
WARM, TRIES = 3, 7


class Emulated(NamedTuple):
    """The times of emulated work: seconds of a row of outputs in the forward, and of a message."""

    row: float
    message: float

    def speed(self, conv: Conv) -> Speed:
        """The speed, in the form that `predict.time.strips` takes."""
        return Speed(conv.flops / conv.sight.outputs(conv.rows) / self.row, Link(self.message, 0.0))


class StripLayer:
    """A convolution of stride 1 whose rows are cut along h: this rank's strip. emulated  None: real work"""

    def __init__(self, comm, conv: Conv, emulated: Emulated | None = None):
        self.comm, self.conv, self.emulated = slow(comm, emulated.message) if emulated else comm, conv, emulated
        self.sights = {ROWS: conv.sight, COLUMNS: conv.sight}
        self.weight = self._drawn(conv.filters, conv.channels, conv.kernel, conv.kernel)
        self.here, self.have = comm.coordinates["h"], even(conv.rows, comm.mesh["h"])
        self.want = wanted(self.have, conv.sight)[1]
        self.cuts, self.spans = {"h": Cut(ROWS, self.have)}, {"have": self.have, "want": self.want}
        self.x, self.whole = self._rows(self.have[self.here]), self._rows((0, conv.rows))

    def make(self, x, padding):
        """All outputs that x determines."""
        if self.emulated:
            return _Takes.apply(x, self.weight, padding, self.emulated.row / self.conv.columns)
        return functional.conv2d(x, self.weight, padding=padding)

    def step(self, form: str):
        """A forward and a backward; form  one of `FORMS`"""
        if form == "overlapped":
            self._pulled(looked(self.comm, self.x, self.cuts, self.sights, self.make))
        elif form == "plain":
            view = self._view(window(self.comm, self.x, "h", ROWS, **self.spans))
            self._pulled(view.part(view.mine))
        elif self.here == 0:
            view = View(self.comm, self.whole, {}, self.sights, self.make, 0.0)
            self._pulled(view.part(view.mine))

    def rounds(self, number: int) -> dict[str, list[float]]:
        """{form: seconds of each round on the slowest rank}; in a round each form runs one step."""
        taken, order = {form: [] for form in FORMS}, random.Random(0)
        for _ in range(WARM + number):
            for form in order.sample(FORMS, len(FORMS)):
                self.comm.barrier()
                begin = now(self.comm.device)
                self.step(form)
                took = torch.tensor([now(self.comm.device) - begin], dtype=torch.float64)
                taken[form].append(self.comm.all_reduce(took, op="max").item())
        return {form: times[WARM:] for form, times in taken.items()}

    def foreseen(self) -> dict[str, float]:
        """{form: seconds}: for emulated work, from the times of rows and messages; for real work, from its pieces."""
        strips = len(self.have)
        if self.emulated:
            its = self.emulated.speed(self.conv)
            cases = ((1, False), (strips, False), (strips, True))
            return {form: step(self.conv, number, its, over).layer for form, (number, over) in zip(FORMS, cases)}
        strip = self.pieces()
        alone = statistics.median(tries(self.comm, partial(self.step, "one device"), TRIES))
        return dict(zip(FORMS, (alone, length(played(*strip, False)), length(played(*strip, True)))))

    def pieces(self) -> tuple[Strip, Strip]:
        """The parts of one strip's forward and backward, each timed alone."""
        took = lambda does: statistics.median(tries(self.comm, does, TRIES))
        before, after = self._view(), self._view(self._rows(self.want[self.here]))
        inner, mine = before.interior(self.cuts), after.mine
        (first, last), (low, high) = mine[ROWS], inner[ROWS]
        borders = [mine | {ROWS: span} for span in ((first, low), (high, last)) if span[0] < span[1]]
        made = lambda view, boxes: [view.part(box) for box in boxes]
        both = lambda *about: self._pulled(*made(*about))
        forward, backward = [], []
        for about in ((before, [inner]), (after, borders), (after, [mine])):
            forward.append(took(partial(made, *about)))
            backward.append(took(partial(both, *about)) - forward[-1])
        there = took(lambda: window(self.comm, self.x.detach(), "h", ROWS, **self.spans))
        back = took(lambda: fold(self.comm, self._rows(self.want[self.here]).detach(), "h", ROWS, **self.spans))
        return Strip(*forward, there), Strip(*backward, back)

    def _view(self, seen=None) -> View:
        """This rank's rows of a tensor: those that it has and, with `seen`, those that it receives."""
        view = View(self.comm, self.x, self.cuts, self.sights, self.make, 0.0)
        if seen is not None:
            view.saw(seen, ROWS, self.want[self.here])
        return view

    def _pulled(self, *made):
        """Run the backward of some outputs."""
        for leaf in (self.x, self.whole, self.weight):
            leaf.grad = None
        torch.autograd.backward(made, [torch.ones_like(y) for y in made])

    def _rows(self, span):
        return self._drawn(self.conv.samples, self.conv.channels, span[1] - span[0], self.conv.columns)

    def _drawn(self, *shape):
        return torch.randn(*shape, device=self.comm.device).requires_grad_()


class _Takes(torch.autograd.Function):
    """A convolution that only takes time: some seconds for each pixel, and twice as many in the backward."""

    @staticmethod
    def forward(ctx, x, weight, padding, seconds):
        y = functional.conv2d(x, weight, padding=padding).zero_()
        ctx.shape, ctx.seconds = x.shape, seconds * y.shape[ROWS] * y.shape[COLUMNS]
        time.sleep(ctx.seconds)
        return y

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient.new_zeros(()).expand(ctx.shape), None, None, None


def slow(comm, seconds: float):
    """A `comm` with emulated links: messages arrive one after another, each after a given time."""
    door, free = copy.copy(comm), [0.0]

    def irecv(x, source, tag=0):
        message = comm.irecv(x, source, tag)
        over = free[0] = max(time.perf_counter(), free[0]) + seconds
        return Message(lambda: (message.wait(), time.sleep(max(0.0, over - time.perf_counter())))[0])

    door.irecv = irecv
    return door
