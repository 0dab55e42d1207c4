"""Notebook 32, places of experts: the pictures show what layouts and formulas say; a table reads its report."""

import pytest

import hybridlab as hl
from hybridlab.labs.experts import places
from hybridlab.labs.experts.build_tasks import _wrong
from hybridlab.predict.bytes.experts import imbalance, popular
from hybridlab.training.report import Report


@pytest.mark.parametrize("tp", places.WAYS)
def test_both_nodes_hold_the_same_number_of_hidden_units(tp):
    held = {fold: [places._held(tp, fold, rank) for rank in range(places.NODE)] for fold in (False, True)}
    sizes = {fold: {len(experts) * (end - begin) for experts, (begin, end) in its} for fold, its in held.items()}
    assert sizes[False] == sizes[True] == {places.NODE_SHAPE.inner}
    assert [experts for experts, _ in held[True]] == [range(rank, rank + 1) for rank in range(places.NODE)]
    told = places.node_still(tp).summary
    assert f"sharded along tp: rank 0 has 1/{tp} of experts 0 to {tp - 1}; folded: rank 0 has all of expert 0" in told


@pytest.mark.parametrize("tp, exponent", [(1, "0"), (4, "0.6"), (8, "0.9")])
def test_the_price_is_the_imbalance_of_more_ranks(tp, exponent):
    told = places.traded_still(tp, exponent).summary
    load = lambda ways: f"{imbalance(places.MANY, places.CHOSEN, ways, float(exponent)):.2f}"
    assert told.endswith(f"has {load(places.EP * tp)} times the mean, with sharded ones {load(places.EP)}.")
    assert f"folded experts send {f'1/{tp}' if tp > 1 else '1'} of the rows" in told


def test_a_report_says_what_a_rank_sends_to_others():
    axes = {("x", "ep", "all_to_all"): (800, 800), ("x", "ep", "all_gather"): (9, 9), ("y", "tp", "all_to_all"): (8, 8)}
    rows = places.moved(Report("", {"loss": 0.0}, {}, axes, 1e-10), hl.Mesh(ep=4, tp=2))
    assert rows == [("ep", 800, 800, 75), ("tp", 8, 8, 0)]


def test_a_table_of_copies_ends_at_its_bound():
    *_, last = places.copies(popular(16, 1, 1), 4, (16, 32))
    assert last == ("32", 8, "1.00", "1.00")


def test_copies_of_an_expert_may_be_on_the_same_rank():
    assert _wrong([6, 2, 1, 1], 2, 6, [[0, 0, 2], [0, 1, 3]]) == ""
    assert "a copy of expert 0 alone" in _wrong([6, 2, 1, 1], 2, 6, [[0, 1, 2], [1, 2, 3]]).lower()
