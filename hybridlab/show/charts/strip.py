"""Strips: a small drawing of one quantity on its own scale; a `card` has the numbers next to it, as text.

A strip has the ink of the page around it, light or dark. Its marks differ in shape: a hollow diamond is a prediction, a
dot a measurement, a triangle a guess, and other hollow marks are other machines. An arrow is a value beyond the scale.
Marks that depend on a measurement are in a group of the class "measured", which tests/nbval.cfg leaves out.
"""

import math
from collections.abc import Callable, Sequence
from html import escape

from hybridlab.show.charts.chart import Axis
from hybridlab.show.charts.on_gpus import FAR
from hybridlab.show.paper.sheet import minus, short
from hybridlab.show.paper.style import MARKS, STYLE, dashed

WIDE, TALL, WITH_NUMBERS, INSET, MIDDLE = 240, 28, 44, 12, 14  # pixels; the scale ends INSET pixels before the edges
SPAN = 2  # tolerances on each side of a prediction
TIMES = 4  # the ratio at which a strip of ratios ends, on each side
NUMBER = 13  # pixels: the size of a number under a scale
ASIDE = (0, 0.46), (0.54, 1)  # the parts of a scale on both sides of the mark in its middle
BLUE = f"color-mix(in srgb, {STYLE['kinds']['F']['fill']} 80%, currentColor)"  # darker on light, lighter on dark
SHADE = ".1"  # opacity of the band
MISSED = f'fill="none" stroke="{STYLE["error"]}" stroke-width="2"'
DOT, FACING = "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", {-1: "M-9 0l10 -5v10z", 1: "M9 0l-10 -5v10z"}
RING = "M-8 0a8 8 0 1 0 16 0a8 8 0 1 0 -16 0"
TRIANGLE = "M-5 -12h10l-5 9z"  # on the scale, with its point at the value
HOLLOW = tuple(MARKS[name] for name in ("circle", "square", "cross"))  # other machines, each in turn
PENS = {
    "predicted": (MARKS["diamond"], f'fill="none" style="stroke:{BLUE}" stroke-width="2"'),
    "measured": (DOT, 'fill="currentColor"'),
    "yours": (TRIANGLE, 'fill="none" stroke="currentColor" stroke-width="1.5"'),
    **{f"other {i}": (mark, 'fill="none" stroke="currentColor" stroke-width="1.5"') for i, mark in enumerate(HOLLOW)},
}


def other(i: int) -> str:
    """The kind of mark of the i-th other machine.

    >>> other(0), other(len(HOLLOW))
    ('other 0', 'other 0')
    """
    return f"other {i % len(HOLLOW)}"


def within(off: float, tolerance: float, yours: float | None = None) -> str:
    """A measurement on the scale of its tolerance, which is a band around the prediction in the middle.

    off    the measurement minus the prediction, in the units of the tolerance;  yours  the same for a guess

    Outside the band the dot has a ring, and a line leads to it from the edge.

    >>> [RING in within(off, 0.1) for off in (0.09, -0.11, 0.3)]
    [False, True, True]
    """
    at = lambda gap: 0.5 + gap / tolerance / (2 * SPAN)
    low, high = at(-tolerance), at(tolerance)
    band = f'<path d="M{_x(low)} 4H{_x(high)}V24H{_x(low)}z" fill="currentColor" opacity="{SHADE}"/>'
    edges = f'<path d="M{_x(low)} 4V24M{_x(high)} 4V24" {_thin(0.35)}/>'
    dot = _mark("measured", at(off))
    if abs(off) > tolerance:
        dot = _missed(at(off), high if off > 0 else low)
    return _svg([band, edges, *_around_prediction(None if yours is None else at(yours)), _measured(dot)])


def equal(off: float) -> str:
    """A count that must be equal to its prediction: a dot in the diamond, or off it.

    >>> [RING in equal(off) for off in (0, 0.01)]
    [False, True]
    """
    dot = _missed(0.5 + math.copysign(0.2, off), 0.5 + math.copysign(0.04, off)) if off else _mark("measured", 0.5)
    return _svg([_mark("predicted", 0.5), dot])


def ratio(times: float, yours: float | None = None) -> str:
    """A measurement over its prediction, on a logarithmic scale from a quarter to four times; the diamond is at 1.

    times  the measurement over the prediction;  yours  the guess over the prediction
    """
    at = lambda value: 0.5 + math.log(value) / math.log(TIMES) / 2 if value > 0 else -1
    around = _around_prediction(None if yours is None else at(yours))
    dot = _measured(_mark("measured", at(times)))
    return _svg([*_ticks({at(0.5): "½ ×", at(2): "2 ×"}), *around, dot], WITH_NUMBERS)


def on_scale(marks: Sequence[tuple[str, float]], write: Callable[[float], str], measured: bool = False) -> str:
    """Several values of one quantity on a scale from zero, or on a logarithmic one if their ratios are large.

    marks     (kind of mark, value) of each;  write  the text of a number under the scale
    measured  the values, and so the scale, come from a measurement

    >>> "10 ms" in on_scale([("predicted", 0.6), ("measured", 52)], "{:g} ms".format)
    True
    """
    axis = scale([value for _, value in marks], write)
    at = lambda value: axis.at(value) if value > 0 or not axis.log else -1
    drawn = [_rule((0, 1)), *_ticks({axis.at(value): text for value, text in axis.ticks.items()})]
    drawn += [_mark(kind, at(value)) for kind, value in marks]
    return _svg([_measured("".join(drawn))] if measured else drawn, WITH_NUMBERS)


def hidden() -> str:
    """A strip without marks, for a number that is not shown yet."""
    return _svg([_rule(*ASIDE, dashes=f" {dashed('hidden')}"), _text(0.5, MIDDLE + 5, "?", 15)])


def sign(kind: str) -> str:
    """One mark alone, for the head of a column; "tolerance" for the band."""
    if kind == "tolerance":
        band = f'<path d="M-8 -8H8V8H-8z" fill="currentColor" opacity="{SHADE}"/>'
        drawn = f'{band}<path d="M-8 -8V8M8 -8V8" {_thin(0.35)} stroke-width="1.5"/>'
    else:
        shape, pen = PENS[kind]
        lower = ' transform="translate(0 7)"' if kind == "yours" else ""
        drawn = f'<path d="{shape}" {pen}{lower}/>'
    return f'<svg class="hl-sign" aria-hidden="true" viewBox="-10 -10 20 20">{drawn}</svg>'


def scale(values: Sequence[float], write: Callable[[float], str]) -> Axis:
    """The axis for some values: from zero to a round number, or logarithmic if the largest is at least FAR times the
    smallest.

    >>> scale([1.32, 1.35], "{:g} s".format).ticks, scale([-3, 5], "{:g}".format).ticks
    ({0: '0 s', 2.0: '2 s'}, {-3.0: '-3', 0: '0', 5.0: '5'})
    >>> list(scale([0.6, 52.6], "{:g} ms".format).ticks.values())
    ['1 ms', '10 ms']
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0), max(finite, default=0)
    if len(finite) < len(values):
        high *= 1.5  # the arrow of an infinite value is apart from the others
    if 0 < FAR * low <= high:
        powers = range(math.ceil(math.log10(low / 1.5)), math.floor(math.log10(1.5 * high)) + 1)
        marks = {10.0**k: write(10.0**k) for k in powers[:: math.ceil(len(powers) / 4)]}
        return Axis("", low / 1.5, 1.5 * high, marks=marks, log=True)
    ends = (-_round(-low) if low < 0 else 0), (_round(high) if high > 0 else 0 if low < 0 else 1)
    return Axis("", *ends, marks={value: write(value) for value in sorted({*ends, 0})})


# --- its parts ----------------------------------------------------------------------------------------------------


def _round(value: float) -> float:
    """The smallest round number that is not below a positive value.

    >>> [_round(value) for value in (4, 0.27, 88.2, 9.99)]
    [4.0, 0.3, 100.0, 10.0]
    """
    power = math.floor(math.log10(value))
    return next(float(f"{first}e{power}") for first in (1, 2, 3, 4, 5, 6, 8, 10) if float(f"{first}e{power}") >= value)


def _x(at: float) -> str:
    """The place in pixels of a fraction of the scale; beyond the scale, its end."""
    return short(INSET + min(max(at, 0), 1) * (WIDE - 2 * INSET))


def _mark(kind: str, at: float) -> str:
    """A mark at its value; an arrow at the end of the scale if the value is beyond."""
    shape, pen = PENS[kind]
    if at < 0 or at > 1:
        shape = FACING[1 if at > 1 else -1]
    return f'<path d="{shape}" {pen} transform="translate({_x(at)} {MIDDLE})"/>'


def _missed(at: float, edge: float) -> str:
    """A dot outside its tolerance, in a ring, with a line from the edge of the band."""
    way = 8 if at > edge else -8
    line = f'<path d="M{_x(edge)} {MIDDLE}H{short(float(_x(at)) - way)}" {MISSED}/>'
    return f'{line}<path d="{RING}" {MISSED} transform="translate({_x(at)} {MIDDLE})"/>{_mark("measured", at)}'


def _around_prediction(yours: float | None) -> list[str]:
    """A scale with the prediction in its middle, and the guess if there is one."""
    return [_rule(*ASIDE), _mark("predicted", 0.5), *([] if yours is None else [_mark("yours", yours)])]


def _rule(*parts: tuple[float, float], dashes: str = "") -> str:
    """The line of a scale, in parts, with a gap between them."""
    drawn = "".join(f"M{_x(low)} {MIDDLE}H{_x(high)}" for low, high in parts)
    return f'<path d="{drawn}" {_thin(0.35)}{dashes}/>'


def _ticks(texts: dict[float, str]) -> list[str]:
    """Ticks under the scale with their numbers: {share of the scale: number}."""
    marks = "".join(f"M{_x(at)} {MIDDLE}v10" for at in texts)
    return [f'<path d="{marks}" {_thin(0.35)}/>', *(_text(at, 38, text, NUMBER) for at, text in texts.items())]


def _text(at: float, y: float, text: str, size: float) -> str:
    anchor = "start" if at < 0.1 else "end" if at > 0.9 else "middle"
    place = f'x="{_x(at)}" y="{y}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} opacity=".75">{escape(minus(text))}</text>'


def _thin(opacity: float) -> str:
    return f'fill="none" stroke="currentColor" opacity="{opacity:g}"'


def _measured(drawn: str) -> str:
    return f'<g class="measured">{drawn}</g>'


def _svg(drawn: Sequence[str], tall: int = TALL) -> str:
    """A strip; its numbers are text next to it, so a screen reader passes over it."""
    size = f'viewBox="0 0 {WIDE} {tall}"'
    return f'<svg class="hl-strip" aria-hidden="true" {size} fill="currentColor">{"".join(drawn)}</svg>'
