"""Scaling: times over bytes, both axes logarithmic: measured as points, a formula as a line."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import sheet, words, wrap
from hybridlab.show.paper.style import STYLE

WIDTH, HEIGHT, LEFT, RIGHT, TOP = 960, 400, 96, 24, 84
PX = STYLE["pixels"]
POINTS = 60  # of a line
UNITS = ((1e-6, "µs"), (1e-3, "ms"), (1, "s"))
SIZES = ((1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"))
MARKS = {
    "circle": "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0",
    "square": "M-5 -5h10v10h-10z",
    "diamond": "M0 -7l7 7l-7 7l-7 -7z",
    "cross": "M-7 -2h5v-5h4v5h5v4h-5v5h-4v-5h-5z",
}


class Series(NamedTuple):
    """Measured times of one operation, and the formula beside them: bytes and seconds of equal length."""

    name: str
    bytes: Sequence[float]
    seconds: Sequence[float]
    formula: Callable[[float], float]


def scaling(*series: Series) -> Figure:
    """A chart of series: points where it was measured, a line for the formula, in one colour and one marker each.

    >>> scaling(Series("send", [1024, 1 << 20], [1e-4, 1e-3], lambda size: 1e-4 + 1e-9 * size))
    <figure send: 100 µs at 1 KiB, 1 ms at 1 MiB; the formula says 101 µs and 1.15 ms>
    """
    text = "; ".join(_in_words(one) for one in series)
    pens = [_pen(i) for i in range(len(series))]
    traces = [trace for one, pen in zip(series, pens) for trace in _traces(one, *pen)]
    return Figure.of(traces, _layout(), _svg(series, pens, text), text)


def amount(value: float, units) -> str:
    """A number of bytes or seconds with the unit that suits it.

    >>> amount(4096, SIZES), amount(0.00123, UNITS)
    ('4 KiB', '1.23 ms')
    """
    unit, name = next(((unit, name) for unit, name in reversed(units) if value >= unit), units[0])
    return f"{value / unit:.3g} {name}"


def _in_words(one):
    ends = 0, len(one.bytes) - 1
    seen = ", ".join(f"{amount(one.seconds[i], UNITS)} at {amount(one.bytes[i], SIZES)}" for i in ends)
    said = " and ".join(amount(one.formula(one.bytes[i]), UNITS) for i in ends)
    return f"{one.name}: {seen}; the formula says {said}"


def _pen(i):
    return STYLE["curves"][(i + 1) % len(STYLE["curves"])], STYLE["markers"][i % len(STYLE["markers"])]


def _line(one):
    low, high = math.log(min(one.bytes)), math.log(max(one.bytes))
    sizes = [math.exp(low + (high - low) * i / (POINTS - 1)) for i in range(POINTS)]
    return sizes, [one.formula(size) for size in sizes]


def _traces(one, colour, marker):
    sizes, seconds = _line(one)
    yield go.Scatter(
        x=sizes, y=seconds, name=f"{one.name}, formula", mode="lines", line={"color": colour, "width": 2.5}
    )
    yield go.Scatter(
        x=list(one.bytes),
        y=list(one.seconds),
        name=f"{one.name}, measured",
        mode="markers",
        marker={"symbol": marker, "size": 11, "color": colour},
        hovertemplate="%{x} bytes: %{y:.3s}s<extra>%{fullData.name}</extra>",
    )


def _layout():
    font = {"family": STYLE["font"], "size": PX["axis"], "color": STYLE["ink"]}
    axis = {
        "type": "log",
        "gridcolor": STYLE["grid"],
        "linecolor": STYLE["muted"],
        "showline": True,
        "ticks": "outside",
    }
    sizes, times = [1 << k for k in range(10, 31, 3)], [f * 10.0**k for k in range(-6, 2) for f in (1, 2, 5)]
    sizes = {"tickvals": sizes, "ticktext": [amount(size, SIZES) for size in sizes]}
    times = {"tickvals": times, "ticktext": [f"{amount(time * 1.0001, UNITS)} " for time in times]}
    return {
        "template": "none",
        "font": font,
        "height": HEIGHT,
        "margin": {"l": LEFT, "r": RIGHT, "t": TOP, "b": 56},
        "paper_bgcolor": STYLE["paper"],
        "plot_bgcolor": STYLE["paper"],
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": axis | sizes | {"title": {"text": "bytes of the full tensor", "font": font}},
        "yaxis": axis | times | {"title": {"text": "time", "font": font, "standoff": 12}},
    }


class _Frame(NamedTuple):
    """The plot's place on the page, in pixels, and what its edges stand for."""

    low: float
    high: float
    least: float
    most: float
    bottom: float

    def at(self, size, seconds):
        x = (math.log(size) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        y = (math.log(seconds) - math.log(self.least)) / (math.log(self.most) - math.log(self.least))
        return LEFT + 14 + (WIDTH - LEFT - RIGHT - 28) * x, self.bottom - (self.bottom - TOP) * y


def _svg(series, pens, text):
    """The static twin: the same points and lines."""
    seconds = [second for one in series for second in [*one.seconds, *_line(one)[1]]]
    sizes = [size for one in series for size in one.bytes]
    least, most = 10 ** math.floor(math.log10(min(seconds))), 10 ** math.ceil(math.log10(max(seconds)))
    frame = _Frame(min(sizes), max(sizes), least, most, TOP + 260)
    out, x = _axes(frame, sorted(set(sizes))), float(LEFT)
    for one, (colour, marker) in zip(series, pens):
        line = " ".join("{:.1f},{:.1f}".format(*frame.at(*point)) for point in zip(*_line(one)))
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2.5" points="{line}"/>')
        points = [frame.at(*point) for point in zip(one.bytes, one.seconds)]
        out += [
            f'<path d="{MARKS[marker]}" fill="{colour}" transform="translate({a:.1f} {b:.1f})"/>' for a, b in points
        ]
        out.append(f'<path d="{MARKS[marker]}" fill="{colour}" transform="translate({x + 8:.1f} 31)"/>')
        out.append(words(x + 24, 36, one.name, PX["caption"]))
        x += 24 + 0.5 * PX["caption"] * len(one.name) + 40
    out.append(words(x, 36, "points: measured, lines: the formula", PX["caption"], fill=STYLE["muted"]))
    lines = wrap(text, WIDTH - 48, PX["caption"])
    out += [
        words(24, frame.bottom + 62 + 21 * i, part, PX["caption"], fill=STYLE["muted"]) for i, part in enumerate(lines)
    ]
    return sheet(WIDTH, frame.bottom + 60 + 21 * len(lines), "times over bytes", text, out)


def _axes(frame, sizes):
    out = []
    power = frame.least
    while power <= frame.most * 1.001:
        _, y = frame.at(frame.low, power)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{STYLE["grid"]}"/>')
        out.append(words(LEFT - 10, y + 5, amount(power * 1.0001, UNITS), PX["axis"], "end"))
        power *= 10
    for size in sizes:
        out.append(words(frame.at(size, frame.least)[0], frame.bottom + 24, amount(size, SIZES), PX["axis"], "middle"))
    return out
