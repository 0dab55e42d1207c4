"""A timeline: when everything happened, predicted by the simulator or measured on real ranks; one type for both.

A span has the key (step, rank, index in program), so a predicted and a measured timeline of one schedule can be
compared span by span. Times are stored as integer ticks of length `tick`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import NamedTuple

import numpy as np

from hybridlab.core.files import put
from hybridlab.core.when import chrome, timeline_file
from hybridlab.core.when.action import Action
from hybridlab.core.when.critical_path import chain, waited_for
from hybridlab.core.when.flow import Flow, flow_of
from hybridlab.core.when.gap import causes, longest
from hybridlab.core.when.lanes import LANES
from hybridlab.core.when.lifetimes import held
from hybridlab.core.when.lists import seal
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.words import in_a_line
from hybridlab.doors import guarded
from hybridlab.signatures import nearest, typed


class Span(NamedTuple):
    """One action with the time when it could start (`ready`), when it began and when it ended, in `unit`s."""

    step: int
    rank: int
    index: int
    action: Action
    lane: str
    ready: float
    begin: float
    end: float


@guarded()
@dataclass(frozen=True, eq=False)
class Timeline:
    """When every action of a schedule was ready, began and ended.

    schedule           the schedule that was run or simulated
    ready, begin, end  (steps, actions) integer ticks from the start of each step, actions rank after rank
    lane               (actions,) indices of `LANES`
    tick               length of one tick in `unit`s
    unit               "units" of the cost table, or "s"
    costs              for a prediction: the fields of its `Costs`
    origin             {"kind": "simulated" | "measured", …}
    loss, ledger       for a measured run: the loss of each step; all messages, as rows of plain values

    Every number (length, busy, bubbles, peaks) is that of the *typical* step, the step of median length.

    >>> import hybridlab as hl
    >>> t = hl.simulate(hl.schedule("gpipe", ranks=4, microbatches=8), hl.Costs(F=1, B=2))
    >>> t.length, t.busy, round(t.bubble_fraction, 3)
    (33.0, [24.0, 24.0, 24.0, 24.0], 0.273)
    """

    schedule: Schedule
    ready: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    lane: np.ndarray
    tick: float = 1.0
    unit: str = "units"
    costs: dict = field(default_factory=dict)
    origin: dict = field(default_factory=dict)
    loss: tuple[float, ...] = ()
    ledger: tuple = ()

    def __post_init__(self) -> None:
        seal(self.ready, self.begin, self.end, self.lane)

    @cached_property
    def flow(self) -> Flow:
        """The values that each action of the schedule consumes and produces, within `room`."""
        return flow_of(self.schedule, self.room)

    @cached_property
    def room(self) -> Room | None:
        """The memory capacity of each device; None: no limit was given."""
        return Room(**self.origin["room"]) if "room" in self.origin else None

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.begin)

    @cached_property
    def typical(self) -> int:
        """The index of the step whose length is the (lower) median."""
        lengths = self.end.max(axis=1, initial=0)
        return int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])

    @typed
    def step(self, number: int) -> "Timeline":
        """The timeline of a single step, given its index, `number`.

        raises  ValueError for a step that does not exist
        """
        self._refuse("step", number, self.steps)
        pick = slice(number, number + 1)
        return replace(self, ready=self.ready[pick], begin=self.begin[pick], end=self.end[pick])

    @cached_property
    def _durations(self) -> np.ndarray:
        return (self.end - self.begin)[self.typical]

    @property
    def length(self) -> float:
        """The time from the first start to the last end in the typical step, in `unit`s."""
        return float(self.end[self.typical].max(initial=0) * self.tick)

    @cached_property
    def busy(self) -> list[float]:
        """busy[rank]: time in compute actions, in `unit`s."""
        return [float(ticks * self.tick) for ticks in self._busy_ticks]

    @cached_property
    def _busy_ticks(self) -> np.ndarray:
        weights = np.where(self.lane == 0, self._durations, 0)
        return np.array([weights[a:b].sum() for a, b in zip(self.flow.program, self.flow.program[1:])])

    @property
    def bubble_fraction(self) -> float:
        """Idle time over total time: the fraction of all rank-time without a compute action; (p-1)/(m+p-1) for GPipe
        and 1F1B."""
        total = self.schedule.ranks * int(self.end[self.typical].max(initial=0))
        return 1 - int(self._busy_ticks.sum()) / total if total else 0.0

    @property
    def bubble_overhead(self) -> float:
        """Idle time over ideal time, the ranks' compute time; (p-1)/m for GPipe and 1F1B, *the* bubble of lectures."""
        total = self.schedule.ranks * int(self.end[self.typical].max(initial=0))
        busy = int(self._busy_ticks.sum())
        return (total - busy) / busy if busy else 0.0

    @property
    def bubble_span(self) -> float:
        """The zero-bubble papers' measure: idle time divided by the span, for the rank with the longest span. The span
        goes from the rank's first to its last compute action.
        """
        worst = (0, 0)
        for rank, (a, b) in enumerate(zip(self.flow.program, self.flow.program[1:])):
            own = np.flatnonzero(self.lane[a:b] == 0) + a
            if len(own):
                begin, end = self.begin[self.typical, own].min(), self.end[self.typical, own].max()
                worst = max(worst, (int(end - begin), rank))
        length, rank = worst
        return (length - int(self._busy_ticks[rank])) / length if length else 0.0

    @cached_property
    def peak_live(self) -> list[int]:
        """peak_live[rank]: the maximum number of activations held at once, each from its F until its W (or B)."""
        return self.peak("input")

    def _refuse(self, what: str, number: int, count: int) -> None:
        if not 0 <= number < count:
            raise ValueError(f"{what}={number} does not exist: choose from 0 to {count - 1}")

    @typed
    def peak(self, name: str) -> list[int]:
        """For every rank, the largest number of values of one kind that it holds at once; "weights" counts versions.

        It follows from the order alone: a value is held from the action that produces it until the last action that
        uses it.

        raises  ValueError for a kind of value that does not exist
        """
        if name not in self.flow.shape:
            raise ValueError(f"there is no value {name!r}: {nearest(name, self.flow.shape)}")
        return [int(its.max(initial=0)) for its in held(self.flow, name)]

    @cached_property
    def critical_path(self) -> list[Span]:
        """The chain of actions that determines the length.

        It is traced backwards: start at the last action, and repeatedly go to the action that the current one waited
        for last. A message appears once, as its SEND.
        """
        return [self._span(self.typical, action) for action in chain(self.waited_for, self.end[self.typical])]

    @cached_property
    def waited_for(self) -> np.ndarray:
        """For every action of the typical step, the action that it waited for last; -1: it did not wait.

        >>> from hybridlab.predict.time.simulate import simulate
        >>> from hybridlab.scheduling.registry import schedule
        >>> simulate(schedule("gpipe", ranks=2, microbatches=1)).waited_for.tolist()  # 0F0 0B0 1F0 1B0
        [-1, 3, 0, 2]
        """
        return waited_for(self.flow, self.lane, self.begin[self.typical], self.end[self.typical])

    @typed
    def span(self, step: int, action: int) -> Span:
        """The action with index `action` in one `step`, as a `Span`.

        raises  ValueError for a step or an action that does not exist
        """
        self._refuse("step", step, self.steps)
        self._refuse("action", action, self.flow.actions)
        return self._span(step, action)

    def _span(self, step: int, action: int) -> Span:
        rank = int(self.flow.rank[action])
        times = (float(column[step, action] * self.tick) for column in (self.ready, self.begin, self.end))
        index = int(action - self.flow.program[rank])
        return Span(step, rank, index, self.flow.action(action), LANES[self.lane[action]], *times)

    @property
    def spans(self) -> Iterator[Span]:
        """Every span, step after step, rank after rank, in program order."""
        return (self._span(step, action) for step in range(self.steps) for action in range(self.flow.actions))

    @typed
    def gap(self, real: "Timeline") -> dict[str, float]:
        """How a measured run of the same schedule differs from this prediction (measured minus predicted).

        real    the measured timeline
        length, length_ratio  in seconds; measured over predicted
        compute, imbalance, jitter, sending, waiting  causes of the difference in length, which add up to it;
                                                      `hybridlab.core.when.gap` explains each
        bubble_fraction, bubble_overhead, bubble_span  differences of the three bubbles

        raises  ValueError if the two have different programs
        """
        if real.schedule.computing != self.schedule.computing:
            raise ValueError(
                f"{real.schedule.name} and {self.schedule.name} are different schedules: compare runs of the same one"
            )
        ratio = {"length_ratio": real.length / self.length} if self.length else {}
        bubbles = {name: getattr(real, name) - getattr(self, name) for name in BUBBLES}
        return {"length": real.length - self.length, **ratio, **causes(self, real), **bubbles}

    @property
    def efficiency(self) -> float:
        """The longest path of the program, with the action times of this run, as a fraction of the measured length.

        It is 1 for a prediction without messages. Messages and unnecessary waiting make it smaller.
        """
        return longest(self) / self.length if self.length else 1.0

    @property
    def summary(self) -> str:
        """The timeline in one line of words, for the picture's caption and alternative text."""
        return in_a_line(self)

    def metrics(self) -> dict:
        """The numbers that the command line prints, under stable keys."""
        bubbles = {name: getattr(self, name) for name in BUBBLES}
        return {"length": self.length, "unit": self.unit, **bubbles, "peak_live": self.peak_live, "busy": self.busy}

    def to_dict(self) -> dict:
        """Plain values, for JSON."""
        return timeline_file.plain(self)

    @classmethod
    def from_dict(cls, saved: dict) -> "Timeline":
        """The timeline `saved` by `to_dict`.

        raises  ValueError if it is something else, of a different version, or damaged
        """
        return cls(**timeline_file.facts(saved))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the timeline to `path` as JSON; `Timeline.load` reads it, even if torch is not installed."""
        put(path, json.dumps(self.to_dict()))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Timeline":
        """The timeline saved at `path`.

        raises  ValueError as `from_dict` does, and if the file is not JSON
        """
        return cls.from_dict(timeline_file.read(path))

    @typed
    def to_chrome(self, path: str | PathLike[str], rank: int | None = None) -> None:
        """Write a Chrome trace to `path` (Perfetto, chrome://tracing): a process per rank, a thread per lane.

        rank    only this rank, as torch's profiler writes it: HolisticTraceAnalysis reads one such file for each rank

        raises  ValueError for a rank that does not exist
        """
        trace = chrome.chrome(self) if rank is None else chrome.chrome_of(self, rank)
        put(path, json.dumps(trace))

    def __repr__(self) -> str:
        return f"<timeline {self.summary}>"


BUBBLES = ("bubble_fraction", "bubble_overhead", "bubble_span")
