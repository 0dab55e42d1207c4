"""Channel and filter splits on real ranks: Y, dX, dW, db are those of one device; every word is foretold."""

import sys
from functools import partial

import cloudpickle
import pytest
from few import one_in
from torch.nn import functional

import hybridlab as hl
from hybridlab.labs.trials.against import dense, gap
from hybridlab.modes.products import channel_splits
from hybridlab.modes.products.channel_splits import SplitConv, here, on_tiles
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.convolution import Conv, Here, sent

cloudpickle.register_pickle_by_value(sys.modules[__name__])
of_ranks = pytest.mark.ranks
CASES = (
    Conv(samples=2, channels=8, filters=8, rows=6, columns=5),
    Conv(samples=2, channels=8, filters=8, rows=6, columns=5, kernel=1, padding=0),
    Conv(samples=3, channels=5, filters=7, rows=7, columns=9, stride=2),
    Conv(samples=3, channels=7, filters=5, rows=12, columns=11, kernel=2, stride=3, padding=0),
    Conv(samples=3, channels=5, filters=7, rows=11, columns=12, kernel=4, padding=2, dilation=2),
    Conv(samples=3, channels=7, filters=4, rows=11, columns=9, kernel=5, stride=2, padding=2),
    Conv(samples=2, channels=4, filters=9, rows=9, columns=9, kernel=3, padding=2, dilation=2),
)
MESHES = (
    {"c": 2}, {"f": 2}, {"c": 3}, {"f": 3}, {"c": 4}, {"f": 4}, {"c": 2, "f": 2}, {"dp": 2, "c": 2}, {"dp": 2, "f": 2},
    {"c": 4, "f": 2}, {"c": 2, "f": 4}, {"f": 2, "dp": 2, "c": 2},
    {"h": 2, "c": 2}, {"w": 2, "f": 2}, {"h": 4, "f": 2}, {"dp": 2, "h": 2, "f": 2}, {"h": 2, "w": 2, "c": 2},
    {"h": 2, "c": 2, "f": 2},
)  # fmt: skip
FEW = [{"f": 2, "dp": 2, "c": 2}]  # without --long
EVERY = [pytest.param(axes, marks=() if axes in FEW else pytest.mark.long) for axes in MESHES]


def alone(conv: Conv):
    """(what convolves, {name: X, W, b, Y}, {name: their gradients}) on one device."""
    convolve = partial(functional.conv2d, stride=conv.stride, padding=conv.padding, dilation=conv.dilation)
    X = dense((conv.samples, conv.channels, conv.rows, conv.columns), 1).requires_grad_()
    W = dense((conv.filters, conv.channels, conv.kernel, conv.kernel), 2).requires_grad_()
    b = dense((conv.filters,), 3).requires_grad_()
    Y = convolve(X, W, b)
    G = dense(Y.shape, 4)
    Y.backward(G)
    values = {"X": X.detach(), "W": W.detach(), "b": b.detach(), "Y": Y.detach()}
    return convolve, values, {"X": X.grad, "W": W.grad, "b": b.grad, "Y": G}


def words_of(ledger, purpose, since=0) -> float:
    """Elements sent for a purpose from row `since` on, of a collective by a ring."""
    rows = list(zip(ledger.purpose, ledger.op, ledger.group, ledger.bytes))[since:]
    of = lambda op, group, size: size if op == "isend" else cost(op, group, size).bytes
    return sum(of(*about) for why, *about in rows if why == purpose and about[0] != "irecv") / 8


def tried(comm, conv: Conv, sabotage=None, **axes):
    """({name: difference from one device}, {purpose: words forward, backward}, {name: numbers that are convolved})."""
    if sabotage:
        sabotage()
    convolve, values, gradients = alone(conv)
    if comm.mesh["h"] * comm.mesh["w"] > 1:
        convolve = on_tiles(comm, conv.rows, conv.columns, conv.sight)
    held = {}

    def noted(x, w):
        y = convolve(x, w)
        held.update(X=x.numel(), W=w.numel(), Y=y.numel())
        return y

    mine = lambda whole, name: here(comm, whole[name], name, **axes)
    layer = SplitConv(comm, values["W"], values["b"], noted, **axes)
    x = mine(values, "X").clone().requires_grad_()
    start = len(comm.ledger)
    y = layer(x)
    middle = len(comm.ledger)
    y.backward(mine(gradients, "Y"))
    made = {"X": x.grad, "W": layer.weight.grad, "b": layer.bias.grad}
    gaps = {name: gap(one, mine(gradients, name)) for name, one in made.items()}
    gaps["Y"] = gap(y.detach(), mine(values, "Y"))
    counted = {}
    for purpose in ("channels", "halo", "weights"):
        both = words_of(comm.ledger, purpose, start), words_of(comm.ledger, purpose, middle)
        counted[purpose] = both[0] - both[1], both[1]
    return gaps, counted, held


def every(comm, cases):
    return [tried(comm, case) for case in cases]


@of_ranks
@pytest.mark.parametrize("axes", EVERY, ids=str)
def test_on_every_grid_it_is_one_device_and_sends_and_holds_what_is_foretold(axes):
    mesh = hl.Mesh(**axes)
    with hl.ranks(mesh) as pool:
        for rank, found in enumerate(pool.run(every, CASES)):
            for conv, (gaps, counted, held) in zip(CASES, found):
                assert max(gaps.values()) < 1e-12, (conv, rank, gaps)
                foreseen = sent(conv, mesh, rank)
                assert counted == {purpose: foreseen[purpose] for purpose in counted}, (conv, rank)
                assert held == Here(conv, mesh, rank).held(), (conv, rank)


# --- mutants ------------------------------------------------------------------------------------------------------


def as_if_one_used_it():
    """A mutant: X is gathered for work that is the same everywhere, so each rank keeps its own summand of dX."""
    real = channel_splits.all_gather
    channel_splits.all_gather = lambda comm, x, axis, dim, to, sizes: real(comm, x, axis, dim, to="I", sizes=sizes)


def samples_not_added():
    """A mutant: ranks that saw other samples keep their gradients of W to themselves."""
    channel_splits.enter = lambda comm, x, axis: x


def bias_before_the_sum():
    """A mutant: a bias of 1 is added to every rank's summand, so that the sum has it once for each rank."""
    real = channel_splits.reduce_scatter
    channel_splits.reduce_scatter = lambda comm, y, axis, dim, sizes: real(comm, y + 1, axis, dim, sizes=sizes) - 1


def own_summand_only():
    """A mutant: nothing is added up along c."""
    channel_splits.reduce_scatter = lambda comm, y, axis, dim, sizes: y.split(sizes, dim)[axis.index(comm.rank)]


def weight_the_other_way():
    """A mutant: the axes that cut the weight are exchanged."""
    real = channel_splits.homes
    channel_splits.homes = lambda inner, outer: real(inner, outer) | {"W": real(outer, inner)["W"]}


@of_ranks
@pytest.mark.parametrize(
    "mutant, hurt, axes",
    one_in(
        3,
        [
            (as_if_one_used_it, "X", {"f": 2}),
            (samples_not_added, "W", {"dp": 2}),
            (samples_not_added, "b", {"dp": 2}),
            (bias_before_the_sum, "Y", {"c": 2}),
            (own_summand_only, "Y", {"c": 2}),
            (weight_the_other_way, "Y", {"c": 2, "f": 2}),
        ],
    ),
)
def test_a_mutant_is_caught(mutant, hurt, axes):
    with hl.ranks(hl.Mesh(**axes)) as pool:
        assert max(gaps[hurt] for gaps, *_ in pool.run(tried, CASES[0], mutant)) > 1e-3


# --- layers one behind the other ----------------------------------------------------------------------------------


def chained(comm, swapped: bool):
    """The gap of two layers to one device; the axes of the second are those of the first, or swapped."""
    x = dense((2, 8, 5, 5), 1)
    first, second = dense((12, 8, 3, 3), 2), dense((6, 12, 1, 1), 3)
    b, d = dense((12,), 4), dense((6,), 5)
    right = functional.conv2d(functional.conv2d(x, first, b).relu(), second, d)
    axes = ("f", "c") if swapped else ("c", "f")
    layers = SplitConv(comm, first, b), SplitConv(comm, second, d, functional.conv2d, *axes)
    y = layers[1](layers[0](here(comm, x, "X")).relu())
    return gap(y.detach(), here(comm, right, "Y", *axes))


@of_ranks
def test_one_layers_output_lies_as_the_next_ones_input_once_the_axes_are_swapped():
    with hl.ranks(hl.Mesh(c=2, f=2)) as pool:
        assert max(pool.run(chained, True)) < 1e-12
        assert max(pool.run(chained, False)) > 1e-3


@of_ranks
def test_more_ranks_than_filters_are_refused_on_every_rank():
    with hl.ranks(hl.Mesh(f=2)) as pool, pytest.raises(Exception, match="shards 1 filters over 2 ranks of f"):
        pool.run(tried, CASES[0]._replace(filters=1))


def test_a_filter_for_each_rank_is_enough():
    mesh = hl.Mesh(c=2, f=4)
    channel_splits._refuse(mesh, (4, 2, 3, 3), ("f", "c"))
    with pytest.raises(ValueError, match="shards 1 channels over 2 ranks of c: give c at most 1"):
        channel_splits._refuse(mesh, (4, 1, 3, 3), ("f", "c"))
