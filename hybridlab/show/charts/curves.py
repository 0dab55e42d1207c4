"""Curves: losses over steps, drawn so that coinciding curves are all visible.

The first is wide and pale, the next ones narrower and darker, with their own dashes and markers: where they coincide,
each shows between the dashes of the one above it.
"""

import math

from hybridlab.show.charts.chart import USUAL, Axis, Curve, chart
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.style import DASHES, MARKS, STYLE

WIDEST = 12.0
PENS = (range(len(STYLE["curves"])), [*DASHES][:4], [*MARKS])  # colours, dashes, marks, each in turn
HOVER = "%{fullData.name}, step %{x}: %{y:.6g}<extra></extra>"


def curves(losses: dict[str, list[float]], title: str = "Loss over steps") -> Figure:
    """A line chart of losses over steps, counted from 0: one curve per name.

    raises  ValueError when there is no curve, or one is empty or not finite

    >>> curves({"one device": [4.0, 3.0], "pp=2": [4.0, 3.0]})
    <figure loss: one device 4 to 3 in 2 steps; pp=2 4 to 3 in 2 steps; largest gap between two curves 0>
    """
    if not losses:
        raise ValueError("there is no curve to draw: give {name: [loss, loss, …]}")
    series = {str(name): [float(loss) for loss in values] for name, values in losses.items()}
    for name, values in series.items():
        if not values or not all(map(math.isfinite, values)):
            raise ValueError(f"the curve {name!r} is empty or has a loss that is not finite: leave it out")
    low, high = min(map(min, series.values())), max(map(max, series.values()))
    margin, last = (high - low) * 0.06 or 0.5, max(map(len, series.values())) - 1
    loss = Axis("loss", low - margin, high + margin, "{:.4g}")
    step = Axis("step", -0.02 * last, 1.02 * last or 1, whole=True)
    drawn = [_curve(i, len(series), name, values) for i, (name, values) in enumerate(series.items())]
    return chart(drawn, step, loss, title, summary(series))


def summary(series: dict[str, list[float]]) -> str:
    """The curves in one line: the first and last value of each, and the largest gap between any two."""
    told = [
        f"{name} {values[0]:.4g} to {values[-1]:.4g} in {len(values)} step{'s' * (len(values) != 1)}"
        for name, values in series.items()
    ]
    if len(series) > 1:
        columns = list(zip(*series.values()))  # as many steps as the shortest has
        told.append(f"largest gap between two curves {max(max(c) - min(c) for c in columns):.2g}")
    return "loss: " + "; ".join(told)


def _curve(i, count, name, values):
    """Wide curves first, so that they stay visible under later ones."""
    wide = WIDEST - (WIDEST - USUAL) * (i / (count - 1) if count > 1 else 1)
    pen = (choices[i % len(choices)] for choices in PENS)
    return Curve(name, range(len(values)), values, *pen, wide=wide, hover=HOVER)
