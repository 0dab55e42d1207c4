"""Noted: the notes of a picture with their space, strokes and text. Every renderer reads it."""

from typing import NamedTuple

import numpy as np

from hybridlab.show.paper.sheet import prose_width
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.notes import Brace, Note, lines

ROOM, SMALL_ROOM = 1.5, 2.1  # lane heights, above a lane or below it: the brace, and two lines of text
TALL, INSET, APART = 10, 1.5, 10  # pixels: height of a brace; from its ends to those of its period; between two texts
ASIDE = 56  # pixels: how far a text may reach into the left margin, so that it is at its brace
LEADING = 1.15  # lines of text, in heights of their letters
PX = STYLE["pixels"]


class Placed(NamedTuple):
    """A note in a picture: its period in drawn time, its edge of the lane, and whether it is above that edge.

    lines    its text
    outline  the corners of the line around its slots; empty for a brace
    axis     the beginning of its column's time axis;  room  the largest height that it may have, in lane heights
    """

    x0: float
    x1: float
    y: float
    above: bool
    lines: tuple[str, ...]
    outline: tuple[tuple[float, float], ...] = ()
    axis: float = 0.0
    room: float = ROOM

    def moved(self, by: float) -> "Placed":
        """The same note in a column that begins at this time."""
        outline = tuple((x + by, y) for x, y in self.outline)
        return self._replace(x0=self.x0 + by, x1=self.x1 + by, outline=outline, axis=self.axis + by)


class Text(NamedTuple):
    """A line of text: its middle, in drawn time and lane heights, and the height of its letters in pixels."""

    x: float
    y: float
    text: str
    size: float
    bold: bool


def rooms(notes: list[Note], panel: list, room: float = ROOM) -> tuple[np.ndarray, np.ndarray]:
    """The space for notes above and below the lane of each (timeline, rank) of a panel, in lane heights."""
    above, below = np.zeros((2, len(panel), panel[0].schedule.ranks))
    for note in notes:
        for number, timeline in enumerate(panel):
            if note.timeline is timeline:
                side = above if _above(note) else below
                side[number, _rank(note)] = room
    return above, below


def placed(note: Note, tops: np.ndarray, tall: float, scale: float, numbers: bool = True, room: float = ROOM) -> Placed:
    """The place of a note.

    tops   the tops of its timeline's lanes;  tall  height of such a lane, messages included
    scale  drawn length of a tick
    """
    to = lambda time: time / note.timeline.tick * scale
    written = tuple(line for line in lines(note, numbers) if line)
    above, rank = _above(note), _rank(note)
    y = float(tops[rank]) + (0 if above else tall)
    if isinstance(note, Brace):
        return Placed(to(note.begin), to(note.end), y, above, written, room=room)
    begin, end = note.slots[note.longest]
    slots = [(to(a), to(b)) for a, b in note.slots]
    return Placed(to(begin), to(end), y, above, written, _corners(slots, tops), room=room)


def strokes(notes: tuple[Placed, ...], time_px: float, lane_px: float) -> list[list[tuple[float, float]]]:
    """The lines of braces and outlines, corner by corner, in drawn time and lane heights."""
    return [list(note.outline) or _curly(note, time_px, lane_px) for note in notes]


def texts(notes: tuple[Placed, ...], length: float, time_px: float, lane_px: float) -> list[Text]:
    """The lines of text, placed so that texts of one row do not overlap and none leaves the picture."""
    room = min((note.room for note in notes), default=ROOM) * lane_px - TALL - 6
    size = min(PX["caption"], max(PX["smallest"], room / 2 / LEADING))
    out = []
    for place in sorted({(note.axis, note.y, note.above) for note in notes}):
        axis, y, above = place
        row = sorted((n for n in notes if (n.axis, n.y, n.above) == place), key=lambda note: note.x0 + note.x1)
        shown = [note.lines if room >= 2 * LEADING * size else note.lines[-1:] for note in row]
        wide = [max(prose_width(line, size) * (1.1 if len(some) > 1 else 1) for line in some) for some in shown]
        wanted = [((note.x0 + note.x1) / 2 - axis) * time_px for note in row]
        lead = 2 if all(note.outline for note in row) else TALL + 4
        for x, some in zip(_apart(wanted, wide, length * time_px, 0 if axis else -ASIDE), shown):
            for number, line in enumerate(some[::-1] if above else some):
                away = (lead + (number + 0.5) * LEADING * size) / lane_px
                bold = len(some) > 1 and line is some[0]
                out.append(Text(axis + x / time_px, y - away if above else y + away, line, size, bold))
    return out


def _above(note):
    return note.stands_above if isinstance(note, Brace) else False


def _rank(note):
    """The rank whose lane has a note's text; for an outline the last rank."""
    return note.rank if isinstance(note, Brace) else len(note.slots) - 1


def _corners(slots, tops):
    """The corners around the slots, one below the other: down on their right, up on their left."""
    there = [rank for rank, (a, b) in enumerate(slots) if b > a]
    if not there:
        return ()
    first, last = there[0], there[-1]
    tops = tops.tolist()
    edges = [tops[first], *((tops[r] + 1 + tops[r + 1]) / 2 for r in range(first, last)), tops[last] + 1]
    bands = list(zip(slots[first : last + 1], edges, edges[1:]))
    right = [(b, y) for (_, b), *both in bands for y in both]
    left = [(a, y) for (a, _), *both in bands for y in both]
    return tuple([*right, *left[::-1], right[0]])


def _curly(note, time_px, lane_px):
    """A curly brace over the note's period, its tip away from the lane."""
    x0, x1 = note.x0 * time_px + INSET, note.x1 * time_px - INSET
    middle, half = (x0 + x1) / 2, TALL / 2
    q = min(half, max(x1 - x0, 0) / 4)
    points = [
        *_bend((x0, 0), (x0, half), (x0 + q, half)), *_bend((middle - q, half), (middle, half), (middle, TALL)),
        *_bend((middle, TALL), (middle, half), (middle + q, half)), *_bend((x1 - q, half), (x1, half), (x1, 0)),
    ]  # fmt: skip
    way = -1 if note.above else 1
    return [(x / time_px, note.y + way * (y + 3) / lane_px) for x, y in points]


def _bend(start, over, end, points=5):
    """Points on the quadratic curve from start to end."""
    for t in np.linspace(0, 1, points).tolist():
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t * t
        yield a * start[0] + b * over[0] + c * end[0], a * start[1] + b * over[1] + c * end[1]


def _apart(middles, wide, whole, least=0.0):
    """The middles of texts of these widths, moved as little as needed: apart, and inside least … whole.

    >>> _apart([10, 20, 90], [20, 20, 30], whole=100)
    [10, 40.0, 85.0]
    """
    out, edge = [], least
    for middle, width in zip(middles, wide):
        out.append(max(middle, edge + width / 2))
        edge = out[-1] + width / 2 + APART
    edge = whole
    for i in reversed(range(len(out))):
        out[i] = min(out[i], edge - wide[i] / 2)
        edge = out[i] - wide[i] / 2 - APART
    return out
