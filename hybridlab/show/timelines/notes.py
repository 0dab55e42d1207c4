"""Notes: annotations of a timeline: braces over a period of one rank, outlines around idle time.

A note belongs to one timeline and has times in its `unit`s. The functions here read these times from the timeline, so a
picture never shows different numbers from its timeline; formulas come from the caller.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hybridlab.core.when.lanes import COMPUTE
from hybridlab.core.when.timeline import Timeline

START, END = "fill", "drain"


class Brace(NamedTuple):
    """A brace over the time from `begin` to `end` of one rank, with its name, and a formula for its length.

    above  whether it is above the rank's lane; None: above that of rank 0, below any other
    """

    timeline: Timeline
    rank: int
    begin: float
    end: float
    name: str
    formula: str = ""
    above: bool | None = None

    @property
    def length(self) -> float:
        """The length of the marked period, in the timeline's `unit`s."""
        return self.end - self.begin

    @property
    def stands_above(self) -> bool:
        """Whether it is above its lane."""
        return self.rank == 0 if self.above is None else self.above


class Outline(NamedTuple):
    """A line around one slot of time on each rank, slots[rank] = (begin, end); its name, and a formula for the longest.

    Around idle time at the start or the end of most schedules it is a triangle.
    """

    timeline: Timeline
    slots: tuple[tuple[float, float], ...]
    name: str
    formula: str = ""

    @property
    def longest(self) -> int:
        """The rank with the longest slot; if several are equal, the last."""
        lengths = [end - begin for begin, end in self.slots]
        return len(lengths) - 1 - int(np.argmax(lengths[::-1]))

    @property
    def length(self) -> float:
        """The length of the longest slot."""
        begin, end = self.slots[self.longest]
        return end - begin


Note = Brace | Outline


def fill_work_drain(timeline: Timeline, rank: int = -1, formulas: Sequence[str] = ("", "", "")) -> list[Brace]:
    """Three braces over a rank's time: before its first action, from that action to the end of its last one, and after
    that.

    timeline  the drawn timeline
    rank      -1: the last;  formulas  for the three, in this order; a period without length has no brace

    >>> from hybridlab.predict.time.costs import Costs
    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> t = simulate(schedule("gpipe", ranks=4, microbatches=8), Costs(F=1, B=2))
    >>> [in_words(note) for note in fill_work_drain(t, formulas=("(p−1)F", "m(F+B)", "(p−1)B"))]
    ['fill (p−1)F = 3', 'work m(F+B) = 24', 'drain (p−1)B = 6']
    """
    rank = rank % timeline.schedule.ranks
    first, last = _spans_of_ranks(timeline)[rank]
    edges = (0.0, first, last, timeline.length)
    periods = zip((START, "work", END), formulas, edges, edges[1:], strict=False)
    return [Brace(timeline, rank, a, b, name, formula) for name, formula, a, b in periods if b > a]


def busy_and_idle(timeline: Timeline, rank: int = 0, formulas: Sequence[str] = ()) -> list[Brace]:
    """Braces over every busy period of a rank and over every pause.

    timeline  the drawn timeline
    rank      the rank whose periods are marked
    formulas  one for each period, from left to right, or none

    raises  ValueError if the number of formulas differs from the number of periods

    >>> from hybridlab.predict.time.costs import Costs
    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> t = simulate(schedule("gpipe", ranks=4, microbatches=8), Costs(F=1, B=2))
    >>> [in_words(note) for note in busy_and_idle(t, 0, ("mF", "(p−1)(F+B)", "mB"))]
    ['work mF = 8', 'idle (p−1)(F+B) = 9', 'work mB = 16']
    """
    rank = rank % timeline.schedule.ranks
    begin, end = _computing(timeline, rank)
    end = np.maximum.accumulate(end)
    pauses = np.flatnonzero(begin[1:] > end[:-1])
    starts, stops = begin[[0, *(pauses + 1)]] * timeline.tick, end[[*pauses, -1]] * timeline.tick
    edges = [0.0, *(float(edge) for pair in zip(starts, stops) for edge in pair), timeline.length]
    named = [("idle" if i % 2 == 0 else "work", a, b) for i, (a, b) in enumerate(zip(edges, edges[1:])) if b > a]
    if formulas and len(formulas) != len(named):
        names = ", ".join(name for name, _, _ in named)
        raise ValueError(
            f"rank {rank} has {len(named)} periods ({names}), not {len(formulas)}: give one formula for each"
        )
    formulas = formulas or [""] * len(named)
    return [Brace(timeline, rank, a, b, name, formula) for (name, a, b), formula in zip(named, formulas)]


def triangles(timeline: Timeline, formulas: Sequence[str] = ("", "")) -> list[Outline]:
    """Outlines around the idle time before every rank's first action, and after its last.

    timeline  the drawn timeline
    formulas  for the longest slot of each outline

    >>> from hybridlab.predict.time.costs import Costs
    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> t = simulate(schedule("gpipe", ranks=3, microbatches=6), Costs(F=1, B=2))
    >>> fill, drain = triangles(t, ("(p−1)F", "(p−1)B"))
    >>> fill.slots, in_words(drain)
    (((0.0, 0.0), (0.0, 1.0), (0.0, 2.0)), 'drain (p−1)B = 4')
    """
    spans = _spans_of_ranks(timeline)
    both = tuple((0.0, first) for first, _ in spans), tuple((last, timeline.length) for _, last in spans)
    found = [Outline(timeline, slots, *named) for slots, *named in zip(both, (START, END), formulas)]
    return [one for one in found if one.length > 0]


def in_words(note: Note, numbers: bool = True) -> str:
    """A note in one line: its name, its formula and, with `numbers`, its length."""
    return " ".join(line for line in lines(note, numbers) if line)


def lines(note: Note, numbers: bool = True) -> tuple[str, str]:
    """A note in two lines: its name; its formula and, with `numbers`, its length."""
    unit = "ms" if note.timeline.unit == "s" else ""
    length = note.length * (1e3 if unit else 1)
    value = f"{length:.4g} {unit}".strip() if numbers else ""
    return note.name, " = ".join(part for part in (note.formula, value) if part)


def told(notes: Sequence[Note], numbers: bool = True) -> list[str]:
    """All notes of one timeline in words: a line for the braces of each rank, and one for all outlines."""
    braces = [note for note in notes if isinstance(note, Brace)]
    about = {f"rank {rank}": [one for one in braces if one.rank == rank] for rank in sorted({b.rank for b in braces})}
    about["outlined, longest on one rank"] = [note for note in notes if isinstance(note, Outline)]
    return [
        f"{mine[0].timeline.schedule.name}, {where}: {', '.join(in_words(note, numbers) for note in mine)}"
        for where, mine in about.items()
        if mine
    ]


def _computing(timeline, rank):
    """(begin, end) of a rank's compute actions in the typical step, in ticks."""
    a, b = timeline.flow.program[rank : rank + 2]
    own = np.flatnonzero(timeline.lane[a:b] == COMPUTE) + a
    return timeline.begin[timeline.typical, own], timeline.end[timeline.typical, own]


def _spans_of_ranks(timeline):
    """(begin of the first, end of the last compute action) of every rank, in `unit`s."""
    columns = [_computing(timeline, rank) for rank in range(timeline.schedule.ranks)]
    return [(float(begin[0] * timeline.tick), float(end.max() * timeline.tick)) for begin, end in columns]
