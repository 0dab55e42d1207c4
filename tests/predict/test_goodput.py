"""Goodput: replayed runs against closed forms, and what is spent adds up."""

import math
import statistics
import time
from dataclasses import replace

import numpy as np
import pytest
from one_line import change

from hybridlab.predict.time import goodput
from hybridlab.predict.time.goodput import Spent, Troubles, daly, expected, replay, slowest, young

MANY = Troubles(device_hours=10_000, restart=300, save=40)  # on 10 000 ranks an hour between failures


def whole(troubles, every=60, steps=3000, ranks=10_000, seeds=12):
    return statistics.fmean(replay(10.0, steps, ranks, troubles, every, seed).total for seed in range(seeds))


def replays_take_what_dalys_formula_says():
    for every in (20, 60, 200):
        assert whole(MANY, every) == pytest.approx(expected(10.0, 3000, 10_000, MANY, every), rel=0.05)


def the_slowest_of_many_takes_what_the_integral_says():
    drawn = np.random.default_rng(0).standard_normal((2000, 4096)).max(1).mean()
    assert slowest(4096, 0.1) == pytest.approx(1 + 0.1 * drawn, rel=1e-3) and slowest(1, 0.1) == pytest.approx(1)
    jittery = Troubles(jitter=0.03)
    found = replay(1.0, 300, 4096, jittery, 300)
    assert found.total == pytest.approx(expected(1.0, 300, 4096, jittery, 300), rel=2e-3)
    assert found.waiting == pytest.approx(found.total - 300)


def nothing_is_lost_where_nothing_fails():
    found = replay(2.0, 100, 512, Troubles(save=5.0, slow=((17, 0.25),)), every=20)
    assert found == (200.0, 50.0, 25.0, 0.0, 0.0) and found.goodput == 200 / 275


def young_and_daly_save_at_the_best_time():
    """Of intervals around theirs, theirs is within a percent of the least, and halves and doubles are not better."""
    between = MANY.between_failures(10_000)
    found = {every: expected(10.0, 3000, 10_000, MANY, every) for every in range(5, 200)}
    for rule in (young, daly):
        every = round(rule(MANY.save, between) / 10)
        assert found[every] < 1.01 * min(found.values())
        assert found[every] < min(found[every // 2], found[2 * every])


COPIES = Troubles(device_hours=10_000, restart=900, save=40, copies=4, repair=7200, reroute=60)


def copies_take_what_the_first_order_says():
    for repair in (0, 600):
        one = replace(COPIES, repair=repair)
        assert whole(one, seeds=40) == pytest.approx(expected(10.0, 3000, 10_000, one, 60), rel=0.015)


def without_a_copy_left_the_run_restarts_and_loses_what_was_not_saved():
    """One stage of two copies: the second loss before the repair restarts, and then the work since the save is lost."""
    two = Troubles(device_hours=1, restart=500, save=0, copies=2, repair=math.inf)
    found = [replay(10.0, 400, 2, two, 100, seed) for seed in range(40)]
    restarts = [round(one.restarting / 500) for one in found]
    assert sum(restarts) > 10 and all(one.restarting == 500 * n for one, n in zip(found, restarts))
    assert all(one.training == 4000 for one in found)
    quiet = [one for one, n in zip(found, restarts) if not n]
    assert (
        quiet
        and all((0 < one.lost < 20) == (one.waiting > 0) for one in quiet)
        and any(one.lost > 100 for one in found)
    )
    assert all(one.waiting % 10 == 0 and one.waiting <= 4000 for one in quiet)  # a step of 20 s with one of two copies


class Script:
    """A generator of given times between failures, all in the first stage."""

    def __init__(self, *between):
        self.between = iter(between)

    def exponential(self, mean):
        return next(self.between)

    def integers(self, below):
        return 0


def a_rank_repaired_during_a_step_is_not_lost_when_the_step_fails():
    """One of two copies fails at 1 s and is back at 6 s; the other fails at 8 s, in the same step: nothing restarts."""
    two = Troubles(device_hours=1, restart=500, copies=2, repair=5)
    times = iter([10.0] * 9)
    found = goodput._rerouted(Script(1, 7, math.inf), times, seconds=10.0, steps=2, ranks=2, every=9, troubles=two)
    assert found == Spent(training=20, waiting=10, saving=0, lost=8, restarting=0)
    times = iter([10.0] * 9)
    found = goodput._rerouted(Script(1, 4, math.inf), times, seconds=10.0, steps=2, ranks=2, every=9, troubles=two)
    assert found == Spent(training=20, waiting=0, saving=0, lost=5, restarting=500)  # at 5 s it is not back yet


LAWS = [
    a_rank_repaired_during_a_step_is_not_lost_when_the_step_fails,
    copies_take_what_the_first_order_says, without_a_copy_left_the_run_restarts_and_loses_what_was_not_saved,
    replays_take_what_dalys_formula_says, the_slowest_of_many_takes_what_the_integral_says,
    nothing_is_lost_where_nothing_fails, young_and_daly_save_at_the_best_time,
]  # fmt: skip
MUTANTS = [
    ("gone = [one for one in gone if one[0] > fails]", "pass",
     a_rank_repaired_during_a_step_is_not_lost_when_the_step_fails),
    ("troubles.copies / (troubles.copies - most)", "troubles.copies / troubles.copies",
     copies_take_what_the_first_order_says),
    ('spent["lost"] += fails - now', 'spent["lost"] += 0',
     without_a_copy_left_the_run_restarts_and_loses_what_was_not_saved),
    ("pause = troubles.reroute", "pause = 0.0", copies_take_what_the_first_order_says),
    ("pause, done, gone = troubles.restart, saved, []", "pause, gone = troubles.restart, []",
     without_a_copy_left_the_run_restarts_and_loses_what_was_not_saved),
    ('spent["lost"] += until', 'spent["lost"] += 0', replays_take_what_dalys_formula_says),
    ('spent["restarting"] += troubles.restart', 'spent["restarting"] += 0', replays_take_what_dalys_formula_says),
    ('spent["saving"] += troubles.save', 'spent["saving"] += 0', nothing_is_lost_where_nothing_fails),
    ("until, done = until - since, target", "until, done = until, target", replays_take_what_dalys_formula_says),
    ("usual[rank] += by", "usual[rank] += 0", nothing_is_lost_where_nothing_fails),
    ("below**ranks", "below", the_slowest_of_many_takes_what_the_integral_says),
    ("return math.sqrt(2 * save * between)\n", "return math.sqrt(save * between / 4)\n",
     young_and_daly_save_at_the_best_time),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_hold(law):
    law()


@pytest.mark.slow
@pytest.mark.parametrize("line, other, law", MUTANTS, ids=[one[0] for one in MUTANTS])
def test_every_mutant_breaks_its_law(line, other, law, monkeypatch):
    change(monkeypatch, goodput, line, other)
    with pytest.raises(AssertionError):
        law()


@pytest.mark.slow
def test_ten_thousand_ranks_take_seconds():
    begin = time.process_time()
    found = replay(10.0, 100, 10_000, Troubles(device_hours=1000, restart=60, save=5, jitter=0.02), every=10)
    assert time.process_time() - begin < 10 and found.lost > 0 and 0.3 < found.goodput < 0.9


def test_where_failures_cost_more_than_passes_between_them_no_run_ends():
    often = Troubles(device_hours=1000, copies=2, reroute=30, repair=3600, save=60, restart=900)
    assert expected(10, 1000, 200_000, often, 10) == math.inf
    assert 10_000 < expected(10, 1000, 20_000, often, 10) < math.inf


def test_bad_numbers_are_told():
    with pytest.raises(ValueError, match="jitter=-1 is out of range: give 0 or more"):
        Troubles(jitter=-1)
    for copies in (1.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"Troubles takes copies as int, not {copies}"):
            Troubles(copies=copies)
    with pytest.raises(ValueError, match="copies=0 is out of range: give 1 or more"):
        Troubles(copies=0)
    for slow in ((3, 0.5), ((3,),), ("ab",), ((3, "fast"),), (("all", 0.5),)):
        with pytest.raises(ValueError, match="not a rank and its slowdown: give pairs"):
            Troubles(slow=slow)
    with pytest.raises(ValueError, match="ranks=5 is not a multiple of copies=2"):
        replay(1.0, 1, 5, Troubles(copies=2), 1)
    with pytest.raises(ValueError, match="give 1 or more of each"):
        replay(1.0, 0, 1, Troubles(), 1)
    assert math.isinf(Troubles().between_failures(5))
