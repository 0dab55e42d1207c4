"""Curves: losses over steps, drawn so that curves which lie on each other are all seen.

The first is wide and pale, the next ones narrower and darker, with dashes and markers of their own: where they
coincide, each shows between the dashes of the one above it.
"""

import math
from typing import NamedTuple

import plotly.graph_objects as go

from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import sheet, ticks, words, wrap
from hybridlab.show.paper.style import STYLE

WIDEST, NARROWEST = 12.0, 2.5
WIDTH, HEIGHT, LEFT, RIGHT = 960, 420, 84, 24
PX = STYLE["pixels"]
DASHES = {"solid": "none", "dash": "9 7", "dot": "2 6", "dashdot": "9 5 2 5"}


def curves(losses: dict[str, list[float]], title: str | None = None) -> Figure:
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
            raise ValueError(f"the curve {name!r} is empty or has a loss that is no finite number: leave it out")
    traces = [_trace(name, values, *_pen(i, len(series))) for i, (name, values) in enumerate(series.items())]
    text = summary(series)
    return Figure.of(traces, _layout(title), _svg(series, title, text), text)


def summary(series: dict[str, list[float]]) -> str:
    """The curves in one line: where each begins and ends, and how far apart any two come."""
    told = [
        f"{name} {values[0]:.4g} to {values[-1]:.4g} in {len(values)} step{'s' * (len(values) != 1)}"
        for name, values in series.items()
    ]
    if len(series) > 1:
        columns = list(zip(*series.values()))  # as far as the shortest goes
        told.append(f"largest gap between two curves {max(max(c) - min(c) for c in columns):.2g}")
    return "loss: " + "; ".join(told)


def _pen(i, count):
    """Colour, width, dash and marker of curve i: wide ones first, so that later ones leave them visible."""
    width = WIDEST - (WIDEST - NARROWEST) * (i / (count - 1) if count > 1 else 1)
    dash = STYLE["dashes"][i % len(STYLE["dashes"])]
    return STYLE["curves"][i % len(STYLE["curves"])], width, dash, STYLE["markers"][i % len(STYLE["markers"])]


def _trace(name, values, colour, width, dash, marker):
    return go.Scatter(
        x=list(range(len(values))),
        y=values,
        name=name,
        mode="lines+markers",
        line={"color": colour, "width": width, "dash": dash},
        marker={"symbol": marker, "size": width + 5, "color": colour},
        hovertemplate="%{fullData.name}, step %{x}: %{y:.6g}<extra></extra>",
    )


def _layout(title):
    font = {"family": STYLE["font"], "size": PX["axis"], "color": STYLE["ink"]}
    axis = {
        "gridcolor": STYLE["grid"],
        "zeroline": False,
        "linecolor": STYLE["muted"],
        "showline": True,
        "ticks": "outside",
    }
    return {
        "template": "none",
        "font": font,
        "height": HEIGHT,
        "margin": {"l": LEFT, "r": RIGHT, "t": 60 + (30 if title else 0), "b": 56},
        "paper_bgcolor": STYLE["paper"],
        "plot_bgcolor": STYLE["paper"],
        "title": {"text": title, "x": 0.02, "font": {"size": PX["heading"]}} if title else None,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemwidth": 50},
        "xaxis": axis | {"title": {"text": "step", "font": font}},
        "yaxis": axis | {"title": {"text": "loss", "font": font}},
        "hoverlabel": {"font": {"size": PX["box"]}},
    }


def _svg(series, title, text):
    """The static twin: the same pens, the same order."""
    low, high = min(map(min, series.values())), max(map(max, series.values()))
    margin = (high - low) * 0.06 or 0.5
    top = 54 + (32 if title else 0)
    frame = _Frame(top, top + 250, low - margin, high + margin, max(len(values) - 1 for values in series.values()) or 1)
    out = [words(LEFT, 32, title, PX["heading"], **{"font-weight": "600"})] if title else []
    out += _axes(frame)
    x = float(LEFT)
    for i, (name, values) in enumerate(series.items()):
        pen, curve = _line(frame, values, *_pen(i, len(series)))
        out += [curve, f'<path {pen} d="M{x:.1f} {top - 30}h44"/>', words(x + 52, top - 25, name, PX["caption"])]
        x += 52 + 0.5 * PX["caption"] * len(name) + 34
    captions = wrap(text, WIDTH - 48, PX["caption"])
    for i, line in enumerate(captions):
        out.append(words(24, frame.bottom + 54 + 21 * i, line, PX["caption"], fill=STYLE["muted"]))
    return sheet(WIDTH, frame.bottom + 48 + 21 * len(captions), title or "loss over steps", text, out)


class _Frame(NamedTuple):
    """The plot's place on the page, in pixels, and what its edges stand for."""

    top: float
    bottom: float
    low: float
    high: float
    last_step: int

    def at(self, step, loss):
        x = LEFT + 14 + (WIDTH - LEFT - RIGHT - 28) * step / self.last_step
        return x, self.bottom - (self.bottom - self.top) * (loss - self.low) / (self.high - self.low)


def _axes(frame):
    out = []
    for loss in ticks(frame.low, frame.high, 7):
        _, y = frame.at(0, loss)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{STYLE["grid"]}"/>')
        out.append(words(LEFT - 10, y + 5, f"{loss:.4g}", PX["axis"], "end"))
    for step in sorted({round(step) for step in ticks(0, frame.last_step, 10)}):
        out.append(words(frame.at(step, 0)[0], frame.bottom + 22, str(step), PX["axis"], "middle"))
    out.append(words(LEFT - 10, frame.bottom + 22, "step", PX["axis"], "end"))
    return [*out, words(LEFT - 10, frame.top - 25, "loss", PX["axis"], "end")]


def _line(frame, values, colour, width, dash, marker):
    """How a curve is drawn, and the curve; a single loss is a dot."""
    pen = f'fill="none" stroke="{colour}" stroke-width="{width:.1f}" stroke-dasharray="{DASHES[dash]}"'
    at = [frame.at(step, loss) for step, loss in enumerate(values)]
    if len(at) == 1:
        return pen, f'<circle cx="{at[0][0]:.1f}" cy="{at[0][1]:.1f}" r="{width / 2 + 3:.1f}" fill="{colour}"/>'
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    return pen, f'<polyline {pen} stroke-linejoin="round" points="{points}"/>'
