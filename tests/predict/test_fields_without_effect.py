"""A field of a plan either changes the answer or is refused, and the sentence names what the caller can give."""

from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.rates import Fit

ASKED = ("gpt3-175b", "a100", 64, 64)
MEMORY = {
    "skew=1.0 is invalid: this model has no experts": {"skew": 1.0},
    "dispatch has no effect without ep: give ep too, or leave out dispatch": {"dispatch": "all_gather"},
    "attend has no effect without cp: give cp too, or leave out attend": {"attend": "ring"},
    "zigzag has no effect without cp: give cp too, or leave out zigzag": {"zigzag": True},
    "sync_every has no effect without d: give d too, or leave out sync_every": {"sync_every": 64},
    "scatter has no effect without p and t: give p and t too, or leave out scatter": {"scatter": True, "p": 1},
    "sequence has no effect without t: give t too, or leave out sequence": {"sequence": True, "t": 1},
    "redone has no effect without recompute: give recompute too, or leave out redone": {"redone": 0.5},
    "uneven=True has no effect: p·v = 8 divides the 96 layers; leave it out": {"uneven": True},
    "zero=3 shards over copies, but d=1 is only one: give d=2 or more": {"zero": 3},
    "two_levels=True needs several groups of several owners: give z=2 or more, and d": {"two_levels": True},
}


@pytest.mark.parametrize("said", MEMORY)
def test_memory_refuses_a_field_that_changes_nothing(said):
    with pytest.raises(ValueError) as error:
        hl.memory("gpt3-175b", **{"batch": 64, "p": 8, "t": 8} | MEMORY[said])
    assert str(error.value).startswith(said)


def test_the_advice_for_two_levels_can_be_followed():
    assert hl.memory("gpt3-175b", batch=64, p=2, t=4, d=8, z=2, zero=3, two_levels=True).total > 0


def test_a_share_of_layers_to_recompute_needs_recomputation():
    with pytest.raises(ValueError, match="redone=0.5 excludes every plan of 64 devices with recompute=none: leave out"):
        hl.plan(*ASKED, redone=0.5, recompute="none")
    planned = hl.plan(*ASKED, redone=0.5)
    assert 0 not in planned.space.recompute
    assert planned.what_if(recompute="none").after.plan.redone == 1


def test_only_the_layers_that_are_recomputed_count_as_done_twice():
    half = hl.plan(*ASKED, redone=0.5, recompute="full").best
    none, full = (flops(half.shape, 64, how).total for how in ("none", "full"))
    assert half.rate * half.step.total * 64 == pytest.approx((none + full) / 2)
    never = hl.plan(*ASKED, redone=0.0, recompute="full").best
    assert never.rate == never.model_rate


@pytest.mark.parametrize(
    "fit, said",
    [
        (Fit(multiply=2.24), "GEMMs at 224% of the peak are not possible: correct the plan, the batch or the machine"),
        (Fit(multiply=-1), "GEMMs at -100% of the peak are not possible"),
        (Fit(memory=1.5), "memory-bound kernels at 150% of the peak are not possible"),
        (Fit(launch=-1e-3), "launch=-0.001 is not a time: give seconds, 0 or more"),
    ],
)
def test_no_plan_is_made_with_more_than_the_peak(fit, said):
    with pytest.raises(ValueError, match=said):
        hl.plan(*ASKED, fit=fit)
    assert hl.plan(*ASKED, fit=Fit(multiply=1, memory=1, launch=0)).best.step.total > 0


@pytest.mark.parametrize(
    "sizes, said",
    [
        ({"v": 2, "p": 1}, "v=2 chunks need several stages, but p=1 is one: give p=2 or more, or leave out v"),
        ({"b": 99}, "b=99 does not divide a batch of 64: choose b from 1, 2, 4, 8, 16, 32, 64, or another batch"),
    ],
)
def test_no_plan_the_cause_is_named(sizes, said):
    with pytest.raises(ValueError) as error:
        hl.plan(*ASKED, **sizes)
    assert str(error.value) == said


def test_as_many_plans_as_asked_for():
    planned = hl.plan(*ASKED)
    assert [str(one) for one in planned.top(2)] == [str(one) for one in planned.top(3)[:2]]
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"count={count} is out of range: give 1 or more"):
            planned.top(count)
    with pytest.raises(ValueError, match="top takes count as int, not 'a', a str"):
        planned.top("a")
    few = replace(planned, places=planned.places[:2])
    with pytest.raises(ValueError, match="there is no plan 2: choose from 0 to 1"):
        few.one(2)
