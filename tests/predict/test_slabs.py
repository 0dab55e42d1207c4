"""A grid in slabs has every legal plan once, with the time and the memory that it has alone."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.what.catalog import machine
from hybridlab.predict.plans import space
from hybridlab.predict.plans.divisions import holds
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.space import at, chosen, grid, having, in_order, legal_of

SWITCHES = ("grids", "contexts", "experts", "stages", "slices")
DENSE = hl.Shape(layers=6, width=24, heads=6, kv_heads=3, context=64, vocabulary=512)
SPARSE = hl.Shape(layers=4, width=16, heads=4, context=48, experts=6, chosen=2, style="llama")
NO_HEADS = hl.Shape(layers=4, width=16, heads=0, context=16)


def of_all(every: Plan, shape, wanted: dict) -> np.ndarray:
    """Flat indices of the legal plans, from every cell of the grid, without slabs."""
    cells = np.broadcast_shapes(*map(np.shape, every))
    plans = at(every, np.arange(np.prod(cells)))
    further = (plans.t * plans.cp > 1) & (shape.experts > 1) & (shape.experts % plans.expert_ways == 0)
    legal = (plans.zero == 0) | (plans.cp * plans.ep * plans.d > 1)
    legal &= (plans.z == 0) | (plans.zero == 3)
    legal &= ~plans.sequence | (plans.t > 1)
    legal &= ~plans.scatter | ((plans.t > 1) & (plans.p > 1))
    legal &= (plans.cp > 1) | ((plans.attend == 0) & ~plans.zigzag)
    legal &= ((plans.dispatch == 0) | (plans.ep > 1)) & (~plans.fold | further)
    legal &= (plans.recompute != 1) | (plans.cp == 1) | ~np.isin(plans.attend, (1, 3))
    return np.flatnonzero(legal & holds(shape.sizes, plans.division(shape)) & having(every=plans, sizes=wanted))


@given(
    shape=st.sampled_from((DENSE, SPARSE, NO_HEADS)),
    devices=st.integers(1, 12),
    batch=st.integers(1, 8),
    switches=st.sets(st.sampled_from(SWITCHES)),
    wanted=st.sampled_from(({}, {"t": 2}, {"zero": 1}, {"n": 2})),
)
@settings(max_examples=25)
def test_slabs_have_every_legal_plan_once(shape, devices, batch, switches, wanted):
    if "n" in wanted:
        switches = {*switches, "slices"}
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(space, "SHORTEST", 16)
        changed.setattr(space, "SLAB", 100)
        every, slabs = grid(shape, devices, batch, **dict.fromkeys(switches, True), given=wanted)
    found = np.concatenate([np.zeros(0, int), *(one.places for one in slabs)])
    assert len(found) == len(set(found.tolist()))
    assert legal_of(slabs).tolist() == of_all(every, shape, wanted).tolist()


@pytest.mark.parametrize("shape", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_a_plan_has_the_same_numbers_in_a_slab_and_alone(shape, monkeypatch):
    monkeypatch.setattr(space, "SHORTEST", 16)
    monkeypatch.setattr(space, "SLAB", 500)
    switches = dict.fromkeys(SWITCHES, True)
    planned = hl.plan(shape, "a100", gpus=8, batch=8, **switches)
    alone, a100 = chosen(*grid(shape, 8, 8, **switches, fused=planned.best.plan.fused)), machine("a100")
    time = step(shape, alone, 8, a100, planned.fit, planned.software).total
    assert np.array_equal(planned.seconds, time)
    assert np.array_equal(planned.bytes, footprint(shape, alone, 8, planned.software).total)
    quickest = np.lexsort((planned.bytes, time))[:5]
    assert [str(planned.one(place)) for place in planned.order[:5]] == [str(alone.one(place)) for place in quickest]


def test_few_cells_of_a_slab_are_not_legal():
    """All switches at once: before, formulas ran for twenty cells for each legal plan."""
    _, slabs = grid(hl.catalog.model("mixtral-8x7b").shape, 64, 64, **dict.fromkeys(SWITCHES, True), fused=True)
    assert sum(one.legal.size for one in slabs) < 1.1 * sum(one.legal.sum() for one in slabs)


def test_slabs_count_their_plans_in_the_order_of_the_grid():
    """Sizes of one slab lie between those of others, so its plans have gaps in their numbers."""
    _, slabs = grid(hl.catalog.model("mixtral-8x7b").shape, 64, 64, **dict.fromkeys(SWITCHES, True), fused=True)
    places = legal_of(slabs)
    assert len(slabs) > 2 and np.all(np.diff(places) > 0)
    found = [(one.places, here) for one, here in in_order(slabs)]
    assert all(np.array_equal(places[here], its) for its, here in found)
    assert any(np.any(np.diff(here) > 1) for _, here in found)


def test_the_bench_counts_legal_plans_of_slabs():
    rates = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "planner.py"))["rates"]
    (at_once,), (one_by_one,) = rates(1)
    assert at_once > 10 * one_by_one > 0


@pytest.mark.parametrize(
    "given, says",
    [
        ({"secondary": 3}, "secondary=3 excludes every plan of 64 devices: leave out secondary"),
        ({"n": 4, "cp": 2, "contexts": True}, "n=4 excludes every plan of 64 devices with cp=2: leave out n"),
    ],
)
def test_the_field_that_excludes_every_plan_is_named(given, says):
    with pytest.raises(ValueError, match=says):
        hl.plan("gpt3-175b", "h100", gpus=64, batch=64, **given)
