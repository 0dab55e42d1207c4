"""Boxes: a picture's geometry. What lies where, for one timeline or several on one time axis; every renderer reads it.

x is time. y counts lane heights from the top: each rank has a lane of height 1 for its compute actions, idle time
included, and where there are messages half a lane under it. Timelines of one program share their ranks' rows,
predicted above measured; other timelines stand below each other.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hybridlab.core.action import KINDS, MEANING
from hybridlab.core.timeline import LANES, Timeline
from hybridlab.show.style import STYLE, Look, look

SEND_Y, RECEIVE_Y, REDUCE_Y = (1.04, 1.27), (1.29, 1.52), (1.04, 1.52)  # message bars, from the top of their lane
GAP, PAIR_GAP, HEADING = 0.3, 0.08, 1.0
APART = 10  # a prediction this many times off in seconds was not made in seconds
BUBBLE = -1
PX = STYLE["pixels"]
LABEL_FORMS = ((PX["box"], True), (PX["box"], False), (PX["smallest"], False))  # size, and whether the kind is said
MOST = 0.9  # of all boxes must hold a form of label, else a shorter one is taken


class Lane(NamedTuple):
    """One lane of the picture: the label at its left, its top (its bottom is 1 below), and its rank."""

    label: str
    top: float
    rank: int
    measured: bool


class Heading(NamedTuple):
    """The name of a timeline that stands below or above others, and where it is written."""

    text: str
    y: float


@dataclass(frozen=True, eq=False)
class Boxes:
    """Every box of a picture, in columns; one per span (two halves where a pair is fused), and one per bubble.

    x0, x1, y0, y1          the box, in time and in lane heights from the top
    look                    number into `looks`
    rank, stage, microbatch, kind   what it is; kind is a number into `KINDS`, or `BUBBLE`
    unit, length            of the time axis: "units" or "ms"
    height                  of the whole picture, in lane heights
    captions                one computed line of words per timeline
    """

    x0: np.ndarray
    x1: np.ndarray
    y0: np.ndarray
    y1: np.ndarray
    look: np.ndarray
    rank: np.ndarray
    stage: np.ndarray
    microbatch: np.ndarray
    kind: np.ndarray
    looks: tuple[Look, ...]
    lanes: tuple[Lane, ...]
    headings: tuple[Heading, ...]
    unit: str
    length: float
    height: float
    captions: tuple[str, ...]

    def __len__(self):
        return len(self.x0)

    @property
    def summary(self) -> str:
        """The picture in words: its captions, one per line."""
        return "\n".join(self.captions)

    @property
    def legend(self) -> list[tuple[str, Look]]:
        """(name, look) of every kind to be seen, in the order of the style: predicted, first chunks preferred."""
        order = list(STYLE["kinds"])
        seen = [self.looks[number] for number in np.unique(self.look[self.x1 > self.x0])]
        looks = sorted(seen, key=lambda one: (one.measured, one.chunk, order.index(one.kind)))
        first = {}
        for one in looks:
            first.setdefault(one.name, one)
        named = sorted(first.items(), key=lambda item: order.index(item[1].kind))
        lighter = next((one for one in looks if one.chunk and one not in first.values()), None)
        return named + ([("lighter: later chunk", lighter)] if lighter else [])

    def label(self, box: int, wide: bool) -> str:
        """What is written in one box: its microbatch, in a wide box with the kind in front."""
        letter, microbatch = self.looks[self.look[box]].letter, self.microbatch[box]
        if not letter:
            return ""
        number = str(microbatch) if microbatch >= 0 else ""
        return letter + number if wide or not number else number

    def hover(self, box: int) -> str:
        """One box in a sentence."""
        begin, end = self.x0[box], self.x1[box]
        when = f"{shown(begin)} to {shown(end)} {self.unit}, for {shown(end - begin)}"
        measured = " (measured)" if self.looks[self.look[box]].measured else ""
        if self.kind[box] == BUBBLE:
            return f"rank {self.rank[box]} idle{measured}: {when}"
        kind, microbatch = KINDS[self.kind[box]], self.microbatch[box]
        name = f"{self.stage[box]}{kind}{microbatch if microbatch >= 0 else ''}"
        of = f" of microbatch {microbatch}" if microbatch >= 0 else ""
        return f"{name}: {MEANING[kind]}{of}, stage {self.stage[box]}, rank {self.rank[box]}{measured}: {when}"

    def labels(self, time_px: float, lane_px: float) -> tuple[int, list[str]]:
        """The text of every box at this size, and the height of its letters: "F3", or "3", or nothing, in all alike.

        A box that its text does not fit in has none: the smallest letters are 12 pixels high.
        """
        room_x, room_y = (self.x1 - self.x0) * time_px - 6, (self.y1 - self.y0) * lane_px - 2
        written = [i for i in np.flatnonzero(self.x1 > self.x0).tolist() if self.label(i, wide=True)]
        for size, wide in LABEL_FORMS:
            texts = {i: self.label(i, wide) for i in written}
            fits = {i for i, text in texts.items() if text_width(text, size) <= room_x[i] and size <= room_y[i]}
            if len(fits) >= MOST * len(written):
                break
        return size, [texts[i] if i in fits else "" for i in range(len(self))]


def boxes(*timelines: Timeline) -> Boxes:
    """The boxes of one timeline, or of several on one time axis: of each its typical step.

    raises  ValueError when there is nothing to draw

    >>> from hybridlab.predict.simulate import simulate
    >>> from hybridlab.schedules.registry import schedule
    >>> picture = boxes(simulate(schedule("gpipe", ranks=2, microbatches=1)))
    >>> [(picture.label(i, wide=True), float(picture.x0[i]), float(picture.y0[i])) for i in range(4)]
    [('F0', 0.0, 0.0), ('B0', 4.0, 0.0), ('F0', 1.0, 1.3), ('B0', 2.0, 1.3)]
    """
    if not timelines or not all(isinstance(one, Timeline) for one in timelines):
        raise ValueError("there is nothing to draw: give one timeline or more, as hl.simulate and hl.run return them")
    panels = _panels(timelines)
    parts, lanes, headings, captions, looks, y = [], [], [], [], {}, 0.0
    for panel in panels:
        if len(panels) > 1:
            headings.append(Heading(panel[0].schedule.name, y + HEADING / 2))
            y += HEADING
        tops, pitch = _tops(panel)
        for one, own_tops in zip(panel, tops):
            scale, note = _scale(one, panel, timelines)
            parts.append(_columns(one, scale, y + own_tops, looks))
            captions.append(one.summary + note)
            lanes += [Lane("", y + top, rank, _is_measured(one)) for rank, top in enumerate(own_tops.tolist())]
        y += pitch * panel[0].schedule.ranks
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    unit = "ms" if any(one.unit == "s" for one in timelines) else "units"
    length = max((float(part["x1"].max(initial=0)) for part in parts), default=0.0) or 1.0
    named = tuple(lane._replace(label=_lane_label(lane, lanes)) for lane in sorted(lanes, key=lambda lane: lane.top))
    height = y - GAP / 2
    return Boxes(**columns, looks=tuple(looks), lanes=named, headings=tuple(headings), unit=unit, length=length,
                 height=height, captions=tuple(captions))  # fmt: skip


def shown(value: float) -> str:
    """A time as it is written: at most four digits that count."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def text_width(text: str, size: float) -> float:
    """About how many pixels wide a text is, in letters `size` pixels high."""
    return size * sum(1.0 if letter in "WM" else 0.63 for letter in text)


def _is_measured(timeline):
    return timeline.origin.get("kind") == "measured"


def _panels(timelines):
    """Timelines that share rows: a prediction and a measurement of one program, in this order."""
    panels = []
    for one in timelines:
        for panel in panels:
            alone = all(_is_measured(other) != _is_measured(one) for other in panel)
            if alone and panel[0].schedule.computing == one.schedule.computing:
                panel.append(one)
                break
        else:
            panels.append([one])
    return [sorted(panel, key=_is_measured) for panel in panels]


def _tops(panel):
    """The top of every rank's lane, for each timeline of a panel, and the distance from rank to rank."""
    heights = []
    for one in panel:
        messages = (one.lane > 0) & (one.end > one.begin)[one.typical]
        heights.append(RECEIVE_Y[1] if messages.any() else 1.0)
    pitch = sum(heights) + (PAIR_GAP + GAP) * (len(panel) - 1) + GAP
    offsets = np.cumsum([0.0] + [height + PAIR_GAP for height in heights[:-1]])
    ranks = np.arange(panel[0].schedule.ranks)
    return [ranks * pitch + offset for offset in offsets], pitch


def _lane_label(lane, lanes):
    both = len({other.measured for other in lanes}) > 1
    return "measured" if both and lane.measured else f"rank {lane.rank}"


def _scale(one, panel, timelines):
    """The length of one tick on the time axis, and what the caption must say about it.

    Beside a measurement a prediction is in seconds. One made in toy units is stretched, so that the shapes compare.
    """
    if one.unit == "s" or all(other.unit != "s" for other in timelines):
        return one.tick * (1e3 if one.unit == "s" else 1), _step_note(one)
    real = next(other for other in (*panel, *timelines) if other.unit == "s")
    mine, other = (float(np.mean(t.busy)) for t in (one, real))
    if not mine or not other or 1 / APART < mine / other < APART:
        return one.tick * 1e3, "; here a unit is a second"
    return one.tick * other / mine * 1e3, f"; drawn with 1 unit = {shown(other / mine * 1e3)} ms"


def _step_note(one):
    return f"; drawn: step {one.typical} of {one.steps}, the one of median length" if one.steps > 1 else ""


def _columns(timeline, scale, tops, looks):
    """The columns of one timeline: its spans in program order, then its bubbles, rank after rank."""
    schedule, flow, step = timeline.schedule, timeline.flow, timeline.typical
    kind, stage, microbatch, replica = schedule.rows.T[:4]
    action, rank = flow.action_of, schedule.rank_of
    begin, end = timeline.begin[step][action], timeline.end[step][action]
    top, bottom = _heights(timeline, flow)
    chunk = _chunks(schedule)[stage, replica]
    kinds, which = np.unique(np.stack([kind, chunk]), axis=1, return_inverse=True)
    numbers = [_look_number(looks, *key, _is_measured(timeline)) for key in kinds.T.tolist()]
    looked = np.array(numbers, dtype=np.int64)[which.reshape(-1)]
    idle_rank, idle_begin, idle_end = _idle(timeline)
    none = np.full(len(idle_rank), -1)
    grey = np.full(len(idle_rank), _look_number(looks, BUBBLE, 0, _is_measured(timeline)))
    return {
        "x0": np.concatenate([begin, idle_begin]) * scale,
        "x1": np.concatenate([end, idle_end]) * scale,
        "y0": np.concatenate([tops[rank] + top, tops[idle_rank]]),
        "y1": np.concatenate([tops[rank] + bottom, tops[idle_rank] + 1]),
        "look": np.concatenate([looked, grey]),
        "rank": np.concatenate([rank, idle_rank]),
        "stage": np.concatenate([stage, none]),
        "microbatch": np.concatenate([microbatch, none]),
        "kind": np.concatenate([kind, none * 0 + BUBBLE]),
    }


def _heights(timeline, flow):
    """Top and bottom of every row's box inside its lane; the two actions of a fused pair take half a lane each."""
    lane, action = timeline.lane[flow.action_of], flow.action_of
    of_lane = {"compute": (0.0, 1.0), "send": SEND_Y, "receive": RECEIVE_Y, "reduce": REDUCE_Y}
    top, bottom = np.array([of_lane[name] for name in LANES])[lane].T
    second = flow.first_row[action] != np.arange(len(action))
    pair = np.isin(action, action[second])
    return np.where(second, 0.5, top), np.where(pair & ~second, 0.5, bottom)


def _chunks(schedule):
    """chunk[stage, replica]: the how-manieth place of its rank it is."""
    chunk = np.zeros((schedule.stages, schedule.replicas), dtype=np.int64)
    seen = {}
    for replica, stage in sorted((replica, stage) for stage, replica in schedule.place):
        rank = schedule.place[stage, replica]
        chunk[stage, replica] = seen[rank] = seen.get(rank, -1) + 1
    return chunk


def _look_number(looks, kind, chunk, measured):
    """The number of a look; `looks` remembers them in the order of their first use."""
    name = "bubble" if kind == BUBBLE else KINDS[kind]
    name = name if name in STYLE["kinds"] else "message"
    wanted = look(name, 0 if name == "message" else chunk, measured)
    return looks.setdefault(wanted, len(looks))


def _idle(timeline):
    """(rank, begin, end) of every bubble, in ticks: where a rank does no compute action, from 0 to the length."""
    step, length = timeline.typical, int(timeline.end[timeline.typical].max(initial=0))
    found = [np.zeros((3, 0), dtype=np.int64)]
    for rank, (a, b) in enumerate(zip(timeline.flow.program, timeline.flow.program[1:])):
        own = np.flatnonzero(timeline.lane[a:b] == 0) + a
        begin, end = timeline.begin[step, own], np.maximum.accumulate(timeline.end[step, own])
        edges = np.stack([np.concatenate([[0], end]), np.concatenate([begin, [length]])])
        gaps = edges[:, edges[1] > edges[0]]
        found.append(np.concatenate([np.full((1, gaps.shape[1]), rank), gaps]))
    return np.concatenate(found, axis=1)
