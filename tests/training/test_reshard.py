"""Going over to another layout on live ranks: the elements sent are those that were not there, and training goes on as
one device does; the same as through a checkpoint; mutants.
"""

import random
import sys
from collections import Counter

import cloudpickle
import numpy as np
import pytest
import torch
from few import one_in
from hypothesis import given, settings
from hypothesis import strategies as st
from test_checkpoint import layouts

import hybridlab as hl
from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.moves import moves, piece
from hybridlab.training import resharded

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SMALL = hl.Shape(layers=4, width=16, heads=4, context=8)
SPARSE = hl.Shape(layers=2, width=16, heads=2, context=8, experts=5, chosen=2, inner=24)
TRY = dict(shape=SMALL, dtype="float64", optimizer="adamw", rate=0.01, microbatches=2)


# ---- the list, without ranks


def elements(layout, name, rank, used) -> np.ndarray:
    """The positions in a full parameter of the elements of a rank's piece, in the order of the piece."""
    its, shape = piece(layout, name, rank, used), layout[name].shape
    numbers = np.arange(np.prod(shape)).reshape(shape)
    return numbers[its.box].ravel()[its.share] if its else numbers.ravel()[:0]


@given(layouts(), layouts(), st.booleans())
@settings(max_examples=60)
def test_each_rank_gets_what_it_needs_and_is_sent_what_it_lacks(before, after, used):
    found = moves(before, after, used)
    for name in after.named:
        for to in range(after.mesh.size):
            want = elements(after, name, to, used)
            have = elements(before, name, to, used) if to < before.mesh.size else want[:0]
            arrived, sent = np.full(len(want), -1), 0
            for move in (one for one in found if (one.name, one.to) == (name, to)):
                there = elements(before, name, move.source, used)
                for begin, at, number in move.stretches:
                    assert (arrived[at : at + number] == -1).all(), "an element arrives once"
                    arrived[at : at + number] = there[begin : begin + number]
                sent += move.elements * (move.source != to)
            assert (arrived == want).all()
            assert sent == len(np.setdiff1d(want, have))


def test_weights_that_all_ranks_use_are_there_though_zero_shards_the_optimizer():
    shared = Layout(Mesh(dp=4), (Param("w", (8,), partial=("dp",), owners=4, rest=1),))
    alone = Layout(Mesh(tp=4), (Param("w", (8,)),))
    sent = lambda used: sum(one.elements for one in moves(shared, alone, used) if one.source != one.to)
    assert sent(used=True) == 0 and sent(used=False) == 4 * 6


def test_ranks_with_the_same_piece_send_in_turn():
    names = [f"w{number}" for number in range(8)]
    held = Layout(Mesh(dp=2, pp=3), tuple(Param(name, (6,), at={"pp": (0,)}) for name in names))
    wanted = Layout(Mesh(dp=2, pp=3), tuple(Param(name, (6,)) for name in names))
    sent = Counter()
    moves(held, wanted, sent=sent)
    assert sent == {0: 96, 3: 96}, "four ranks lack eight parameters of six elements each, and two have them"


# ---- real ranks


M = hl.Mesh
TWO_LEVELS = {"zero": 3, "owners": 2, "two_levels": True}
VALIDATED = {"schedule": "zb_h2", "clip": 0.1, "validated": "after", "microbatches": 4}
CASES = {
    "stages to parts": (M(pp=4), M(tp=4), {}),
    "shards to stages": (M(dp=4), dict(mesh=M(dp=2, pp=2), zero=1), {"zero": 1}),
    "two levels": (M(dp=4), dict(mesh=M(dp=2, tp=2), zero=2, owners=2, sequence=True), {"zero": 3, "owners": 2}),
    "chunks": (
        M(pp=2, dp=2),
        dict(mesh=M(pp=4), schedule="1f1b", chunks=None),
        {"schedule": "interleaved", "chunks": 2},
    ),
    "tied": (M(pp=2, dp=2), M(tp=2, pp=2), {"shape": hl.Shape(layers=2, width=16, heads=4, context=8, tied=True)}),
    "experts": (M(ep=2, dp=2), dict(mesh=M(pp=2, ep=2), zero=0), {"shape": SPARSE, "zero": 1}),
    "folded experts": (M(tp=2, ep=2), dict(mesh=M(cp=2, tp=2), fold=False), {"shape": SPARSE, "fold": True}),
    "uneven": (M(dp=3), dict(mesh=M(tp=3), zero=0), {"zero": 3, "shape": hl.Shape(layers=2, width=30, heads=3)}),
    "masters": (M(dp=2, pp=2), dict(mesh=M(dp=4), zero=2), {"zero": 1, "master_dtype": "float64", "dtype": "float32"}),
    "on the host": (M(dp=2), dict(mesh=M(tp=2), zero=0, offload=False), {"zero": 1, "offload": True}),
    "muon": (M(pp=2), dict(mesh=M(dp=2), zero=1), {"optimizer": "muon"}),
    "parts of groups": (M(dp=4), dict(mesh=M(pp=2, dp=2), zero=1, owners=None, two_levels=False), TWO_LEVELS),
    "to parts of groups": (M(dp=2, pp=2), dict(mesh=M(dp=4), **TWO_LEVELS), {"zero": 1}),
    "second copies": (M(dp=4), dict(mesh=M(dp=2, tp=2), zero=1, secondary=0), {"zero": 3, "secondary": 2}),
    "to second copies": (M(dp=2, pp=2), dict(mesh=M(dp=4), zero=3, secondary=2), {"zero": 1}),
    "a norm to come": (M(pp=4), dict(mesh=M(dp=2, pp=2), schedule="zb_h2"), VALIDATED),
    "batch norm": (M(pp=4), dict(mesh=M(pp=2, dp=2), microbatches=1), {"model": "resnet", "shape": None, "steps": 2}),
}


@pytest.mark.ranks
@pytest.mark.parametrize("name", one_in(5, CASES))
def test_the_rest_of_a_training_is_that_of_one_device(bench, name):
    mesh, to, more = CASES[name]
    report = hl.reshard(mesh, to=to, **TRY | more).check()
    assert report.ok and (report.tolerance > 1e-10 or report.largest_gap < 1e-10), report


def drawn(seed: int) -> dict:
    """A layout of four ranks, at random."""
    rng = random.Random(seed)
    axes = rng.choice(["dp", "pp", "tp", "cp", "ep", *"dp+pp dp+tp dp+cp dp+ep pp+tp pp+cp cp+ep tp+dp pp+dp".split()])
    names = axes.split("+")
    mesh = M(**dict(zip(names, [4] if len(names) == 1 else [2, 2])))
    zero = rng.choice([0, 1, 2, 3]) if mesh["dp"] * mesh["cp"] * mesh["ep"] > 1 else 0
    schedule = rng.choice(["1f1b", "gpipe", "zb_h1"] if mesh["pp"] > 1 else ["1f1b"])
    return {"mesh": mesh, "zero": zero, "schedule": schedule, "owners": rng.choice([None, 2]) if zero else None}


@pytest.mark.ranks
@pytest.mark.parametrize("seed", one_in(8, range(16)))
def test_between_layouts_drawn_at_random(seed):
    before, after = drawn(2 * seed), drawn(2 * seed + 1)
    shape = hl.Shape(layers=4, width=16, heads=4, context=8, experts=4, chosen=2)
    report = hl.reshard(to=after, **TRY | before | {"shape": shape, "batch": 32}).check(at=2)
    assert report.ok and report.largest_gap < 1e-10, (before, after, report)


@pytest.mark.ranks
def test_it_is_the_way_through_a_checkpoint_bit_for_bit(tmp_path):
    first, then = dict(zero=1), dict(mesh=M(pp=2, tp=2), zero=0)
    plan = hl.reshard(M(dp=4), to=then, steps=4, **TRY | first)
    live = plan.train(at=2)
    about = TRY | {"progress": False, "checkpoint": tmp_path, "batch": 16}
    hl.train(M(dp=4), steps=2, **about | first)
    resumed = hl.train(steps=4, resume=True, **about | then)
    assert live["losses"][2:] == resumed["losses"]
    for one, other in zip(live["model"].parameters(), resumed["model"].parameters()):
        assert torch.equal(one, other)
    assert live["bytes"] == plan.sent


@pytest.mark.ranks
@pytest.mark.parametrize(
    "first", one_in(3, [{"schedule": "pipedream", "predict_weights": True}, {"schedule": "pipedream_2bw"},
                        {"schedule": "pipedream", "stash": False}])
)  # fmt: skip
def test_the_newest_weights_of_a_pipeline_without_flush_go_on(tmp_path, first):
    """Versions that microbatches used, and predictions of later ones, stay behind."""
    then, about = {"mesh": M(dp=2, tp=2), "schedule": "1f1b"}, TRY | {"microbatches": 4, "batch": 16}
    plan = hl.reshard(M(pp=4), to=then, steps=4, **about | first)
    live, about = plan.train(at=2), about | {"progress": False, "checkpoint": tmp_path}
    hl.train(M(pp=4), steps=2, **about | first)
    resumed = hl.train(steps=4, resume=True, **about | then)
    assert live["losses"][-2:] == resumed["losses"] and live["bytes"] == plan.sent
    for one, other in zip(live["model"].parameters(), resumed["model"].parameters()):
        assert torch.equal(one, other)


@pytest.mark.ranks
def test_evaluated_under_another_layout_it_is_the_same_model():
    plan = hl.reshard(M(dp=2), to=dict(mesh=M(tp=2), zero=0), zero=1, steps=1, **TRY)
    done = plan.train(at=1, evaluate=True)
    before, after = done["validation"]
    assert before == pytest.approx(after, rel=1e-12)
    assert plan.bytes["weights"] == 0 and done["bytes"]


# ---- mutants


def a_stretch_is_off_by_one():
    right = resharded._put

    def put(new, every, flat):
        right(new, every, flat.roll(1))

    resharded._put = put


def a_copy_is_stale():
    right, first = resharded.Trainer, {}

    def begun(comm, job):
        trainer = right(comm, job)
        first.update({name: x["value"].clone() for name, x in resharded.pieces(trainer).items()})
        return trainer

    from hybridlab.training import reshard

    reshard.Trainer, theirs = begun, resharded._weights

    def weights(trainer, plan):
        return theirs(trainer, plan) | {name: {"value": first[name]} for name in [next(iter(first))]}

    resharded._weights = weights


def momentum_stays():
    right = resharded.restore

    def restore(trainer, found):
        still = {"exp_avg": torch.zeros_like}
        right(trainer, {n: {k: still.get(k, lambda x: x)(x) for k, x in its.items()} for n, its in found.items()})

    resharded.restore = restore


def steps_begin_again():
    right = resharded._about
    resharded._about = lambda x: right(x) if x.dim() else ("float32", 0.0)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "sabotage", one_in(3, [a_stretch_is_off_by_one, a_copy_is_stale, momentum_stays, steps_begin_again])
)
def test_a_mutant_is_seen(sabotage):
    report = hl.reshard(M(pp=2), to=M(tp=2), **TRY).check(sabotage=sabotage)
    assert not report.ok


# ---- refused before ranks start


@pytest.mark.parametrize(
    "to, says",
    [
        (M(tp=2), "has 4 ranks, but Mesh\\(tp=2\\) has 2: give two meshes"),
        ({"mesh": M(tp=4), "seed": 3}, "does not change the layout"),
        ({"mesh": {"tp": 4}}, "reshard takes mesh as Mesh | None, not {'tp': 4}, a dict: give hl.Mesh"),
        ({"mesh": M(tp=4), "zero": 1.5}, "reshard takes zero as int, not 1.5, a float"),
        ({"mesh": M(tp=4), "batch": 32}, "the first layout has batch=16, but this run has batch=32: make them equal"),
        ({"mesh": M(tp=4), "zero": 1}, "give dp=2 or more"),
        ({"mesh": M(pp=4), "schedule": "vocabulary_1f1b", "microbatches": 8, "batch": 16}, "head of"),
    ],
)
def test_a_job_that_cannot_continue_the_first_is_refused(to, says):
    with pytest.raises(ValueError, match=says):
        hl.reshard(M(dp=4), to=to, **TRY)


def test_copies_that_step_alone_have_no_common_weights_to_take_along():
    with pytest.raises(ValueError, match="sums='local' keeps a different model in every copy"):
        hl.reshard(M(dp=2), to=M(tp=2), sums="local", **TRY)


@pytest.mark.parametrize("at", [0, 3])
def test_ranks_go_over_between_two_steps(at):
    plan = hl.reshard(M(pp=2), to=M(tp=2), **TRY)
    with pytest.raises(ValueError, match=f"at={at} is not a step after which the layout can change: give 1 to 2"):
        plan.check(at=at)
    pipe = hl.reshard(M(pp=2), to={"schedule": "1f1b"}, schedule="pipedream", **TRY)
    with pytest.raises(ValueError, match="give a synchronous schedule"):
        pipe.check()
