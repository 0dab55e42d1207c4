"""Predict the times of a rank's matmuls and messages, one after another, or with messages during matmuls.

A rank computes on one track and sends on another. Each track runs one piece after another, and the tracks do not slow
each other down. On cores that send as well as compute, they do; a measurement shows by how much. All ranks are assumed
equal.

    chain    the layers of `modes.products.grid_layer`, forward and backward
    panels   the panels of `modes.products.matmul.summa` and `summa_ahead`, forward and backward

Times are inputs: from a machine's rates, or measured one by one. Relatives: `predict.time.buckets`, reductions of
gradients during a backward; notebooks 31 and 36, `bench/grids.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.doors import AMOUNT, guarded


class Piece(NamedTuple):
    """A matmul or a message. track: "compute", or the axis of the message;  name: the operation and its layer."""

    track: str
    name: str
    begin: float
    end: float


@guarded(AMOUNT)
class Layer(NamedTuple):
    """Seconds of one layer's three matmuls and four messages.

    forward  the matmul Y
    by_x     the matmul dX
    by_w     the matmul dW
    gather   the all-gather of the weight, before the forward
    sum_y    the all-reduce of the outputs
    sum_x    the all-reduce of the inputs' gradients
    scatter  the reduce-scatter of the weight's gradients
    """

    forward: float
    by_x: float
    by_w: float
    gather: float = 0.0
    sum_y: float = 0.0
    sum_x: float = 0.0
    scatter: float = 0.0


class Tracks:
    """The two tracks of a rank, with the pieces so far."""

    def __init__(self):
        self.pieces: list[Piece] = []
        self.now = self.free = 0.0  # the ends of the last pieces on the rank and on the link

    def work(self, name: str, seconds: float) -> None:
        """Add a computation, which occupies the rank."""
        if seconds:
            self.pieces.append(Piece("compute", name, self.now, self.now + seconds))
        self.now += seconds

    def send(self, track: str, name: str, seconds: float) -> float:
        """Start a message, and return its end."""
        begin = max(self.now, self.free)
        if seconds:
            self.pieces.append(Piece(track, name, begin, begin + seconds))
            self.free = begin + seconds
        return begin + seconds if seconds else self.now

    def wait(self, over: float) -> None:
        """Wait until this time."""
        self.now = max(self.now, over)


def length(pieces: Sequence[Piece]) -> float:
    """The end of the last piece.

    pieces  with their start and end
    """
    return max((one.end for one in pieces), default=0.0)


def exposed(pieces: Sequence[Piece]) -> float:
    """Seconds in which a rank does not compute."""
    return length(pieces) - added(one.end - one.begin for one in pieces if one.track == "compute")


def chain(layers: Sequence[Layer], overlapped: bool) -> list[Piece]:
    """The pieces of a chain of layers: forward in order, backward in reverse order.

    layers      in order of the forward
    overlapped  messages run during matmuls

    >>> one = Layer(forward=2, by_x=2, by_w=2, gather=1, sum_x=1, scatter=1)
    >>> length(chain([one, one], overlapped=False)), length(chain([one, one], overlapped=True))
    (18.0, 14.0)
    """
    does = Tracks()
    (_forward_under if overlapped else _forward)(does, layers)
    (_backward_under if overlapped else _backward)(does, layers)
    return does.pieces


def _forward(does, layers):
    for i, one in enumerate(layers):
        does.wait(does.send("z", f"AG {i}", one.gather))
        does.work(f"Y {i}", one.forward)
        does.wait(does.send("inner", f"AR Y {i}", one.sum_y))


def _forward_under(does, layers):
    """The forward: the next layer's weights are gathered during a layer's matmul."""
    coming = does.send("z", "AG 0", layers[0].gather)
    for i, one in enumerate(layers):
        after = does.send("z", f"AG {i + 1}", layers[i + 1].gather) if i + 1 < len(layers) else 0.0
        does.wait(coming)
        does.work(f"Y {i}", one.forward)
        does.wait(does.send("inner", f"AR Y {i}", one.sum_y))
        coming = after


def _backward(does, layers):
    for i, one in reversed(list(enumerate(layers))):
        does.work(f"dX {i}", one.by_x)
        does.work(f"dW {i}", one.by_w)
        does.wait(does.send("outer", f"AR dX {i}", one.sum_x))
        does.wait(does.send("z", f"RS {i}", one.scatter))


def _backward_under(does, layers):
    """The backward: dX is all-reduced during the matmul of dW; a layer's dW is scattered during the previous layer."""
    leaving = 0.0
    for i, one in reversed(list(enumerate(layers))):
        does.work(f"dX {i}", one.by_x)
        added = does.send("outer", f"AR dX {i}", one.sum_x)
        does.work(f"dW {i}", one.by_w)
        does.wait(added)
        does.wait(leaving)
        leaving = does.send("z", f"RS {i}", one.scatter)


def panels(number: int, product: float, move: float, ahead: bool) -> list[Piece]:
    """SUMMA's panels: a matmul takes `product` seconds, a broadcast takes `move` seconds; in the backward, there are
    two matmuls and a reduction.

    >>> length(panels(4, product=2, move=1, ahead=False)), length(panels(4, product=2, move=1, ahead=True))
    (32.0, 26.0)
    """
    does, every = Tracks(), range(number)
    coming = 0.0
    for i in every:
        if i == 0 or not ahead:
            coming = does.send("panel", f"panel {i}", move)
        does.wait(coming)
        if ahead and i + 1 < number:
            coming = does.send("panel", f"panel {i + 1}", move)
        does.work(f"C {i}", product)
    leaving = 0.0
    for i in reversed(every):
        does.work(f"dA, dB {i}", 2 * product)
        does.wait(leaving)
        leaving = does.send("panel", f"fold {i}", move)
        if not ahead:
            does.wait(leaving)
    return does.pieces
