"""Memory over time: the memory of one rank during a step, stacked by kind, with the lane of the rank below.

The width of an action is its predicted duration, and its height is the largest memory in use during it. Between actions
the height is the memory that the last action left in use. After the schedule come the reductions and the update, not to
scale. The stripes are those of `show.layouts.anatomy`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from hybridlab.core.dry import GB, KINDS, DryRun
from hybridlab.core.when.action import Action
from hybridlab.show.charts.chart import FONT, HALO, LEFT, LEGEND, PX, RIGHT, TOP, WIDTH, Axis, Frame, layout, plain_axis
from hybridlab.show.layouts.anatomy import LOOKS, stripes
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import captioned, heading, prose_width, ticks, words
from hybridlab.show.paper.style import HATCH_ON_LIGHT, STYLE, Look, dashed, look, mix

TALL, LANE, GAP = 320, STYLE["pixels"]["lane"], 22
BEHIND = 0.07  # of the schedule's length: the width of each reduction and of the update after it
ROOM = "memory of the device"
UNITS = {"kB": 1e3, "MB": 1e6, "GB": GB, "TB": 1e12}
FILLS = STYLE["kinds"]
COLOURS = {
    "weights": FILLS["F"]["fill"],
    "optimizer": FILLS["OPT"]["fill"],
    "gradients": FILLS["B"]["fill"],
    "activations": STYLE["curves"][0],
    "in flight": FILLS["message"]["fill"],
    "data": FILLS["bubble"]["fill"],
    "working": mix(FILLS["W"]["fill"], STYLE["paper"], 0.35),
}
SHAPES = "", "/", "-", "."  # plotly's names of patterns that look like those of `stripes`
STRIPED = {name.split()[0]: (f"part-{i}", SHAPES[i]) for i, name in enumerate(LOOKS) if SHAPES[i]}
LITTLE = 0.01  # of the peak: a kind that never takes more is too thin to be seen, and not in the legend


class Box(NamedTuple):
    """One action in the lane: its time, its look, the text in it, and its name."""

    begin: float
    end: float
    look: Look
    text: str
    name: str


class _Steps(NamedTuple):
    """The curve's corners: times, and bytes by kind at each."""

    x: np.ndarray
    y: np.ndarray


def memory_over_time(dry: DryRun, title: str | None = None) -> Figure:
    """The picture of a dry run."""
    steps, unit = _steps(dry), _unit(dry.peak_bytes)
    told, boxes = _told(dry, unit), list(_boxes(dry))
    traces = [*_areas(steps, unit), *_lane(boxes)]
    return Figure.of(traces, _layout(dry, steps, unit, title), _svg(dry, steps, boxes, unit, title, told), told)


def _unit(size: float) -> str:
    """The unit in which a number of bytes has one to three digits before the point."""
    return next((name for name, one in UNITS.items() if size < 1000 * one), "TB")


def _told(dry, unit):
    parts = ", ".join(f"{kind} {size / UNITS[unit]:.3g}" for kind, size in dry.peak.items() if size)
    verdict = f"; {dry.verdict}" if dry.verdict else ""
    return (
        f"memory of rank {dry.rank} of {dry.mesh.size}, {dry.job}: at most {dry.peak_bytes / UNITS[unit]:.3g} {unit}, "
        f"in {dry.at} ({parts} {unit}); times are predicted{verdict}"
    )


def _times(dry) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends, with some width for the reductions and the update after the schedule."""
    begin, end, wide = dry.begin.astype(float), dry.end.astype(float), BEHIND * dry.end[-1]
    behind = np.cumsum([name in ("sums", "update") for name in dry.actions])
    return begin + wide * np.maximum(behind - 1, 0), end + wide * behind


def _steps(dry) -> _Steps:
    begin, end = _times(dry)
    x = np.stack([begin, begin, end, end], axis=1).ravel()
    before = np.concatenate([dry.kept[-1:], dry.kept[:-1]])  # a step begins as the last one ended
    before[0] -= _gradients(dry)
    y = np.stack([before, dry.held, dry.held, dry.kept], axis=1).reshape(len(x), -1)
    return _Steps(np.concatenate([[0.0], x]), np.concatenate([y[:1], y]))


def _gradients(dry):
    """The bytes of gradients left from the last step, which are freed when a step begins."""
    return np.where(np.array(list(KINDS)) == "gradients", dry.kept[-1], 0)


def _boxes(dry) -> Iterator[Box]:
    for name, begin, end in zip(dry.actions, *_times(dry)):
        if name in ("sums", "update"):
            yield Box(begin, end, look("message" if name == "sums" else "OPT"), name, name)
            continue
        parts = Action.parse(name).each
        wide = (end - begin) / len(parts)
        for place, part in enumerate(parts):
            kind = look(part.kind)
            yield Box(
                begin + place * wide, begin + (place + 1) * wide, kind, f"{kind.letter}{part.microbatch}", str(part)
            )


def _seen(steps) -> list[str]:
    """The kinds that can be seen."""
    least = LITTLE * steps.y.sum(axis=1).max()
    return [kind for kind, most in zip(COLOURS, steps.y.max(axis=0)) if most >= least]


def _areas(steps, unit):
    for number, (kind, colour) in enumerate(COLOURS.items()):
        _, shape = STRIPED.get(kind, ("", ""))
        ink = STYLE["ink"] if shape == "." else mix(colour, STYLE["paper"], HATCH_ON_LIGHT)
        yield go.Scatter(
            x=steps.x,
            y=steps.y[:, number] / UNITS[unit],
            name=kind,
            stackgroup="memory",
            mode="none",
            fillcolor=colour,
            fillpattern={"shape": shape, "bgcolor": colour, "fgcolor": ink, "size": 9, "solidity": 0.2},
            showlegend=kind in _seen(steps),
            hovertemplate=f"{kind} %{{y:.3g}} {unit}<extra></extra>",
        )


def _lane(boxes):
    for one in dict.fromkeys(box.look for box in boxes):
        mine = [box for box in boxes if box.look == one]
        marker = {"color": one.fill, "line": {"color": one.edge, "width": 1}}
        if one.hatch:
            marker["pattern"] = {"shape": "/", "fgcolor": one.hatch, "bgcolor": one.fill, "size": 8, "solidity": 0.3}
        yield go.Bar(
            orientation="h",
            base=[box.begin for box in mine],
            x=[box.end - box.begin for box in mine],
            y=["rank"] * len(mine),
            yaxis="y2",
            marker=marker,
            text=[box.text for box in mine],
            insidetextfont={"color": one.text, "size": PX["box"]},
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            hovertext=[box.name for box in mine],
            hoverinfo="text",
            showlegend=False,
        )


def _room(dry):
    """The device's memory in bytes; 0 if it is not known, or so far above the peak that the picture cannot show it."""
    return dry.room if dry.room and dry.room < 3 * dry.peak_bytes else 0


def _highest(dry):
    """The bytes at the picture's upper edge, with space for the label on the line of the device's memory."""
    return max(dry.peak_bytes * 1.04, _room(dry) * 1.1)


def _layout(dry, steps, unit, title):
    room = {"y0": _room(dry) / UNITS[unit], "y1": _room(dry) / UNITS[unit]}
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": STYLE["error"], "dash": "dash"},
            "label": {"text": ROOM, "textposition": "end", "yanchor": "bottom", "font": FONT}}  # fmt: skip
    return layout(
        title, 500, 96 if title else 64,
        xaxis=plain_axis(f"time, {dry.unit} (predicted)", 0, steps.x[-1], anchor="y2"),
        yaxis=plain_axis(unit, 0, _highest(dry) / UNITS[unit], domain=[0.16, 1]),
        yaxis2={"domain": [0, 0.1], "showticklabels": False, "fixedrange": True},
        legend=LEGEND | {"traceorder": "normal"},
        barmode="overlay",
        uniformtext={"minsize": PX["smallest"], "mode": "hide"},
        shapes=[line | room] if _room(dry) else [],
    )  # fmt: skip


# --- the static twin --------------------------------------------------------------------------------------------


def _svg(dry, steps, boxes, unit, title, told):
    head = TOP + (32 if title else 0)
    time, scale = Axis(f"time, {dry.unit} (predicted)", 0, steps.x[-1]), UNITS[unit]
    frame = Frame(time, Axis(unit, 0, _highest(dry) / scale, most=8), head + 64, TALL)
    out = [heading(LEFT, TOP + 8, title)] if title else []
    out += [stripes(), *_legend(_seen(steps), head + 12), *frame.levels()]
    out.append(words(LEFT - 10, frame.top - 12, unit, PX["axis"], "end", fill=STYLE["muted"]))
    out += _stacked(_Steps(steps.x, steps.y / scale), frame)
    if _room(dry):
        out.append(frame.level(_room(dry) / scale, f'stroke="{STYLE["error"]}" stroke-width="2" {dashed("dash")}'))
        y = frame.at(0, _room(dry) / scale)[1]
        out.append(words(WIDTH - RIGHT - 8, y - 8, ROOM, PX["axis"], "end", **HALO))
    peak = int(steps.y.sum(axis=1).argmax())
    x, y = frame.at(steps.x[peak], dry.peak_bytes / scale)
    most = f"{dry.peak_bytes / scale:.3g} {unit}"
    out.append(words(max(x, LEFT + 40), y - 6, most, PX["axis"], "middle", **HALO, **{"font-weight": "600"}))
    low = frame.bottom + GAP
    out.append(words(LEFT - 10, low + 22, f"rank {dry.rank}", PX["axis"], "end"))
    for box in boxes:
        (x0, _), (x1, _) = (frame.at(x, 0) for x in (box.begin, box.end))
        out.append(f'<rect x="{x0:.1f}" y="{low}" width="{x1 - x0:.1f}" height="{LANE}" fill="{box.look.fill}" '
                   f'stroke="{box.look.edge}"/>')  # fmt: skip
        fits = [text for text in (box.text, box.text[:1]) if x1 - x0 >= prose_width(text, PX["box"]) + 6]
        out += [words((x0 + x1) / 2, low + 22, text, PX["box"], "middle", fill=box.look.text) for text in fits[:1]]
    for value in ticks(0, float(dry.end[-1]), 9):
        out.append(words(frame.at(value, 0)[0], low + LANE + 22, f"{value:g}", PX["axis"], "middle"))
    below = low + LANE + 46
    return captioned(WIDTH, below + 32, title or "memory over time", told, [*out, frame.under(below)], foot=-4).svg


def _filled(kind, shape):
    """A shape, the beginning of its element, in the colour of a kind and its stripes."""
    yield f'{shape} fill="{COLOURS[kind]}"/>'
    if kind in STRIPED:
        yield f'{shape} fill="url(#{STRIPED[kind][0]})"/>'


def _legend(kinds, y):
    x = float(LEFT)
    for kind in kinds:
        yield from _filled(kind, f'<rect x="{x:.1f}" y="{y - 12}" width="18" height="15"')
        yield words(x + 24, y, kind, PX["caption"])
        x += 52 + 0.52 * PX["caption"] * len(kind)


def _stacked(steps, frame):
    """Stacked areas, the last kind on top."""
    edges = np.cumsum(steps.y, axis=1)
    bottom = np.zeros(len(steps.x))
    for kind, edge in zip(COLOURS, edges.T):
        there, back = zip(steps.x, edge), zip(steps.x[::-1], bottom[::-1])
        points = " ".join("{:.1f},{:.1f}".format(*frame.at(*point)) for point in (*there, *back))
        yield from _filled(kind, f'<polygon points="{points}"')
        bottom = edge
