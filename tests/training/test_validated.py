"""Optimizer steps before their norm is known, on real ranks: equal to one device, whether they are undone or not."""

from dataclasses import replace

import pytest
import torch
from few import first

import hybridlab as hl
from hybridlab.runtime.player import Player
from hybridlab.training import validated
from hybridlab.training.make_job import job_of
from hybridlab.training.validated import Validated

TIED = hl.Shape(layers=4, width=8, heads=2, context=4, tied=True)
SOME = 0.87  # norms of TIED under AdamW: 0.825, 0.914, 0.653, 0.560: only the second step clips
ABOUT = dict(shape=TIED, optimizer="adamw", rate=0.02, steps=4, microbatches=4)
ACTIVATION = 2 * 4 * 8 * 8  # rows · tokens · width · bytes of a float64


def sent(report) -> int:
    return next(counted for (what, _, _), (counted, _) in report.axes.items() if what == "messages")


@pytest.mark.ranks
@pytest.mark.parametrize("clip, undone", [(SOME, 1), (0.5, 3), (10.0, 0)], ids=["one step clips", "all", "none"])
def test_equal_whether_steps_are_undone_or_not(bench, clip, undone):
    """The last step is undone after all forwards: it repeats none. Bytes: 2m(p-1) messages and 2(p-1) norms a step, and
    for each step that is undone the activations of the forwards before VALID, of ranks 0 … p-2."""
    p, m = 2, ABOUT["microbatches"]
    report = bench.asked(hl.Mesh(pp=p), schedule="zb_h2", validated="after", clip=clip, **ABOUT)
    again = sum(min(2 * (p - 1 - r), m - 1) for r in range(p - 1))
    assert report.ok and report.largest_gap < 1e-10
    assert sent(report) == 4 * (2 * m * (p - 1) * ACTIVATION + 16 * (p - 1)) + undone * again * ACTIVATION


@pytest.mark.ranks
@pytest.mark.parametrize(
    "more",
    first(
        1,
        [{"schedule": "interleaved"}, {"schedule": "zb_h1", "ahead": 3}, {"schedule": "vocabulary_1f1b"}],
    ),
    ids=str,
)
def test_no_rank_waits_for_a_message_that_comes_after_the_norm(bench, more):
    """Receives of such messages stood before VALID: a rank whose step was undone waited there for a rank that waited
    for the norm."""
    shape = hl.Shape(layers=4, width=8, heads=2, context=4)
    about = ABOUT | {"shape": shape} | more
    report = bench.asked(hl.Mesh(pp=2), validated="after", clip=1e-6, **about)
    assert report.ok and report.largest_gap < 1e-10


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more",
    first(
        2,
        [
            (hl.Mesh(pp=4), {"schedule": "zb_h2", "microbatches": 7}),
            (hl.Mesh(pp=4), {"schedule": "interleaved", "shape": replace(TIED, layers=8)}),
            (hl.Mesh(pp=2), {"schedule": "zb_v"}),
            (hl.Mesh(pp=2, dp=2), {"schedule": "zb_h1"}),
            (hl.Mesh(pp=2, tp=2), {"schedule": "1f1b", "warmup": 3}),
            (hl.Mesh(pp=2), {"schedule": "interleaved", "chunks": 2, "accumulate": 2, "optimizer": "sgd"}),
            (hl.Mesh(pp=2), {"schedule": "zb_interleaved", "recompute": "none", "shape": replace(TIED, dropout=0.1)}),
            (hl.Mesh(pp=2), {"schedule": "vocabulary_1f1b"}),
            (hl.Mesh(pp=2, dp=2), {"schedule": "zb_h2", "validated": "before", "zero": 1}),
            (hl.Mesh(pp=2), {"schedule": "dualpipe_v", "validated": "before"}),
            (hl.Mesh(pp=2), {"schedule": "chimera", "validated": "before"}),
        ],
    ),
)
def test_other_schedules_and_modes(bench, mesh, more):
    report = bench.asked(mesh, **ABOUT | {"validated": "after", "clip": 0.7} | more)
    assert report.ok and report.largest_gap < 1e-10, report


@pytest.mark.ranks
def test_ranks_that_share_a_stage_add_their_squares_up(bench):
    """Half of the squares would clip half of the gradients."""
    report = bench.asked(
        hl.Mesh(pp=2, tp=2), validated="after", **ABOUT | {"schedule": "zb_h1", "clip": 0.7, "steps": 2}
    )
    assert report.ok and report.largest_gap < 1e-10, report


@pytest.mark.ranks
def test_statistics_of_a_batch_norm_do_not_count_forwards_twice(bench):
    report = bench.asked(hl.Mesh(pp=2), schedule="zb_h2", model="resnet", clip=0.01, validated="after", microbatches=3)
    assert report.ok, report


# ---- mutants


def forwards_kept(patch):
    """The forwards before VALID are kept, though they used weights that were undone."""

    def run(player, index, end):
        while index < end:
            player.calls[index]()
            index += 1
        player._all_over()

    patch.setattr(Player, "_run", run)


def forwards_kept_unseen(patch):
    """The same, and autograd does not notice that the weights have changed since."""
    right = Validated.settled

    def settled(step, total):
        with torch.autograd._unsafe_preserve_version_counter(tuple(step.weights.by_name.values())):
            return right(step, total)

    forwards_kept(patch)
    patch.setattr(Validated, "settled", settled)


def never_undone(patch):
    """A rank that has stepped does not undo its step."""
    right = Validated.settled

    def wrong(step, total):
        step.kept = None
        return right(step, total)

    patch.setattr(Validated, "settled", wrong)


def tied_counted_twice(patch):
    """Every rank counts all weights that it holds, so a tied weight counts on both."""

    def squares(trainer):
        held, nothing = trainer.parameters, torch.zeros((), dtype=torch.float64)
        return torch.stack(
            [held[name].grad.square().sum() if name in held else nothing for name in trainer.layout.named]
        )

    patch.setattr(validated, "squares", squares)


def a_rank_left_out(patch):
    """A rank passes on the squares that have come, without its own."""
    right = Validated.squares

    def squares(step, before):
        step.summed = right(step, before) if before is None else right(step, before) * 0 + before
        return step.summed

    patch.setattr(Validated, "squares", squares)


def rate_of_the_next_step(patch):
    """The step that replaces the one that was undone has the next step's learning rate."""
    patch.setattr(validated._Kept, "_set", lambda kept, rates: None)


def state_not_undone(patch):
    """The weights are undone, the averages of Adam are not."""

    def restore(kept):
        states = {share: dict(state) for share, state in kept.optimizer.state.items()}
        right(kept)
        kept.optimizer.state.update(states)

    right = validated._Kept.restore
    patch.setattr(validated._Kept, "restore", restore)


MUTANTS = {
    "forwards before a rollback kept": (forwards_kept_unseen, {}),
    "a step that should have been clipped stays": (never_undone, {}),
    "a tied weight counts twice": (tied_counted_twice, {}),
    "the squares of a rank are left out": (a_rank_left_out, {}),
    "the rate of the next step": (rate_of_the_next_step, {"warmup": 4}),
    "Adam's averages stay": (state_not_undone, {}),
}


@pytest.mark.ranks
@pytest.mark.parametrize("name", first(4, MUTANTS))
def test_a_mutant_of_validation_is_caught(bench, name):
    mutant, more = MUTANTS[name]
    about = ABOUT | {"schedule": "zb_h2", "validated": "after", "clip": SOME} | more
    if more:
        about |= {"clip": 0.7}
    assert bench.right(hl.Mesh(pp=2), **about)
    assert not bench.asked(hl.Mesh(pp=2), sabotage=mutant, **about).ok


@pytest.mark.ranks
def test_autograd_notices_forwards_that_are_kept(bench):
    with pytest.raises(hl.RankError, match="modified by an inplace operation"):
        bench.asked(hl.Mesh(pp=2), sabotage=forwards_kept, schedule="zb_h2", validated="after", clip=SOME, **ABOUT)


# ---- refusals


@pytest.mark.parametrize(
    "mesh, more, words",
    [
        (hl.Mesh(pp=2), {"clip": None}, "sums a norm, but nothing is clipped: give clip, or leave out validated"),
        (hl.Mesh(pp=2, dp=2), {"zero": 1}, "cannot be combined with zero: .* or give validated='before'"),
        (hl.Mesh(pp=2), {"schedule": "1f1b", "driven": True}, "cannot be combined with driven: leave one of them out$"),
        (hl.Mesh(pp=2), {"offload": True}, "cannot be combined with offload"),
        (hl.Mesh(pp=2), {"schedule": "seq1f1b"}, "cannot be combined with slices"),
        (hl.Mesh(pp=2, tp=2), {"optimizer": "muon"}, "cannot be combined with optimizer='muon' inside stages"),
        (hl.Mesh(pp=2), {"schedule": "dualpipe"}, "has several ranks for a stage in one pipeline"),
        (hl.Mesh(pp=2), {"schedule": "pipedream"}, "leave out dp, tp, tied weights, accumulate, clip"),
        (hl.Mesh(pp=2), {"validated": "never"}, "never"),
    ],
)
def test_what_cannot_be_validated_is_refused(mesh, more, words):
    with pytest.raises(ValueError, match=words):
        job_of(mesh, **{"schedule": "zb_h2", "validated": "after", "clip": 1.0} | more)


@pytest.mark.parametrize(
    "make, more, words",
    [
        (lambda one: hl.orders.with_norm(one, None), {}, "has optimizer steps, but no norm: give it without"),
        (hl.lower, {"validated": "after"}, "validated='after' has no effect on zb_h1, which already has its messages"),
        (lambda one: hl.orders.with_norm(one), {"offload": True, "clip": 1.0}, "the norm of zb_h1 cannot be combined"),
    ],
    ids=["no norm", "lowered", "unnamed"],
)
def test_a_schedule_of_ones_own_is_refused_by_its_name(make, more, words):
    one = make(hl.schedule("zb_h1", ranks=2, microbatches=4))
    with pytest.raises(ValueError, match=words):
        job_of(hl.Mesh(pp=2), schedule=one, **more)


def test_validation_before_the_step_goes_with_shards_and_slices():
    for mesh, more in ((hl.Mesh(pp=2, dp=2), {"zero": 1}), (hl.Mesh(pp=2), {"schedule": "seq1f1b", "slices": 2})):
        assert job_of(mesh, **{"schedule": "zb_h1", "validated": "before", "clip": 1.0, "microbatches": 4} | more).norms
