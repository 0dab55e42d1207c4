"""The proof of equality: it holds for every schedule and layout, and every mutant of the runtime breaks it."""

from dataclasses import replace

import pytest
import torch

import hybridlab as hl

pytestmark = pytest.mark.ranks
SMALL = hl.Shape(layers=4, width=16, heads=2, context=8)
TRY = dict(shape=SMALL, microbatches=3)


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [2, 4])
def test_a_pipeline_is_one_device_bit_for_bit(name, pp):
    report = hl.check(hl.Mesh(pp=pp), name, **TRY)
    assert report.ok and report.largest_gap == 0, report


def test_fewer_microbatches_than_stages():
    assert hl.check(hl.Mesh(pp=4), "1f1b", microbatches=1, shape=SMALL).largest_gap == 0


def test_the_other_order_of_backwards_differs_only_by_rounding():
    lifo = hl.schedule("gpipe", ranks=2, microbatches=5, backward="lifo")
    report = hl.check(hl.Mesh(pp=2), lifo, shape=SMALL)
    assert report.ok and report.largest_gap < 1e-14, report


@pytest.mark.parametrize("mesh", [hl.Mesh(dp=2), hl.Mesh(dp=2, pp=2), hl.Mesh(dp=3, pp=2), hl.Mesh(pp=2, dp=3)])
def test_data_parallel_copies_are_one_device(mesh):
    report = hl.check(mesh, "1f1b", **TRY)
    assert report.ok and report.largest_gap < 1e-13, report
    assert "all-reduces d·Ψ" in report.bytes


def test_bytes_are_compared_axis_by_axis_too():
    report = hl.check(hl.Mesh(dp=2, tp=2), shape=SMALL, sequence=True)
    assert report.ok and {what for what, _, _ in report.axes} == {"sums", "inside"}
    key, other = ("inside", "tp", "all_gather"), ("inside", "tp", "reduce_scatter")
    (gathers, formula), (scatters, its) = report.axes[key], report.axes[other]
    swapped = replace(report, axes=report.axes | {key: (gathers + 8, formula), other: (scatters - 8, its)})
    assert not swapped.ok, "the sum of both is as it should be"
    assert f"inside, along tp, all_gather: {gathers + 8:,} bytes counted, {formula:,} by the formula" in str(swapped)


def test_single_precision_has_its_own_tolerance():
    report = hl.check(hl.Mesh(dp=2, pp=2), "gpipe", dtype="float32", **TRY)
    assert report.ok and 0 < report.largest_gap < 1e-5, report


# Mutants: one line of the runtime changed on every rank; each must be noticed.


def lost_microbatch():
    from hybridlab.modes.work import ModelWork

    whole = ModelWork.backward
    lost = lambda m, arrived: [tuple(torch.zeros_like(g) for g in one) for one in arrived] if m == 1 else arrived
    ModelWork.backward = lambda work, stage, m, version, arrived: whole(work, stage, m, version, lost(m, arrived))


def missing_share():
    """Every replica divides by its own tokens instead of the global batch's: the sum is d times too large."""
    from hybridlab.modes import work

    work.scaled = lambda loss, tokens: 2 * loss / tokens


def unscaled_loss():
    from hybridlab.modes import work

    work.scaled = lambda loss, tokens: loss


def gradients_not_reduced():
    from hybridlab.modes.data_parallel import Replicated, Sums

    Replicated.reduce = lambda weights, comm, action: Sums()


def mean_for_sum():
    from hybridlab.modes.data_parallel import Replicated

    take = Replicated._take
    Replicated._take = lambda weights, names, flat: take(weights, names, flat / 2)


def wrong_microbatch():
    from hybridlab.modes.work import ModelWork

    load = ModelWork.load
    ModelWork.load = lambda work, inputs, *more: load(work, inputs[::-1], *more)


def gradient_not_cleared():
    from hybridlab.modes.data_parallel import Replicated

    Replicated.begin = lambda weights: setattr(weights, "summed", {})


def received_twice():
    """The buffer of the message before is used again."""
    from hybridlab.modes.work import ModelWork

    room, shared = ModelWork.room, {}
    ModelWork.room = lambda work, edge, name: shared.setdefault((edge, name), room(work, edge, name))


def weight_half_left_out():
    from hybridlab.modes.work import ModelWork

    half = ModelWork.weight_half
    ModelWork.weight_half = lambda work, stage, m, *more: [] if m == 1 else half(work, stage, m, *more)


def version_off_by_one():
    """A forward finds the newest numbers where the schedule states older ones."""
    from hybridlab.modes.versions import Versions

    call = Versions.call

    def newest(versions, stage, version):
        for name, weight in versions.held[stage][version].items():
            weight.data = versions.latest(stage)[name].data.clone()
        return call(versions, stage, version)

    Versions.call = newest


def skip_dropped():
    """What comes over a skip is taken for zero."""
    from hybridlab.modes.work import ModelWork

    forward = ModelWork.forward

    def dropped(work, stage, m, version, arrived):
        return forward(work, stage, m, version, arrived[:1] + [tuple(map(torch.zeros_like, x)) for x in arrived[1:]])

    ModelWork.forward = dropped


def skip_gradient_dropped():
    from hybridlab.modes.work import ModelWork

    backward = ModelWork.backward

    def dropped(work, stage, m, version, arrived):
        return backward(work, stage, m, version, arrived[:1] + [tuple(map(torch.zeros_like, g)) for g in arrived[1:]])

    ModelWork.backward = dropped


def tied_counted_twice():
    """Both ends add the tied gradient to a sum that has it already."""
    from hybridlab.modes.data_parallel import Replicated

    take = Replicated._take

    def twice(weights, names, flat):
        take(weights, names, weights.comm.all_reduce(flat, weights.layout.summed(names[0], weights.comm.rank)))

    Replicated._take = twice


def clipped_by_own_norm():
    """Every rank clips by the norm of its own stages."""
    from hybridlab.train import loop

    loop.Trainer.gradient_norm = lambda trainer: (
        sum(float(weight.grad.square().sum()) for weight in trainer.parameters.values()) ** 0.5
    )


def summed_in_every_play():
    from hybridlab.train import loop

    loop.without_sums = lambda schedule: schedule


DEEP = dict(microbatches=4, shape=hl.Shape(layers=5, width=8, heads=0, context=4, skips=True))
TIED = dict(microbatches=4, shape=hl.Shape(layers=4, width=8, heads=2, context=4, tied=True))


@pytest.mark.parametrize(
    "mutant, mesh",
    [
        (lost_microbatch, hl.Mesh(pp=2)),
        (missing_share, hl.Mesh(dp=2)),
        (unscaled_loss, hl.Mesh(pp=2)),
        (gradients_not_reduced, hl.Mesh(dp=2, pp=2)),
        (mean_for_sum, hl.Mesh(dp=2, pp=2)),
        (wrong_microbatch, hl.Mesh(pp=2)),
        (gradient_not_cleared, hl.Mesh(pp=2)),
        (received_twice, hl.Mesh(pp=2)),
    ],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_every_mutant_is_noticed(mutant, mesh):
    report = hl.check(mesh, "gpipe", sabotage=mutant, **TRY)
    assert not report.ok and "NOT equal" in str(report), report


def test_without_stashing_a_gradient_belongs_to_no_function():
    """The replay uses for each microbatch the weights of its forward: it notices that the backward found others."""
    stashed, not_stashed = (hl.check(hl.Mesh(pp=4), "pipedream", stash=stash, **TRY) for stash in (True, False))
    assert stashed.ok and not not_stashed.ok and not_stashed.largest_gap < 0.1


@pytest.mark.parametrize(
    "mutant, mesh, name, task",
    [
        (weight_half_left_out, hl.Mesh(pp=2), "zb_h1", TRY),
        (version_off_by_one, hl.Mesh(pp=2), "pipedream_2bw", TRY | {"microbatches": 8}),
        (gradients_not_reduced, hl.Mesh(pp=2), "chimera", TRY | {"microbatches": 4}),
        (gradients_not_reduced, hl.Mesh(pp=2), "1f1b", TIED),
        (tied_counted_twice, hl.Mesh(pp=2), "1f1b", TIED),
        (skip_dropped, hl.Mesh(pp=4), "1f1b", DEEP),
        (skip_gradient_dropped, hl.Mesh(pp=4), "1f1b", DEEP),
        (clipped_by_own_norm, hl.Mesh(pp=2), "1f1b", TRY | {"clip": 0.1}),
        (summed_in_every_play, hl.Mesh(dp=2), "1f1b", TRY | {"accumulate": 2}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_every_mutant_of_one_schedule_is_noticed(mutant, mesh, name, task):
    assert hl.check(mesh, name, **task).ok
    report = hl.check(mesh, name, sabotage=mutant, **task)
    assert not report.ok and "NOT equal" in str(report), report
