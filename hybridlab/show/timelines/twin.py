"""The twin of a live picture: the same picture as SVG, drawn from the columns that the browser gets.

The boxes are those of every SVG of a timeline. A ruler is above each timeline, the curves of activations held below
all of them.
"""

import numpy as np

from hybridlab.show.paper.sheet import prose_width, words
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.boxes import RULER
from hybridlab.show.timelines.drawn import LEFT, text_width
from hybridlab.show.timelines.picture import boxes_of, column
from hybridlab.show.timelines.svg import page

HELD, HEAD = 24, 34  # pixels: the row of one rank's curve; the line above all curves
ALONE, BEHIND = 28, 44  # pixels for a highest value: before the area of a single timeline, after each of several
MANY = 400  # steps of a curve; with more, one is kept for each pixel
PX, INK = STYLE["pixels"], STYLE["ink"]


def twin(picture: dict) -> str:
    """A picture (see `picture`) as SVG text; the same picture always gives the same text.

    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> from hybridlab.show.timelines.picture import picture
    >>> twin(picture(simulate(schedule("gpipe", ranks=2, microbatches=2))))[:4]
    '<svg'
    """

    def more(top, bottom, lane, scale):
        held, lower = _held(picture, bottom, scale)
        return [*_rulers(picture, top, lane, scale), *_waits(picture, top, lane, scale), *held], lower

    return page(boxes_of(picture), more=more)


def _rulers(picture, top, lane, scale):
    """Compute time and, filled, idle time of each timeline, end to end, with the bubble; none of a deadlock."""
    out, room = [], RULER * lane
    for one in picture["timelines"]:
        measure, y = one["measures"][0], top + one["ruler"] * lane
        if room < PX["smallest"] or not measure["whole"] or one["stuck"]:  # no action has been chosen yet; no step ends
            continue
        measured = "measured, " if one["measured"] else ""
        out.append(words(LEFT, y + min(room - 8, 15), f"{measured}{measure['text']}", PX["smallest"] + 1))
        begin, busy, end, whole = (LEFT + measure[key] * scale for key in ("begin", "busy_end", "end", "whole"))
        thick = 6 if room > 24 else 4  # thinner, its grey is not visible; in a low row, the text needs the room
        y += room - thick - 2
        out.append(_bar(busy, end, y, thick))
        frame = f"M{begin:.1f} {y - 0.5:.1f}H{whole:.1f}V{y + thick + 0.5:.1f}H{begin:.1f}z"
        out.append(f'<path d="{frame}" fill="none" stroke="{INK}"/>')
    return out


def _bar(x0, x1, y, tall):
    pen = f'fill="{STYLE["light"]["bubble"]}" stroke="{INK}"'
    return f'<path d="M{x0:.1f} {y:.1f}H{x1:.1f}V{y + tall:.1f}H{x0:.1f}z" {pen}/>'


def _waits(picture, top, lane, scale):
    """In a deadlock: from a rank's last action on, a frame with the action that it waits to do."""
    out, drawn = [], boxes_of(picture)
    for number, one in enumerate(picture["timelines"]):
        for rank, action, _ in one["stuck"]:
            place = next(i for i, its in enumerate(drawn.lanes) if (its.timeline, its.rank) == (number, rank))
            mine = (drawn.lane == place) & (drawn.kind >= 0)
            x = LEFT + float(drawn.x1[mine].max(initial=0)) * scale
            y, wide = top + drawn.lanes[place].top * lane, LEFT + picture["length"] * scale - x
            frame = f'x="{x:.1f}" y="{y + 1:.1f}" width="{wide:.1f}" height="{lane - 2:.1f}"'
            fill, edge = STYLE["light"]["bubble"], STYLE["error"]
            out.append(f'<rect {frame} fill="{fill}" stroke="{edge}" stroke-width="3"/>')
            text = next((one for one in (f"waits at {action}", action) if text_width(one, PX["box"]) + 8 < wide), "")
            out.append(words(x + wide / 2, y + lane / 2 + 5, text, PX["box"], "middle"))
    return out


def _held(picture, y, scale):
    """(elements, bottom): a row of areas per rank, with their highest values; of several timelines side by side.

    A single value is before its area, since it would hide the area's end; of several timelines, it is after the area.
    """
    timelines = picture["timelines"]
    alone = len(timelines) == 1
    most = max([1, *(peak for one in timelines for peak in one["peaks"])])
    wide = picture["length"] * scale / len(timelines)
    room = wide if alone else wide - BEHIND
    first = np.cumsum([0] + [one["ranks"] for one in timelines])
    titles = enumerate(_titles(timelines, room))
    out = [words(LEFT + number * wide, y + 20, text, PX["axis"]) for number, text in titles]
    y += HEAD
    for rank in range(max(one["ranks"] for one in timelines)):
        bottom, there = y + HELD - 4, [number for number, one in enumerate(timelines) if rank < one["ranks"]]
        for number in there:
            until, left = timelines[number]["measures"][0]["end"], LEFT + number * wide
            of = int(first[number]) + rank
            out.append(_curve(picture, of, left, bottom, (HELD - 7) / most, room / picture["length"], until))
        out.append(words(LEFT - 10 - (ALONE if alone else 0), bottom - 3, f"rank {rank}", PX["axis"], "end"))
        for number in there:
            x, more = (LEFT - 10, {"font-weight": "600"}) if alone else (LEFT + (number + 1) * wide - 10, {})
            out.append(words(x, bottom - 3, str(timelines[number]["peaks"][rank]), PX["axis"], "end", **more))
        y += HELD
    return out, y + 4


def _titles(timelines, room):
    """The title above the areas of each timeline, as long as it fits."""
    if len(timelines) == 1:
        return [f"activations{timelines[0]['one_of']} held by each rank, at most:"]
    names = [one["name"] + (" measured" if one["measured"] else "") for one in timelines]
    full = [f"{name}: activations held, at most" for name in names]
    return full if all(prose_width(text, PX["axis"]) <= room for text in full) else names


def _curve(picture, number, left, bottom, unit, scale, until):
    """The area under a step curve; activations that a rank still holds at its end are drawn up to the time `until`."""
    starts, times, counts = (column(picture, name) for name in ("held_starts", "held_times", "held_counts"))
    a, b = int(starts[number]), int(starts[number + 1])
    points, y = [f"M{left:g} {bottom:.1f}"], bottom
    xs, counts = times[a:b] * scale, counts[a:b]
    if len(xs) > MANY:  # the highest value of every pixel is enough
        _, first = np.unique(xs.astype(int), return_index=True)
        xs, counts = xs[first], np.maximum.reduceat(counts, first)
    for x, count in zip(xs.tolist(), counts.tolist()):
        points.append(f"H{left + x:.1f}")
        y = bottom - count * unit
        points.append(f"V{y:.1f}")
    if y < bottom:
        points.append(f"H{left + until * scale:.1f}V{bottom:.1f}")
    return f'<path fill="{INK}" fill-opacity="0.35" stroke="{INK}" stroke-width="1" d="{"".join(points)}"/>'
