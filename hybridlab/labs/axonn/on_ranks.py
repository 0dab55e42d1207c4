"""Notebook 36: AxoNN's layers on real ranks: compared with one device, with every word counted, and matmuls and
messages timed.

A *word* is one number. The words of a collective are counted as in a ring.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.labs.trials.against import dense, gap, words_of
from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.matmul import moved
from hybridlab.predict.time.overlap import Layer, Piece, chain, length

AXES = ("x", "y", "z")


class Home(NamedTuple):
    """The result of one rank: the largest difference from one device, and the words that it sent."""

    gap: float
    forward: int
    backward: int


def counted(pool, sizes: tuple[int, int, int], swapped: bool = False) -> Table:
    """One layer and its backward on the ranks of a pool, rank for rank: counted and predicted words.

    sizes    (rows of the batch, inputs, outputs) of the full layer
    swapped  whether inputs are cut along y and outputs along x, as in every second layer
    """
    m, k, n = sizes
    inner, outer = ("y", "x") if swapped else ("x", "y")
    homes = [Home(*home) for home in pool.run(_layer, (m, (k, n)), inner, outer)]
    foreseen = moved("axonn", sizes, (pool.mesh[inner], pool.mesh[outer], pool.mesh["z"]))
    rows = []
    for rank, home in enumerate(homes):
        place = tuple(pool.mesh.coordinates(rank)[axis] for axis in AXES)
        both = f"{home.forward:,} / {foreseen.sent:,}", f"{home.backward:,} / {foreseen.back:,}"
        rows.append((f"{rank} at {place}", *both))
    worst = max(home.gap for home in homes)
    equal = "Y, dX and dW are those of one device" if worst < 1e-12 else f"Y, dX or dW is off by {worst:.1e}"
    return Table(("rank", "forward: counted / predicted", "backward: counted / predicted"), tuple(rows), f"{equal}.")


class Timed(NamedTuple):
    """A step of a chain of layers on one rank: predicted from its pieces, and measured; plain and overlapped."""

    predicted: dict[str, list[Piece]]
    measured: dict[str, list[Piece]]

    @property
    def lengths(self) -> dict[str, tuple[float, float]]:
        """{form: seconds predicted and measured}, as `labs.machines` takes them."""
        return {name: (length(self.predicted[name]), length(self.measured[name])) for name in self.predicted}


def timed(pool, rows: int, features: Sequence[int], waits: float = 0.0, times: int = 8) -> Timed:
    """Matmuls and messages of a chain of layers: predicted from their separately measured times, and measured.

    rows      the number of rows of the full batch
    features  the number of features of the inputs and of every layer's outputs
    waits     emulated work: seconds that a rank waits instead of each matmul, so that messages have its core
    times     number of tries of each; the fastest counts, because it was disturbed least
    """
    forms = {"plain": False, "overlapped": True}
    layers = [Layer(*one) for one in pool.run(_alone, (rows, tuple(features)), times)[0]]
    if waits:
        layers = [one._replace(forward=waits, by_x=waits, by_w=waits) for one in layers]
    about = (rows, tuple(features)), waits, times
    measured = {name: pool.run(_recorded, over, *about)[0] for name, over in forms.items()}
    pieces = {name: [Piece(*one) for one in its] for name, its in measured.items()}
    return Timed({name: chain(layers, over) for name, over in forms.items()}, pieces)


# --- on a rank ----------------------------------------------------------------------------------------------------


def inputs(features_and_rows):
    """(X, the weights, the gradient of the output), the same on every rank."""

    rows, features = features_and_rows
    weights = [dense((o, i), 3 + number) for number, (i, o) in enumerate(zip(features, features[1:]))]
    return dense((rows, features[0]), 1), weights, dense((rows, features[-1]), 2)


def _layer(comm, sizes, inner, outer):
    from hybridlab.modes.products.grid_layer import GridLinear, here, share

    X, (W,), G = inputs(sizes)
    layer = GridLinear(comm, W, inner, outer)
    x = here(comm, X, inner).clone().requires_grad_()
    start = len(comm.ledger)
    y = layer(x)
    middle = len(comm.ledger)
    forward = words_of(comm.ledger, start)
    y.backward(here(comm, G, outer))
    of_y = gap(y.detach(), here(comm, X @ W.T, outer))
    of_x, of_w = gap(x.grad, here(comm, G @ W, inner)), gap(layer.share.grad, share(comm, G.T @ X, inner, outer))
    return Home(max(of_y, of_x, of_w), forward, words_of(comm.ledger, middle))


def single(sizes):
    """The same inputs in single precision, as in training."""
    X, weights, G = inputs(sizes)
    return X.float(), [w.float() for w in weights], G.float()


def _alone(comm, sizes, times):
    """Seconds of each layer's matmuls and messages, each measured alone."""
    from hybridlab.measuring.grid_layers import pieces
    from hybridlab.modes.products.grid_layer import GridChain

    _, weights, _ = single(sizes)
    return [pieces(comm, layer, sizes[0] // comm.mesh["z"], times) for layer in GridChain(comm, weights).layers]


class Noted:
    """A rank's comm that records when the messages of one layer begin, and when they really end.

    note  note(track, name, begin, end), in ns;  it may be called from a thread that waits for a message
    """

    def __init__(self, comm, layer: int, inner: str, note):
        self._comm, self._layer, self._inner, self._note = comm, layer, inner, note

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def iall_gather(self, x, axis, *about):
        return self._noted(self._comm.iall_gather, x, axis, *about, track="z", name="AG")

    def ireduce_scatter(self, x, axis, *about):
        return self._noted(self._comm.ireduce_scatter, x, axis, *about, track="z", name="RS")

    def iall_reduce(self, x, axis):
        track, name = ("inner", "AR Y") if axis == self._inner else ("outer", "AR dX")
        return self._noted(self._comm.iall_reduce, x, axis, track=track, name=name)

    def _noted(self, send, x, axis, *about, track, name):
        begin = time.perf_counter_ns()
        message = send(x, axis, *about)
        if self._comm.mesh[axis] > 1:
            message.when_over(lambda end: self._note(track, f"{name} {self._layer}", begin, end))
        return message


def _recorded(comm, overlapped, sizes, waits, times):
    """The pieces of the fastest step, in seconds from its beginning."""
    made = single(sizes)
    steps = [_step(comm, overlapped, made, waits) for _ in range(times + 1)][1:]
    return min(steps, key=length)


def _step(comm, overlapped, made, waits):
    from hybridlab.modes.products.grid_layer import GridChain, here

    X, weights, G = made
    net, found = GridChain(comm, weights, overlapped=overlapped), []
    note = lambda track, name, begin, end: found.append((track, name, begin, end))
    for number, layer in enumerate(net.layers):
        layer.multiply = _multiplying(number, note, waits)
        layer.comm = Noted(comm, number, layer.inner, note)
    x = here(comm, X, net.layers[0].inner).clone().requires_grad_()
    g = here(comm, G, net.layers[-1].outer)
    comm.barrier()
    start = time.perf_counter_ns()
    net(x).backward(g)
    comm.barrier()  # by then every message is noted
    pieces = [Piece(track, name, (begin - start) / 1e9, (end - start) / 1e9) for track, name, begin, end in found]
    return sorted(pieces, key=lambda one: one.begin)


def _multiplying(layer, note, waits):
    """A layer's matmuls, in the order in which it computes them: Y, dX, dW."""
    names = iter(("Y", "dX", "dW"))

    def multiply(a, b):
        begin = time.perf_counter_ns()
        product = _waited(a, b, waits) if waits else a @ b
        note("compute", f"{next(names)} {layer}", begin, time.perf_counter_ns())
        return product

    return multiply


def _waited(a, b, seconds):
    """Emulated work: a tensor of the result's shape, after these seconds."""
    time.sleep(seconds)
    return a.new_zeros(len(a), b.shape[1])
