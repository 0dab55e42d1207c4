"""Charts: labels stand clear of what is drawn, marks do not hide one another, and grey lines have a name."""

import re

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.show.charts import chart as charts
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.charts.multiples import multiples
from hybridlab.show.layouts.anatomy import LABELS, RIGHT, WIDTH, Bar, anatomy
from hybridlab.show.paper.style import STYLE, contrast


def test_a_label_covers_no_mark_line_or_label_and_a_ring_is_around_a_dot():
    rising = Curve("rising", [0, 1, 2], [0, 1, 2], 1, "solid", "circle", ["", "middle", "end"])
    ring = Curve("read off", [1], [1], 1, "", "circle-open", ["ring"])
    figure = chart([rising, ring], Axis("x", 0, 2.5), Axis("y", 0, 2.5), "Labels", "told")
    assert figure.data[0].textposition[1:] == ("bottom right", "top right")
    assert figure.data[1].textposition == ("top left",)
    assert figure.data[1].marker.size > figure.data[0].marker.size + 4
    boxes = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*text-anchor="(\w+)"[^>]*>(middle|end|ring)<', figure.twin)
    assert [(anchor, label) for *_, anchor, label in boxes] == [("start", "middle"), ("start", "end"), ("end", "ring")]


def test_small_multiples_name_the_lines_of_the_others_and_they_can_be_seen():
    panels = {f"B = {b}": [Curve("predicted", [1, 2], [b, 2 * b], 5, "solid", "circle")] for b in (1, 2, 3)}
    figure = multiples(panels, Axis("p", 1, 2), Axis("rate", 0, 6), "Three", "told", "the other batches")
    assert [trace.name for trace in figure.data if trace.showlegend] == ["the other batches", "predicted"]
    grey = {trace.line.color for trace in figure.data if trace.line.dash == "dot"}
    assert len(grey) == 1 and all(contrast(*grey, paper) >= 3 for paper in ("#FFFFFF", STYLE["dark"]["edge"]))
    assert figure.twin.count(f'polyline fill="none" stroke="{grey.pop()}"') == 6 + 1


def test_a_bar_that_is_cut_off_has_the_scale_of_the_others():
    """A part larger than the card would seem to fit on it if the bar were shortened."""
    still = anatomy(
        [Bar("copies", "", (100, 100, 600, 0)), Bar("sharded", "", (1, 1, 6, 0))], "Memory", "told", 50, 120
    )
    boxes = [
        (float(y), float(wide)) for y, wide in re.findall(r'y="(\d+)" width="([\d.]+)" height="34" fill="#', still.svg)
    ]
    (first, weights), (_, gradients), *others = boxes
    assert {y for y, _ in others} != {first} and len(others) == 3  # the third part of the first bar is cut off
    card = float(re.search(r'd="M([\d.]+) \d+V\d+" stroke="[^"]+" stroke-width="2"', still.svg)[1]) - LABELS
    assert abs(weights - 2 * card) < 0.1 and abs(others[0][1] - card / 50) < 0.1
    assert weights + gradients == pytest.approx(WIDTH - LABELS - RIGHT, abs=0.1)
    assert still.svg.count(">cut off<") == 1


def test_the_memory_of_a_rank_has_stripes_letters_and_a_legend_of_what_can_be_seen():
    shape = hl.Shape(layers=8, width=512, heads=8, context=512)
    figure = hl.draw(hl.dry_run(hl.Mesh(pp=4), model=shape, batch=16, microbatches=8))
    shown = [trace.name for trace in figure.data if trace.showlegend]
    assert shown == ["weights", "optimizer", "gradients", "activations", "working"]  # the rest is under 1 %
    shapes = {trace.name: trace.fillpattern.shape for trace in figure.data if trace.name}
    assert len({shapes[name] for name in shown[:4]}) == 4
    assert set(shown) <= set(re.findall(r">([a-z]+)</text>", figure.twin)) and ">in flight<" not in figure.twin
    (at,) = re.findall(r'<text x="([\d.]+)"[^>]*font-weight="600"[^>]*>267 MB</text>', figure.twin)
    areas = [trace for trace in figure.data if trace.type == "scatter" and trace.stackgroup]
    held, times = sum(np.array(area.y, float) for area in areas), np.array(areas[0].x, float)
    whole = charts.WIDTH - charts.LEFT - charts.RIGHT
    assert (float(at) - charts.LEFT) / whole == pytest.approx(times[held.argmax()] / times[-1], abs=0.02)
    letters = re.findall(r">([FB]\d?|sums|update|rank 0|267 MB)</text>", figure.twin)
    assert letters.count("F") == 8 and {"B0", "B7", "sums", "update", "rank 0", "267 MB"} <= {*letters}
