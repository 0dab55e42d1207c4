"""Line charts: curves over two axes, plain or logarithmic, with their static twin.

`chart` makes a complete chart. A picture in which a chart is only one part uses its pieces: `Frame`, `legend`, `drawn`,
and `layout` for plotly.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from hybridlab.show.charts.labels import SIDES, sides
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import captioned, heading, prose_width, ticks, words, wrap
from hybridlab.show.paper.style import DASHES, MARKS, MIDDLE, STYLE

WIDTH, LEFT, RIGHT, TOP, TALL, ROW = 960, 84, 30, 24, 340, 26
PX = STYLE["pixels"]
LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
FONT = {"family": STYLE["font"], "size": PX["axis"], "color": STYLE["ink"]}
HALO = {"stroke": STYLE["paper"], "stroke-width": "3", "paint-order": "stroke"}  # around a label on a line
LINE, BOLD = 24, 1.15  # pixels of a line of the title; how much wider than others its letters are
LABEL = PX["smallest"] + 1  # pixels: the letters of a point's label
USUAL = 2.5  # pixels: the width of a line
SMALLEST = 11  # pixels: the size of a mark
HOLLOW = 1.5  # how much larger than a filled mark a hollow one is


class Curve(NamedTuple):
    """Points of one kind: joined by a line, marked, or both.

    name    in the legend, or "" to stay out of it;  x, y  of equal length
    colour  a number into STYLE["curves"], or None: grey, for those of other panels
    dash    one of plotly's names in DASHES, or "" for no line
    marker  one of MARKS, with the suffix "-open" for an outline, or "" for none
    labels  one text per point, "" for none; `labels` finds the side of each
    wide    width of the line, in pixels;  hover  plotly's template for the text at the pointer; None: plotly's default
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: int | None = 0
    dash: str = ""
    marker: str = ""
    labels: Sequence[str] = ()
    wide: float = USUAL
    hover: str | None = None

    @property
    def pen(self) -> str:
        """The colour of its line and of its marks."""
        return MIDDLE if self.colour is None else STYLE["curves"][self.colour]

    @property
    def size(self) -> float:
        """Pixels of a mark: larger on a wide line; an outline surrounds a filled mark at the same place."""
        return max(SMALLEST, self.wide + 5) * (HOLLOW if self.marker.endswith("-open") else 1)


class Axis(NamedTuple):
    """One axis: its name, its ends, and the format of its numbers.

    marks  its ticks, if they are not round numbers;  log  whether it is logarithmic
    whole  whether it shows only integers;  most  the largest number of round numbers
    """

    name: str
    low: float
    high: float
    write: str = "{:g}"
    marks: dict[float, str] | None = None
    log: bool = False
    whole: bool = False
    most: int = 9

    @property
    def ticks(self) -> dict[float, str]:
        """{value: its text}.

        >>> Axis("step", 0, 3, whole=True).ticks
        {0: '0', 1: '1', 2: '2', 3: '3'}
        """
        if self.marks:
            return self.marks
        round_ones = ticks(self.low, self.high, self.most)
        if self.whole:
            round_ones = sorted({round(value) for value in round_ones if value == round(value)})
        return {value: self.write.format(value) for value in round_ones}

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of the axis, as logarithms if the axis is logarithmic."""
        return (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)

    def at(self, value: float) -> float:
        """The position of a value along the axis, from 0 to 1.

        >>> Axis("bytes", 1, 100, log=True).at(10)
        0.5
        """
        low, high = self.ends
        return ((math.log10(value) if self.log else value) - low) / (high - low)


class Frame(NamedTuple):
    """The position of a plot on the page, in pixels; `inset`: from its left and right edges to the ends of x."""

    x: Axis
    y: Axis
    top: float
    tall: float = TALL
    left: float = LEFT
    right: float = WIDTH - RIGHT
    inset: float = 0

    @property
    def bottom(self) -> float:
        """The lower edge of the plot."""
        return self.top + self.tall

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The position of a point on the page, in pixels."""
        across = (self.right - self.left - 2 * self.inset) * self.x.at(x)
        return self.left + self.inset + across, self.bottom - self.tall * self.y.at(y)

    def level(self, y: float, pen: str) -> str:
        """A line across the plot at this value."""
        return f'<path d="M{self.left} {self.at(self.x.low, y)[1]:.1f}H{self.right}" {pen}/>'

    def levels(self) -> Iterator[str]:
        """The lines of the y axis and their numbers."""
        for value, name in self.y.ticks.items():
            yield self.level(value, f'stroke="{STYLE["grid"]}"')
            yield words(self.left - 10, self.at(self.x.low, value)[1] + 5, name, PX["axis"], "end")

    def feet(self, below: float) -> Iterator[str]:
        """The numbers of the x axis, at this height."""
        for value, name in self.x.ticks.items():
            yield words(self.at(value, self.y.low)[0], below, name, PX["axis"], "middle")

    def under(self, below: float) -> str:
        """The label of the x axis, at this height."""
        return words((self.left + self.right) / 2, below, self.x.name, PX["axis"], "middle")


def chart(curves: Sequence[Curve], x: Axis, y: Axis, title: str, told: str) -> Figure:
    """A chart of curves; `told` is the picture in words."""
    names = sum(bool(curve.name) for curve in curves)
    whole = layout(title, 520, 100 + 12 * names, legend=LEGEND, xaxis=_axis(x), yaxis=_axis(y))
    places = _labelled(curves, Frame(x, y, 0))
    traces = [trace(curve, where) for curve, where in zip(curves, places)]
    return Figure.of(traces, whole, _svg(curves, places, x, y, title, told), told)


def _labelled(curves, frame) -> list[list[str]]:
    """The side of each label of each curve."""
    drawn = [(_at(curve, frame), curve.labels, bool(curve.dash), bool(curve.marker)) for curve in curves]
    return sides(drawn, (frame.left, WIDTH), LABEL)


def _at(curve, frame):
    return [frame.at(*point) for point in zip(curve.x, curve.y)]


def layout(title: str | None, height: float, top: float, left: float = LEFT, right: float = RIGHT, **more) -> dict:
    """plotly's layout of any chart; `more` holds its axes, and its legend if it has one."""
    lines = _lines(title or "")
    more_lines = LINE * (len(lines) - 1)
    return {
        "template": "none",
        "font": FONT,
        "height": height + more_lines,
        "margin": {"l": left, "r": right, "t": top + more_lines, "b": 56},
        "title": {"text": "<br>".join(lines), "x": 0.02, "font": {"size": PX["heading"]}} if title else None,
        **more,
    }


def _lines(title):
    return wrap(title, WIDTH - LEFT - RIGHT, BOLD * PX["heading"])


def plain_axis(name: str, low: float, high: float, **more) -> dict:
    """plotly's axis."""
    ground = {"range": [low, high], "gridcolor": STYLE["grid"], "zeroline": False}
    return ground | {"title": {"text": name, "font": FONT}} | more


def _axis(axis):
    shown = {"tickvals": list(axis.ticks), "ticktext": list(axis.ticks.values())}
    title = {"text": axis.name, "font": FONT, "standoff": 12}
    log = {"type": "log"} if axis.log else {}
    return plain_axis(axis.name, *axis.ends, title=title, automargin=True, **shown, **log)


def trace(curve: Curve, where: Sequence[str] = ()) -> go.Scatter:
    """A curve for plotly; `where`: the sides of its labels."""
    parts = {"lines": curve.dash, "markers": curve.marker or curve.labels, "text": curve.labels}
    colour = curve.pen
    return go.Scatter(
        x=list(curve.x),
        y=list(curve.y),
        name=curve.name,
        showlegend=bool(curve.name),
        mode="+".join(part for part, there in parts.items() if there),
        line={"color": colour, "width": curve.wide, "dash": curve.dash or "solid"},
        marker={
            "symbol": curve.marker or "circle", "size": curve.size, "color": colour,
            "opacity": 1.0 if curve.marker else 0.0,  # plotly puts a label beside its mark
            "line": {"color": colour, "width": 2},
        },
        hovertemplate=curve.hover,
        hoverinfo="skip" if curve.colour is None else None,
        text=list(curve.labels) or None,
        textposition=list(where) or None,
    )  # fmt: skip


# --- the static twin --------------------------------------------------------------------------------------------


def _svg(curves, places, x, y, title, told):
    lines = _lines(title)
    names, top = legend(curves, TOP + 38 + LINE * (len(lines) - 1))
    frame = Frame(x, y, top + 56)
    out = [heading(LEFT, TOP + 8 + LINE * i, line) for i, line in enumerate(lines)]
    out += [*names, *frame.levels(), *frame.feet(frame.bottom + 24)]
    out.append(frame.under(frame.bottom + 48))
    out.append(words(LEFT - 10, frame.top - 12, y.name, PX["axis"], fill=STYLE["muted"]))
    for curve, where in zip(curves, places):
        out += drawn(curve, _at(curve, frame), where)
    return captioned(WIDTH, frame.bottom + 78, title, told, out, foot=-6).svg


def legend(curves: Iterable[Curve], y: float) -> tuple[list[str], float]:
    """(its elements, the height of its last row): as many rows as the names need, the first one at y."""
    out, x = [], LEFT
    for curve in curves:
        if not curve.name:
            continue
        wide = 58 + prose_width(curve.name, PX["caption"])
        if x + wide > WIDTH - RIGHT:
            x, y = LEFT, y + ROW
        out += drawn(curve._replace(labels=(), marker=""), [(x, y), (x + 36, y)])
        out += drawn(curve._replace(labels=(), dash=""), [(x + 18, y)])
        out.append(words(x + 44, y + 5, curve.name, PX["caption"]))
        x += wide + 14
    return out, y


def drawn(curve: Curve, points: Sequence[tuple[float, float]], where: Sequence[str] = ()) -> Iterator[str]:
    """A curve's line, marks and labels at places in pixels; `where`: the sides of its labels."""
    colour = curve.pen
    if curve.dash:
        at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = f'stroke-width="{curve.wide:g}" stroke-dasharray="{DASHES[curve.dash]}"'
        yield f'<polyline fill="none" stroke="{colour}" {dashes} points="{at}"/>'
    shape, _, hollow = curve.marker.partition("-")
    pen = f'fill="{"none" if hollow else colour}" stroke="{colour}" stroke-width="{2 / HOLLOW if hollow else 0:.3g}"'
    larger = curve.size / SMALLEST
    scale = f" scale({larger:.3g})" if larger > 1 else ""
    for x, y in points if curve.marker else ():
        yield f'<path d="{MARKS[shape]}" {pen} transform="translate({x:.1f} {y:.1f}){scale}"/>'
    for (x, y), label, side in zip(points, curve.labels, where):
        across, down, anchor = SIDES[side]
        if label:
            yield words(x + across, y + down + 5, label, LABEL, anchor, **HALO)
