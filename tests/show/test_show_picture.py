"""The picture as plain columns: what the widget, the twin, the page and the text show, held against the timeline."""

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.predict.bytes.live import live
from hybridlab.show.live.quickly import simulated
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.needs import needs
from hybridlab.show.timelines.picture import boxes_of, column, picture, to_json
from hybridlab.show.timelines.spans import BUBBLE
from hybridlab.show.timelines.twin import twin


def predicted(name="1f1b", ranks=4, microbatches=8, latency=0.0, **more):
    schedule = hl.schedule(name, ranks=ranks, microbatches=microbatches, **more)
    return hl.simulate(hl.lower(schedule) if latency else schedule, hl.Costs(F=1, B=2, latency=latency))


EVERY_FAMILY = list(itertools.product(hl.schedules(), (0, 0.25)))


# --- boxes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, latency", [("1f1b", 0), ("zb_h1", 0.5), ("interleaved", 0), ("dualpipe", 0)])
def test_there_is_one_box_per_span_at_its_place_and_one_per_bubble(name, latency):
    timeline = predicted(name, latency=latency)
    shown = picture(timeline)
    get = lambda name: column(shown, name)
    spans = [part for span in timeline.spans for part in [span] * (len(span.action.parts) or 1)]
    work = np.flatnonzero(get("kind") >= 0)
    assert len(work) == len(spans)
    for box, span in zip(work, spans):
        lane = shown["lanes"][get("lane")[box]]
        assert (lane["rank"], lane["timeline"]) == (span.rank, 0)
        assert (get("x0")[box], get("x1")[box]) == pytest.approx((span.begin, span.end), rel=1e-6)
        assert lane["top"] - 1e-6 <= get("y0")[box] < get("y1")[box] <= lane["top"] + 1.6
    idle = get("kind") == BUBBLE
    for rank in range(4):
        mine = idle & (get("lane") == rank)
        assert (get("x1") - get("x0"))[mine].sum() == pytest.approx(timeline.length - timeline.busy[rank], rel=1e-5)


def test_columns_are_small_and_read_back_from_json_as_they_were():
    timelines = predicted("gpipe"), predicted("dualpipe")
    shown = picture(*timelines)
    again = json.loads(to_json(shown))
    for name in shown["columns"]:
        assert column(again, name).tolist() == column(shown, name).tolist()
    drawn, read = boxes(*timelines, rulers=True), boxes_of(again)
    for name in ("x0", "x1", "y0", "y1"):
        assert np.allclose(getattr(drawn, name), getattr(read, name), rtol=1e-6)
    for name in ("look", "lane", "rank", "stage", "microbatch", "kind"):
        assert getattr(drawn, name).tolist() == getattr(read, name).tolist()
    plain = "looks lanes headings starts rulers captions unit length height legend lighter told"
    for name in plain.split():
        assert getattr(drawn, name) == getattr(read, name)
    assert shown["columns"]["stage"]["type"] == "i1"


def test_the_same_json_draws_the_twin_and_says_the_words():
    shown = picture(predicted("gpipe"), predicted("1f1b"))
    again = json.loads(to_json(shown))
    assert twin(again) == twin(shown)
    assert again["summary"] == "\n".join([predicted("gpipe").summary, predicted("1f1b").summary])
    assert again["summary"] in twin(again).replace("&#x27;", "'")


def test_stacked_timelines_keep_their_own_lanes_rulers_and_causes():
    shown = picture(predicted("gpipe", ranks=2), predicted("1f1b", ranks=3), predicted("zb_h1", ranks=4))
    assert [lane["timeline"] for lane in shown["lanes"]] == [0] * 2 + [1] * 3 + [2] * 4
    tops = [one["ruler"] for one in shown["timelines"]]
    assert tops == sorted(tops)
    for lane in shown["lanes"]:
        assert lane["top"] >= tops[lane["timeline"]] + 0.8 - 1e-9
    of_box = np.array([lane["timeline"] for lane in shown["lanes"]])[column(shown, "lane")]
    waited = column(shown, "waited")
    assert (of_box[waited[waited >= 0]] == of_box[waited >= 0]).all()
    needed, takers = column(shown, "needs"), np.repeat(np.arange(len(waited)), np.diff(column(shown, "need_starts")))
    assert (of_box[needed] == of_box[takers]).all() and set(of_box[takers]) == {0, 1, 2}
    ends = [column(shown, "x1")[mine].max() for mine in (of_box == t for t in range(3))]
    paths = np.split(column(shown, "path"), column(shown, "path_starts")[1:-1])
    assert [column(shown, "x1")[one[-1]] for one in paths] == ends
    assert len(column(shown, "held_starts")) == 2 + 3 + 4 + 1


@pytest.mark.long
def test_a_hundred_thousand_spans_are_some_megabytes():
    shown = picture(predicted("1f1b", ranks=64, microbatches=800))
    assert len(column(shown, "x0")) > 100_000
    assert sum(len(one["data"]) for one in shown["columns"].values()) < 6_000_000


# --- causes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, latency", EVERY_FAMILY)
@pytest.mark.long
def test_needs_are_the_makers_of_what_an_action_takes(name, latency):
    timeline = predicted(name, latency=latency)
    flow, found = timeline.flow, needs(timeline)
    maker = {int(value): action for action in range(flow.actions) for value in flow.makes[action]}
    for row, action in enumerate(flow.action_of.tolist()):
        wanted = {maker[int(value)] for value in flow.takes[action] if int(value) in maker} - {action}
        assert found[row].tolist() == sorted(flow.first_row[list(wanted)].tolist())


@pytest.mark.parametrize("name, latency", EVERY_FAMILY)
@pytest.mark.long
def test_what_was_waited_for_is_the_last_to_end_of_all_that_could_hold_back(name, latency):
    timeline = predicted(name, latency=latency)
    flow, begin, end, lane = timeline.flow, timeline.begin[0], timeline.end[0], timeline.lane
    found = timeline.waited_for
    for action in np.flatnonzero(lane == 0).tolist():
        held = [int(flow.maker[value]) for value in flow.takes[action] if flow.maker[value] >= 0]
        own = [a for a in range(flow.program[flow.rank[action]], action) if lane[a] == 0]
        over = [end[cause] for cause in held + own[-1:] if end[cause] <= begin[action]]
        assert (found[action] < 0) == (not over)
        if over:
            assert end[found[action]] == max(over)


@pytest.mark.parametrize("name, latency", EVERY_FAMILY)
@pytest.mark.long
def test_the_critical_path_is_the_timelines_own(name, latency):
    timeline = predicted(name, latency=latency)
    shown = column(picture(timeline), "path").tolist()
    first_row, program = timeline.flow.first_row, timeline.flow.program
    assert shown == [int(first_row[program[span.rank] + span.index]) for span in timeline.critical_path]


# --- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["naive", "1f1b", "zb_h1", "zb_v", "interleaved"])
def test_each_bubble_is_what_its_ruler_shows(name):
    timeline = predicted(name)
    (one,) = picture(timeline)["timelines"]
    for measure in one["measures"]:
        value = getattr(timeline, measure["key"])
        assert measure["value"] == f"{value:.1%}" and measure["text"].endswith(f"= {value:.1%}")
        idle, whole = measure["end"] - measure["busy_end"], measure["whole"] - measure["begin"]
        assert idle / whole == pytest.approx(value)
        assert measure["told"]
    assert [measure["rank"] for measure in one["measures"]][:2] == [-1, -1]


def test_the_curves_of_held_activations_are_those_of_every_rank():
    timelines = predicted("gpipe", ranks=2, microbatches=3), predicted("1f1b", ranks=3, microbatches=5)
    shown = picture(*timelines)
    starts = column(shown, "held_starts")
    curves = [curve for timeline in timelines for curve in live(timeline)]
    for (times, counts), a, b in zip(curves, starts, starts[1:]):
        assert column(shown, "held_times")[a:b].tolist() == times.tolist()
        assert column(shown, "held_counts")[a:b].tolist() == counts.tolist()
    assert [one["peaks"] for one in shown["timelines"]] == [[3, 3], [3, 2, 1]]


# --- the twin ---------------------------------------------------------------------------------------------------


def areas(text):
    """The areas of activations held in a twin: (where each begins, how high it rises)."""
    found = re.findall(r'fill-opacity="0.35"[^>]* d="M([\d.]+) ([\d.]+)([^"]*)"', text)
    return [(float(x), max(float(y) - float(at) for at in re.findall(r"V([\d.]+)", d))) for x, y, d in found]


def test_the_twin_has_rulers_and_an_area_for_every_rank_of_each_timeline_side_by_side():
    text = twin(picture(predicted("gpipe"), predicted("1f1b")))
    (left, right), *others = [areas(text)[k : k + 2] for k in (0, 2, 4, 6)]
    assert left[0] == 96 and right[0] > 96 + 400  # half of the width, and its own numbers
    rises = [[left[1], right[1]], *([a[1], b[1]] for a, b in others)]
    assert np.allclose(np.array(rises) / rises[0][0] * 8, [[8, 4], [8, 3], [8, 2], [8, 1]], atol=0.1)
    assert "gpipe: activations held, at most" in text and "dasharray" not in text
    assert "per rank: idle 9 / total 33 = 27.3%" in text
    pen = f'fill="{STYLE["light"]["bubble"]}" stroke="{STYLE["ink"]}"'
    filled = [tuple(map(float, ends)) for ends in re.findall(rf'd="M([\d.]+) [\d.]+H([\d.]+)V[^"]*" {pen}', text)]
    assert [round(33 * (b - a) / (960 - 96 - 18), 1) for a, b in filled] == [9.0, 9.0]  # of a ruler, only the idle part
    run = dataclasses.replace(predicted(), unit="s", tick=0.001)  # the axis is in milliseconds, and so is the ruler
    assert "per rank: idle 9 / total 33 = 27.3%" in twin(picture(run))


def test_the_twin_of_a_deadlock_frames_every_wait_and_tells_no_bubble():
    order = hl.Schedule.from_csv("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n2F0,2F1,2B0,2B1")
    shown = picture(simulated(order, hl.Costs()))
    text = twin(shown)
    frames = re.findall(rf'width="([\d.]+)"[^>]* stroke="{STYLE["error"]}"', text)
    assert len(frames) == len(shown["timelines"][0]["stuck"]) == 3
    assert min(map(float, frames)) > 60  # also of the rank whose last action ends last
    assert "waits at 0B0" in text and "per rank" not in text


def test_the_twin_of_a_long_curve_is_short_and_keeps_its_height():
    timeline = predicted("gpipe", ranks=1, microbatches=600)
    text = twin(picture(timeline))
    (curve,) = re.findall(r'fill-opacity="0.35"[^>]* d="(M96 [^"]*)"', text)
    assert 600 < curve.count("V") < 900 and len(text) < 60_000
    bottom = float(curve.split()[1].partition("H")[0])
    assert bottom - min(map(float, re.findall(r"V([\d.]+)", curve))) == pytest.approx(24 - 7, abs=0.1)


def test_a_twin_is_as_wide_as_its_column_and_not_cut():
    text = twin(picture(predicted()))
    assert 'width="100%"' in text and "max-width:60rem" in text and 'viewBox="0 0 960 ' in text
