"""AxoNN's layer alone: on every grid what one device makes, plain and overlapped, with the words that are predicted."""

import itertools

import pytest
import torch

import hybridlab as hl
from hybridlab.labs.trials.against import dense, gap, words_of
from hybridlab.modes.products import grid_layer
from hybridlab.modes.products.grid_layer import GridChain, here, share
from hybridlab.predict.bytes.matmul import moved

pytestmark = pytest.mark.ranks
EVEN, ODD = (8, (16, 32, 24, 8)), (9, (15, 33, 10, 7))  # rows of the batch, features
GRIDS = [grid for grid in itertools.product((1, 2, 4, 8), repeat=3) if grid[0] * grid[1] * grid[2] == 8]


def alone(sizes):
    """(input, weights, gradient of the output, output, gradients) on one device."""
    rows, features = sizes
    x, g = dense((rows, features[0]), 1), dense((rows, features[-1]), 2)
    weights = [dense((o, i), 3 + n).requires_grad_() for n, (i, o) in enumerate(zip(features, features[1:]))]
    y = x.requires_grad_()
    for number, w in enumerate(weights):
        y = y @ w.T
        y = torch.nn.functional.gelu(y) if number < len(weights) - 1 else y
    y.backward(g)
    return x.detach(), [w.detach() for w in weights], g, y.detach(), x.grad, [w.grad for w in weights]


def tried(comm, sizes, overlapped, sabotage=None):
    """(the largest difference from one device, words sent, this rank's gradients)."""
    if sabotage:
        sabotage()
    x, weights, g, y, by_x, by_w = alone(sizes)
    chain = GridChain(comm, weights, overlapped=overlapped)
    last = "xy"[len(weights) % 2 == 1]
    mine = here(comm, x, "x").clone().requires_grad_()
    start = len(comm.ledger)
    out = chain(mine)
    out.backward(here(comm, g, last))
    sent = words_of(comm.ledger, start)
    gaps = [gap(out.detach(), here(comm, y, last)), gap(mine.grad, here(comm, by_x, "x"))]
    for layer, right in zip(chain.layers, by_w):
        gaps.append(gap(layer.share.grad, share(comm, right, layer.inner, layer.outer)))
    return max(gaps), sent, [layer.share.grad for layer in chain.layers]


def predicted(sizes, grid) -> int:
    """Words of three layers, forward and backward: odd ones take x for their inputs, even ones y."""
    rows, features = sizes
    total = 0
    for number, (i, o) in enumerate(zip(features, features[1:])):
        inner, outer = (grid[0], grid[1]) if number % 2 == 0 else (grid[1], grid[0])
        one = moved("axonn", (rows, i, o), (inner, outer, grid[2]))
        total += one.sent + one.back
    return total


def on(grid, *about):
    with hl.ranks(hl.Mesh(x=grid[0], y=grid[1], z=grid[2])) as pool:
        return pool.run(tried, *about)


@pytest.mark.parametrize(
    "grid", [pytest.param(one, marks=() if one == (2, 2, 2) else pytest.mark.long) for one in GRIDS], ids=str
)
def test_on_every_grid_it_is_one_device_plain_and_overlapped(grid):
    with hl.ranks(hl.Mesh(x=grid[0], y=grid[1], z=grid[2])) as pool:
        for sizes in (EVEN, ODD):
            plain, overlapped = pool.run(tried, sizes, False), pool.run(tried, sizes, True)
            assert max(gap for gap, *_ in plain + overlapped) < 1e-12
            assert [sent for _, sent, _ in plain] == [sent for _, sent, _ in overlapped]
            for (_, _, one), (_, _, other) in zip(plain, overlapped):
                assert all(map(torch.equal, one, other)), "the same sums in the same order: the same bits"
            if sizes == EVEN:
                assert {sent for _, sent, _ in plain} == {predicted(EVEN, grid)}


def not_entered():
    """A mutant: what all ranks along outer used is as if one had."""
    grid_layer.enter = lambda comm, x, axis: x


def not_sent():
    """A mutant: the sum of dX is forgotten in the overlapped form."""
    plain = grid_layer.Product.forward
    grid_layer.Product.forward = staticmethod(lambda ctx, x, w, multiply, send: plain(ctx, x, w, multiply, None))


def summands():
    """A mutant: the summands of Y are not added."""
    grid_layer.all_reduce = lambda comm, x, axis, to: x


@pytest.mark.parametrize("overlapped, mutant", [(False, not_entered), (True, not_sent), (False, summands)])
def test_a_mutant_is_caught(overlapped, mutant):
    assert max(gap for gap, *_ in on((2, 2, 1), EVEN, overlapped, mutant)) > 1e-3


def in_order(comm):
    """[(products made so far, message that begins)] of an overlapped chain's backward, and how many products it has."""
    made, begun = [], []
    x, weights, g, *_ = alone(EVEN)

    def multiply(a, b):
        made.append(a.shape)
        return a @ b

    chain = GridChain(comm, weights, overlapped=True, multiply=multiply)
    out = chain(here(comm, x, "x"))
    made.clear()
    begin = comm.ledger.begin
    comm.ledger.begin = lambda op, *about, **more: begun.append((len(made), op)) or begin(op, *about, **more)
    out.backward(here(comm, g, "y"))
    del comm.ledger.begin
    return begun, len(made)


def test_messages_begin_between_the_products():
    with hl.ranks(hl.Mesh(x=2, y=2, z=2)) as pool:
        begun, products = pool.run(in_order)[0]
    assert products == 5, "two for each layer, but for the first one's input, which has no gradient"
    assert [at for at, op in begun if op == "all_reduce"] == [1, 3], "behind dX, before dW"
    assert [at for at, op in begun if op == "reduce_scatter"] == [2, 4, 5], "behind dW"
