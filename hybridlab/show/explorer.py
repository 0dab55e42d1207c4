"""The explorer: a live timeline. Choose a schedule, move the sliders, play it; Python computes, JavaScript draws.

On every change Python sends the picture as columns of bytes; `paint.js` draws it, `explorer.js` holds the controls,
and neither knows a schedule. The browser gets both as one module. Where no kernel runs,
the static twin of the first picture stands in.
"""

from pathlib import Path

import anywidget
import numpy as np
import traitlets

from hybridlab.core.timeline import Timeline
from hybridlab.predict.costs import Costs
from hybridlab.predict.live import live
from hybridlab.predict.simulate import simulate
from hybridlab.schedules.lower import lower
from hybridlab.schedules.registry import schedule as make
from hybridlab.schedules.registry import schedules
from hybridlab.show.boxes import boxes
from hybridlab.show.style import STYLE
from hybridlab.show.svg import svg

HERE = Path(__file__).parent
SLIDERS = (  # trait, label, least, most, step
    ("ranks", "ranks p", 1, 16, 1),
    ("microbatches", "microbatches m", 1, 64, 1),
    ("ratio", "backward ÷ forward", 0.5, 4, 0.5),
    ("latency", "message time", 0, 3, 0.25),
)
COUNTERS = (  # name, property of a timeline, definition
    ("idle / total", "bubble_fraction", "bubble_fraction: of all rank-time, the share in no compute action"),
    (
        "idle / ideal",
        "bubble_overhead",
        "bubble_overhead: idle time over compute time; lectures print it as the bubble",
    ),
)


def explore(
    schedule: str = "1f1b",
    ranks: int = 4,
    microbatches: int = 8,
    F: float = 1,
    I: float = 1,
    W: float = 1,
    latency: float = 0,
) -> "Explorer":
    """A live timeline of a schedule, with its two bubbles and the activations that each rank holds.

    F, I, W  durations of forward, input half, weight half (a whole backward takes I + W);  latency  of a message

    raises  ValueError in one sentence for a schedule or a number that is not possible
    """
    chosen = {"schedule": schedule, "ranks": ranks, "microbatches": microbatches, "F": F, "I": I, "W": W}
    return Explorer(**chosen, latency=latency)


class Explorer(anywidget.AnyWidget):
    """The widget behind `explore`: its traits are the choices; `summary`, `picture` and `problem` follow from them.

    timeline  the one that is shown
    problem   why the present choice has no timeline, in a sentence, or ""; then the last picture stays
    """

    _esm = (HERE / "paint.js").read_text("utf-8") + (HERE / "explorer.js").read_text("utf-8")
    _css = HERE / "explorer.css"

    schedule = traitlets.Unicode().tag(sync=True)
    ranks = traitlets.Int().tag(sync=True)
    microbatches = traitlets.Int().tag(sync=True)
    latency = traitlets.Float().tag(sync=True)
    ratio = traitlets.Float().tag(sync=True)
    F, I, W = traitlets.Float(), traitlets.Float(), traitlets.Float()
    choices = traitlets.List().tag(sync=True)
    sliders = traitlets.List().tag(sync=True)
    style_data = traitlets.Dict().tag(sync=True)
    picture = traitlets.Dict().tag(sync=True)
    summary = traitlets.Unicode().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **chosen):
        _refuse_too_much(chosen)
        self.timeline = _timeline(**chosen)
        backward = chosen["I"] + chosen["W"]
        super().__init__(
            **chosen,
            ratio=backward / chosen["F"] if chosen["F"] else 1,
            choices=list(schedules()),
            sliders=[list(slider) for slider in SLIDERS],
            style_data=STYLE,
            picture=_picture(self.timeline),
            summary=self.timeline.summary,
        )
        self.observe(self._split_backward, "ratio")
        self.observe(self._compute, ["schedule", "ranks", "microbatches", "latency", "F", "I", "W"])

    def _split_backward(self, change):
        """The slider moves both halves of the backward, and keeps their proportion."""
        whole = self.I + self.W
        share = self.I / whole if whole else 0.5
        with self.hold_trait_notifications():
            self.I, self.W = change.new * self.F * share, change.new * self.F * (1 - share)

    def _compute(self, _):
        chosen = {name: getattr(self, name) for name in ("schedule", "ranks", "microbatches", "F", "I", "W", "latency")}
        try:
            _refuse_too_much(chosen)
            self.timeline = _timeline(**chosen)
        except ValueError as error:
            self.problem = str(error).split("\n")[0]
            return
        with self.hold_sync():  # one message, so that picture and words change together
            self.picture, self.summary, self.problem = _picture(self.timeline), self.timeline.summary, ""

    @property
    def twin(self) -> str:
        """The static twin, as SVG text."""
        return svg(self.timeline)

    def _repr_mimebundle_(self, **more):
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/svg+xml": self.twin, "text/plain": self.summary}, metadata


def _refuse_too_much(chosen):
    for name, _, least, most, _ in SLIDERS:
        number = chosen.get(name, least)
        if name in ("ranks", "microbatches") and isinstance(number, int) and number > most:
            raise ValueError(f"{name}={number} is more than the explorer shows: give {most} at most, or use hl.draw")


def _timeline(schedule, ranks, microbatches, F, I, W, latency):
    """The predicted timeline; where messages take time they are written out, so that they are seen."""
    plan = make(schedule, ranks=ranks, microbatches=microbatches)
    return simulate(lower(plan) if latency else plan, Costs(F=F, I=I, W=W, latency=latency))


def _picture(timeline: Timeline) -> dict:
    """Everything that JavaScript draws: columns as bytes (little-endian), and a few plain values."""
    shown = boxes(timeline)
    curves = live(timeline)
    times, counts = (np.concatenate(parts) for parts in zip(*curves))
    starts = np.cumsum([0] + [len(one) for one, _ in curves])
    floats = {name: getattr(shown, name) for name in ("x0", "x1", "y0", "y1")} | {"held_times": times}
    whole = {name: getattr(shown, name) for name in ("look", "rank", "stage", "microbatch", "kind")}
    whole |= {"held_counts": counts, "held_starts": starts}
    return {
        "floats": {name: column.astype("<f4").tobytes() for name, column in floats.items()},
        "whole": {name: column.astype("<i4").tobytes() for name, column in whole.items()},
        "looks": [look._asdict() for look in shown.looks],
        "legend": [[name, look._asdict()] for name, look in shown.legend],
        "lanes": [lane._asdict() for lane in shown.lanes],
        "peaks": timeline.peak_live,
        "counters": [[name, f"{getattr(timeline, value):.1%}", told] for name, value, told in COUNTERS],
        "unit": shown.unit,
        "length": shown.length,
        "height": shown.height,
    }
