"""Memory over time: what one rank holds while it plays its part, kind over kind, and below it the lane of the rank.

Each action is as wide as it is predicted to last and as high as its highest moment; between actions stands what was
left. Behind the schedule come the sums and the update, not to scale.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from hybridlab.core.dry import GB, KINDS, DryRun
from hybridlab.core.when.action import Action
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import sheet, ticks, words, wrap
from hybridlab.show.paper.style import STYLE, Look, look, mix

WIDTH, LEFT, RIGHT, TOP, TALL, LANE, GAP = 960, 84, 30, 24, 320, 34, 22
BEHIND = 0.025  # of the schedule's length: the width of what comes behind it
ROOM = "memory of the device"
WIDE = 20  # pixels of a box that holds the number of its microbatch
UNITS = {"kB": 1e3, "MB": 1e6, "GB": GB, "TB": 1e12}
PX, FILLS = STYLE["pixels"], STYLE["kinds"]
COLOURS = {
    "weights": FILLS["F"]["fill"],
    "optimizer": FILLS["OPT"]["fill"],
    "gradients": FILLS["B"]["fill"],
    "activations": "#56B4E9",
    "in flight": FILLS["message"]["fill"],
    "data": FILLS["bubble"]["fill"],
    "working": mix(FILLS["W"]["fill"], STYLE["paper"], 0.35),
}


class Box(NamedTuple):
    """One action in the lane: its time, its look, and the number that it bears."""

    begin: float
    end: float
    look: Look
    number: str
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
    """Begins and ends, with some width for what comes behind the schedule."""
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
    """What of the last step's end is let go when a step begins."""
    return np.where(np.array(list(KINDS)) == "gradients", dry.kept[-1], 0)


def _boxes(dry) -> Iterator[Box]:
    for name, begin, end in zip(dry.actions, *_times(dry)):
        if name in ("sums", "update"):
            yield Box(begin, end, look("message" if name == "sums" else "OPT"), "", name)
            continue
        parts = Action.parse(name).each
        wide = (end - begin) / len(parts)
        for place, part in enumerate(parts):
            kind = look(part.kind)
            yield Box(begin + place * wide, begin + (place + 1) * wide, kind, str(part.microbatch), str(part))


def _areas(steps, unit):
    for number, (kind, colour) in enumerate(COLOURS.items()):
        yield go.Scatter(
            x=steps.x,
            y=steps.y[:, number] / UNITS[unit],
            name=kind,
            stackgroup="memory",
            mode="none",
            fillcolor=colour,
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
            text=[box.number for box in mine],
            insidetextfont={"color": one.text, "size": PX["box"]},
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            hovertext=[box.name for box in mine],
            hoverinfo="text",
            showlegend=False,
        )


def _room(dry):
    """The bytes of the device where the picture can show them: 0 for none, or far above the peak."""
    return dry.room if dry.room and dry.room < 3 * dry.peak_bytes else 0


def _highest(dry):
    """The bytes at the picture's upper edge: the line of the device's memory bears words."""
    return max(dry.peak_bytes * 1.04, _room(dry) * 1.1)


def _layout(dry, steps, unit, title):
    font = {"family": STYLE["font"], "size": PX["axis"], "color": STYLE["ink"]}
    room = {"y0": _room(dry) / UNITS[unit], "y1": _room(dry) / UNITS[unit]}
    line = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": STYLE["error"], "dash": "dash"},
            "label": {"text": ROOM, "textposition": "end", "yanchor": "bottom", "font": font}}  # fmt: skip
    return {
        "template": "none",
        "font": font,
        "height": 500,
        "barmode": "overlay",
        "uniformtext": {"minsize": PX["smallest"], "mode": "hide"},
        "margin": {"l": LEFT, "r": RIGHT, "t": 96 if title else 64, "b": 56},
        "title": {"text": title, "x": 0.02, "font": {"size": PX["heading"]}} if title else None,
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "xaxis": {"range": [0, steps.x[-1]], "anchor": "y2", "gridcolor": STYLE["grid"], "zeroline": False,
                  "title": {"text": f"time, {dry.unit} (predicted)", "font": font}},
        "yaxis": {"domain": [0.16, 1], "range": [0, _highest(dry) / UNITS[unit]], "zeroline": False,
                  "title": {"text": unit, "font": font}, "gridcolor": STYLE["grid"]},
        "yaxis2": {"domain": [0, 0.1], "showticklabels": False, "fixedrange": True},
        "shapes": [line | room] if _room(dry) else [],
    }  # fmt: skip


# --- the static twin --------------------------------------------------------------------------------------------


def _svg(dry, steps, boxes, unit, title, told):
    top = TOP + (32 if title else 0) + 64
    highest = _highest(dry)
    across = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * x / steps.x[-1]
    up = lambda y: top + TALL * (1 - y / highest)
    out = [words(LEFT, TOP + 8, title, PX["heading"], **{"font-weight": "600"})] if title else []
    out += _legend(TOP + (32 if title else 0) + 12)
    for value in ticks(0, highest / UNITS[unit], 8):
        y = up(value * UNITS[unit])
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{STYLE["grid"]}"/>')
        out.append(words(LEFT - 10, y + 5, f"{value:g}", PX["axis"], "end"))
    out.append(words(LEFT - 10, top - 12, unit, PX["axis"], "end", fill=STYLE["muted"]))
    out += _stacked(steps, across, up)
    if _room(dry):
        pen, y = f'stroke="{STYLE["error"]}" stroke-width="2" stroke-dasharray="9 6"', up(_room(dry))
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" {pen}/>')
        halo = {"stroke": STYLE["paper"], "stroke-width": 4, "paint-order": "stroke"}  # readable on the curve too
        out.append(words(WIDTH - RIGHT - 8, y - 8, ROOM, PX["axis"], "end", **halo))
    low = top + TALL + GAP
    for box in boxes:
        x0, x1 = across(box.begin), across(box.end)
        out.append(f'<rect x="{x0:.1f}" y="{low}" width="{x1 - x0:.1f}" height="{LANE}" fill="{box.look.fill}" '
                   f'stroke="{box.look.edge}"/>')  # fmt: skip
        if x1 - x0 >= WIDE:
            out.append(words((x0 + x1) / 2, low + 22, box.number, PX["box"], "middle", fill=box.look.text))
    for value in ticks(0, float(dry.end[-1]), 9):
        out.append(words(across(value), low + LANE + 22, f"{value:g}", PX["axis"], "middle"))
    below = low + LANE + 46
    out.append(words((LEFT + WIDTH - RIGHT) / 2, below, f"time, {dry.unit} (predicted)", PX["axis"], "middle"))
    lines = wrap(told, WIDTH - 48, PX["caption"])
    out += [words(24, below + 32 + 21 * i, line, PX["caption"], fill=STYLE["muted"]) for i, line in enumerate(lines)]
    return sheet(WIDTH, below + 28 + 21 * len(lines), title or "memory over time", told, out)


def _legend(y):
    x = float(LEFT)
    for kind, colour in COLOURS.items():
        yield f'<rect x="{x:.1f}" y="{y - 12}" width="16" height="14" fill="{colour}"/>'
        yield words(x + 22, y, kind, PX["caption"])
        x += 52 + 0.52 * PX["caption"] * len(kind)


def _stacked(steps, across, up):
    """Areas one on the other, the last kind on top."""
    edges = np.cumsum(steps.y, axis=1)
    bottom = np.zeros(len(steps.x))
    for colour, edge in zip(COLOURS.values(), edges.T):
        there = [f"{across(x):.1f},{up(y):.1f}" for x, y in zip(steps.x, edge)]
        back = [f"{across(x):.1f},{up(y):.1f}" for x, y in zip(steps.x[::-1], bottom[::-1])]
        yield f'<polygon fill="{colour}" points="{" ".join(there + back)}"/>'
        bottom = edge
