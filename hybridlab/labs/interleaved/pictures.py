"""The pictures of notebook 13: the cost of thin stages, predicted and measured."""

import math

import hybridlab as hl
from hybridlab.labs.interleaved import thin_stages as interleaved
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure

PENS = (
    (5, "solid", "circle"),
    (1, "dash", "square"),
    (4, "dot", "diamond"),
    (2, "dashdot", "cross"),
    (3, "solid", "circle-open"),
)
FINE = 30  # pieces of a predicted line


def valleys(lengths: dict[float, list[float]], chunks) -> Figure:
    """Predicted lengths of a step, by the number of chunks: one curve for each message time."""
    rows = zip(lengths.items(), PENS)
    curves = [Curve(f"message {latency} units", range(len(row)), row, *pen) for (latency, row), pen in rows]
    every = [length for row in lengths.values() for length in row]
    x = Axis("chunks per rank v", -0.15, len(chunks) - 0.85, marks=dict(enumerate(map(str, chunks))))
    y = Axis("units", 10 * math.floor(0.08 * min(every)), 1.05 * max(every))
    told = "Length over v: falls while messages are free; a valley, then a rise, once they take time"
    return chart(curves, x, y, "Length of a step", told)


def gain_and_loss(real: dict[tuple[int, float], hl.Timeline], unit: float = interleaved.UNIT) -> Figure:
    """Lengths of a step over the message time: lines predicted, points measured by `interleaved.sweep`."""
    chunks, latencies = sorted({v for v, _ in real}), sorted({latency for _, latency in real})
    along = [latencies[-1] * i / FINE for i in range(FINE + 1)]
    lines, points, told = [], [], []
    for v, (colour, dash, marker) in zip(chunks, PENS):
        lines.append(Curve(f"v = {v}", along, [interleaved.length(v, at) for at in along], colour, dash, marker=""))
        points.append(Curve("", latencies, [real[v, at].length / unit for at in latencies], colour, "", marker))
        told.append(f"v = {v}: {_ends(lines[-1])} predicted, {_ends(points[-1])} measured")
    x = Axis("message time, in units", -0.04, latencies[-1] + 0.06)
    y = Axis("units", 0, 1.05 * max(max(curve.y) for curve in lines + points))
    title = "Length of a step: lines predicted, points measured"
    return chart(lines + points, x, y, title, f"Length over message time, first and last: {'; '.join(told)}")


def _ends(curve):
    return f"{curve.y[0]:.1f} to {curve.y[-1]:.1f} units"
