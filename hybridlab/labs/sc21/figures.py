"""Notebook 42: the figures of the evaluation as the performance model draws them, and the lecture's statement on each.

The paper's figures are drawings without numbers. Values that could be read off them are drawn next to our
curves, and are labelled so; the rest is a comparison of shapes: the places where a curve peaks or falls.
"""

import math
import statistics
from collections.abc import Callable
from typing import NamedTuple

from hybridlab.labs.sc21.table import PRINTED, ROWS
from hybridlab.predict.bytes.activations import FULL
from hybridlab.predict.papers.sc21 import Row, figure
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.charts.multiples import multiples
from hybridlab.show.paper.figure import Figure

READ = "read off the paper"  # the name of a curve of such points
LOOKS = ((5, "solid", "circle"), (1, "dash", "square"))  # curves of two ways; each of several batch sizes has a panel
RATE = "TFLOP/s of one GPU"


class Drawn(NamedTuple):
    """The description of a figure.

    said    the statement of the lecture or the paper;  x  a row's place;  axis  what x means;  mark  a row's label
    series  the name of a row's curve;  log  whether places are powers of two
    rate    the value of a row
    """

    title: str
    said: str
    x: Callable[[Row], int]
    axis: str
    series: Callable[[Row], str]
    mark: Callable[[Row], str] = lambda row: ""
    log: bool = True
    rate: Callable[[Row], float] = Row.predicted
    unit: str = RATE


def _batch(row: Row) -> str:
    return f"B = {row.batch}"


def _of_batch(row: Row) -> int:
    return row.batch


FIGURES = {
    11: Drawn(
        "Weak scaling: three layers for each stage, t = 8",
        "The lecture: a larger batch scales better, as (p−1)/m",
        lambda row: row.plan.p, "stages p", _batch,
    ),
    12: Drawn(
        "Interleaved or not: 175B on 96 GPUs",
        "The lecture: interleaved is faster, and the gap closes as the batch grows",
        _of_batch, "batch B", lambda row: f"interleaved, v = {row.plan.v}" if row.plan.v > 1 else "not interleaved",
        log=False,
    ),
    13: Drawn(
        "Tensor against pipeline parallelism: 161B on 64 GPUs",
        "The lecture: the peak is where t = p = 8: both are needed",
        lambda row: row.plan.p, "(p, t)", _batch, lambda row: f"{row.plan.p}·{row.plan.t}",
    ),
    14: Drawn(
        "Pipeline against data parallelism: 5.9B on 64 GPUs",
        "The lecture: throughput falls as p grows",
        lambda row: row.plan.p, "(p, d)", _batch, lambda row: f"{row.plan.p}·{row.plan.d}",
    ),
    15: Drawn(
        "Tensor against data parallelism: 5.9B on 64 GPUs",
        "The lecture: throughput falls as t grows",
        lambda row: row.plan.t, "(t, d)", _batch, lambda row: f"{row.plan.t}·{row.plan.d}",
    ),
    16: Drawn(
        "Size of a microbatch: 91B, t = p = 8",
        "The lecture: the best size depends on the model. The paper: for this one it is 2",
        lambda row: row.plan.b, "sequences in a microbatch b", _batch,
    ),
    17: Drawn(
        "Recomputation: 145B on 128 GPUs",
        "The paper: up to a third less at equal batches; but larger batches fit, and they give up to twice as much",
        _of_batch, "batch B", lambda row: "recomputed" if row.plan.recompute == FULL else "all kept",
        rate=lambda row: row.batch / row.step.total, unit="sequences/s",
    ),
    18: Drawn(
        "Scatter/gather: 175B on 96 GPUs, interleaved",
        "The lecture: up to 11 % more, most with a large batch",
        _of_batch, "batch B", lambda row: "scatter/gather" if row.plan.scatter else "the same tensor t times",
        log=False,
    ),
}  # fmt: skip


def draw(number: int) -> Figure:
    """A figure of the paper, drawn by the model; its text has the statement of the lecture and our finding.

    raises  ValueError when it is not one of those here

    >>> draw(13).summary
    'The lecture: the peak is where t = p = 8: both are needed. The model: B = 32: 101 at 2·32, most 146 at 8·8, \
97 at 32·2; B = 128: 104 at 2·32, most 169 at 8·8, 149 at 32·2. Read off the paper: 4 points; the model is off by 2% \
(median), at most by -4%'
    """
    if number not in FIGURES:
        raise ValueError(f"figure {number} is not drawn here: choose one of {', '.join(map(str, FIGURES))}")
    how, found = FIGURES[number], sorted(figure(number), key=FIGURES[number].x)
    series = {}
    for row in found:
        series.setdefault(how.series(row), []).append(row)
    place = (lambda row: math.log2(how.x(row))) if how.log else how.x
    drawn = {name: _curves(how, rows, place) for name, rows in series.items()}
    told = f"{how.said}. The model: {'; '.join(_told(how, name, rows) for name, rows in series.items())}. "
    told += _off(number)
    marks = {place(row): _mark(how, row) for row in found}
    low, high = min(marks), max(marks)
    x = Axis(how.axis, low - 0.03 * (high - low), high + 0.03 * (high - low), marks=marks)
    every = [curve for curves in drawn.values() for curve in curves]
    y, title = Axis(how.unit, 0, 1.08 * max(max(curve.y) for curve in every)), f"{how.title}, predicted"
    if how.series is _batch:
        return multiples(drawn, x, y, title, told, "the other batches")
    looked = [
        curve._replace(name=f"{name}, {READ}" if curve.name == READ else name, colour=colour,
                       dash=dash if curve.dash else "", marker=shape + ("-open" if curve.name == READ else ""))
        for (name, curves), (colour, dash, shape) in zip(drawn.items(), LOOKS) for curve in curves
    ]  # fmt: skip
    return chart(looked, x, y, title, told)


def _curves(how, rows, place):
    """A series from the model, and the points that were read off the paper, if there are any."""
    colour, dash, shape = LOOKS[0]
    read = [row for row in rows if not math.isnan(row.printed)]
    points = Curve(READ, [place(row) for row in read], [row.printed for row in read], LOOKS[1][0], "", f"{shape}-open")
    line = Curve("predicted", [place(row) for row in rows], [how.rate(row) for row in rows], colour, dash, shape)
    return [line, points] if read else [line]


class Off(NamedTuple):
    """The model's error for a figure: the number of points read off it, and their median and largest relative error."""

    points: int
    median: float
    largest: float


def off(number: int) -> Off:
    """The errors of one figure, predicted over read, less one.

    >>> off(13).points, f"{off(13).median:.1%}"
    (4, '2.3%')
    """
    read = [row for row in figure(number) if not math.isnan(row.printed)]
    errors = [float(FIGURES[number].rate(row)) / row.printed - 1 for row in read]
    return Off(len(read), statistics.median(map(abs, errors)), max(errors, key=abs))


def _off(number) -> str:
    points, median, largest = off(number)
    return f"Read off the paper: {points} points; the model is off by {median:.0%} (median), at most by {largest:+.0%}"


def _mark(how, row):
    return how.mark(row) or str(how.x(row))


def _told(how, name, rows) -> str:
    """A curve in words: its beginning, its highest point, and its end."""
    first, best, last = rows[0], max(rows, key=how.rate), rows[-1]
    digits = 0 if how.rate is Row.predicted else 2
    at = lambda row: f"{how.rate(row):.{digits}f} at {_mark(how, row)}"
    between = f", most {at(best)}" if best not in (first, last) else ""
    return f"{name}: {at(first)}{between}, {at(last)}"


def end_to_end() -> Figure:
    """The rate of one GPU as the model grows with the machine: printed, predicted, and with linear scaling."""
    rows = list(ROWS.values())
    at = [math.log2(row.plan.devices) for row in rows]
    mine, printed = [row.predicted() for row in rows], [row.printed for row in rows]
    curves = [
        Curve("printed", at, printed, 3, "", "circle"),
        Curve("predicted", at, mine, 5, "solid", "square-open"),
        Curve("linear scaling", [at[0], at[-1]], [printed[0]] * 2, 1, "dash"),
    ]
    more = rows[-1].plan.devices / rows[0].plan.devices
    work = [row["aggregate_pflops"] for row in PRINTED.values()]
    told = (
        f"{more:.0f} times the GPUs, {work[-1] / work[0]:.0f} times the PFLOP/s as printed, "
        f"{more * mine[-1] / mine[0]:.0f} times as predicted: more than linear"
    )
    marks = {math.log2(n): str(n) for n in (32, 64, 128, 256, 512, 1024, 3072)}
    x = Axis("GPUs", at[0] - 0.2, at[-1] + 0.2, marks=marks)
    return chart(curves, x, Axis(RATE, 0, 185), "End to end: what one GPU does", told)
