"""The proof of equality: it holds for every schedule and layout, and every mutant of the runtime breaks it."""

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


def test_single_precision_has_its_own_tolerance():
    report = hl.check(hl.Mesh(dp=2, pp=2), "gpipe", dtype="float32", **TRY)
    assert report.ok and 0 < report.largest_gap < 1e-5, report


# Mutants: one line of the runtime changed on every rank; each must be noticed.


def lost_microbatch():
    from hybridlab.modes.work import ModelWork

    whole = ModelWork.backward
    lost = lambda m, g: torch.zeros_like(g) if m == 1 and g is not None else g
    ModelWork.backward = lambda work, stage, m, g: whole(work, stage, m, lost(m, g))


def missing_share():
    """Every replica divides by its own tokens instead of the global batch's: the sum is d times too large."""
    from hybridlab.modes import work

    work.scaled = lambda loss, tokens: 2 * loss / tokens


def unscaled_loss():
    from hybridlab.modes import work

    work.scaled = lambda loss, tokens: loss


def gradients_not_reduced():
    from hybridlab.modes import work

    work.reduce_gradients = lambda comm, parameters: None


def mean_for_sum():
    from hybridlab.modes import work

    def mean(comm, parameters):
        for parameter in parameters:
            comm.all_reduce(parameter.grad, "dp").div_(2)

    work.reduce_gradients = mean


def wrong_microbatch():
    from hybridlab.modes.work import ModelWork

    load = ModelWork.load
    ModelWork.load = lambda work, inputs, targets: load(work, inputs[::-1], targets)


def gradient_not_cleared():
    from hybridlab.train.stages import Stage

    Stage.zero_grad = lambda stage: None


def received_twice():
    """The buffer of the message before is used again."""
    from hybridlab.modes.work import ModelWork

    shared = {}
    ModelWork.boundary = lambda work: shared.setdefault(0, torch.zeros_like(work.example))


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
