"""Boxes: the geometry of a picture, for one timeline or several on one time axis; every renderer reads it.

x is time. y counts lane heights from the top: each rank has a lane of height 1 for its compute actions, idle time
included, and, if there are messages, half a lane under it; copies to the host and back have half a lane each below
that. Timelines of one program share their ranks' rows, predicted above measured; other timelines are below each
other, or in columns, each with its own axis.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hybridlab.core.when.timeline import Timeline
from hybridlab.core.when.words import length_text, one_of
from hybridlab.show.timelines.drawn import (
    EITHER,
    LATER_SLICES,
    LATER_STAGES,
    LEFT,
    RIGHT,
    SECOND_COPY,
    USUAL_WIDTH,
    Boxes,
    Heading,
    Lane,
    shown,
)
from hybridlab.show.timelines.noted import ROOM, SMALL_ROOM, placed, rooms
from hybridlab.show.timelines.notes import Note, told
from hybridlab.show.timelines.spans import columns, is_measured, tall, waiting

GAP, PAIR_GAP, HEADING, RULER = 0.3, 0.08, 1.0, 0.8
SMALL_HEADING = {1: 1.2, 2: 1.9}  # of small pictures, in one column and in more; there the numbers have a separate line
LABELS = 84  # pixels before every further column, for the names of its lanes
APART = 10  # a prediction that is wrong by this factor in seconds was not made in seconds


def boxes(
    *timelines: Timeline,
    rulers: bool = False,
    notes: Sequence[Note] = (),
    numbers: bool = True,
    columns: int = 0,
    titles: Sequence[str] = (),
) -> Boxes:
    """The boxes of one timeline, or of several on one time axis; each shows its typical step.

    rulers   whether there is space for a ruler above each timeline
    notes    about these timelines (see `notes`)
    numbers  whether captions and notes contain numbers
    columns  number of columns of small pictures; 0: one below the other, at full size
    titles   one for each timeline, or for each pair that shares rows; empty: the schedules' names

    raises  ValueError when there is nothing to draw, the number of titles is wrong, or a note is about a timeline that
            is not drawn

    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> picture = boxes(simulate(schedule("gpipe", ranks=2, microbatches=1)))
    >>> [(picture.label(i, wide=True), float(picture.x0[i]), float(picture.y0[i])) for i in range(4)]
    [('F0', 0.0, 0.0), ('B0', 4.0, 0.0), ('F0', 1.0, 1.3), ('B0', 2.0, 1.3)]
    """
    panels = panels_of(timelines)
    _check_notes(notes, timelines)
    names = list(titles) or [panel[0].schedule.name for panel in panels]
    if len(names) != len(panels):
        raise ValueError(
            f"{len(panels)} timelines (or pairs) are drawn: give the same number of titles, not {len(names)}"
        )
    laid = _Laid(timelines, notes, numbers, rulers, min(columns, len(panels)))
    for place, (panel, name) in enumerate(zip(panels, names)):
        laid.add(panel, name if len(panels) > 1 or titles or columns else "", place)
    drawn = laid.picture()
    return drawn if numbers else drawn.unnumbered


class _Laid:
    """A picture while its panels are laid out: from left to right, and from top to bottom."""

    def __init__(self, timelines, notes, numbers, rulers, columns):
        self.timelines, self.notes, self.numbers, self.rulers, self.columns = timelines, notes, numbers, rulers, columns
        self.parts, self.lanes, self.headings, self.captions, self.looks = [], [], [], [], {}
        self.room = SMALL_ROOM if columns else ROOM
        self.scales, self.rulings, self.placed, self.told = [], [], [], []
        self.column, self.top, self.bottom = [], 0.0, 0.0  # the column of each part; the edges of the current row

    def add(self, panel, name, place):
        """Add a panel: its heading, rulers and lanes."""
        column = place % max(self.columns, 1)
        self.top = self.bottom if column == 0 else self.top
        y = self.top
        if name:
            tall = SMALL_HEADING[min(self.columns, 2)] if self.columns else HEADING
            self.headings.append(Heading(name, y + tall / 2, column, _numbers(panel, self.columns)))
            y += tall
        if self.rulers:
            self.rulings += [y + RULER * i for i in range(len(panel))]
            y += RULER * len(panel)
        tops, heights, whole = _tops(panel, *rooms(self.notes, panel, self.room))
        for one, own_tops, height in zip(panel, tops, heights):
            self._timeline(one, panel, y + own_tops, height, column, name or one.schedule.name)
        self.bottom = max(self.bottom, y + whole)

    def _timeline(self, one, panel, tops, height, column, name):
        mine = [note for note in self.notes if note.timeline is one]
        one, scale, remark = _scaled(one, panel, self.timelines)
        self.placed += [(column, placed(note, tops, height, scale, self.numbers, self.room)) for note in mine]
        self.told += told(mine, self.numbers) + (_waiting(one) if self.numbers else [])
        self.parts.append(columns(one, scale, tops, self.looks))
        self.captions.append(name + one.summary.removeprefix(one.schedule.name) + remark)
        measured, number = is_measured(one), len(self.scales)
        self.scales.append(scale)
        self.column.append(column)
        self.lanes += [Lane("", top, rank, measured, number, column) for rank, top in enumerate(tops.tolist())]

    def picture(self):
        """The complete picture; only now the length of the axis and the beginning of further columns are known."""
        length = max((float(part["x1"].max(initial=0)) for part in self.parts), default=0.0) or 1.0
        axes = _axes(length, max(self.columns, 1))
        for part, column in zip(self.parts, self.column):
            part["x0"], part["x1"] = part["x0"] + axes[column], part["x1"] + axes[column]
        joined = {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}
        starts = np.cumsum([0] + [len(part["rank"]) for part in self.parts])
        joined["lane"], lanes = _lanes(joined["rank"], starts, self.lanes)
        return Boxes(
            **joined,
            looks=tuple(self.looks),
            lanes=tuple(lane._replace(x=axes[lane.x]) for lane in lanes),
            headings=tuple(one._replace(x=axes[one.x]) for one in self.headings),
            starts=tuple(starts.tolist()),
            scales=tuple(self.scales),
            rulers=tuple(self.rulings),
            unit="ms" if any(one.unit == "s" for one in self.timelines) else "units",
            length=length,
            axes=axes,
            height=self.bottom - GAP / 2,
            captions=tuple(self.captions),
            lighter=_lighter(self.timelines),
            notes=tuple(note.moved(axes[column]) for column, note in self.placed),
            told=tuple(self.told),
            small=self.columns > 0,
            slices=max(one.schedule.slices for one in self.timelines),
        )


def _axes(length, columns):
    """The beginning of the time axis in every column; between two columns there is space for the names of lanes."""
    room = LABELS * columns / (USUAL_WIDTH - LEFT - RIGHT - LABELS * (columns - 1))
    return tuple(column * length * (1 + room) for column in range(columns))


def _numbers(panel, columns):
    """The numbers in a small picture's heading; with several columns, in fewer words."""
    held = "holds at most {} activations{}" if columns == 1 else "holds ≤ {}{}"
    told = [
        f"{'measured ' if is_measured(one) else ''}{length_text(one.length, one.unit)}, idle/total "
        f"{one.bubble_fraction:.1%}, {held.format(max(one.peak_live), one_of(one.schedule))}"
        for one in panel
    ]
    return " · ".join(told) if columns else ""


def _waiting(timeline):
    """A sentence on the thin lines: messages that have arrived before they are used."""
    came, used = waiting(timeline)
    if not len(came):
        return []
    longest = float((used - timeline.end[timeline.typical][came]).max() * timeline.tick)
    kind, many = "measured" if is_measured(timeline) else "predicted", "" if len(came) == 1 else "s"
    most = f"{shown(1e3 * longest)} ms" if timeline.unit == "s" else f"{shown(longest)} {timeline.unit}"
    return [f"{timeline.schedule.name}, {kind}, arrived, not yet used: {len(came)} message{many}, at most {most}"]


def _lighter(timelines):
    """The meaning of lighter boxes, if a rank has several stages of one model copy, stages of several copies, or
    slices of a row.
    """
    if any(one.schedule.slices > 1 for one in timelines):
        return LATER_SLICES
    kept = [[home for home, first in one.schedule.copy_of.items() if home[1] == first] for one in timelines]
    held = [[(one.schedule.place[home], home[1]) for home in its] for one, its in zip(timelines, kept)]
    stages = any(len(set(its)) < len(its) for its in held)
    copies = any(len({rank for rank, _ in its}) < len(set(its)) for its in held)
    return EITHER if stages and copies else SECOND_COPY if copies else LATER_STAGES


def _check_notes(notes, timelines):
    """Raise ValueError for a note about a timeline that is not drawn."""
    for note in notes:
        if not any(note.timeline is one for one in timelines):
            raise ValueError(f"the note {note.name!r} refers to a timeline that is not drawn: draw that one too")


def _lanes(rank, starts, lanes):
    """The lane of every box, and the lanes from top to bottom with their labels."""
    order = sorted(range(len(lanes)), key=lambda number: lanes[number].top)
    place = np.argsort(order)
    first = np.cumsum([0] + [sum(lane.timeline == t for lane in lanes) for t in range(len(starts) - 1)])[:-1]
    named = tuple(lanes[number]._replace(label=_lane_label(lanes[number], lanes)) for number in order)
    return place[np.repeat(first, np.diff(starts)) + rank], named


def panels_of(timelines) -> list[list[Timeline]]:
    """The timelines in groups that share rows: a prediction and a measurement of one program, in this order.

    raises  ValueError when there is nothing to draw
    """
    if not timelines or not all(isinstance(one, Timeline) for one in timelines):
        raise ValueError("there is nothing to draw: give at least one timeline, from hl.simulate or hl.run")
    panels = []
    for one in timelines:
        for panel in panels:
            alone = all(is_measured(other) != is_measured(one) for other in panel)
            if alone and panel[0].schedule.computing == one.schedule.computing:
                panel.append(one)
                break
        else:
            panels.append([one])
    return [sorted(panel, key=is_measured) for panel in panels]


def _tops(panel, above, below):
    """(the top of every rank's lane for each timeline, the lane height of each timeline, the height of the panel).

    above, below  [timelines, ranks] space for notes at each lane
    """
    heights = [tall(one) for one in panel]
    number = np.arange(len(panel))[:, None]
    taken = above + np.array(heights)[:, None] + below
    of_rank = taken.sum(axis=0) + (PAIR_GAP + GAP) * (len(panel) - 1) + GAP
    first = np.cumsum([0.0, *of_rank])
    before = np.cumsum([np.zeros(len(of_rank)), *taken], axis=0)[:-1]
    return first[:-1] + before + above + PAIR_GAP * number, heights, float(first[-1])


def _lane_label(lane, lanes):
    both = len({other.measured for other in lanes}) > 1
    return "measured" if both and lane.measured else f"rank {lane.rank}"


def _scaled(one, panel, timelines):
    """(the timeline in the axis's unit, the length of one tick there, a remark for the caption).

    Next to a measurement a prediction is in seconds. One made in toy units is stretched, to make the shapes comparable.
    """
    if one.unit == "s" or all(other.unit != "s" for other in timelines):
        return one, one.tick * (1e3 if one.unit == "s" else 1), _step_note(one)
    real = next(other for other in (*panel, *timelines) if other.unit == "s")
    mine, other = (float(np.mean(t.busy)) for t in (one, real))
    if not mine or not other or 1 / APART < mine / other < APART:
        return replace(one, unit="s"), one.tick * 1e3, ""
    return one, one.tick * other / mine * 1e3, f"; drawn with 1 unit = {shown(other / mine * 1e3)} ms"


def _step_note(one):
    which = "the shorter" if one.steps == 2 else "that of median length"
    return f"; drawn: of {one.steps} steps {which}" if one.steps > 1 else ""
