"""Scaling: times against bytes, both axes logarithmic: measurements as points, a formula as a line."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.style import MARKS, STYLE

POINTS = 60  # of the formula's line
BEYOND = 1.2  # how far the axis of bytes extends after the last point, as a factor
UNITS = ((1e-6, "µs"), (1e-3, "ms"), (1, "s"))
SIZES = ((1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"))
HOVER = "%{x} bytes: %{y:.3s}s<extra>%{fullData.name}</extra>"


class Series(NamedTuple):
    """Measured times of one operation, and the formula: bytes and seconds of equal length."""

    name: str
    bytes: Sequence[float]
    seconds: Sequence[float]
    formula: Callable[[float], float]

    @property
    def line(self) -> tuple[list[float], list[float]]:
        """Points of the formula, from the fewest bytes to the most: (bytes, seconds)."""
        low, high = math.log(min(self.bytes)), math.log(max(self.bytes))
        sizes = [math.exp(low + (high - low) * i / (POINTS - 1)) for i in range(POINTS)]
        return sizes, [self.formula(size) for size in sizes]


def scaling(*series: Series) -> Figure:
    """A chart of series: measurements as points, the formula as a line; each series has its own colour and marker.

    >>> scaling(Series("send", [1024, 1 << 20], [1e-4, 1e-3], lambda size: 1e-4 + 1e-9 * size))
    <figure send: 100 µs at 1 KiB, 1 ms at 1 MiB; the formula gives 101 µs and 1.15 ms>
    """
    drawn, marks = [], [*MARKS]
    for i, one in enumerate(series):
        colour, mark = (i + 1) % len(STYLE["curves"]), marks[i % len(marks)]
        drawn.append(Curve("", *one.line, colour, "solid"))
        drawn.append(Curve(one.name, one.bytes, one.seconds, colour, "", mark, hover=HOVER))
    sizes = sorted({size for one in series for size in one.bytes})
    seconds = [second for curve in drawn for second in curve.y]
    powers = range(math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds))) + 1)
    times = {10.0**power: amount(10.0**power * 1.0001, UNITS) for power in powers}
    named = {size: amount(size, SIZES) for size in sizes}
    x = Axis("bytes of the full tensor", sizes[0] / BEYOND, sizes[-1] * BEYOND, marks=named, log=True)
    y = Axis("time", min(times), max(times), marks=times, log=True)
    told = "; ".join(map(_in_words, series))
    return chart(drawn, x, y, "Times against bytes: points are measured, lines are the formula", told)


def amount(value: float, units) -> str:
    """A number of bytes or seconds in a suitable unit.

    >>> amount(4096, SIZES), amount(0.00123, UNITS)
    ('4 KiB', '1.23 ms')
    """
    unit, name = next(((unit, name) for unit, name in reversed(units) if value >= unit), units[0])
    return f"{value / unit:.3g} {name}"


def _in_words(one):
    ends = 0, len(one.bytes) - 1
    seen = ", ".join(f"{amount(one.seconds[i], UNITS)} at {amount(one.bytes[i], SIZES)}" for i in ends)
    said = " and ".join(amount(one.formula(one.bytes[i]), UNITS) for i in ends)
    return f"{one.name}: {seen}; the formula gives {said}"
