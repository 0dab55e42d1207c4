"""The picture of what others measured on GPUs, and of our own records beside it."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from nbval.plugin import get_sanitize_patterns

from hybridlab import labs
from hybridlab.measuring.recorded import recorded
from hybridlab.predict.judged.on_gpus import PLAN, SCHEDULE, panels, topics

NBVAL = Path(__file__).parents[1] / "nbval.cfg"


@pytest.fixture
def records(tmp_path):
    """A machine with a GPU, on which the notebook `naive` was measured, partly on its CPU."""
    row = {"notebook": "naive", "unit": "s", "repetitions": [], "least": 0}
    rows = [
        row | {"name": "ranks: 1, one step of the model", "median": 0.0123, "device": "cuda"},
        row | {"name": "ranks: 2, one step of the model", "median": 0.0071, "device": "cuda"},
        row | {"name": "on the CPU", "median": 0.5, "device": "cpu"},
        row | {"name": "another notebook's", "median": 0.5, "device": "cuda", "notebook": "gpipe"},
    ]
    machine = {"when": "2026-11-30T10:00:00+00:00", "cores": 16, "machine": "x86_64", "gpus": [["NVIDIA H200", 150e9]]}
    file = {"suite": "course", "machine": machine, "rows": rows, "whole": True}
    (tmp_path / "course-gpu.json").write_text(json.dumps(file))
    return recorded(tmp_path)


def test_a_record_of_ours_stands_below_the_others(records):
    with_ours, without = labs.on_gpus("naive", records), labs.on_gpus("naive", [])
    assert with_ours.summary.startswith(without.summary) and "Ours" not in without.summary
    assert with_ours.summary.endswith(
        "\nOurs: Measured by this course, 1 × NVIDIA H200: ranks: 1, one step of the model 12.3 ms measured; "
        "ranks: 2, one step of the model 7.10 ms measured."
    )
    (ours,) = re.findall(r'(?s)<g class="elsewhere">.*</g>', with_ours.svg)
    assert "1 × NVIDIA H200, 2026-11-30" in ours and "12.3" in ours and "CPU" not in ours and "another" not in ours
    assert "elsewhere" not in labs.on_gpus("gpipe", [one for one in records if "cores" in one.label]).svg


def test_a_record_does_not_change_what_a_notebook_is_compared_by(records):
    """As nbval does it: each pattern of tests/nbval.cfg is replaced on both sides."""

    def compared(text):
        for pattern, replacement in get_sanitize_patterns(NBVAL.read_text(encoding="utf-8")):
            text = re.sub(pattern, replacement, text)
        return text

    with_ours, without = labs.on_gpus("naive", records), labs.on_gpus("naive", [])
    assert with_ours.svg != without.svg and compared(with_ours.svg) == compared(without.svg)
    assert compared(with_ours.summary) == compared(without.summary)
    assert compared(labs.on_gpus("gpipe", []).svg) != compared(without.svg)


def test_the_marks_are_where_the_numbers_are():
    """A hollow circle for each measured point, a diamond for each prediction, on one scale."""
    (panel,) = panels("gpipe")
    shown = labs.on_gpus("gpipe", []).svg
    circles = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"[^>]*fill="none"', shown)][1:]  # after the legend's
    diamonds = [float(x) for x in re.findall(r'transform="translate\(([\d.]+) [\d.]+\) scale', shown)][1:]
    assert len(circles) == len(diamonds) == len(panel.points)
    first, last = panel.points[0], panel.points[-1]
    scale = (circles[-1] - circles[0]) / (last.measured - first.measured)
    for point, circle, diamond in zip(panel.points, circles, diamonds):
        assert diamond - circle == pytest.approx(scale * (point.predicted - point.measured), abs=0.15)
    assert shown.count('stroke-width="3"') == len(panel.points)  # bars


def test_a_picture_says_how_it_predicts_and_how_far_off_it_is():
    assert "Our largest error: +40 % at 4 GPUs, m=4." in labs.on_gpus("gpipe", []).summary
    assert "error" not in labs.on_gpus("axonn", []).summary
    assert "the source does not print the sizes" in labs.on_gpus("axonn", []).svg
    assert "does not fit into memory" in _words(labs.on_gpus("context", []).svg)  # a line may end among them


def test_every_bar_is_around_its_prediction_and_ends_within_the_axis():
    """Where nine of ten errors are above 100 %, a bar has no upper end: then it has an arrow, and words."""
    bar = r'(?s)d="M([\d.]+) [\d.]+H([\d.]+)" stroke="[^"]*" stroke-width="3".*?translate\(([\d.]+)'
    for topic in topics():
        shown = labs.on_gpus(topic, []).svg
        found = [[*map(float, one)] for one in re.findall(bar, shown)]
        points = [point for panel in panels(topic) for point in panel.points if point.within]
        assert len(found) == len(points)
        for (low, high, middle), point in zip(found, points):
            assert 350 < low < middle < high and (high == 735 if point.within >= 1 else high < 735)
        endless = sum(point.within >= 1 for point in points)
        assert shown.count('d="M735 ') == endless and ("without an upper end" in _words(shown)) == bool(endless)


def _words(svg):
    """The texts of a drawing, without its description."""
    return " ".join(unescape(re.sub("<[^>]+>", " ", svg.partition("</desc>")[2])).split())


def test_each_panel_says_whose_runs_its_bars_hold_and_how_many_of_its_own_are_inside():
    first, second = panels("interleaved")
    assert (first.how, second.how) == (SCHEDULE, PLAN)
    shown = _words(labs.on_gpus("interleaved", []).svg)
    below = (
        "Predicted by hl.simulate. Nine of ten runs of torchgpipe are within such bars; here 6 of 6.",
        "Predicted by hl.plan. Nine of ten published runs of this kind are within such bars; here 4 of 4.",
    )
    assert shown.index(first.system) < shown.index(below[0]) < shown.index(second.system) < shown.index(below[1])
    assert "Nine of ten runs of Qi et al. are within such bars; here 2 of 6." in _words(labs.on_gpus("gpipe", []).svg)


def test_no_panel_has_numbers_from_memory():
    assert not [panel for topic in topics() for panel in panels(topic) if "memory" in panel.source]


def test_a_ratio_is_a_line_from_the_thing_that_it_compares_with():
    shown = labs.on_gpus("slices", []).svg
    stem = r'd="M([\d.]+) [\d.]+H([\d.]+)" stroke="\S+" stroke-width="4"'
    lines = [[*map(float, one)] for one in re.findall(stem, shown)]
    faster, more, less = lines
    assert all(one[0] < one[1] for one in (faster, more)) and less[1] < less[0]
    assert _words(shown).count("1: 1F1B") == 2 and "1: earlier model parallelism" in _words(shown)
    assert "1: Megatron's 1D" in _words(labs.on_gpus("matmul", []).svg)
    assert 'stroke-width="4"' not in labs.on_gpus("gpipe", []).svg + labs.on_gpus("zero_fsdp", []).svg
