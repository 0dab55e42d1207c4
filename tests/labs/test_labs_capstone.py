"""The capstone: its limits bind, its story holds, and its rubric adds up."""

import re

import numpy as np
import pytest
from few import one_in

from hybridlab.core.what.catalog import MODELS
from hybridlab.labs import capstone
from hybridlab.labs.capstone.given import played
from hybridlab.labs.capstone.rubric import RUBRIC, rows, told
from hybridlab.labs.capstone.solutions import PAGE
from hybridlab.labs.capstone.tasks import RIVALS, _page, _plan, _start, gap_of_gradients, grows_most
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.predict.plans.scaled import POSITIONS, scaled
from hybridlab.predict.plans.space import chosen, grid

GIVEN, PLANS = capstone.GIVEN, capstone.plans()
MINE = dict(p=4, t=4, d=16, b=1, zero=1, sequence=True)


def test_each_limit_refuses_somebody():
    slow, large = PLANS.seconds > GIVEN.longest, PLANS.bytes > GIVEN.room
    assert (slow & ~large).any() and (large & ~slow).any() and (~slow & ~large).sum() > 20
    assert max(PLANS.space.zero) == GIVEN.zero and PLANS.room == pytest.approx(GIVEN.room)


def test_the_baseline_plan_fits_and_is_too_slow():
    one = capstone.chosen(None)
    assert one.memory.total < GIVEN.room and one.step.total > GIVEN.longest and one.plan.devices == GIVEN.gpus


@pytest.mark.long
def test_the_reply_to_a_plan_that_starts_tells_the_memory_of_the_dry_run():
    plan = dict(p=4, t=2, d=32, b=1, v=10, recompute="full", zero=1, sequence=True)
    right, reply = _start(plan)
    held = re.search(r"In the dry run the first rank holds ([\d.]+) GB, and that fits", reply)
    assert right and float(held[1]) == pytest.approx(played(capstone.chosen(plan)).peak_bytes / 1e9, abs=0.05)


def test_the_three_rivals_lose_by_three_terms():
    assert len({grows_most(rival) for rival in RIVALS.values()}) == len(RIVALS)


@pytest.mark.parametrize(
    "answer, said",
    [
        (MINE, "within all limits"),
        (MINE | {"b": 3}, "must divide the batch"),
        (MINE | {"q": 1}, "a plan has no"),
        (MINE | {"zero": "1"}, "is not a number"),
        (None, "Answer with dict"),
    ],
)
def test_a_plan_gets_a_sentence(answer, said):
    assert said in _plan(answer)[1]


def test_a_page_needs_all_its_parts():
    assert _page(PAGE)[0]
    without = PAGE.replace("dry run", "run")
    assert not _page(without)[0] and "the dry run" in _page(without)[1]
    assert not _page(PAGE[:300])[0] and not _page(PAGE * 10)[0]


def test_the_rubric_is_of_ten_points():
    assert sum(points for _, points, _ in RUBRIC) == 10 and len(rows()[1]) == len(RUBRIC)
    assert all(what in told() for what, *_ in RUBRIC)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(12, MODELS))
def test_every_plan_is_scaled(name):
    """By a seed: what is scaled is legal, and uses the axes and choices of the plan."""
    shape, random = MODELS[name].shape, np.random.default_rng(0)
    for devices in (64, 96):
        every = chosen(*grid(shape, devices, 192, contexts=True, experts=True, grids=True, stages=True))
        for at in random.integers(len(every.p), size=8):
            one = every.one(int(at))
            small = scaled(one, shape)
            check_plan(small.plan, small.shape, small.batch)
            assert small.shape.context == POSITIONS * small.plan.cp * small.plan.t
            same = set(Plan._fields) - {"p", "t", "d", "b", "v", "x", "cp", "ulysses", "ep", "z"}
            assert all(getattr(small.plan, field) == getattr(one, field) for field in same)
            assert all(
                (getattr(small.plan, axis) > 1) == (getattr(one, axis) > 1)
                for axis in ("p", "t", "x", "cp", "ulysses", "ep")
            )


# ---- what takes a while


@pytest.mark.soak
def test_the_dry_run_says_what_the_notebook_tells():
    one = capstone.chosen(None)
    told = capstone.played(one)
    assert told.peak["gradients"] / 1e9 - one.memory.gradients / 1e9 == pytest.approx(gap_of_gradients(), rel=1e-3)
    quickest = capstone.played(PLANS.best)
    assert round(quickest.peak_bytes / 1e9) == 113 and not quickest.fits


@pytest.mark.long
def test_bytes_of_a_dry_run_agree_with_the_plan():
    agreed = capstone.agreement(capstone.chosen(None))
    assert {row.verdict.partition(" ")[0] for row in agreed} == {"within"}


@pytest.mark.long
def test_what_is_foreseen_is_not_the_same_whatever_the_plan():
    one, other = capstone.chosen(None), capstone.chosen(MINE | {"sequence": False})
    assert capstone.foreseen_bytes(one) != capstone.foreseen_bytes(other)
