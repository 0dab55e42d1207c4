"""Notebook 20: the pictures show what ranks really hold, the ring what it really sends."""

import re

import numpy as np
import pytest

from hybridlab.labs.collectives import on_ranks as collectives
from hybridlab.predict.bytes.collectives import Link, cost
from hybridlab.show.charts.scaling import Series, scaling
from hybridlab.show.layouts.tiles import ALIKE, HUES, added, tiles
from hybridlab.show.live.stepper import Stepper
from hybridlab.show.paper.still import Still
from hybridlab.world.talk.ring import route

# --- pictures ---------------------------------------------------------------------------------------------------


def test_the_images_of_four_ranks_differ():
    shapes = collectives.images(4)
    assert len({image.tobytes() for image in shapes}) == 4
    assert all(set(np.unique(image)) == {0, 1} for image in shapes)


def test_a_pixel_has_the_colours_of_the_ranks_that_have_added_to_it():
    column = np.ones((4, 1), int)
    still = tiles([[np.hstack([column, 3 * column, 0 * column, 4 * column]), column]], [], ["held"], "two ranks")
    counts = dict.fromkeys((HUES[0], HUES[1], ALIKE), 0)
    for colour, d in re.findall(r'<path fill="(#\w+)" d="([^"]+)"', still.svg):
        counts[colour] += d.count("z")
    assert counts == {HUES[0]: 4 + 2 + 4, HUES[1]: 2, ALIKE: 4}  # two of the four rows of a sum of two are of each
    assert [words in still.svg for words in ("rank 0", "rank 1", "stripes", "the same on every rank")] == [True] * 4
    assert "stripes" not in tiles([[column, 2 * column]], [], ["held"], "two ranks").svg


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_who_added_is_read_from_a_number(ranks):
    for some in range(2**ranks):
        assert sum(2**rank for rank in added(some, ranks)) == some
    assert added(2**ranks, ranks) == []


def test_a_part_is_drawn_at_its_place_in_the_whole():
    whole, part = np.ones((4, 4)), np.ones((4, 1))
    still = tiles([[whole] * 4, [part] * 4], ["cut"], ["before", "after"], "four ranks")
    starts = [float(x) for x in re.findall(r'<path fill="#\w+" d="M([\d.]+)', still.svg)]
    places = starts[4:]
    assert np.allclose(np.diff(places), places[1] - places[0]) and places[1] > places[0]


def test_images_side_by_side_have_a_line_between_each_two():
    still = tiles([[np.ones((3, 3))], [np.ones((3, 12))]], ["gather"], ["one", "four"], "one rank")
    lines = [float(x) for x in re.findall(r'd="M([\d.]+) [\d.]+v24" stroke="[^"]+" stroke-width="2"', still.svg)]
    assert len(lines) == 3 and np.allclose(np.diff(lines), 24)


def test_a_still_carries_its_words_and_its_title_is_escaped():
    still = tiles([[np.eye(2)]], [], ["<b>"], "one & only")
    assert "one &amp; only" in still.svg and "<b>" not in still.svg
    assert still._repr_mimebundle_() == {"image/svg+xml": still.svg, "text/plain": "one & only"}


def held_by_hand(ranks, steps_done):
    """Who is in each sum after some steps of a ring, counted by hand for 3 ranks."""
    by_hand = {
        0: [[1, 1, 1], [2, 2, 2], [4, 4, 4]],
        1: [[1, 1, 5], [3, 2, 2], [4, 6, 4]],
        2: [[1, 7, 5], [3, 2, 7], [7, 6, 4]],
        3: [[7, 7, 5], [3, 7, 7], [7, 6, 7]],
        4: [[7, 7, 7], [7, 7, 7], [7, 7, 7]],
    }
    return by_hand[steps_done]


# --- the stepper ------------------------------------------------------------------------------------------------


def three():
    return Stepper([Still(tiles([[np.eye(2) * k]], [], [f"{k}"], f"number {k}").svg, f"number {k}") for k in (1, 2, 3)])


def click(stepper, which):
    stepper.children[0].children[which].click()


def test_the_buttons_lead_from_the_first_to_the_last_and_not_beyond():
    stepper = three()
    seen = []
    for which in (2, 2, 2, 1, 0, 1, 3):
        click(stepper, which)
        seen.append(stepper.step)
    assert seen == [1, 2, 2, 1, 0, 0, 2]
    assert stepper.summary == "number 3" and stepper.children[1].value == stepper._stills[2].svg
    assert stepper.children[0].children[-1].value == "step 2 of 2"


def test_every_button_says_what_it_does():
    assert [button.tooltip for button in three().children[0].children[:4]] == [
        "first step", "previous step", "next step", "last step",
    ]  # fmt: skip


def test_without_a_kernel_all_pictures_are_there():
    bundle = three()._repr_mimebundle_()
    assert bundle["text/plain"] == "number 1\nnumber 2\nnumber 3"
    assert all(f"number {k}" in bundle["image/svg+xml"] for k in (1, 2, 3))
    assert bundle["image/svg+xml"].count("<g transform") == 3


def test_the_static_twin_has_as_many_columns_as_are_asked_for():
    wide, tall = {}, {}
    for across in (1, 2):
        twin = Stepper(three()._stills, across=across).twin
        wide[across], tall[across] = map(float, re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', twin).groups())
    assert wide[2] == 2 * wide[1] and 3 * tall[2] == pytest.approx(2 * tall[1], rel=0.01)


# --- times over bytes -------------------------------------------------------------------------------------------


def test_the_chart_has_a_point_for_each_measurement_and_its_twin_too():
    link = Link(1e-4, 1e-9)
    one = Series("send", [1 << 10, 1 << 16, 1 << 22], [1e-4, 2e-4, 5e-3], lambda n: link.seconds("send", 2, n))
    figure = scaling(one, one._replace(name="all_reduce"))
    points = [trace for trace in figure.data if trace.mode == "markers"]
    assert [list(trace.y) for trace in points] == [[1e-4, 2e-4, 5e-3]] * 2
    assert figure.twin.count('transform="translate(') == 2 * (3 + 1), "three points and a key for each"
    assert "send: 100 µs at 1 KiB, 5 ms at 4 MiB" in figure.summary


# --- on real ranks ----------------------------------------------------------------------------------------------


@pytest.fixture
def pool(bench):
    return bench.pool(4)


EXPECTED = {
    "all_reduce": lambda before, r: sum(before),
    "all_gather": lambda before, r: np.concatenate(before, axis=1),
    "reduce_scatter": lambda before, r: sum(before)[:, 3 * r : 3 * r + 3],
    "broadcast": lambda before, r: before[0],
    "all_to_all": lambda before, r: np.concatenate([image[:, 3 * r : 3 * r + 3] for image in before], axis=1),
}


@pytest.mark.ranks
@pytest.mark.parametrize("operation", collectives.OPERATIONS)
def test_a_picture_shows_what_the_ranks_hold(pool, operation, monkeypatch):
    drawn = []
    monkeypatch.setattr(collectives, "tiles", lambda columns, *more, **about: drawn.extend(columns))
    collectives.pictured(pool, operation)
    before, after = drawn
    assert [set(np.unique(image)) for image in before] == [{0, 1}, {0, 2}, {0, 4}, {0, 8}]
    for rank in range(4):
        assert np.array_equal(after[rank], EXPECTED[operation](before, rank)), (operation, rank)


def test_a_picture_that_there_is_not_is_told():
    with pytest.raises(ValueError, match="no picture of 'scan': choose one of all_reduce"):
        collectives.pictured(None, "scan")


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_ring_is_watched_and_not_retold(bench, ranks):
    homes = bench.pool(ranks).run(collectives.watched_ring)
    held = np.stack([home["held"] for home in homes], axis=1)
    assert len(held) == 2 * (ranks - 1) + 1
    assert np.array_equal(held[0], [[2**r] * ranks for r in range(ranks)])
    assert (held[-1] == 2**ranks - 1).all()
    assert [home["bytes"] for home in homes] == [cost("all_reduce", ranks, 4 * ranks).bytes] * ranks
    for step in range(2 * (ranks - 1)):  # exactly one chunk of each rank changes: what its left neighbour sent
        changed = [set(np.flatnonzero(held[step + 1, r] != held[step, r])) for r in range(ranks)]
        assert changed == [{homes[r - 1]["sent"][step]} for r in range(ranks)]
    if ranks == 3:
        assert held.tolist() == [held_by_hand(3, step) for step in range(5)]


@pytest.mark.ranks
def test_the_sums_of_the_ranks_are_compared_with_the_drawn_ones(pool, monkeypatch):
    rows = collectives.ring_sums(pool)
    assert [row[2] for row in rows] == ["as drawn"] * 7 and [row[1] for row in rows[::3]] == [
        "0 0 0 0",
        "1 1 1 1",
        "4 4 4 4",
    ]
    copies = lambda ranks, rank: [step._replace(adds=False) for step in route(ranks, rank)]
    monkeypatch.setattr(collectives, "route", copies)
    assert [row[2] for row in collectives.ring_sums(pool)] == ["as drawn"] + ["other sums"] * 6


@pytest.mark.ranks
def test_a_fit_comes_with_the_times_it_was_fitted_to(pool):
    link, series = collectives.fitted(pool, "all_gather", sizes=(1 << 12, 1 << 20))
    assert link.alpha >= 0 and link.beta >= 0 and max(link) > 0
    assert len(series.seconds) == 2 and series.formula(1 << 20) == link.seconds("all_gather", 4, 1 << 20)
