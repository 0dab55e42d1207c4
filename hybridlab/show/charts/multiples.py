"""Small multiples: a panel for each group of curves, side by side on equal axes. Each panel also has the lines of the
others, in grey, so that they can be compared.
"""

from collections.abc import Mapping, Sequence

from hybridlab.show.charts.chart import (
    FONT,
    LEFT,
    LEGEND,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Curve,
    Frame,
    drawn,
    layout,
    legend,
    plain_axis,
    trace,
)  # fmt: skip
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.style import STYLE

GAP, TALL = 44, 260  # pixels between panels; their height
PX, GRID = STYLE["pixels"], STYLE["grid"]


def multiples(
    panels: Mapping[str, Sequence[Curve]], x: Axis, y: Axis, title: str, told: str, others: str = "the other panels"
) -> Figure:
    """A panel for each group of curves; `told` is the picture in words.

    panels  {heading: its curves}; their names are those of the first panel;  others  the name of the grey lines

    >>> line = Curve("predicted", [0, 1], [1, 2], 0, "solid")
    >>> multiples({"B = 1": [line], "B = 2": [line]}, Axis("p", 0, 1), Axis("rate", 0, 2), "Two", "both rise")
    <figure both rise>
    """
    wide = (1 - (len(panels) - 1) * GAP / (WIDTH - LEFT - RIGHT)) / len(panels)
    begins = [number * (1 - wide) / max(len(panels) - 1, 1) for number in range(len(panels))]
    axes, traces = {}, []
    for number, (name, begin) in enumerate(zip(panels, begins)):
        suffix = str(number + 1) if number else ""
        axes[f"xaxis{suffix}"] = _plotly(x) | {"domain": [begin, begin + wide], "anchor": "y"}
        drawn_here = map(trace, [*_behind(panels, name, others), *panels[name]])
        traces += [one.update(xaxis=f"x{suffix}", showlegend=one.showlegend and not number) for one in drawn_here]
    above = {"yref": "paper", "xref": "paper", "y": 1, "yanchor": "bottom", "xanchor": "left", "showarrow": False}
    names = [above | {"text": f"<b>{name}</b>", "x": begin, "font": FONT} for name, begin in zip(panels, begins)]
    more = {"legend": LEGEND | {"y": 1.1}, "yaxis": _plotly(y), "annotations": names, **axes}
    return Figure.of(traces, layout(title, 440, 124, **more), _svg(panels, x, y, title, told, others), told)


def _plotly(axis):
    shown = {"tickvals": list(axis.ticks), "ticktext": list(axis.ticks.values())}
    return plain_axis(axis.name, *axis.ends, **shown)


def _behind(panels, name, others) -> list[Curve]:
    """The lines of the other panels; the first one has the name of all."""
    lines = [curve for other in panels if other != name for curve in panels[other] if curve.dash]
    look = {"colour": None, "dash": "dot", "marker": "", "labels": (), "wide": 2}
    return [curve._replace(name="" if number else others, **look) for number, curve in enumerate(lines)]


def _svg(panels, x, y, title, told, others):
    first, curves = next(iter(panels.items()))
    names, top = legend([*curves, *_behind(panels, first, others)], TOP + 38)
    out = [heading(LEFT, TOP + 8, title), *names]
    wide = (WIDTH - LEFT - RIGHT - GAP * (len(panels) - 1)) / len(panels)
    top += 72
    for number, (name, curves) in enumerate(panels.items()):
        left = LEFT + number * (wide + GAP)
        frame = Frame(x, y, top, TALL, left, left + wide)
        out += frame.levels() if not number else [frame.level(value, f'stroke="{GRID}"') for value in y.ticks]
        out += [*frame.feet(frame.bottom + 24), frame.under(frame.bottom + 48)]
        out.append(words(left, top - 12, name, PX["axis"], **{"font-weight": "600"}))
        for curve in [*_behind(panels, name, others), *curves]:
            out += drawn(curve, [frame.at(*point) for point in zip(curve.x, curve.y)])
    out.append(words(LEFT - 10, top - 36, y.name, PX["axis"], fill=STYLE["muted"]))
    return captioned(WIDTH, top + TALL + 78, title, told, out, foot=-6).svg
