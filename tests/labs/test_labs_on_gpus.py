"""The picture of what others measured on GPUs, and of our own records beside it."""

import json
import re
from pathlib import Path

import pytest
from nbval.plugin import get_sanitize_patterns

from hybridlab import labs
from hybridlab.measuring.recorded import recorded
from hybridlab.predict.judged.on_gpus import panels

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
    assert shown.count('opacity="0.45"') == len(panel.points)  # bars


def test_a_picture_says_how_it_predicts_and_how_far_off_it_is():
    assert "Our largest error: +40 % at 4 GPUs, m=4." in labs.on_gpus("gpipe", []).summary
    assert "error" not in labs.on_gpus("axonn", []).summary
    assert "the source does not print the sizes" in labs.on_gpus("axonn", []).svg
    words = " ".join(re.sub("<[^>]+>", " ", labs.on_gpus("context", []).svg).split())  # a line may end among them
    assert "does not fit into memory" in words
