"""Memory over time: the memory in use on each rank, and a line at the capacity.

The ranks are drawn one below the other on one time axis, as in the timeline of the same step.
"""

import numpy as np
import plotly.graph_objects as go

from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.bytes.live import on_device
from hybridlab.show.charts.chart import PX, TOP, WIDTH, Axis, Frame, layout, plain_axis
from hybridlab.show.charts.memory_over_time import COLOURS
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.style import STYLE, dashed

LEFT, RIGHT, TALL, GAP = 96, 18, 84, 18
ABOVE = 1.15  # of the highest value: space for the label on the line of the capacity
FILL = COLOURS["activations"]


def room_over_time(timeline: Timeline, title: str = "saved activations on the device") -> Figure:
    """The memory in use on each rank over time, in the unit of its `Room`: without a title, in activations.

    >>> from hybridlab.core.when.room import Room
    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> room_over_time(simulate(schedule("gpipe", ranks=2, microbatches=2), room=Room(2)))
    <figure gpipe, 2 ranks: the device holds at most 2 on rank 0, 2 on rank 1, capacity 2>
    """
    held = on_device(timeline)
    peaks = [float(own.max(initial=0)) for _, own in held]
    line = timeline.room.capacity if timeline.room else None
    most = ", ".join(f"{peak:.4g} on rank {rank}" for rank, peak in enumerate(peaks))
    end = f", capacity {line:.4g}" if line is not None else ""
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
    ranks, pen = timeline.schedule.ranks, {"color": STYLE["error"], "dash": "dash"}
    axes, shapes = {}, []
    for rank in range(ranks):
        name, low = str(rank + 1) if rank else "", 1 - (rank + 1) / ranks
        axes["yaxis" + name] = plain_axis(f"rank {rank}", 0, highest, domain=[low, low + 0.88 / ranks])
        if line is not None:
            shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y" + name, "y0": line,
                           "y1": line, "line": pen})  # fmt: skip
    time = plain_axis(f"time, {timeline.unit}", 0, timeline.length, anchor=f"y{ranks}" if ranks > 1 else "y")
    return layout(title, 110 + 104 * ranks, 64, LEFT, RIGHT, **axes, xaxis=time, shapes=shapes)


# --- the static twin --------------------------------------------------------------------------------------------


def _svg(steps, line, highest, timeline, title, told):
    top, time = TOP + 32, Axis(timeline.unit, 0, timeline.length or 1.0)
    frames = [
        Frame(time, Axis(f"rank {rank}", 0, highest), top + rank * (TALL + GAP), TALL, LEFT, WIDTH - RIGHT)
        for rank in range(len(steps))
    ]
    out, low = [heading(LEFT, TOP + 8, title)], frames[-1].bottom
    for value, name in time.ticks.items():
        x, _ = frames[0].at(value, 0)
        out.append(f'<path d="M{x:.1f} {top}V{low}" stroke="{STYLE["grid"]}"/>')
        out.append(words(x, low + 22, name, PX["axis"], "middle"))
    out.append(words(LEFT - 10, low + 22, time.name, PX["axis"], "end"))
    for frame, (x, y) in zip(frames, steps):
        out += _panel(frame, x, y, line)
        if line is not None and frame is frames[0]:
            out.append(words(WIDTH - RIGHT, frames[0].at(0, line)[1] - 7, "capacity of the device", PX["axis"], "end"))
    return captioned(WIDTH, low + 54, title, told, out, foot=-4).svg


def _panel(frame, x, y, line):
    """One rank: its area, its name, the line of its capacity, and its label."""
    there, floor = [frame.at(*point) for point in zip(x, y)], frame.bottom
    above = " ".join(f"{a:.1f},{b:.1f}" for a, b in there)
    yield f'<polygon fill="{FILL}" points="{there[0][0]:.1f},{floor} {above} {there[-1][0]:.1f},{floor}"/>'
    yield f'<path d="M{LEFT} {floor}H{WIDTH - RIGHT}" stroke="{STYLE["muted"]}"/>'
    yield words(LEFT - 10, frame.bottom - 4, frame.y.name, PX["axis"], "end")
    if line is not None:
        yield frame.level(line, f'stroke="{STYLE["error"]}" stroke-width="2" {dashed("dash")}')
        yield words(LEFT - 10, frame.at(0, line)[1] + 5, f"{line:.4g}", PX["axis"], "end")
