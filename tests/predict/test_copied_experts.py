"""Copies of experts: every placement keeps to its rules and to the bound; the greedy one is near the best of all."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_line import change

from hybridlab.core.where.layout import even
from hybridlab.core.where.slots import Slots
from hybridlab.predict.bytes import copied_experts
from hybridlab.predict.bytes.copied_experts import bound, busiest, copied, lent, packed
from hybridlab.predict.bytes.experts import popular

loads_of = st.lists(st.floats(0.1, 100), min_size=2, max_size=24)


@given(loads_of, st.integers(1, 6), st.integers(0, 3))
def test_every_rank_has_equally_many_and_every_expert_a_place(loads, ranks, further):
    slots = ranks * (-(-len(loads) // ranks) + further)
    placed = packed(loads, ranks, slots)
    assert len(placed) == ranks and {len(its) for its in placed} == {slots // ranks}
    every = [expert for its in placed for expert in its]
    assert [every.count(expert) for expert in range(len(loads))] == copied(loads, slots)
    assert busiest(loads, placed) >= bound(loads, ranks, slots) - 1e-9


def holds_for_all_copies(loads=(5.0, 3.0, 2.0, 1.0), ranks=2, slots=6):
    """The bound, and the greedy copies, against all ways to copy and to place."""
    ways = itertools.product(range(len(loads)), repeat=slots)
    placements = (
        [one[: slots // ranks], one[slots // ranks :]]
        for one in map(sorted, ways)
        if set(one) == set(range(len(loads)))
    )
    found = set()
    for one in placements:
        every = [expert for its in one for expert in its]
        for left in itertools.combinations(range(slots), slots // ranks):
            right = [every[place] for place in range(slots) if place not in left]
            found.add(busiest(loads, [[every[place] for place in left], right]))
    best = min(found)
    assert bound(loads, ranks, slots) <= best + 1e-12
    assert busiest(loads, packed(loads, ranks, slots)) <= 1.1 * best


@pytest.mark.slow
def test_no_copies_and_no_places_are_better_than_the_bound():
    holds_for_all_copies()


def skewed_loads_become_even():
    loads = popular(64, 1, 1.0)
    assert busiest(loads, packed(loads, 8, 64)) > 1.8 and busiest(loads, packed(loads, 8, 72)) < 1.01
    assert busiest(loads, packed(loads, 32, 64)) == pytest.approx(bound(loads, 32, 64), rel=0.02)


def test_a_slot_more_on_each_rank_is_nearly_enough():
    skewed_loads_become_even()


# --- loans ----------------------------------------------------------------------------------------------------------


@given(loads_of, st.integers(1, 6), st.integers(0, 3))
def test_loans_keep_owners_and_rooms_and_never_make_a_rank_busier(loads, ranks, each):
    ranks = min(ranks, len(loads))
    owned = [end - begin for begin, end in even(len(loads), ranks)]
    lonely, slots = Slots(owned, {}), Slots(owned, lent(loads, ranks, each))
    assert all(len(its) <= each for its in slots.borrowed)
    assert all(len(set(its)) == len(its) for its in slots.held), "no expert twice on a rank"
    assert busiest(loads, slots.held) <= busiest(loads, lonely.held) + 1e-9
    assert busiest(loads, slots.held) >= bound(loads, ranks, sum(slots.sizes)) - 1e-9


def loans_make_loads_even():
    loads = popular(16, 1, 1.0)
    found = [busiest(loads, Slots((4,) * 4, lent(loads, 4, each)).held) for each in range(4)]
    assert found[0] > 2.4 and found[1] < 1.45 and found[2] < 1.2 and found[3] < 1.1, found
    assert lent([1.0] * 16, 4) == {}, "nothing to make even"
    assert busiest([4, 1, 1, 4], Slots((1,) * 4, lent([4, 1, 1, 4], 4)).held) == 1, "two ranks are equally busy"


def test_one_or_two_loans_to_each_rank_are_nearly_enough():
    loans_make_loads_even()


MUTANTS = [
    ("loads[expert] / copies[expert])] += 1", "loads[expert])] += 1"),
    ("key=lambda one: -one[0]", "key=lambda one: one[0]"),
    ("key=lambda rank: totals[rank]", "key=lambda rank: rank"),
    ("load / max(every.count(expert), 1)", "load"),
    ("min(free, key=now.__getitem__)", "free[0]"),
    ("now.index(max(now))", "0"),
    ("round(load / mean, 9)", "round(max(on_ranks(loads, slots.held)) / mean, 9)"),
    ("< each]", "<= each]"),
]


@pytest.mark.parametrize("line, other", MUTANTS, ids=[one[1] for one in MUTANTS])
def test_a_mutant_is_caught(line, other, monkeypatch):
    change(monkeypatch, copied_experts, line, other)
    for name in ("bound", "busiest", "copied", "lent", "packed"):
        monkeypatch.setitem(globals(), name, getattr(copied_experts, name))
    with pytest.raises(AssertionError):
        skewed_loads_become_even()
        loans_make_loads_even()


def test_slots_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 slots cannot hold 4 experts: give 4 slots or more"):
        copied([1, 1, 1, 1], 3)
    with pytest.raises(ValueError, match="6 slots cannot be divided equally among 4 ranks: give a multiple of 4"):
        packed([1, 1, 1, 1], 4, 6)
