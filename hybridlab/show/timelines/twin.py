"""The twin of a live picture: the same picture as SVG, drawn from the columns that the browser gets.

The boxes are those of every SVG of a timeline. A ruler is above each timeline, the curves of activations held below
all of them.
"""

import numpy as np

from hybridlab.show.paper.sheet import words
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.boxes import RULER
from hybridlab.show.timelines.drawn import LEFT
from hybridlab.show.timelines.picture import boxes_of, column
from hybridlab.show.timelines.svg import page

HELD, HEAD = 24, 34  # pixels: the row of one rank's curve; the line above all curves
ALONE = 28  # pixels: space for the highest value of a single curve, before it
MANY = 400  # steps of a curve; with more, one is kept for each pixel
PX, INK = STYLE["pixels"], STYLE["ink"]
HALO = {"stroke": STYLE["paper"], "stroke-width": "4", "paint-order": "stroke"}


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
        return [*_rulers(picture, top, lane, scale), *held], lower

    return page(boxes_of(picture), more=more)


def _rulers(picture, top, lane, scale):
    """Compute time and idle time of each timeline, end to end, with the resulting bubble."""
    out, room = [], RULER * lane
    for one in picture["timelines"]:
        measure, y = one["measures"][0], top + one["ruler"] * lane
        if room < PX["smallest"] or not measure["whole"]:  # no action has been chosen yet
            continue
        measured = "measured, " if one["measured"] else ""
        out.append(words(LEFT, y + min(room - 8, 15), f"{measured}{measure['text']}", PX["smallest"] + 1))
        begin, busy, end, whole = (LEFT + measure[key] * scale for key in ("begin", "busy_end", "end", "whole"))
        y += room - 6
        out += [_bar(begin, busy, y, STYLE["muted"]), _bar(busy, end, y, STYLE["light"]["bubble"])]
        frame = f"M{begin:.1f} {y - 0.5:.1f}H{whole:.1f}V{y + 4.5:.1f}H{begin:.1f}z"
        out.append(f'<path d="{frame}" fill="none" stroke="{INK}"/>')
    return out


def _bar(x0, x1, y, fill):
    return f'<path d="M{x0:.1f} {y:.1f}H{x1:.1f}V{y + 4:.1f}H{x0:.1f}z" fill="{fill}"/>'


def _held(picture, y, scale):
    """(elements, bottom): a row of step curves per rank, one for each timeline, and their highest values.

    A single value is before its curve, since it would hide the curve's end; several values do not fit there and are at
    the end.
    """
    timelines = picture["timelines"]
    alone = len(timelines) == 1
    most = max([1, *(peak for one in timelines for peak in one["peaks"])])
    thin = " of one stage" if any(one["chunks"] > 1 for one in timelines) else ""  # which is 1/v of a rank
    title = f"activations{thin} held by each rank, at most:"
    out = [words(LEFT, y + 20, title, PX["axis"]), *_names(timelines, LEFT + 20 + 7.5 * len(title), y + 20)]
    first = np.cumsum([0] + [one["ranks"] for one in timelines])
    y += HEAD
    for rank in range(max(one["ranks"] for one in timelines)):
        there = [number for number, one in enumerate(timelines) if rank < one["ranks"]]
        bottom = y + HELD - 4
        for number in there:
            out.append(_curve(picture, int(first[number]) + rank, number, bottom, (HELD - 7) / most, scale))
        out.append(words(LEFT - 10 - (ALONE if alone else 0), bottom - 3, f"rank {rank}", PX["axis"], "end"))
        peaks = " · ".join(str(timelines[number]["peaks"][rank]) for number in there)
        x, more = (LEFT - 10, {"font-weight": "600"}) if alone else (LEFT + picture["length"] * scale, HALO)
        out.append(words(x, bottom - 3, peaks, PX["axis"], "end", **more))
        y += HELD
    return out, y + 4


def _names(timelines, x, y):
    """The legend of the curves."""
    if len(timelines) == 1:
        return []
    out = []
    for number, one in enumerate(timelines):
        name = one["name"] + (" measured" if one["measured"] else "")
        out.append(f'<path {_pen(number)} d="M{x:.1f} {y - 5:.1f}h30"/>')
        out.append(words(x + 36, y, name, PX["axis"]))
        x += 60 + 8.5 * len(name)
    return out


def _curve(picture, number, timeline, bottom, unit, scale):
    """One step curve; the first timeline's is an area, so that the others show on it."""
    starts, times, counts = (column(picture, name) for name in ("held_starts", "held_times", "held_counts"))
    a, b = int(starts[number]), int(starts[number + 1])
    points, y = [f"M{LEFT} {bottom:.1f}"], bottom
    xs, counts = times[a:b] * scale, counts[a:b]
    if len(xs) > MANY:  # the highest value of every pixel is enough
        _, first = np.unique(xs.astype(int), return_index=True)
        xs, counts = xs[first], np.maximum.reduceat(counts, first)
    for x, count in zip(xs.tolist(), counts.tolist()):
        points.append(f"H{LEFT + x:.1f}")
        y = bottom - count * unit
        points.append(f"V{y:.1f}")
    fill = f'fill="{INK}" fill-opacity="0.35"' if timeline == 0 else 'fill="none"'
    return f'<path {fill} {_pen(timeline)} d="{"".join(points)}"/>'


def _pen(timeline):
    width, dashes = STYLE["held"][timeline % len(STYLE["held"])]
    return f'stroke="{INK}" stroke-width="{width}"' + (f' stroke-dasharray="{dashes}"' if dashes else "")
