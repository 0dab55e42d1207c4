"""PipeDream's replicated stages: lists of actions that never hang, ranks that equal a replay, plans that run."""

import itertools
from math import lcm

import pytest
import torch
from torch.func import functional_call

import hybridlab as hl
from hybridlab.predict.plans.replicated import Layer, Stage, replicated
from hybridlab.runtime import versions
from hybridlab.runtime.pending import Sums
from hybridlab.runtime.versions import Versions
from hybridlab.scheduling.validate import Invalid, validate
from hybridlab.training import replay
from hybridlab.training.make_job import job_of
from hybridlab.training.stages import cut, profiled

SMALL = hl.Shape(layers=4, width=16, heads=2, context=8)
UNTIED = hl.Shape(layers=5, width=8, heads=0, context=4, skips=True)


def compositions(ranks):
    """Every way to give so many ranks to stages, one or more each."""
    return [one for stages in range(1, ranks + 1) for one in itertools.product(range(1, ranks + 1), repeat=stages)
            if sum(one) == ranks]  # fmt: skip


def copied(copies, rounds=2):
    return hl.schedule("pipedream", ranks=sum(copies), microbatches=rounds * lcm(*copies), copies=copies)


# --- the lists --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranks", [1, 2, 3, 4, pytest.param(5, marks=pytest.mark.long), pytest.param(6, marks=pytest.mark.long)]
)
def test_a_copy_keeps_as_many_versions_as_forwards_that_it_begins_with_and_one(ranks):
    for copies in compositions(ranks):
        schedule = copied(copies, rounds=12)
        behind = [sum(copies[stage:]) for stage in range(len(copies))]
        kept = [-(-behind[stage] // count) for stage, count in enumerate(copies) for _ in range(count)]
        timeline = hl.simulate(schedule, hl.Costs(F=list(copies), B=[2 * count for count in copies]))
        assert timeline.peak_live == timeline.peak("weights") == kept
        assert validate(hl.lower(schedule)).ranks == ranks


def test_turns_go_round_and_a_backward_goes_where_its_forward_went():
    schedule = copied((3, 2, 1))
    for stage, copies in enumerate((3, 2, 1)):
        for turn, rank in enumerate(schedule.holders[stage]):
            for kind in "FB":
                mine = [action.microbatch for action in schedule.program[rank] if action.kind == kind]
                assert mine == list(range(turn, 12, copies))
    assert schedule.windows == (3, 2, 1)


def test_one_copy_of_each_stage_is_pipedream():
    straight, copies = (
        hl.schedule("pipedream", ranks=4, microbatches=8, **more) for more in ({}, {"copies": (1,) * 4})
    )
    assert copies.to_dict() == straight.to_dict()


def test_stages_with_copies_in_proportion_never_wait():
    """Work 3 and 1 on 3 and 1 ranks: between fill and drain a minibatch ends in every unit of work."""
    last = {}
    for rounds in (10, 20):
        last[rounds] = hl.simulate(copied((3, 1), rounds), hl.Costs(F=[3, 1], B=[6, 2])).length
    assert last[20] - last[10] == 10 * 3 * (1 + 2)


@pytest.mark.parametrize("copies", [(2, 1), (2, 2), (1, 3), (3, 2)])
def test_text_and_file_say_all_of_it(copies):
    schedule = copied(copies)
    for read in (hl.Schedule.from_csv(schedule.to_csv()), hl.Schedule.from_dict(schedule.to_dict())):
        assert (read.place, read.replica_of, read.window, read.dp) == (schedule.place, schedule.replica_of, 1, 1)
        assert read.program == schedule.program


def changed(schedule, change):
    """The schedule with every action, by its text, exchanged for another one of it."""
    every = {str(action): action for program in schedule.program for action in program}
    new = [[every[change.get(str(action), str(action))] for action in program] for program in schedule.program]
    return schedule.with_programs(new)


def test_a_backward_on_another_copy_is_not_valid():
    with pytest.raises(Invalid, match="0B1@1#0 is on the wrong rank: put it on rank 1"):
        validate(changed(copied((2, 1)), {"0B0#0": "0B1@1#0", "0B1@1#0": "0B0#0"}))


def test_a_backward_with_another_version_than_its_forward_is_not_valid():
    schedule = copied((2, 1), rounds=3)
    wrong = [
        [one._replace(version=0) if str(one) == "0B4#1" else one for one in program] for program in schedule.program
    ]
    with pytest.raises(Invalid, match="0B4#0 takes the saved tensors of 0F4, which no action makes"):
        validate(schedule.with_programs(wrong))


def test_a_copy_that_leaves_its_sum_or_its_step_out_is_not_valid():
    schedule = copied((2, 1))
    for left_out, why in (("0REDUCE_GRAD@1#1", "0OPT@1#1 takes the summed"), ("0OPT@1#1", "stage 0 takes 1 optimizer")):
        fewer = [[one for one in program if str(one) != left_out] for program in schedule.program]
        with pytest.raises(Invalid, match=why):
            validate(schedule.with_programs(fewer))


@pytest.mark.parametrize(
    "ranks, more, why",
    [
        (3, dict(copies=(2, 2)), r"copies=\(2, 2\) need 4 ranks, not 3"),
        (2, dict(copies=(2, 0)), "give each stage 1 or more"),
        (3, dict(copies=(2, 1), microbatches=5), "5 mini-batches cannot be distributed evenly over 2 copies: give a"),
        (3, dict(copies=(2, 1), vertical_sync=True), "leave out vertical_sync"),
    ],
)
def test_copies_that_cannot_be_are_refused(ranks, more, why):
    with pytest.raises(ValueError, match=why):
        hl.schedule("pipedream", **{"ranks": ranks, "microbatches": 4} | more)


# --- the replay, and the ranks ----------------------------------------------------------------------------------


@pytest.mark.long
def test_the_replay_is_the_delayed_step_of_the_paper():
    """Round u of a stage, with the version of max(0, u - warm), makes version u + 1 from the mean of its gradients."""
    copies, rate = (2, 1), 0.05
    job = job_of(hl.Mesh(pp=3), "pipedream", 6, copies=copies, shape=SMALL, steps=1, rate=rate, dtype="float64")
    module = job.model.made(job.seed, torch.float64)
    stage_of = {name: home[0] for name, home in job.homes.items()}
    made = [{name: weight.detach() for name, weight in module.named_parameters()}]
    made, losses, found = {0: [*made], 1: [*made]}, [], {}
    for m, (inputs, targets) in enumerate(zip(*job.batch(0))):
        late = {stage: max(m // count - (sum(copies[stage:]) - 1) // count, 0) for stage, count in enumerate(copies)}
        weights = {name: made[s][late[s]][name].clone().requires_grad_() for name, s in stage_of.items()}
        whole = replay._Whole(job.model, module)
        scores = functional_call(whole, {f"module.{name}": weight for name, weight in weights.items()}, (inputs,))
        loss = job.model.loss(scores, targets) / (job.rows * SMALL.context)
        losses.append(loss.item())
        found[m] = dict(zip(weights, torch.autograd.grad(loss, list(weights.values()))))
        for stage, count in enumerate(copies):
            if (m + 1) % count == 0:
                mean = {name: sum(found[one][name] for one in range(m + 1 - count, m + 1)) / count for name in weights}
                made[stage].append({name: made[stage][-1][name] - rate * mean[name] for name in weights})
    told, trained = replay.replay(job)[:2]
    assert torch.allclose(torch.tensor(told), torch.tensor(losses), rtol=0, atol=1e-13)
    for name, weight in trained.named_parameters():
        assert torch.allclose(weight, made[stage_of[name]][-1][name], rtol=0, atol=1e-13)


FEW = [((2, 1), SMALL, {}), ((1, 2), UNTIED, {}), ((2,), SMALL, {"dtype": "bfloat16"})]  # whose sums are in float32
NEAR = {"float64": 1e-11, "bfloat16": 0.05}
MANY = [(copies, SMALL, {}) for ranks in (2, 3, 4) for copies in compositions(ranks) if max(copies) > 1]
MANY += [
    ((2, 1, 2), UNTIED, {}),
    ((1, 3), "conv", {}),
    ((2, 2), SMALL, {"sums": "buckets"}),
    ((1, 2), SMALL, {"optimizer": "adamw", "rate": 1e-3, "decay": 0.1}),
    ((4, 1), SMALL, {}),
    ((3, 1), SMALL, {"optimizer": "adamw", "rate": 1e-3}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "copies, model, more",
    [*FEW, *(pytest.param(*one, marks=pytest.mark.long) for one in MANY if one not in FEW)],
)
def test_ranks_equal_the_replay_and_every_byte_is_claimed(bench, copies, model, more):
    report = bench.asked(hl.Mesh(pp=sum(copies)), schedule=copied(copies), model=model, **more)
    assert report.ok and report.largest_gap < NEAR[more.get("dtype", "float64")], report
    assert report.bytes["all-reduces of gradients"][0] > 0 or max(copies) == 1


@pytest.mark.ranks
@pytest.mark.long
def test_a_copy_counts_the_versions_that_were_predicted(bench):
    schedule = copied((2, 1, 1), rounds=6)
    assert bench.pool(hl.Mesh(pp=4)).run(held, schedule) == hl.simulate(schedule).peak("weights") == [2, 2, 2, 1]


def held(comm, schedule):
    from hybridlab.core.where.mesh import Mesh
    from hybridlab.training import loop
    from hybridlab.training.make_job import job_of

    trainer = loop.Trainer(comm, job_of(Mesh(pp=4), schedule, shape=hl.Shape(layers=3, width=8, heads=2, context=4)))
    trainer.step(0)
    return max(trainer.weights.peak.values())


def summed_not_averaged(patch):
    patch.setattr(versions, "averaged", lambda summed, copies: summed)


def copies_not_synchronised(patch):
    """No copy hears of the others' gradients."""
    patch.setattr(Versions, "reduce", lambda *_: Sums())


def own_gradient_taken(patch):
    """The sum is made, so that every byte is sent, and each copy goes on with its own gradient."""
    patch.setattr(Versions, "_take", lambda *_: None)


def another_version_on_one_copy(patch):
    """The second copy of a stage keeps no old version: its backward finds other weights than its forward."""
    made = Versions.__init__
    patch.setattr(Versions, "__init__", lambda self, comm, *more: made(self, comm, *more[:-1], comm.rank != 1))


def last_copy_left_out(patch):
    """The mean over a stage's copies is taken for one copy fewer."""
    patch.setattr(versions, "averaged", lambda summed, copies: summed / max(copies - 1, 1))


@pytest.mark.ranks
@pytest.mark.long
@pytest.mark.parametrize(
    "mutant",
    [summed_not_averaged, copies_not_synchronised, own_gradient_taken, another_version_on_one_copy, last_copy_left_out],
)
def test_every_mutant_is_noticed(bench, mutant):
    asked = dict(schedule=copied((3, 1), rounds=4), shape=SMALL)
    assert bench.asked(hl.Mesh(pp=4), **asked).ok
    report = bench.asked(hl.Mesh(pp=4), sabotage=mutant, **asked)
    assert not report.ok and report.largest_gap > 1e-6, report


@pytest.mark.ranks
def test_waiting_in_place_of_computing_takes_as_long_as_predicted(kept):
    """The sum of copies is waited for by their update, and not by the end of the step."""
    schedule, costs = copied((2, 1)), hl.Costs(F=0.02, B=0.04, reduce=0.01)
    real = hl.run(schedule, costs=costs, steps=1)
    assert real.length == pytest.approx(hl.simulate(schedule, costs).length, rel=0.2)
    assert real.schedule.computing == schedule.computing


# --- plans ------------------------------------------------------------------------------------------------------


def test_a_plan_for_convolutions_and_a_large_layer_is_that_of_the_paper_in_small():
    layers = [Layer(2.0, 1e5, 1e4)] * 3 + [Layer(1.0, 1e3, 1e8), Layer(1.0, 1e3, 1e8)]
    plan = replicated(layers, (4, 5e7))
    assert [(stage.layers, stage.replicas) for stage in plan.stages] == [(range(0, 3), 3), (range(3, 5), 1)]
    assert plan.job()["copies"] == (3, 1) and plan.job(rounds=5)["microbatches"] == 15


def test_levels_of_the_network_are_flattened_where_they_can_be():
    one = replicated([Layer(4.0, 1.0, 1.0)], (2, 1e9), (3, 1e8))
    assert one.job()["copies"] == (6,)
    inside = Stage(range(0, 2), 2, (Stage(range(0, 1), 1), Stage(range(1, 2), 1)))
    with pytest.raises(ValueError, match="nested stages cannot be run"):
        one._replace(stages=(inside,)).job()


@pytest.mark.slow
def test_a_cut_is_also_said_as_ranges():
    assert cut(SMALL, 2, by=[range(0, 5), range(5, 6)]) == (range(0, 5), range(5, 6))
    for wrong in ([range(0, 5)], [range(0, 5), range(4, 6)], [range(0, 6), range(6, 6)]):
        with pytest.raises(ValueError, match="does not divide 6 layers into 2 stages: give ranges in order"):
            cut(SMALL, 2, by=wrong)


@pytest.mark.ranks
def test_the_partition_of_a_small_model_runs(bench):
    """Measured seconds of its layers; a network so slow that the wide head is better off alone."""
    shape = hl.Shape(layers=3, width=16, heads=2, context=8)
    layers = [layer._replace(seconds=seconds) for layer, seconds in zip(profiled(shape, repeat=1), (1, 4, 4, 4, 4))]
    layers[-1] = layers[-1]._replace(weights=2e9)
    plan = replicated(layers, (4, 2e8))
    job = plan.job()
    assert job["copies"] == (3, 1) and job["cut"] == [range(0, 4), range(4, 5)]
    report = bench.asked(**job, model=shape)
    assert report.ok, report
