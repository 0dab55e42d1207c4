"""Notebook 15: its schedules, its pictures, its trainings on real ranks."""

from xml.etree import ElementTree

import pytest

import hybridlab as hl
from hybridlab.labs.asynchronous.on_ranks import trained
from hybridlab.labs.asynchronous.pictures import learned, met, versions_met
from hybridlab.labs.asynchronous.tasks import _slope, _times_faster
from hybridlab.labs.asynchronous.updates import Trained, flushed
from hybridlab.predict.papers.published import published
from hybridlab.show.paper.style import STYLE
from hybridlab.training.run import train
from tools.course import books

SMALL = {"shape": hl.Shape(layers=4, width=8, heads=2, context=8), "rows": 1}
PIPEDREAM = hl.schedule("pipedream", ranks=4, microbatches=8)


def delayed(rank, ranks, microbatch):
    return max(0, microbatch - (ranks - 1 - rank))


def test_three_of_the_last_seven_layers_of_vgg16_are_linear():
    """As notebook 15 says of the profile: the others are ReLU and dropout, and they have no weights."""
    last = published("pipedream_vgg16")[-7:]
    assert sum(row["layer"].startswith("linear") for row in last) == 3
    assert {row["layer"] for row in last if not row["weight_bytes"]} == {"relu", "dropout"}
    assert "its last 7 layers (three of them linear, the others ReLU and dropout)" in books()["15_pipedream"].prose


# --- exercises --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_slips_are_what_their_sentences_say():
    stash, sync, twice = (
        hl.simulate(hl.schedule(name, ranks=8, microbatches=16, **more)).peak("weights")
        for name, more in (("pipedream", {}), ("pipedream", {"vertical_sync": True}), ("pipedream_2bw", {}))
    )
    assert (sum(stash), sum(twice), stash[0] - twice[0], sum(sync) - sum(twice)) == (36, 16, 6, 48)
    assert _times_faster() == pytest.approx(4 * 7 / 19) and _slope(3.0) == pytest.approx(9)


# --- schedules and pictures -------------------------------------------------------------------------------------


def test_a_flush_is_a_step_of_1f1b_again_and_again():
    costs = hl.Costs(F=1, B=2)
    one, three = hl.simulate(hl.schedule("1f1b", 4, 4), costs), hl.simulate(hl.validate(flushed(12, 4)), costs)
    assert three.length == 3 * one.length and three.bubble_fraction == one.bubble_fraction
    assert three.peak("weights") == [1] * 4 and three.peak_live == one.peak_live
    with pytest.raises(ValueError, match="give a multiple of 5"):
        flushed(12, 5)


def test_versions_met_are_those_that_the_schedule_states():
    stashed, newest = list(met(PIPEDREAM)), list(met(PIPEDREAM, stash=False))
    assert all(forward == backward == delayed(rank, 4, m) for rank, m, forward, backward in stashed)
    assert all(backward == m for _, m, _, backward in newest)
    assert [(r, m, forward) for r, m, forward, _ in newest] == [(r, m, forward) for r, m, forward, _ in stashed]


def test_a_mixed_pair_is_outlined():
    for stash in (True, False):
        picture = versions_met(PIPEDREAM, stash)
        mixed = sum(forward != backward for *_, forward, backward in met(PIPEDREAM, stash))
        ElementTree.fromstring(picture.svg)
        assert picture.svg.count(STYLE["error"]) == mixed and f"differ in {mixed} of 32" in picture.summary
        assert (mixed == 0) is stash


@pytest.mark.slow
def test_loss_curves_average_over_microbatches_whatever_the_window():
    runs = {"each": Trained([1.0] * 8 + [3.0] * 8, [1], 1), "four": Trained([2.0, 4.0, 1.0, 1.0], [1], 4)}
    figure = learned(runs)
    assert [tuple(line.y) for line in figure.data] == [(1, 3), (3, 1)] and tuple(figure.data[0].x) == (8, 16)
    assert [runs[name].after(8) for name in runs] == [3, 1] and "each: 3.00; four: 1.00" in figure.summary
    ElementTree.fromstring(figure.twin)


# --- real ranks -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
def test_without_stashing_ranks_keep_one_version():
    assert trained(PIPEDREAM, stash=False, **SMALL).versions == [1] * 4


@pytest.mark.long
@pytest.mark.ranks
@pytest.mark.usefixtures("kept")
def test_a_flush_after_each_window_is_synchronous_training(bench):
    """The schedule with versions learns what 1F1B learns in as many steps: its first window is the same batch."""
    first = trained(flushed(4, 4), dtype="float64", **SMALL).losses
    steps = train(hl.Mesh(pp=4), "1f1b", microbatches=4, steps=1, rate=0.2, dtype="float64", **SMALL)["losses"]
    assert first == pytest.approx(steps, abs=1e-12)
    assert bench.asked(hl.Mesh(pp=4), schedule=flushed(8, 4), **SMALL).ok
