"""Labels: each label of a chart is on that side of its point where it covers no mark, line or other label."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hybridlab.show.paper.sheet import prose_width

SIDES = {  # as plotly names them: from the point to the label's edge and its middle line, in pixels; its anchor in SVG
    "top right": (9, -13, "start"),
    "bottom right": (9, 15, "start"),
    "top left": (-9, -13, "end"),
    "bottom left": (-9, 15, "end"),
    "middle right": (12, 0, "start"),
    "middle left": (-12, 0, "end"),
    "top center": (0, -19, "middle"),
    "bottom center": (0, 20, "middle"),
}
BEFORE = {"start": 0, "middle": 0.5, "end": 1}  # the part of a label before its anchor
MARK, LINE, TALL, STEP, AIR = (
    8,
    2,
    7,
    6,
    6,
)  # pixels: half a mark, a line, a label; between places on a line; after a label
COVERED = {"mark": 4, "line": 1, "label": 8, "outside": 8}  # how bad it is

Box = tuple[float, float, float, float]  # left, top, right, bottom


def sides(curves: Sequence[tuple], edges: tuple[float, float], size: float) -> list[list[str]]:
    """The side of each label of each curve, a key of SIDES; the first one that covers the least.

    curves  of each its points in pixels, its labels ("" for none), whether it has a line, and whether it has marks
    edges   of the plot, left and right;  size  of the letters, in pixels

    >>> near = [(20, 50), (50, 40)], ["one", "two"], False, True
    >>> sides([near], (0, 200), 14)
    [['bottom right', 'top right']]
    """
    taken = [one for points, _, line, marks in curves for one in _drawn(points, line, marks)]
    chosen = []
    for points, labels, *_ in curves:
        chosen.append([])
        for point, label in zip(points, labels):
            boxes = {side: _box(point, label, side, size) for side in SIDES}
            best = min(SIDES, key=lambda side: _badness(boxes[side], taken, edges)) if label else "top right"
            taken += [(boxes[best], COVERED["label"])] if label else []
            chosen[-1].append(best)
    return chosen


def _drawn(points, line, marks) -> Iterator[tuple[Box, float]]:
    """The small boxes that a curve draws in, and how bad it is to cover each."""
    for x, y in points if marks else ():
        yield (x - MARK, y - MARK, x + MARK, y + MARK), COVERED["mark"]
    for (x, y), (to_x, to_y) in pairwise(points) if line else ():
        pieces = max(1, round(math.hypot(to_x - x, to_y - y) / STEP))
        for piece in range(pieces + 1):
            at, up = x + (to_x - x) * piece / pieces, y + (to_y - y) * piece / pieces
            yield (at - LINE, up - LINE, at + LINE, up + LINE), COVERED["line"]


def _box(point, label, side, size) -> Box:
    (x, y), (across, down, anchor), wide = point, SIDES[side], prose_width(label, size) + AIR
    left = x + across - wide * BEFORE[anchor]
    return left, y + down - TALL, left + wide, y + down + TALL


def _badness(box, taken, edges) -> float:
    left, top, right, bottom = box
    met = (bad for (x, y, to_x, to_y), bad in taken if left < to_x and x < right and top < to_y and y < bottom)
    return sum(met) + COVERED["outside"] * (left < edges[0] or right > edges[1])
