"""Typed collectives that start before their result is needed, to overlap with other work.

    coming = ahead.all_gather(comm, w, "z", 0, to="R")    # begins
    y = x @ a                                             # meanwhile
    z = y @ coming.wait()                                 # needed here

Gradients go the same way back, from `wait` to the start: the backward of `wait` starts the transposed move, and the
backward of the start waits for it. Autograd runs in reverse order. So work between the two in the forward is also
between the two in the backward: a collective *prefetched* in the forward is *deferred* in the backward, without further
code.

Each function has the arguments of the function with this name in `typed`. If its result is waited for at once, both
give the same bits.
"""

import torch

from hybridlab.world.talk.ledger import caller
from hybridlab.world.talk.message import Message
from hybridlab.world.talk.typed import MOVES, WHOLE, Parts, stated, transposed
from hybridlab.world.talk.windows import Windows


class Coming:
    """A tensor in transit."""

    def __init__(self, token, way):
        self._token, self._way = token, way

    def wait(self):
        """The tensor; gradients flow back through it."""
        return _Wait.apply(self._token, self._way)


class _Way:
    """The shared state of the two ends of a move: the move, and its message in transit, in both directions."""

    def __init__(self, comm, axis, move, cut, joined):
        self.comm, self.axis, self.move, self.cut, self.joined = comm, axis, move, cut, joined
        self.source, self.message = caller(), None

    def go(self, x):
        self._begin(self.move, x, self.cut, self.joined)

    def back(self, gradient):
        self._begin(transposed(self.move), gradient, self.joined, self.cut)

    def over(self):
        """Return the tensor that arrived, and free the message with all its tensors."""
        message, self.message = self.message, None
        return message.wait()

    def _begin(self, move, x, cut, joined):
        if self.comm.group(self.axis).size == 1 and not isinstance(cut, Windows):
            self.message = Message(lambda: x.view_as(x))
        else:
            with self.comm.ledger.said_at(self.source):
                self.message = MOVES[move].start(self.comm, x, self.axis, cut, joined)


class _Start(torch.autograd.Function):
    """The start of a move; it returns an empty token, from which autograd derives the order."""

    @staticmethod
    def forward(ctx, x, way):
        ctx.way = way
        way.go(x.detach())
        return x.new_empty(0)

    @staticmethod
    def backward(ctx, _):
        return ctx.way.over(), None


class _Wait(torch.autograd.Function):
    """The end of a move."""

    @staticmethod
    def forward(ctx, token, way):
        ctx.way = way
        return way.over()

    @staticmethod
    def backward(ctx, gradient):
        ctx.way.back(gradient)
        return gradient.new_empty(0), None


def enter(comm, x, axis) -> Coming:
    return start(comm, x, axis, "I->R")


def all_reduce(comm, x, axis, *, to: str) -> Coming:
    return start(comm, x, axis, f"P->{stated('all_reduce', 'to', to)}")


def all_gather(comm, x, axis, dim: int, *, to: str, sizes=None) -> Coming:
    return start(comm, x, axis, f"V->{stated('all_gather', 'to', to)}", Parts(dim, sizes))


def reduce_scatter(comm, x, axis, dim: int, *, sizes=None) -> Coming:
    return start(comm, x, axis, "P->V", Parts(dim, sizes))


def window(comm, x, axis, dim: int, *, have, want) -> Coming:
    return start(comm, x, axis, "V->W", Windows(dim, tuple(have), tuple(want)))


def fold(comm, x, axis, dim: int, *, have, want) -> Coming:
    return start(comm, x, axis, "S->V", Windows(dim, tuple(have), tuple(want)))


def start(comm, x, axis, move: str, cut=WHOLE, joined=None) -> Coming:
    """Start a move, given by its name in `typed.MOVES`."""
    way = _Way(comm, axis, move, cut, cut if joined is None else joined)
    return Coming(_Start.apply(x, way), way)
