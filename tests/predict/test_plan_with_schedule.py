"""A schedule fixed by its name: plans that run with it, or one sentence."""

import pytest

import hybridlab as hl
from hybridlab.predict.plans.with_schedule import FIXED

ABOUT = ("llama3-8b", "h100")


@pytest.mark.parametrize("name", hl.schedules())
def test_each_schedule_gives_plans_or_a_sentence(name):
    if name not in FIXED:
        with pytest.raises(ValueError, match=f"{name}' is not searched, .*: choose from 1f1b"):
            hl.plan(*ABOUT, gpus=16, batch=128, schedule=name)
        return
    found = hl.plan(*ABOUT, gpus=16, batch=128, schedule=name)
    assert {one.job()["schedule"] for one in found.top()} == {name}


def test_a_schedule_keeps_the_best_of_its_plans():
    every = hl.plan(*ABOUT, gpus=16, batch=128, t=1)
    chunks = [one for one in every.top(10**6) if one.plan.v > 1]
    assert hl.plan(*ABOUT, gpus=16, batch=128, t=1, schedule="interleaved").best.plan == chunks[0].plan


@pytest.mark.parametrize(
    ("name", "sizes", "told"),
    [
        ("1f1b", {"v": 2}, "has v=1, not 2: leave out v"),
        ("interleaved", {"v": 1}, "no legal plan runs with"),
        ("zb", {}, "choose"),
    ],
)
def test_refusals(name, sizes, told):
    with pytest.raises(ValueError, match=told):
        hl.plan(*ABOUT, gpus=16, batch=128, schedule=name, **sizes)


@pytest.mark.slow
def test_rows_too_short_for_the_search_of_slices_are_told_so():
    asked = {"gpus": 64, "batch": 64, "p": 8, "schedule": "seq1f1b"}
    with pytest.raises(ValueError, match="slices of 2,048 tokens or more, but a row has only 2,048: give the number"):
        hl.plan("gpt3-175b", "a100", **asked)
    assert hl.plan("gpt3-175b", "a100", **asked, n=4).best.plan.n == 4
