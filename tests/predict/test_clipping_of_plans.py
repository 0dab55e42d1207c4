"""What clipping by the norm of all gradients adds to the steps of a plan: nothing with the schedules that are searched,
the fill with ZB-H2, and nothing if the norm is learnt after the optimizer step."""

from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.core.added import added
from hybridlab.core.what.catalog import machine, model
from hybridlab.predict.plans.by_schedule import by_schedule, seconds_of_clipping
from hybridlab.predict.plans.performance import pieces
from hybridlab.predict.plans.plan import Plan
from hybridlab.scheduling.norms import VALIDATED

A100, GPT = machine("a100"), model("gpt-18.4b").shape
BLOCKS = replace(GPT, vocabulary=8)  # a head that takes no time: equal stages
SEARCHED = [Plan(p=8, t=8), Plan(p=4, t=8, v=2), Plan(p=4, t=8, n=2), Plan(p=4, t=8, n=2, v=5)]


@pytest.mark.parametrize("plan", SEARCHED, ids=str)
def test_schedules_that_are_searched_lose_nothing_by_the_norm(plan):
    """So the closed formula, in which a step begins after the last one, holds with and without clipping."""
    assert seconds_of_clipping(GPT, plan, 16, A100) == pytest.approx(0, abs=1e-9)


def test_nor_does_a_head_on_all_stages():
    order = hl.schedule("vocabulary_1f1b", ranks=4, microbatches=8)
    costs = hl.Costs(F=(1,) * 4 + (0.25,) * 5, B=(2,) * 4 + (0.5,) * 5)
    length = lambda place, steps: (
        hl.simulate(hl.orders.in_a_row(hl.orders.with_norm(order, place), steps), costs).length
    )
    assert length("before", 3) - length("before", 2) == length(None, 3) - length(None, 2)


@pytest.mark.parametrize("p, m", [(2, 8), (4, 16), (8, 24)])
@pytest.mark.parametrize("recompute", [0, 2])
def test_zb_h2_fills_again_in_each_step_unless_the_norm_comes_after_it(p, m, recompute):
    """The last stage is never idle but in the fill: its head makes it the longest."""
    plan, shape = Plan(p=p, t=8, recompute=recompute), replace(GPT, vocabulary=10**6)
    fill = (p - 1) * shape.layers / p * added(pieces(shape, plan, m, A100).forward)
    before, after = (seconds_of_clipping(shape, plan, m, A100, schedule="zb_h2", validated=at) for at in VALIDATED)
    assert before == pytest.approx(float(fill), rel=1e-6) and after == pytest.approx(0, abs=1e-9)


def test_of_equal_thirds_it_is_the_papers_fraction():
    """Qi et al.: (p-1)/(3m), with F = I = W; without tp, each kernel of a forward has two in the backward."""
    plan, m = Plan(p=4), 16
    forward, backward, *_ = pieces(BLOCKS, plan, m, A100)
    work = m * BLOCKS.layers / plan.p * float(added(forward) + added(backward))
    seconds = seconds_of_clipping(BLOCKS, plan, m, A100, schedule="zb_h2")
    assert seconds / work == pytest.approx((plan.p - 1) / (3 * m), rel=0.01)


def test_a_plan_is_simulated_with_another_schedule():
    plan = SEARCHED[0]
    mine, other = (by_schedule(GPT, plan, 24, A100, schedule=name) for name in (None, "zb_h2"))
    assert mine.schedule.name == "1f1b" and other.schedule.name == "zb_h2" and other.length < mine.length
    assert by_schedule(GPT, SEARCHED[1], 24, A100, schedule="zb_v").schedule.chunks == 2


def test_a_schedule_of_other_stages_is_refused():
    with pytest.raises(ValueError, match="F has 8 numbers, but zb_v has 16 stages: give one for each"):
        by_schedule(GPT, SEARCHED[0], 24, A100, schedule="zb_v")
    with pytest.raises(ValueError, match="pipedream has .* optimizer steps already"):
        seconds_of_clipping(GPT, SEARCHED[0], 24, A100, schedule="pipedream")
