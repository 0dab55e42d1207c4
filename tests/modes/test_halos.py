"""Layers on cut pictures, alone: outputs and gradients are those of one device, and bytes those of the boxes."""

import itertools
import sys

import cloudpickle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import hybridlab as hl
from hybridlab.core.where.layout import Cut, even
from hybridlab.core.where.spans import Repeat, Sight, overlap, wanted
from hybridlab.modes.parts import halos
from hybridlab.modes.parts.cut_layers import forward_of, sights_of
from hybridlab.modes.parts.halos import COLUMNS, ROWS
from hybridlab.predict.bytes.spatial import moved, textbook
from hybridlab.world.talk import typed, windows

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SHORT = hl.Mesh(h=2, w=2)
MESHES = [SHORT, hl.Mesh(h=4), hl.Mesh(w=4), hl.Mesh(dp=2, h=2), hl.Mesh(dp=2, h=2, w=2), hl.Mesh(w=2, h=3)]
CASES = [  # kernel, stride, dilation, padding, size of the picture
    (kernel, stride, dilation, padding, size)
    for kernel, stride, dilation in itertools.product(range(1, 6), range(1, 4), (1, 2))
    for padding in sorted({0, kernel // 2 * dilation})
    for size in ((12, 12), (11, 9))
]
FEW = [*CASES[::23], (3, 2, 1, 1, (2, 3)), (2, 1, 1, 1, (1, 4)), (5, 3, 2, 4, (11, 9))]


def dense(shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cuts_of(mesh, size):
    """How pictures of this size lie on a mesh."""
    dims = (("h", ROWS), ("w", COLUMNS))
    return {axis: Cut(dim, even(size[dim - 2], mesh[axis])) for axis, dim in dims if mesh[axis] > 1}


def mine(comm, x, cuts):
    """A rank's part of a whole: some of the samples, some of the pixels."""
    spans = [(0, even(len(x), comm.mesh["dp"])[comm.coordinates.get("dp", 0)])]
    for dim, (low, high) in spans + [(dim, have[comm.coordinates[axis]]) for axis, (dim, have) in cuts.items()]:
        x = x.narrow(dim, low, high - low)
    return x


def foreseen(comm, cuts, size, sights, channels, samples):
    """The bytes that this rank sends forward, and backward: the same messages the other way round."""
    spans = [cuts[axis].spans if axis in cuts else ((0, length),) for axis, length in zip("hw", size)]
    here = tuple(comm.coordinates.get(axis, 0) for axis in "hw")
    each = 8 * channels * samples
    messages = moved(spans, [sights[dim] for dim in (ROWS, COLUMNS)]).items()
    return [sum(each * pixels for places, pixels in messages if places[end] == here) for end in (0, 1)]


def compared(comm, alone, apart, x, weights, sights):
    """(largest relative gap of outputs and gradients, [bytes sent forward, backward], the same by the formula)."""
    size = x.shape[2:]
    leaves = [one.clone().requires_grad_() for one in (x, *weights)]
    y = alone(*leaves)
    pull = dense(y.shape, 4)
    y.backward(pull)
    cuts, after = cuts_of(comm.mesh, size), cuts_of(comm.mesh, y.shape[2:])
    here = [one.clone().requires_grad_() for one in (mine(comm, x, cuts), *weights)]
    sent = [comm.ledger.total("isend")[1]]
    part = apart(comm, *here, cuts)
    sent.append(comm.ledger.total("isend")[1])
    (part * mine(comm, pull, after)).sum().backward()
    sent.append(comm.ledger.total("isend")[1])
    part_of = lambda whole, how: (mine(comm, whole, how), float(whole.abs().max()))
    pairs = [(part.detach(), *part_of(y.detach(), after)), (here[0].grad, *part_of(leaves[0].grad, cuts))]
    added = [(comm.all_reduce(one.grad), other.grad) for one, other in zip(here[1:], leaves[1:])]
    pairs += [(one, other, float(other.abs().max())) for one, other in added]
    gaps = [float((one - other).abs().max()) / largest for one, other, largest in pairs if other.numel()]
    ways = [there - before for before, there in zip(sent, sent[1:])]
    return max(gaps, default=0.0), ways, foreseen(comm, cuts, size, sights, x.shape[1], len(mine(comm, x, {})))


def convolution(comm, case):
    kernel, stride, dilation, padding, size = case
    sights = dict.fromkeys((ROWS, COLUMNS), Sight(kernel, stride, padding, padding, dilation))
    alone = lambda x, weight, bias: functional.conv2d(x, weight, bias, stride, padding, dilation)
    apart = lambda comm, x, weight, bias, cuts: halos.convolved(comm, x, weight, bias, cuts, sights)
    weights = dense((3, 2, kernel, kernel), 2), dense((3,), 3)
    return compared(comm, alone, apart, dense((4, 2, *size), 1), weights, sights)


def every(comm, cases):
    return [convolution(comm, case) for case in cases]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, cases",
    [
        pytest.param(SHORT, FEW, id="few"),
        *(pytest.param(mesh, CASES + FEW, id=str(mesh), marks=pytest.mark.long) for mesh in MESHES),
    ],
)
def test_a_convolution_is_that_of_one_device_and_sends_what_boxes_say(mesh, cases):
    with hl.ranks(mesh) as pool:
        for found in pool.run(every, cases):
            for case, (gap, sent, said) in zip(cases, found):
                assert gap < 1e-12 and sent == said, (case, gap, sent, said)


LAYERS = [
    (nn.MaxPool2d(2), (12, 12)),
    (nn.MaxPool2d(3, 2, padding=1), (13, 11)),
    (nn.MaxPool2d((2, 3), (1, 2), dilation=2), (9, 11)),
    (nn.AvgPool2d(3, 2, padding=1), (11, 9)),
    (nn.AvgPool2d(2, 1), (3, 7)),
    (nn.Upsample(scale_factor=2), (4, 4)),
    (nn.Upsample(scale_factor=2), (3, 5)),
    (nn.Upsample(scale_factor=(3, 1)), (1, 2)),
    (nn.Conv2d(6, 9, (3, 4), padding="same", groups=3), (7, 8)),
    (nn.Conv2d(6, 2, (2, 5), (1, 2), "valid", bias=False), (8, 9)),
    (nn.Conv2d(6, 4, 3, padding=(2, 0), dilation=(2, 1)), (6, 7)),
]


def layers(comm):
    found = []
    for layer, size in LAYERS:
        layer = layer.double()
        apart = lambda comm, x, cuts, layer=layer: forward_of(layer, comm, cuts, None)(x)
        found.append(compared(comm, layer, apart, dense((4, 6, *size), 1), (), sights_of(layer)))
    return found


@pytest.mark.ranks
@pytest.mark.parametrize("mesh", [SHORT, pytest.param(hl.Mesh(w=2, h=4), marks=pytest.mark.long)], ids=str)
def test_a_layer_of_torch_is_that_of_one_device(mesh):
    with hl.ranks(mesh) as pool:
        for found in pool.run(layers):
            for (layer, size), (gap, sent, said) in zip(LAYERS, found):
                assert gap < 1e-12 and sent == said, (layer, size, gap, sent, said)


# ---- a halo under way


def at_once(comm, x, axis, dim, *, have, want):
    """A window that is there when it is asked for: nothing is done meanwhile."""
    return There(typed.window(comm, x, axis, dim, have=have, want=want))


class There:
    def __init__(self, x):
        self.wait = lambda: x


def same_bits(comm):
    """Whether a halo that comes meanwhile makes the same bits as one that is waited for."""
    found, cuts = [], cuts_of(comm.mesh, (11, 9))
    for bring in (halos.ahead.window, at_once):
        x = mine(comm, dense((4, 2, 11, 9), 1), cuts).clone().requires_grad_()
        weight = dense((3, 2, 3, 3), 2).requires_grad_()
        y = halos.convolved(comm, x, weight, None, cuts, dict.fromkeys((ROWS, COLUMNS), Sight(3, 1, 1, 1)), bring=bring)
        y.square().sum().backward()
        found.append((y.detach(), x.grad, weight.grad))
    return all(torch.equal(one, other) for one, other in zip(*found))


def in_order(comm):
    """What a rank in the middle does for one convolution, in order: messages begin and end, rows are made."""
    said, plain, cuts = [], functional.conv2d, cuts_of(comm.mesh, (24, 8))

    def noted(x, *more):
        y = plain(x, *more)
        said.append(f"{y.shape[2]} rows")
        y.register_hook(lambda gradient: said.append(f"back {gradient.shape[2]} rows"))
        return y

    class Watched(windows.Flight):
        def __init__(self, *about):
            super().__init__(*about)
            said.append("begin")

        def wait(self):
            said.append("wait")
            return super().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functional, "conv2d", noted)
        patch.setattr(windows, "Flight", Watched)
        x, weight = (dense(shape, 1).requires_grad_() for shape in ((1, 2, 24, 8), (3, 2, 3, 3)))
        sights = {ROWS: Sight(3, 1, 1, 1), COLUMNS: Sight(3, 1, 1, 1)}
        halos.convolved(comm, mine(comm, x, cuts), weight, None, cuts, sights).sum().backward()
    return said


def kept_rows(comm):
    """The rows of pixels whose memory a rank keeps for the backward of each convolution."""
    kept, cuts = [], cuts_of(comm.mesh, (24, 8))
    x, weight = (dense(shape, 1).requires_grad_() for shape in ((1, 2, 24, 8), (3, 2, 3, 3)))
    of_row = 8 * 2 * 8  # bytes: columns, channels, float64

    def noted(saved):
        if saved.shape[1] == 2 and saved is not weight:
            kept.append(saved.untyped_storage().nbytes() // of_row)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(noted, lambda saved: saved):
        sights = dict.fromkeys((ROWS, COLUMNS), Sight(3, 1, 1, 1))
        halos.convolved(comm, mine(comm, x, cuts), weight, None, cuts, sights)
    return kept


@pytest.mark.ranks
def test_a_border_keeps_the_few_rows_that_it_reads_and_not_the_part_and_its_halo():
    with hl.ranks(hl.Mesh(h=3)) as pool:
        assert pool.run(kept_rows)[1] == [24, 3, 3]  # the interior reads the picture, of which the part is a view


@pytest.mark.ranks
def test_the_interior_is_made_while_halos_come_there_and_back():
    with hl.ranks(hl.Mesh(h=3)) as pool:
        assert all(pool.run(same_bits))
        there, back = ["begin", "6 rows", "wait", "1 rows", "1 rows"], ["back 1 rows", "back 1 rows"]
        assert pool.run(in_order)[1] == [*there, *back, "begin", "back 6 rows", "wait"]


# ---- spans and bytes, without ranks


@st.composite
def looks(draw):
    """(sight, length, ranks)."""
    kernel, dilation = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    padding = st.integers(0, 4)
    sight = Sight(kernel, draw(st.integers(1, 4)), draw(padding), draw(padding), dilation)
    return (
        draw(st.sampled_from([sight, Repeat(draw(st.integers(1, 3)))])),
        draw(st.integers(1, 20)),
        draw(st.integers(1, 6)),
    )


def sees(sight, output, length):
    """The inputs that one output reads, one by one."""
    if isinstance(sight, Repeat):
        return {output // sight.times}
    taps = (output * sight.stride - sight.before + sight.dilation * tap for tap in range(sight.kernel))
    return {tap for tap in taps if 0 <= tap < length}


@pytest.mark.slow
@given(looks())
@settings(max_examples=300)
def test_what_ranks_want_is_what_their_outputs_read(look):
    sight, length, ranks = look
    have = even(length, ranks)
    made, want = wanted(have, sight)
    assert made[-1][1] == sight.outputs(length)
    for mine_, (low, high) in zip(made, want):
        read = set().union(*(sees(sight, output, length) for output in range(*mine_)))
        assert read <= set(range(low, high))
        no_gaps = isinstance(sight, Repeat) or (sight.dilation == 1 and sight.stride <= sight.kernel)
        assert not read or not no_gaps or (low, high) == (min(read), max(read) + 1)
        for here in have if isinstance(sight, Sight) else ():
            first, last = overlap(sight.within(here), mine_)
            alone = {one for one in range(*mine_) if sees(sight, one, length) <= set(range(*here))}
            assert set(range(first, last)) <= alone


@pytest.mark.slow
@given(looks(), looks())
@settings(max_examples=200)
def test_ranks_receive_the_pixels_that_they_see_and_do_not_have_corners_too(rows, columns):
    sights = [rows[0], columns[0]]
    have = [even(*rows[1:]), even(*columns[1:])]
    want = [wanted(*both)[1] for both in zip(have, sights)]
    want = [one if len(its) > 1 else its for one, its in zip(want, have)]
    messages = moved(have, sights)
    for place in itertools.product(*(range(len(its)) for its in have)):
        box = lambda spans, place=place: set(itertools.product(*(range(*its[at]) for its, at in zip(spans, place))))
        received = sum(pixels for (_, receiver), pixels in messages.items() if receiver == place)
        by_rows = {(y, x) for y, x in itertools.product(range(*want[0][place[0]]), range(*have[1][place[1]]))}
        assert received == len(by_rows - box(have)) + len(box(want) - by_rows)


@pytest.mark.parametrize("ranks, kernel, length", [(2, 3, 8), (4, 5, 16), (3, 1, 7), (5, 7, 20)])
def test_strips_send_what_the_textbook_says(ranks, kernel, length):
    half = kernel // 2
    sight, spans = Sight(kernel, 1, half, half), even(length, ranks)
    pixels = sum(moved([spans, ((0, 9),)], [sight, sight]).values())
    assert 2 * 6 * pixels == textbook(ranks, kernel, samples=2, channels=6, columns=9)


def test_with_a_stride_or_of_short_strips_only_the_boxes_know():
    total = lambda sight, length: sum(moved([even(length, 4), ((0, 1),)], [sight, sight]).values())
    assert total(Sight(3, 2, 1, 1), 16) == 3 < textbook(4, 3, 1, 1, 1)  # halos from above only
    assert total(Sight(5, 1, 2, 2), 4) == 10 < textbook(4, 5, 1, 1, 1)  # strips of one row
    assert (total(Sight(3, 2), 32), total(Sight(3, 2), 34)) == (3, 5)  # strips of outputs drift from those of inputs
