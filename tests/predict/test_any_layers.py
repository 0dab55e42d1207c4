"""Numbers of layers that stages and chunks do not divide, through the public calls."""

import pytest

import hybridlab as hl
from hybridlab.core.what.catalog import machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.judged import megatron
from hybridlab.predict.plans.by_schedule import by_schedule
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan

LLAMA = dict(batch=2048, p=16, t=8, v=8, zero=1, sequence=True, fused=True)


def test_given_stages_that_do_not_divide_the_layers_are_planned_unequal():
    """Llama 3 405B as it was trained: 126 blocks in 128 stages, none in the first and in the last."""
    found = hl.plan("llama3-405b", "h200", gpus=16384, **LLAMA)
    assert found.best.plan.uneven and found.best.plan.v == 8
    assert hl.memory("llama3-405b", d=128, **LLAMA).total == hl.memory("llama3-405b", d=128, uneven=True, **LLAMA).total
    cut = found.best.job()["cut"]
    assert cut == [0] + 126 * [1] + [0]


@pytest.mark.parametrize("name, p, v", [("deepseek-v3", 16, 2), ("llama3-405b", 4, 3), ("qwen3-30b-a3b", 5, 3)])
def test_the_best_of_any_number_of_stages_is_a_job_and_fills_its_layers(name, p, v):
    shape = model(name).shape
    best = hl.plan(name, "gb300", gpus=8 * p * 16, batch=16 * p * 16, p=p, v=v, zero=1, experts=shape.experts > 1).best
    assert sum(best.job()["cut"]) == shape.layers and best.plan.uneven


def test_equal_stages_can_be_asked_for():
    with pytest.raises(ValueError, match="p 126 layers"):
        hl.plan("llama3-405b", "h200", gpus=16384, uneven=False, **LLAMA)
    with pytest.raises(ValueError, match=r"p·v be at most 128"):
        hl.plan("llama3-405b", "h200", gpus=16384, **LLAMA | {"v": 9})
    with pytest.raises(ValueError, match="or allow unequal stages with uneven=True"):
        hl.memory("llama3-405b", d=128, uneven=False, **LLAMA)
    with pytest.raises(ValueError, match="p·v = 144 stages are too many for a model of 126 layers"):
        hl.memory("llama3-405b", d=128, **LLAMA | {"v": 9})


def test_a_wider_search_finds_unequal_chunks():
    """Of 22 layers on 4 stages, an interleaved pipeline needs chunks of unequal length."""
    shape = Shape(layers=22, width=2048, heads=16, context=2048, vocabulary=32000, style="llama")
    found = hl.plan(shape, "a100", gpus=8, batch=64, stages=True)
    assert found.only(p=4, v=3).best.plan.uneven and found.only(p=2, v=11).best.plan.uneven is False
    equal = hl.plan(shape, "a100", gpus=8, batch=64)
    assert found.best.step.total <= equal.best.step.total
    with pytest.raises(ValueError, match="p=4, v=3 is impossible"):
        _ = equal.only(p=4, v=3).best


@pytest.mark.parametrize(
    "name, p, t, v, m",
    [
        ("deepseek-v3", 16, 1, 2, 64),
        ("llama3-405b", 16, 8, 8, 16),
        ("llama3-405b", 8, 8, 5, 32),
        ("llama3-8b", 6, 1, 5, 24),
    ],
)
def test_the_schedule_takes_as_long_as_the_formula_says(name, p, t, v, m):
    """Unequal chunks make ranks wait here and there, which the formula has only on the whole."""
    shape, plan = model(name).shape, Plan(p=p, t=t, v=v, uneven=True, fused=True)
    told, played = step(shape, plan, m, machine("h100")), by_schedule(shape, plan, m, machine("h100"))
    assert float(told.total - told.data - told.optimizer) == pytest.approx(played.length, rel=0.02)


def test_metas_rows_go_through_the_public_call():
    for run in megatron.llama3():
        assert dealt(run.shape.layers, run.plan.p * run.plan.v)[::127] == [0, 0]
        roomy = run._replace(
            machine="h200"
        )  # the chunks are not printed: with our choice of 8, they need more than 80 GB
        assert roomy.planned().best.plan == run.plan
