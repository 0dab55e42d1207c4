"""Predicted weights: equal to a replay on one process, off by the updates that are missing, and mistakes are caught."""

import pytest

import hybridlab as hl
from hybridlab.core.what.shape import Shape
from hybridlab.runtime import predicted
from hybridlab.runtime.predicted import Predicted
from hybridlab.training.make_job import job_of

PP4 = hl.Mesh(pp=4)
SHAPE = Shape(layers=4, width=16, heads=2, context=8)
JOB = {"schedule": "pipedream", "microbatches": 8, "shape": SHAPE, "predict_weights": True}
CASES = {
    "pipedream": {},
    "adamw": {"optimizer": "adamw", "rate": 0.01},
    "2BW": {"schedule": "pipedream_2bw", "microbatches": 12},
    "vertical sync": {"schedule": hl.schedule("pipedream", 4, 8, vertical_sync=True)},
    "copies": {"mesh": hl.Mesh(pp=4), "copies": (3, 1), "microbatches": 9},
}


@pytest.mark.ranks
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n != "adamw")) for n in CASES])
def test_predicted_weights_are_those_of_a_replay(bench, name):
    more = JOB | CASES[name]
    mesh = more.pop("mesh", PP4)
    report, plain = bench.asked(mesh, **more), bench.asked(mesh, **more | {"predict_weights": False})
    assert report.ok and plain.ok, report
    assert report.losses != plain.losses and report.bytes == plain.bytes


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_stage_predicts_as_many_updates_as_it_is_late(ranks):
    """p-1-s in PipeDream, one in 2BW, p-1 everywhere with vertical sync."""

    def late(schedule):
        return [
            max(one.microbatch // schedule.windows[one.stage] - one.version for one in program if one.kind == "F")
            for program in schedule.program
        ]

    assert late(hl.schedule("pipedream", ranks, 8)) == [ranks - 1 - s for s in range(ranks)]
    assert late(hl.schedule("pipedream", ranks, 8, vertical_sync=True)) == [ranks - 1] * ranks
    assert late(hl.schedule("pipedream_2bw", ranks, 4 * ranks)) == [1] * ranks


@pytest.mark.parametrize("more", [{"schedule": "1f1b"}, {"stash": False}])
def test_without_versions_there_is_nothing_to_predict(more):
    with pytest.raises(ValueError, match="predict_weights=True needs several versions of the weights"):
        job_of(PP4, **JOB | more)


def one_update_too_few(patch):
    right = predicted.later
    patch.setattr(predicted, "later", lambda before, weights, updates: right(before, weights, updates - 1))


def backwards_with_the_real_weights(patch):
    """The forward's prediction is forgotten when its version is updated."""
    right = Predicted.update

    def update(weights, stage, version):
        before = weights.updated[stage]
        right(weights, stage, version)
        if version in weights.held[stage]:
            weights.held[stage][version] = before

    patch.setattr(Predicted, "update", update)


def predictions_that_are_updated(patch):
    """The optimizer goes on from the prediction."""

    def update(weights, stage, version):
        before = weights.updated[stage]
        super(Predicted, weights).update(stage, version)
        if weights.late[stage]:
            weights.held[stage][version + 1] = predicted.later(before, weights.updated[stage], weights.late[stage])

    patch.setattr(Predicted, "update", update)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mistake",
    [
        one_update_too_few,
        pytest.param(backwards_with_the_real_weights, marks=pytest.mark.long),
        pytest.param(predictions_that_are_updated, marks=pytest.mark.long),
    ],
)
def test_a_mistake_is_caught(bench, mistake):
    assert bench.right(PP4, **JOB)
    try:
        report = bench.asked(PP4, sabotage=mistake, **JOB)
    except hl.RankError:
        return
    assert not report.ok
