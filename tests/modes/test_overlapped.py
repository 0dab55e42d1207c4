"""Tensor parallelism overlapped with its messages: equal to one device, its hops counted, and each under a matmul."""

import itertools
import sys
from time import perf_counter_ns as now  # the clock of the ledger

import cloudpickle
import pytest
import torch
from few import first
from torch import nn

import hybridlab as hl
from hybridlab.modes.parts import overlapped
from hybridlab.modes.parts.circle import Circle
from hybridlab.predict.time import overlap, pieces
from hybridlab.training.costs import costs_of
from hybridlab.training.make_job import job_of

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SMALL = hl.Shape(layers=2, width=16, heads=4, context=8)
ODD = hl.Shape(layers=1, width=16, heads=4, kv_heads=1, context=31, vocabulary=259, tied=True, dropout=0.1)
MODERN = hl.Shape(layers=2, width=16, heads=4, kv_heads=2, context=8, style="llama", inner=24)
LATENT = hl.Shape(layers=2, width=16, heads=4, context=8, style="llama", latent=6, rotary=2, query_latent=10)
EXPERTS = hl.Shape(layers=2, width=16, heads=4, context=8, experts=4, chosen=2, shared=1, inner=16, style="llama")
PIECES = {"sequence": True, "overlap": True}


# ---- equal to one device, byte for byte


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    first(
        2,
        [
            (hl.Mesh(tp=4), {"shape": ODD, "directions": 2}),
            (hl.Mesh(tp=4), {"shape": ODD}),
            (hl.Mesh(tp=3), {"shape": hl.Shape(layers=1, width=18, heads=3, context=11), "directions": 2}),
            (hl.Mesh(dp=2, tp=2), {"shape": MODERN, "zero": 3}),
            (hl.Mesh(pp=2, tp=2), {"shape": MODERN, "recompute": "full"}),
            (hl.Mesh(cp=2, tp=2), {"shape": SMALL, "attend": "ring"}),
            (hl.Mesh(ep=2, tp=2), {"shape": EXPERTS}),
            (hl.Mesh(tp=2), {"shape": LATENT, "recompute": "selective"}),
        ],
    ),
)
def test_products_in_pieces_are_those_of_one_device(bench, mesh, more):
    report = bench.asked(mesh, microbatches=2, **PIECES, **more)
    assert report.ok, str(report)


# ---- mutants of the results


def sums_of_the_other_direction_forgotten(patch):
    """What comes from the next rank is waited for, and not added."""
    right = Circle.passed_on

    def wrong(circle, part, source, way=1):
        coming = right(circle, part, source, way)
        if way == 1:
            return coming
        wait = coming.wait
        coming.wait = lambda: torch.zeros_like(wait())
        return coming

    patch.setattr(Circle, "passed_on", wrong)


def placed_at_the_rows_of_the_sender(patch):
    right = Circle.passing

    def wrong(circle, part):
        before = (circle.here - 1) % len(circle.ranks)
        yield from ((source if source == circle.here else before, its) for source, its in right(circle, part))

    patch.setattr(Circle, "passing", wrong)


def last_sum_forgotten(patch):
    right = Circle.summed
    patch.setattr(Circle, "summed", lambda circle, term: (right(circle, term), term(circle.here))[1])


def only_the_own_rows_for_the_weight(patch):
    backward, passing = overlapped.Entered.backward, Circle.passing

    def wrong(ctx, *gradients):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Circle, "passing", lambda *about: itertools.islice([*passing(*about)], 1))
            return backward(ctx, *gradients)

    patch.setattr(overlapped.Entered, "backward", staticmethod(wrong))


MUTANTS = [placed_at_the_rows_of_the_sender, last_sum_forgotten, only_the_own_rows_for_the_weight]
MUTANTS = [(one, 1) for one in MUTANTS] + [(sums_of_the_other_direction_forgotten, 2), (last_sum_forgotten, 2)]


@pytest.mark.ranks
@pytest.mark.parametrize("mutant, directions", MUTANTS)
def test_a_piece_in_the_wrong_place_or_a_lost_term_is_noticed(bench, mutant, directions):
    about = dict(shape=SMALL, microbatches=1, steps=1, directions=directions, **PIECES)
    assert bench.right(hl.Mesh(tp=4), **about)
    assert not bench.asked(hl.Mesh(tp=4), sabotage=mutant, **about).ok


# ---- overlap: each hop has a matmul beside it


def waits_before_the_product(patch):
    """Right results, but nothing overlaps."""
    right = Circle.passed_on

    def wrong(circle, part, source, way=1):
        coming = right(circle, part, source, way)
        came = coming.wait()
        coming.wait = lambda: came
        return coming

    patch.setattr(Circle, "passed_on", wrong)


def a_pair(comm, sabotage=None, directions=1):
    """(hops without a matmul beside them, all hops, their bytes, matmuls, positions that the first layer saves)."""
    with pytest.MonkeyPatch.context() as patch:
        begun = []
        for name in ("matmul", "by_weight"):
            right = getattr(overlapped, name)
            patch.setattr(overlapped, name, lambda *about, right=right: begun.append(now()) or right(*about))
        if sabotage:
            sabotage(patch)
        rows, before = overlapped.Rows(comm, 12, directions), len(comm.ledger)
        part, up, gate, down = (torch.randn(*size).requires_grad_() for size in ((2, 3, 8), (6, 8), (6, 8), (8, 6)))
        ups = overlapped.Entered.apply(part, rows, up, gate)
        saved = ups[0].grad_fn.saved_tensors[0].shape[1]
        overlapped.Left.apply(ups[0] * ups[1], rows, down).sum().backward()
        hops = [row for row in comm.ledger.rows()[before:] if row["op"] == "irecv"]
        bare = [row for row in hops if not any(row["begin_ns"] < one < row["end_ns"] for one in begun)]
        return len(bare), len(hops), sorted({row["bytes"] for row in hops}), len(begun), saved


@pytest.mark.ranks
def test_the_product_of_a_piece_begins_before_the_wait_for_the_next_hop():
    hop = 2 * 3 * 8 * 4  # rows, positions of a part, width, bytes
    with hl.ranks(hl.Mesh(tp=4)) as pool:
        matmuls = 4 * (2 + 1 + 2 + 2 + 1 + 1)  # forward; backward of `down`, dX and dW; of the first two
        for directions in (1, 2):
            assert pool.run(a_pair, None, directions) == [(0, 15, [hop], matmuls, 3)] * 4
        assert [one[:2] for one in pool.run(a_pair, waits_before_the_product)] == [(15, 15)] * 4


# ---- refusals


class Gated(nn.Module):
    """A pair with another reader of its input, or with one in another form."""

    def __init__(self, how):
        super().__init__()
        self.up, self.down, self.how = nn.Linear(8, 16), nn.Linear(16, 8), how

    def forward(self, x_BTD):
        if self.how == "gate":
            return self.down(self.up(x_BTD).relu()) * x_BTD.sigmoid()
        if self.how == "flat":
            return self.down(self.up(x_BTD.flatten(0, 1)).relu()).view(x_BTD.shape)
        return self.down(self.up(x_BTD).relu()).view(*x_BTD.shape)


def own(how):
    dims = {"1.up.weight": "F D", "1.up.bias": "F", "1.down.weight": "D F"}
    data = lambda step, rows: (torch.ones(rows, 6, 8), torch.ones(rows, 6, 8))
    loss = lambda y, target: ((y - target) ** 2).sum()
    about = dict(dims=dims, enters="B T", targets="B T", sizes={"T": 6}, terms=6)
    return hl.Model(nn.Sequential(nn.Linear(8, 8), Gated(how)), loss, data, **about)


@pytest.mark.parametrize(
    "mesh, more, message",
    [
        (hl.Mesh(pp=2, tp=2), {"schedule": "zb_h1"}, "zb_h1 splits the backward in two.* choose 1f1b"),
        (hl.Mesh(tp=2, x=2), {}, "x=2 shards each matrix a second time.* leave out overlap or x"),
        (hl.Mesh(tp=2), {"sequence": False}, "overlap=True has no effect without sequence: give both"),
        (hl.Mesh(tp=2), {"directions": 3}, "directions=3 is not possible, because a ring has two: give 1 or 2"),
        (hl.Mesh(tp=2), {"overlap": False, "directions": 2}, "directions=2 has no effect without overlap: give both"),
        (hl.Mesh(tp=2), {"model": own("gate")}, "but sigmoid reads it too: leave out overlap"),
        (hl.Mesh(tp=2), {"model": own("flat")}, "but flatten reads it too: leave out overlap"),
    ],
)
def test_what_cannot_be_computed_in_pieces_is_refused_in_a_sentence(mesh, more, message):
    with pytest.raises(ValueError, match=message):
        job_of(mesh, **({} if "model" in more else {"shape": SMALL}) | PIECES | more)


def test_sizes_of_an_input_may_be_read():
    """What is refused then is another matter: the model has no embedding that begins to shard positions."""
    with pytest.raises(ValueError, match="sequence=True shards positions from an embedding"):
        job_of(hl.Mesh(tp=2), model=own("sizes"), **PIECES)


# ---- the closed form


@pytest.mark.parametrize("overlapped", [True, False])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("matmul, hop", [(2, 1), (2, 2), (2, 3), (1, 5)])
def test_two_tracks_end_at_the_closed_form(matmul, hop, overlapped, directions):
    for ways in (1, 2, 3, 4, 8):
        drawn = pieces.in_pieces(ways, matmul, hop, overlapped, directions)
        assert overlap.length(drawn) == pieces.seconds(ways, matmul, hop, overlapped, directions)
        if directions == 1:
            assert overlap.exposed(drawn) == (ways - 1) * (max(0, hop - matmul) if overlapped else hop)
        elif ways > 1 and overlapped:
            later = (ways // 2 - 1) * max(0, hop - 2 * matmul)  # beside two matmuls
            assert overlap.exposed(drawn) == max(0, hop - matmul) + later


def test_the_predicted_time_of_a_job_hides_a_part_of_its_messages():
    shape, h100 = hl.Shape(layers=4, width=4096, heads=32, context=2048), hl.catalog.machine("h100")
    plain, ours = (
        costs_of(job_of(hl.Mesh(tp=8), shape=shape, sequence=True, overlap=over), h100).of("F", 0)
        for over in (False, True)
    )
    assert 0.5 * plain < ours < 0.95 * plain
