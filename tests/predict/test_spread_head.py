"""A plan with the head on all stages: its time as simulated, its memory as the schedule holds it, and its job."""

from dataclasses import replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.core.added import added
from hybridlab.core.dry import KINDS
from hybridlab.core.what.catalog import machine
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.bytes_of_rank import VALUE, layers_at, sent, weights_at
from hybridlab.predict.plans.footprint import footprint, in_flight
from hybridlab.predict.plans.heaviest import heaviest, weights
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.performance import pieces, step
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.predict.plans.space import chosen, grid
from hybridlab.training.make_job import job_of

LONG = Shape(layers=32, width=4096, heads=32, context=4096, vocabulary=128_256)
A100 = machine("a100")


@pytest.mark.parametrize("stages", [(16, 16), (8, 8, 8, 8), (4,) * 8, (17, 16), (2, 1)], ids=str)
def test_its_time_is_that_of_the_schedule(stages):
    """Without messages, and apart from at most two forwards of a stage while the pipeline fills."""
    p, m, shape = len(stages), 32, replace(LONG, layers=sum(stages))
    plan = Plan(p=p, spread_head=True, uneven=len({*stages}) > 1)
    forward, backward, head, *_ = (np.asarray(one, float) for one in pieces(shape, plan, m, A100))
    both = [added(one) for one in (forward, backward)]
    F, B = ((*[n * one for n in stages], *[part * head / p] * p, 0.0) for one, part in zip(both, (1 / 3, 2 / 3)))
    halves = tuple(one / 2 for one in B)
    found = hl.simulate(hl.schedule("vocabulary_1f1b", p, m), hl.Costs(F=F, I=halves, W=halves)).length
    one = step(shape, plan, m, A100)
    predicted = one.total - one.messages - one.data - one.optimizer - (p - 1) * 2 * pieces(shape, plan, m, A100).hop
    assert abs(found - predicted) <= 2 * stages[0] * both[0] and predicted == pytest.approx(found, rel=0.04)


def test_each_stage_has_a_piece_and_the_last_one_sends_its_output_to_all_others():
    plan, m = Plan(p=4, spread_head=True), 32
    spread, plain = step(LONG, plan, m, A100), step(LONG, plan._replace(spread_head=False), m, A100)
    assert spread.head == pytest.approx(plain.head / 4) and spread.total < plain.total
    assert (
        spread.messages == pytest.approx(plain.messages * 4) == pytest.approx(m * 8 * pieces(LONG, plan, m, A100).hop)
    )
    more = heaviest(LONG, plan).other - heaviest(LONG, plan._replace(spread_head=False)).other
    assert more == LONG.vocabulary * LONG.width / 4  # the first stage has the embedding, and now a piece too


def test_tp_shards_no_piece():
    plan = Plan(p=4, spread_head=True)
    one, two = (step(LONG, plan._replace(t=t), 32, A100) for t in (1, 2))
    assert one.head == two.head and one.multiply > two.multiply
    for t in (1, 2):  # two microbatches' scores of a piece, in single precision
        small, large = (
            footprint(replace(LONG, vocabulary=tokens), plan._replace(t=t), 32).activations for tokens in (4096, 8192)
        )
        assert large - small == 2 * 4 * LONG.context * 4096 / 4


SMALL = {
    (style, tied): Shape(layers=4, vocabulary=4099, style=style, tied=tied)
    for style, tied in (("llama", False), ("gpt", True))
}


@pytest.mark.slow
@pytest.mark.parametrize("of", SMALL, ids=str)
@pytest.mark.parametrize(
    "plan",
    [
        Plan(p=2, t=2, spread_head=True),
        Plan(p=3, t=2, d=2, spread_head=True, scatter=True, uneven=True),
        Plan(p=2, d=2, zero=1, spread_head=True),
        Plan(p=2, x=2, spread_head=True),
    ],
    ids=str,
)
def test_a_rank_holds_and_sends_what_a_dry_run_says(of, plan):
    shape = SMALL[of]
    if shape.tied and plan.x > 1:
        with pytest.raises(ValueError, match="makes a tied one of pieces"):
            check_plan(plan, shape, 8)
        return
    job, most = job_of_plan(plan, shape, 8), 0
    for place in range(plan.p):
        told = hl.dry_run(**job, rank=job["mesh"].rank(pp=place))
        held = told.held[:, list(KINDS).index("weights")].max() / VALUE
        assert held == added(weights_at(shape, plan, layers_at(shape, plan, place)))
        assert told.bytes == sent(shape, plan, 8, place)
        most = max(most, held)
    if plan.x == 1:  # the biases of a GPT between x and tp are counted as sharded
        assert weights(shape, plan) == most


@pytest.mark.parametrize("p, m", [(2, 8), (4, 3), (4, 8), (8, 32)])
def test_as_many_microbatches_are_in_flight_as_in_the_schedule(p, m):
    for r, program in enumerate(hl.schedule("vocabulary_1f1b", p, m).program):
        held = np.cumsum([{"F": 1, "B": -1}[one.kind] for one in program if one.stage == r])
        assert in_flight(1, p + 2, m, place=r) == held.max()


def test_a_search_finds_only_what_can_be_run():
    found = chosen(*grid(Shape(layers=4, heads=4), 4, 8, spread_head=True))
    assert set(found.v) == {1} and not any(found.sequence) and all(found.spread_head)
    plain = len(chosen(*grid(Shape(layers=4, heads=4), 4, 8)).p)
    assert 0 < len(found.p) < plain
    for more in ({"p": 1}, {"v": 2}, {"sequence": True, "t": 2}):
        with pytest.raises(ValueError, match="spread_head needs several stages, one on each rank, and all positions"):
            check_plan(Plan(**{"p": 2, "spread_head": True} | more), Shape(layers=4), 8)
    assert min(found.p) > 1
    tied = Shape(layers=4, heads=4, width=32, tied=True)
    for spread, ways in ((False, {1, 2, 4}), (True, {1})):
        assert set(chosen(*grid(tied, 4, 8, grids=True, spread_head=spread)).x) == ways


def test_its_job_runs_the_schedule():
    given = job_of_plan(Plan(p=2, spread_head=True, b=2), Shape(layers=4), 8)
    job = job_of(**given)
    assert given["schedule"] == "vocabulary_1f1b" and job.schedule.pieces == 2 and job.schedule.stages == 5


def test_the_planner_and_the_command_take_it(capsys):
    from hybridlab.cli.main import main

    found = [hl.plan(LONG, "h100", 64, 256, p=8, **more).best for more in ({}, {"spread_head": True})]
    assert found[1].step.total < found[0].step.total and "head on all stages" in str(found[1])
    assert "spread_head=False instead of True" in repr(
        hl.plan(LONG, "h100", 64, 256, p=8, spread_head=True).what_if(spread_head=False)
    )
    asked = "plan --model gpt3-175b --machine a100 --gpus 64 --batch 64 --pp 8 --spread-head".split()
    assert main(asked) == 0
    assert "head on all stages" in capsys.readouterr().out
