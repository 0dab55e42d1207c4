"""The proof of equality: it holds for pipelines and copies, and every mutant of the runtime breaks it.

That it holds for every schedule is for `test_runtime`, and for every pair of modes for `test_equality`.
"""

from dataclasses import replace

import pytest
import torch
from few import first, one_in

import hybridlab as hl
from hybridlab.modes.parts.replicated import Replicated, Sums
from hybridlab.runtime import versions, work
from hybridlab.runtime.versions import Versions
from hybridlab.runtime.work import ModelWork
from hybridlab.training import check as proof
from hybridlab.training import loop
from hybridlab.training.make_job import job_of
from hybridlab.training.report import Report

pytestmark = pytest.mark.ranks
PP2, PP4, DP2, BOTH = hl.Mesh(pp=2), hl.Mesh(pp=4), hl.Mesh(dp=2), hl.Mesh(dp=2, pp=2)
SMALL = hl.Shape(layers=4, width=16, heads=2, context=8)
TRY = dict(shape=SMALL, microbatches=3)


@pytest.mark.parametrize("name", first(1, ["naive", "gpipe", "1f1b"]))
def test_a_pipeline_is_one_device_bit_for_bit(bench, name):
    assert bench.asked(PP4, schedule=name, **TRY).largest_gap == 0


def test_fewer_microbatches_than_stages(bench):
    assert bench.asked(PP4, microbatches=1, shape=SMALL).largest_gap == 0


@pytest.mark.parametrize("mesh", one_in(3, [DP2, BOTH, hl.Mesh(dp=3, pp=2), hl.Mesh(pp=2, dp=3)]))
def test_data_parallel_copies_are_one_device(bench, mesh):
    report = bench.asked(mesh, **TRY)
    assert report.ok and report.largest_gap < 1e-11, report
    assert "all-reduces d·Ψ" in report.bytes


@pytest.mark.long
def test_bytes_are_compared_axis_by_axis_too(bench):
    report = bench.asked(hl.Mesh(dp=2, tp=2), shape=SMALL, sequence=True)
    assert report.ok and {what for what, _, _ in report.axes} == {"sums", "inside"}
    key, other = ("inside", "tp", "all_gather"), ("inside", "tp", "reduce_scatter")
    assert report.layout == "1f1b on dp=2 × tp=2, sequence, float64"
    (gathers, formula), (scatters, its) = report.axes[key], report.axes[other]
    swapped = replace(report, axes=report.axes | {key: (gathers + 8, formula), other: (scatters - 8, its)})
    assert not swapped.ok, "the sum of both is as it should be"
    assert f"inside, along tp, all_gather: {gathers + 8:,} bytes counted, {formula:,} by the formula" in str(swapped)


@pytest.mark.long
def test_single_precision_has_its_own_tolerance(bench):
    report = bench.asked(BOTH, schedule="gpipe", dtype="float32", **TRY)
    assert report.ok and 0 < report.largest_gap < 1e-3 and report.gaps["loss"] < 1e-6, report


# Mutants: one line of the runtime changed on every rank; each must be noticed.


def lost_microbatch(patch):
    whole = ModelWork.backward
    lost = lambda m, arrived: [tuple(torch.zeros_like(g) for g in one) for one in arrived] if m == 1 else arrived
    wrong = lambda work, stage, m, version, arrived: whole(work, stage, m, version, lost(m, arrived))
    patch.setattr(ModelWork, "backward", wrong)


def missing_share(patch):
    """Every replica divides by its own tokens instead of the global batch's: the sum is d times too large."""
    patch.setattr(work, "scaled", lambda loss, tokens: 2 * loss / tokens)


def unscaled_loss(patch):
    patch.setattr(work, "scaled", lambda loss, tokens: loss)


def gradients_not_reduced(patch):
    patch.setattr(Replicated, "reduce", lambda weights, comm, action: Sums())


def mean_for_sum(patch):
    take = Replicated._take
    patch.setattr(Replicated, "_take", lambda weights, names, flat: take(weights, names, flat / 2))


def wrong_microbatch(patch):
    load = ModelWork.load
    patch.setattr(ModelWork, "load", lambda work, inputs, *more: load(work, inputs[::-1], *more))


def gradient_not_cleared(patch):
    patch.setattr(Replicated, "begin", lambda weights: setattr(weights, "summed", {}))


def received_twice(patch):
    """The buffer of the message before is used again."""
    room, shared = ModelWork.room, {}
    patch.setattr(ModelWork, "room", lambda work, *to: shared.setdefault(to, room(work, *to)))


def weight_half_left_out(patch):
    half = ModelWork.weight_half
    wrong = lambda work, stage, m, *more: [] if m == 1 else half(work, stage, m, *more)
    patch.setattr(ModelWork, "weight_half", wrong)


def version_off_by_one(patch):
    """A forward finds the newest numbers where the schedule states older ones."""
    call = Versions.call

    def newest(versions, stage, version):
        for name, weight in versions.held[stage][version].items():
            weight.data = versions.latest(stage)[name].data.clone()
        return call(versions, stage, version)

    patch.setattr(Versions, "call", newest)


def nothing_over_the_skip(patch, name):
    right, zeros = getattr(ModelWork, name), lambda x: tuple(map(torch.zeros_like, x))
    first = lambda arrived: arrived[:1] + [zeros(x) for x in arrived[1:]]
    patch.setattr(ModelWork, name, lambda work, s, m, version, x: right(work, s, m, version, first(x)))


def skip_dropped(patch):
    """What comes over a skip is taken for zero."""
    nothing_over_the_skip(patch, "forward")


def skip_gradient_dropped(patch):
    nothing_over_the_skip(patch, "backward")


def tied_counted_twice(patch):
    """Both ends add the tied gradient to a sum that has it already."""
    take = Replicated._take

    def twice(weights, names, flat):
        take(weights, names, weights.comm.all_reduce(flat, weights.layout.summed(names[0], weights.comm.rank)))

    patch.setattr(Replicated, "_take", twice)


def clipped_by_own_norm(patch):
    """Every rank clips by the norm of its own stages."""
    squares = lambda trainer: (float(weight.grad.square().sum()) for weight in trainer.parameters.values())
    patch.setattr(loop.Trainer, "gradient_norm", lambda trainer: sum(squares(trainer)) ** 0.5)


def summed_in_every_play(patch):
    patch.setattr(loop, "without_sums", lambda schedule: schedule)


DEEP = dict(microbatches=4, shape=hl.Shape(layers=5, width=8, heads=0, context=4, skips=True))
TIED = dict(microbatches=4, shape=hl.Shape(layers=4, width=8, heads=2, context=4, tied=True))
GPIPE = TRY | {"schedule": "gpipe"}
MUTANTS = [  # mesh after mesh, and job after job: ranks stay, and so does what one device made of a job
    (lost_microbatch, PP2, GPIPE),
    (unscaled_loss, PP2, GPIPE),
    (wrong_microbatch, PP2, GPIPE),
    (gradient_not_cleared, PP2, GPIPE),
    (received_twice, PP2, GPIPE),
    (clipped_by_own_norm, PP2, TRY | {"clip": 0.1}),
    (weight_half_left_out, PP2, TRY | {"schedule": "zb_h1"}),
    (version_off_by_one, PP2, TRY | {"schedule": "pipedream_2bw", "microbatches": 8}),
    (gradients_not_reduced, PP2, TRY | {"schedule": "chimera", "microbatches": 4}),
    (gradients_not_reduced, PP2, TIED),
    (tied_counted_twice, PP2, TIED),
    (skip_dropped, PP4, DEEP),
    (skip_gradient_dropped, PP4, DEEP),
    (missing_share, DP2, GPIPE),
    (summed_in_every_play, DP2, TRY | {"accumulate": 2}),
    (gradients_not_reduced, BOTH, GPIPE),
    (mean_for_sum, BOTH, GPIPE),
]


@pytest.mark.long
@pytest.mark.parametrize("mutant, mesh, job", MUTANTS, ids=[f"{m.__name__}-{n}" for n, (m, *_) in enumerate(MUTANTS)])
def test_every_mutant_is_noticed(bench, mutant, mesh, job):
    assert bench.right(mesh, **job)
    report = bench.asked(mesh, sabotage=mutant, **job)
    assert not report.ok and "NOT equal" in str(report), report


def first_state_for_ever(patch):
    """Every version is made by an optimizer that has forgotten those before."""
    whole = versions._succeeded

    def forgetful(optimizer, old):
        new = whole(optimizer, old)
        optimizer.state.clear()
        return new

    patch.setattr(versions, "_succeeded", forgetful)


@pytest.mark.parametrize("schedule", first(1, ["pipedream", "pipedream_2bw"]))
def test_every_version_is_made_with_adams_state_of_the_one_before(bench, schedule):
    about = TRY | {"schedule": schedule, "microbatches": 4, "optimizer": "adamw", "rate": 1e-2}
    assert bench.right(PP4, **about)
    assert not bench.asked(PP4, sabotage=first_state_for_ever, **about).ok


@pytest.mark.long
def test_without_stashing_a_gradient_belongs_to_no_function(bench):
    """The replay uses for each microbatch the weights of its forward: it notices that the backward found others."""
    job = TRY | {"schedule": "pipedream"}
    stashed, not_stashed = (bench.asked(PP4, stash=stash, **job) for stash in (True, False))
    assert stashed.ok and not not_stashed.ok and not_stashed.largest_gap < 0.3


@pytest.mark.long
def test_a_check_has_ranks_of_its_own_which_a_sabotage_changes_for_it_alone():
    def unscaled():
        work.scaled = lambda loss, tokens: loss

    assert not hl.check(PP2, "gpipe", sabotage=unscaled, **TRY).ok
    assert hl.check(PP2, "gpipe", **TRY).ok


def test_a_report_shows_what_was_found_and_not_every_row_of_it():
    report = Report("x", {"loss": 0.0}, {}, {("messages", "pp", "isend"): (8, 8)}, 1e-10, losses=(1.25,))
    assert "isend" not in repr(report) and "1.25" not in repr(report) and "equal to one device" in str(report)


def test_what_was_checked_is_told_with_everything_that_was_chosen():
    told = lambda **more: proof._describe(job_of(hl.Mesh(dp=2, pp=2), shape=SMALL, dtype="float64", **more))
    assert told(driven=True) == "1f1b on dp=2 × pp=2, driven, float64"
    assert told(zero=1) == "1f1b on dp=2 × pp=2, zero=1, float64"
