"""Drawn: the boxes of a picture in columns, the places of lanes and headings, and the text of every box.

x is time. y counts lane heights from the top.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hybridlab.core.when.action import KINDS, MEANING
from hybridlab.show.paper.sheet import ticks
from hybridlab.show.paper.style import STYLE, Look
from hybridlab.show.timelines.noted import Placed
from hybridlab.show.timelines.spans import ARRIVED, BUBBLE

LATER_STAGES, LATER_SLICES, SECOND_COPY = (
    "lighter: the rank's further stages",
    "lighter: later slices of the row",
    "lighter: the other direction, a second copy of the model",
)
EITHER = "lighter: the rank's further stages, or the other direction (a second copy)"
LEFT, RIGHT, TALLEST = 96, 18, 766  # pixels: space on the left (for labels) and right; the most for all lanes
USUAL_WIDTH = 960  # pixels of a notebook's output, for which labels are chosen
PX = STYLE["pixels"]
SMALL, SMALL_HALVES = 24, 30  # pixels: a lane of a small picture; one with fused pairs, two half lanes
LABEL_FORMS = ((PX["box"], True), (PX["box"], False), (PX["smallest"], False))  # size, and whether the kind is in it
NARROW = 3  # pixels: a box as wide as its two edges
MOST = 0.9  # the part of all boxes that a form of label must fit, and of a kind's boxes, for it to have labels


class Lane(NamedTuple):
    """One lane of the picture: its label, top (its bottom is 1 below), rank, timeline, and where its time begins."""

    label: str
    top: float
    rank: int
    measured: bool
    timeline: int
    x: float = 0.0


class Heading(NamedTuple):
    """The name of one timeline of several, and its position; in a small picture also its numbers."""

    text: str
    y: float
    x: float = 0.0
    told: str = ""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Every box of a picture, in columns; one per span (two halves where a pair is fused), and one per bubble.

    x0, x1, y0, y1          the box, in time and in lane heights from the top
    look, lane              numbers into `looks` and `lanes`
    rank, stage, microbatch, kind   of the action; kind is a number into `KINDS`, `BUBBLE` or `ARRIVED`
    starts                  the first box of each timeline (timelines + 1): its rows in program order, its bubbles, its
                            messages that wait
    scales                  the drawn length of a tick of each timeline
    rulers                  the top of the space for a ruler above each timeline; empty without rulers
    unit, length            of the time axis: "units" or "ms"
    axes                    the beginning of the time axis, once for each column of timelines
    height                  of the full picture, in lane heights
    captions                one computed line of words per timeline
    lighter                 the meaning of lighter boxes: later stages of a rank, later slices of a row, or those of the
                            model's second copy
    notes                   in their places
    told                    notes and thin lines in words
    small                   whether lanes are flat, and headings say what captions otherwise say
    slices                  the slices of each row; 1: whole rows
    """

    x0: np.ndarray
    x1: np.ndarray
    y0: np.ndarray
    y1: np.ndarray
    look: np.ndarray
    lane: np.ndarray
    rank: np.ndarray
    stage: np.ndarray
    microbatch: np.ndarray
    kind: np.ndarray
    looks: tuple[Look, ...]
    lanes: tuple[Lane, ...]
    headings: tuple[Heading, ...]
    starts: tuple[int, ...]
    scales: tuple[float, ...]
    rulers: tuple[float, ...]
    unit: str
    length: float
    height: float
    captions: tuple[str, ...]
    lighter: str = LATER_STAGES
    notes: tuple[Placed, ...] = ()
    told: tuple[str, ...] = ()
    axes: tuple[float, ...] = (0.0,)
    small: bool = False
    slices: int = 1

    def __len__(self):
        return len(self.x0)

    @property
    def width(self) -> float:
        """The full picture's width, in drawn time."""
        return self.axes[-1] + self.length

    @property
    def ticks(self) -> list[float]:
        """Round numbers on each time axis."""
        return ticks(0, self.length, 9 if len(self.axes) == 1 else 6)

    @property
    def lane_pixels(self) -> float:
        """The height of one lane at which the full picture fits on a screen, in pixels."""
        usual = PX["lane"]
        if self.small:
            halves = (np.isclose(self.y1 - self.y0, 0.5) & (self.x1 > self.x0)).any()
            usual = SMALL_HALVES if halves else SMALL
        return min(usual, TALLEST / self.height)

    @property
    def named_lanes(self) -> list[Lane]:
        """The lanes whose names are written: as many as fit."""
        every = max(1, int(np.ceil((PX["axis"] + 2) / self.lane_pixels)))
        of_both = every == 1 or len(self.headings)
        return [one for one in self.lanes if one.rank % every == 0 and (of_both or not one.measured)]

    @property
    def unnumbered(self) -> "Boxes":
        """The same picture with captions that name the timelines, without numbers."""
        captions = tuple(caption.partition(":")[0] for caption in self.captions)
        return replace(self, captions=captions, headings=tuple(one._replace(told="") for one in self.headings))

    @property
    def summary(self) -> str:
        """The picture in words: its captions, one per line, and its notes."""
        return "\n".join([*self.captions, *self.told])

    @property
    def legend(self) -> list[tuple[str, Look]]:
        """(name, look) of every visible kind, in the order of the style; if possible, the look of a predicted action of
        a first chunk.
        """
        order = list(STYLE["kinds"])
        seen = [self.looks[number] for number in np.unique(self.look[self.x1 > self.x0])]
        looks = sorted(seen, key=lambda one: (one.measured, one.chunk, order.index(one.kind)))
        first = {}
        for one in looks:
            first.setdefault(one.kind, one)
        alike = {}
        for one in sorted(first.values(), key=lambda one: order.index(one.kind)):
            thin = one.kind if one.kind in ("message", "arrived") else ""
            alike.setdefault((one.fill, one.hatch, one.dotted, thin), []).append(one)
        named = [(" or ".join(one.name for one in some), some[0]) for some in alike.values()]
        if self.by_stage:
            (name, one), *others = named
            named = [(f"{name}; a number is a {'slice' if self.slices > 1 else 'stage'}", one), *others]
        lighter = next((one for one in looks if one.chunk and one not in first.values()), None)
        paler = next((one for one in looks if one.measured and one.letter and one not in first.values()), None)
        named += [("paler: measured", paler)] if paler else []
        return named + ([(self.lighter, lighter)] if lighter else [])

    def label(self, box: int, wide: bool) -> str:
        """The text in one box: its microbatch; in a wide box the kind comes before it.

        If every rank has several stages and a single microbatch, it is the stage, or the slice of the row, since the
        microbatch says nothing.
        """
        letter, microbatch = self.looks[self.look[box]].letter, self.microbatch[box]
        if not letter:
            return ""
        if self.by_stage:
            place = self.stage[box] % self.slices if self.slices > 1 else self.stage[box]
            return f"{place}{letter}" if wide else f"{place}"
        number = str(microbatch) if microbatch >= 0 else ""
        return letter + number if wide or not number else number

    @cached_property
    def by_stage(self) -> bool:
        """Whether the boxes of a rank differ in their stage and not in their microbatch."""
        own = self.microbatch >= 0
        one = all(len(np.unique(self.microbatch[own & (self.rank == rank)])) <= 1 for rank in np.unique(self.rank))
        return one and len(np.unique(self.stage[own & (self.rank == 0)])) > 1

    def edges(self, boxes: list[int], time_px: float) -> list[str]:
        """The edge colours of these boxes. Light edges would hide a narrow bar, so its edges have its fill colour."""
        narrow = (self.x1 - self.x0)[boxes] * time_px <= NARROW
        looks = [self.looks[number] for number in self.look[boxes].tolist()]
        hidden = [thin and one.kind == "message" and not one.measured for one, thin in zip(looks, narrow)]
        return [one.fill if gone else one.edge for one, gone in zip(looks, hidden)]

    def hover(self, box: int) -> str:
        """One box in a sentence."""
        begin, end = (edge[box] - self.lanes[self.lane[box]].x for edge in (self.x0, self.x1))
        when = f"{shown(begin)} to {shown(end)} {self.unit}, for {shown(end - begin)}"
        measured = " (measured)" if self.looks[self.look[box]].measured else ""
        if self.kind[box] == BUBBLE:
            return f"rank {self.rank[box]} idle{measured}: {when}"
        if self.kind[box] == ARRIVED:
            what = f"message of microbatch {self.microbatch[box]} for stage {self.stage[box]}"
            return f"{what}, rank {self.rank[box]}{measured}: arrived, not yet used, {when}"
        kind, microbatch, its = KINDS[self.kind[box]], self.microbatch[box], self.looks[self.look[box]]
        meaning = its.name if its.kind.startswith("LENT") else MEANING[kind]
        name = f"{self.stage[box]}{kind}{microbatch if microbatch >= 0 else ''}"
        of = f" of microbatch {microbatch}" if microbatch >= 0 else ""
        return f"{name}: {meaning}{of}, stage {self.stage[box]}, rank {self.rank[box]}{measured}: {when}"

    def labels(self, time_px: float, lane_px: float) -> tuple[int, list[str]]:
        """(the height of the letters, the text of every box) at this size, in one form for all: "F3", "3" or nothing.

        A box too small for its text has none: the smallest letters are 13 pixels high. If many boxes of a kind are too
        small, none of that kind has a text. For flat boxes, the halves of fused pairs, the form is chosen separately.
        """
        room_x, room_y = (self.x1 - self.x0) * time_px - 4, (self.y1 - self.y0) * lane_px - 2
        written = {i for i in np.flatnonzero(self.x1 > self.x0).tolist() if self.label(i, wide=True)}
        flat = written & set(np.flatnonzero(np.isclose(self.y1 - self.y0, 0.5)).tolist())
        for size, wide in LABEL_FORMS:
            texts = {i: self.label(i, wide) for i in written}
            fits = {i for i, text in texts.items() if text_width(text, size) <= room_x[i] and size <= room_y[i]}
            if all(len(fits & some) >= MOST * len(some) for some in (written - flat, flat)):
                break
        fit, every = (np.bincount(self.look[sorted(some)], minlength=len(self.looks)) for some in (fits, written))
        often = fit >= MOST * every
        return size, [texts[i] if i in fits and often[self.look[i]] else "" for i in range(len(self))]


def shown(value: float) -> str:
    """A time as text, with at most four significant digits."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def text_width(text: str, size: float) -> float:
    """The approximate width of a text in pixels, in letters `size` pixels high."""
    return size * sum(1.0 if letter in "WM" else 0.63 for letter in text)
