"""The pipeline runtime: every schedule, on ranks, equal to one device, and holding what the simulator says."""

import dataclasses

import pytest
import torch
from few import one_in

import hybridlab as hl
from hybridlab.scheduling.replicate import replicate
from hybridlab.training.stages import cut

pytestmark = pytest.mark.ranks
GPT = hl.Shape(layers=8, width=8, heads=2, context=4)
BRANCHED = hl.Shape(layers=2, width=8, heads=2, context=4, tied=True, parallel=True)
SLICED = dataclasses.replace(GPT, context=8)  # a block with attention on every stage
MLP = hl.Shape(layers=9, width=8, heads=0, context=4, tied=True, skips=True)  # uneven, a tie, skips between stages
SAME_ORDER = ("naive", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "v_half", "pipedream")  # as one device
ASYNCHRONOUS = ("pipedream", "pipedream_2bw")


CASES = ((2, 1, MLP), (2, 4, GPT), (4, 3, GPT), (4, 8, MLP))  # ranks, microbatches, model
FEW = ((2, 4),)  # in `make test`; the others are long


def legal():
    """(schedule, model) wherever a schedule can be, mesh after mesh; asynchronous ones refuse a tie."""
    for p, m, shape in CASES:
        for name in hl.schedules():
            try:
                one = hl.schedule(name, ranks=p, microbatches=m)
            except ValueError:
                continue
            shape = SLICED if one.slices > 1 or one.pieces else BRANCHED if one.breaks else shape
            untied = dataclasses.replace(shape, tied=False)
            long = [pytest.mark.long] * ((p, m) not in FEW)
            yield pytest.param(one, untied if name in ASYNCHRONOUS else shape, id=f"{name}-{p}-{m}", marks=long)


@pytest.mark.parametrize("schedule, shape", list(legal()))
def test_every_schedule_is_one_device(bench, schedule, shape):
    report = bench.asked(hl.Mesh(pp=schedule.ranks), schedule=schedule, shape=shape, rows=1)
    assert report.ok and report.largest_gap < 1e-11, report


def test_every_schedule_is_among_them():
    found = {(case.values[0].name, case.values[0].ranks) for case in legal()}
    assert found == {(name, p) for name in hl.schedules() for p in (2, 4)}


@pytest.mark.parametrize(
    "name", one_in(5, ["naive", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v", "v_half", "pipedream"])
)
def test_bits_are_equal_where_one_device_adds_in_the_same_order(bench, name):
    assert bench.asked(hl.Mesh(pp=2), schedule=name, shape=GPT, microbatches=4).largest_gap == 0


@pytest.mark.parametrize(
    "mesh, name, more",
    one_in(
        2,
        [
            (hl.Mesh(pp=2), "gpipe", {"backward": "lifo"}),
            (hl.Mesh(pp=2), "gpipe", {"recompute": "always"}),
            (hl.Mesh(pp=2), "gpipe", {"recompute": "except_last", "backward": "lifo"}),
            (hl.Mesh(dp=2, pp=2), "zb_v", {}),
            (hl.Mesh(pp=2, dp=2), "interleaved", {}),
            (hl.Mesh(dp=2, pp=2), "chimera", {}),
        ],
    ),
)
def test_other_orders_recomputation_and_copies(bench, mesh, name, more):
    one = hl.schedule(name, ranks=2, microbatches=4, **more)
    whole = replicate(one, mesh) if mesh["dp"] > 1 else one
    report = bench.asked(mesh, schedule=whole, shape=MLP, rows=1)
    assert report.ok and report.largest_gap < 1e-11, report


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [
        {"optimizer": "adamw", "rate": 1e-3},
        {"clip": 0.1},
        {"accumulate": 3},
        {"ahead": 3},
        {"cut": [1, 7]},
        {"cut": "parameters"},
        {"cut": "time"},
        {"driven": True},
    ],
    ids=str,
)
def test_ways_to_run_a_task(bench, more):
    report = bench.asked(hl.Mesh(dp=2, pp=2), schedule="1f1b", microbatches=3, shape=GPT, **more)
    assert report.ok and report.largest_gap < 1e-11, report


def test_message_driven_is_one_device_bit_for_bit_on_one_pipeline(bench):
    report = bench.asked(hl.Mesh(pp=4), schedule="1f1b", microbatches=6, shape=GPT, driven=True)
    assert report.ok, report


MOVING = ("bpipe", "pipeoffload")  # activations leave the rank, and `peak_held` counts the bytes that stay


@pytest.mark.parametrize("name", one_in(4, [name for name in hl.schedules() if name not in MOVING]))
def test_ranks_hold_as_many_activations_as_the_simulator_says(kept, name):
    s = hl.schedule(name, ranks=4, microbatches=8)
    plain = s.slices > 1 or s.pieces or not s.breaks
    model = hl.Shape(layers=8, width=4, heads=1, context=2) if plain else BRANCHED
    real = hl.run(s, work="model", model=model, steps=1)
    assert real.origin["peak_live"] == hl.simulate(s).peak_live == real.peak_live


@pytest.mark.long
def test_a_stage_keeps_as_many_versions_as_its_program_needs(bench):
    for name, more, versions in [("pipedream", {}, [4, 3, 2, 1]), ("pipedream_2bw", {}, [2, 2, 2, 2])]:
        s = hl.schedule(name, ranks=4, microbatches=8, **more)
        assert hl.simulate(s).peak("weights") == versions
        assert bench.pool(hl.Mesh(pp=4)).run(versions_held, s) == versions


def versions_held(comm, schedule):
    from hybridlab.core.where.mesh import Mesh
    from hybridlab.training import loop
    from hybridlab.training.make_job import job_of

    trainer = loop.Trainer(comm, job_of(Mesh(pp=4), schedule, shape=GPT, rows=1))
    trainer.step(0)
    return max(trainer.weights.peak.values())


def test_an_evaluation_is_the_loss_on_unseen_text(bench):
    losses = bench.pool(hl.Mesh(pp=2)).run(evaluated)
    assert losses[0] == losses[1] and abs(losses[0][0] - losses[0][1]) < 1e-12


def evaluated(comm):
    from hybridlab.core.where.mesh import Mesh
    from hybridlab.training import loop
    from hybridlab.training.make_job import job_of
    from hybridlab.training.models.gpt import GPT as Model
    from hybridlab.training.models.gpt import token_loss

    job = job_of(Mesh(pp=2), "1f1b", microbatches=3, shape=GPT, dtype="float64")
    trainer = loop.Trainer(comm, job)
    model, batch = Model(GPT, dtype=torch.float64), job.batch(5, unseen=True)
    alone = sum(token_loss(model(x), y).item() for x, y in zip(*batch)) / job.tokens
    return [trainer.evaluate(5), alone]


def test_an_evaluation_draws_nothing_and_leaves_the_training_as_it_was(bench):
    for plain, interrupted, unseen, alone in bench.pool(hl.Mesh(pp=2)).run(interrupted_by_evaluations):
        assert interrupted == plain
        assert abs(unseen - alone) < 1e-12


def interrupted_by_evaluations(comm):
    from hybridlab.core.where.mesh import Mesh
    from hybridlab.training import loop
    from hybridlab.training.make_job import job_of
    from hybridlab.training.models.gpt import GPT as Model
    from hybridlab.training.models.gpt import token_loss

    dropping = dataclasses.replace(GPT, dropout=0.3)
    job = job_of(Mesh(pp=2), "1f1b", microbatches=3, shape=dropping, dtype="float64")
    one, other = loop.Trainer(comm, job), loop.Trainer(comm, job)
    unseen = other.evaluate(0)
    plain = [one.step(step)[0] for step in range(3)]
    interrupted = [(other.step(step)[0], other.evaluate(step))[0] for step in range(3)]
    model = Model(dropping, dtype=torch.float64)
    model.draws.on = False
    return (
        plain,
        interrupted,
        unseen,
        sum(token_loss(model(x), y).item() for x, y in zip(*job.batch(0, unseen=True))) / job.tokens,
    )


def test_a_run_driven_by_messages_is_a_schedule_that_can_be_simulated(kept):
    s = hl.schedule("1f1b", ranks=3, microbatches=5)
    real = hl.run(s, driven=True, costs=hl.Costs(F=0.004, B=0.008), jitter=0.3, steps=2)
    assert hl.validate(real.schedule).name == "message_driven"
    assert max(real.peak_live) <= 3 and hl.predicted_for(real).length > 0


def test_receivers_that_wait_beside_slow_stages_are_no_deadlock(kept):
    slow = hl.Costs(F=0.4, B=0.4)
    assert hl.run(hl.schedule("1f1b", ranks=2, microbatches=1), driven=True, costs=slow, steps=1).length > 1.6


def test_messages_can_take_as_long_as_stated(kept):
    s, costs = hl.schedule("gpipe", ranks=2, microbatches=1), hl.Costs(F=0.004, B=0.004)
    quick, slow = hl.run(s, costs=costs, steps=3), hl.run(s, costs=costs, latency=0.02, steps=3)
    least = 4 * 0.004 + 2 * 0.02  # two forwards, two backwards and two messages, one after another
    assert quick.length < least <= slow.length < least + 0.03


def test_the_causes_of_a_gap_add_up(kept):
    s = hl.schedule("zb_h1", ranks=3, microbatches=4)
    real = hl.run(s, costs=hl.Costs(F=0.004, I=0.004, W=0.004), steps=2)
    gap = hl.predicted_for(real).gap(real)
    parts = [gap[cause] for cause in ("compute", "imbalance", "jitter", "sending", "waiting")]
    assert abs(sum(parts) - gap["length"]) < 1e-6


def test_a_program_that_would_hang_is_refused_before_it_starts():
    stuck = hl.Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0")
    for work in ("emulated", "model"):
        with pytest.raises(ValueError, match="waits on itself"):
            hl.run(stuck, work=work)


def test_tasks_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="updates every stage independently"):
        hl.check(hl.Mesh(pp=2), "pipedream", shape=GPT, clip=1.0)
    with pytest.raises(ValueError, match="numbers add up to"):
        hl.check(hl.Mesh(pp=2), "1f1b", shape=GPT, cut=[1, 2])
    with pytest.raises(ValueError, match="choose one of layers, parameters, time"):
        cut(GPT, 2, by="luck")
    with pytest.raises(ValueError, match="not a chain with one stage on each rank"):
        hl.run(hl.schedule("zb_v", ranks=2, microbatches=4), driven=True)


def test_dropout_under_an_asynchronous_schedule_is_drawn_anew_in_every_step(kept):
    """The replay on one process draws as the ranks do: by step."""
    shape = hl.Shape(layers=2, width=16, heads=2, context=8, dropout=0.3)
    report = hl.check(hl.Mesh(pp=2), "pipedream", microbatches=4, model=shape)
    assert report.ok, report


def test_a_report_says_that_messages_have_driven(kept):
    shape = hl.Shape(layers=2, width=16, heads=2, context=8)
    report = hl.check(hl.Mesh(pp=2), "1f1b", microbatches=2, model=shape, driven=True)
    assert report.ok and "driven" in str(report).splitlines()[0]
