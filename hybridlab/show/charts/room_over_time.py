"""Room over time: what each rank holds on its device, of all that counts for its room, and the line above it.

The ranks stand below each other on one time axis, as in the timeline of the same step.
"""

import numpy as np
import plotly.graph_objects as go

from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.bytes.live import on_device
from hybridlab.show.charts.memory_over_time import COLOURS
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import sheet, ticks, words, wrap
from hybridlab.show.paper.style import STYLE

WIDTH, LEFT, RIGHT, TOP, TALL, GAP = 960, 96, 18, 24, 84, 18
ABOVE = 1.15  # of the highest that is drawn: the line of the room bears words
FILL, PX = COLOURS["activations"], STYLE["pixels"]


def room_over_time(timeline: Timeline, title: str | None = None) -> Figure:
    """The picture of a timeline, each rank with what it holds from moment to moment, in the unit of its room.

    >>> from hybridlab.core.when.room import Room
    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> room_over_time(simulate(schedule("gpipe", ranks=2, microbatches=2), room=Room(2)))
    <figure gpipe, 2 ranks: the device holds at most 2 on rank 0, 2 on rank 1, and has room for 2>
    """
    held = on_device(timeline)
    peaks = [float(own.max(initial=0)) for _, own in held]
    line = timeline.room.capacity if timeline.room else None
    most = ", ".join(f"{peak:.4g} on rank {rank}" for rank, peak in enumerate(peaks))
    end = f", and has room for {line:.4g}" if line is not None else ""
    count = f"{len(held)} rank{'s' * (len(held) > 1)}"
    told = f"{timeline.schedule.name}, {count}: the device holds at most {most}{end}"
    highest = ABOVE * max([line or 0, *peaks, 1e-12])
    steps = [_steps(*own, timeline.length) for own in held]
    drawn = _svg(steps, line, highest, timeline, title, told)
    return Figure.of(list(_traces(steps)), _layout(line, highest, timeline, title), drawn, told)


def _steps(times, held, length):
    """The corners of a curve that stays level between two changes: (x, y)."""
    times = np.append(times, length)
    return np.repeat(times, 2)[1:-1], np.repeat(held, 2)


def _traces(steps):
    for rank, (x, y) in enumerate(steps):
        yield go.Scatter(
            x=x,
            y=y,
            yaxis=f"y{rank + 1}" if rank else "y",
            name=f"rank {rank}",
            mode="lines",
            line={"color": STYLE["curves"][5], "width": 1.5},
            fill="tozeroy",
            fillcolor=FILL,
            hovertemplate=f"rank {rank}: %{{y:.4g}} at %{{x:.4g}}<extra></extra>",
            showlegend=False,
        )


def _layout(line, highest, timeline, title):
    ranks, font = timeline.schedule.ranks, {"family": STYLE["font"], "size": PX["axis"], "color": STYLE["ink"]}
    pen = {"color": STYLE["error"], "dash": "dash"}
    axes, shapes = {}, []
    for rank in range(ranks):
        name = str(rank + 1) if rank else ""
        low = 1 - (rank + 1) / ranks
        axes["yaxis" + name] = {"domain": [low, low + 0.88 / ranks], "range": [0, highest], "gridcolor": STYLE["grid"],
                                "title": {"text": f"rank {rank}", "font": font}, "zeroline": False}  # fmt: skip
        if line is not None:
            shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y" + name, "y0": line,
                           "y1": line, "line": pen})  # fmt: skip
    return axes | {
        "template": "none",
        "font": font,
        "height": 110 + 104 * ranks,
        "margin": {"l": LEFT, "r": RIGHT, "t": 64 if title else 24, "b": 56},
        "title": {"text": title, "x": 0.02, "font": {"size": PX["heading"]}} if title else None,
        "xaxis": {"range": [0, timeline.length], "anchor": f"y{ranks}" if ranks > 1 else "y", "zeroline": False,
                  "gridcolor": STYLE["grid"], "title": {"text": f"time, {timeline.unit}", "font": font}},
        "shapes": shapes,
    }  # fmt: skip


# --- the static twin --------------------------------------------------------------------------------------------


def _svg(steps, line, highest, timeline, title, told):
    top, length = TOP + (32 if title else 0), timeline.length or 1.0
    across = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * x / length
    out = [words(LEFT, TOP + 8, title, PX["heading"], **{"font-weight": "600"})] if title else []
    low = top + len(steps) * (TALL + GAP) - GAP
    for x in ticks(0, length, 9):
        out.append(f'<path d="M{across(x):.1f} {top}V{low}" stroke="{STYLE["grid"]}"/>')
        out.append(words(across(x), low + 22, f"{x:g}", PX["axis"], "middle"))
    out.append(words(LEFT - 10, low + 22, timeline.unit, PX["axis"], "end"))
    for rank, (x, y) in enumerate(steps):
        out += _panel(rank, [across(at) for at in x], y, line, highest, top + rank * (TALL + GAP))
    lines = wrap(told, WIDTH - 48, PX["caption"])
    out += [words(24, low + 54 + 21 * i, one, PX["caption"], fill=STYLE["muted"]) for i, one in enumerate(lines)]
    return sheet(WIDTH, low + 50 + 21 * len(lines), title or "room over time", told, out)


def _panel(rank, x, y, line, highest, top):
    """One rank: its area, its name, the line of its room with words, and how much that is."""
    floor, up = top + TALL, lambda value: top + TALL * (1 - value / highest)
    there = " ".join(f"{at:.1f},{up(value):.1f}" for at, value in zip(x, y))
    yield f'<polygon fill="{FILL}" points="{x[0]:.1f},{floor} {there} {x[-1]:.1f},{floor}"/>'
    yield f'<path d="M{LEFT} {floor}H{WIDTH - RIGHT}" stroke="{STYLE["muted"]}"/>'
    yield words(LEFT - 10, floor - 4, f"rank {rank}", PX["axis"], "end")
    if line is None:
        return
    y, pen = up(line), f'stroke="{STYLE["error"]}" stroke-width="2" stroke-dasharray="9 6"'
    yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" {pen}/>'
    yield words(LEFT - 10, y + 5, f"{line:.4g}", PX["axis"], "end")
    if rank == 0:
        yield words(WIDTH - RIGHT, y - 7, "room on the device", PX["axis"], "end")
