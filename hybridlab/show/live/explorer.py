"""The explorer: live timelines. Choose schedules, move sliders, animate, type a schedule, run it; Python computes.

It has three parts:

    picture.py    timelines → a picture: plain columns, the same for widget, twin, page and text
    view.js …     a picture → the canvas, with transport, zoom, hover, counters; needs no kernel (see `module.py`)
    this file     choices → timelines, while a kernel runs; `explorer.js` holds its controls

The browser gets the JavaScript as one module (`module.module`); a page without a server uses the same files.
"""

import math
import threading
from functools import lru_cache

import anywidget
import traitlets

from hybridlab.core.files import put
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.overlay import predicted_for
from hybridlab.scheduling.registry import GENERATORS, options_of, schedules
from hybridlab.scheduling.registry import schedule as make
from hybridlab.show.live.attempt import Attempt, in_seconds
from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.live.quickly import per_stage, simulated
from hybridlab.show.live.typed_text import parsed
from hybridlab.show.paper.style import STYLE
from hybridlab.show.timelines.picture import picture
from hybridlab.show.timelines.spans import is_measured
from hybridlab.show.timelines.twin import twin

SLIDERS = (  # trait, label, least, most, step
    ("ranks", "ranks p", 1, 32, 1),
    ("microbatches", "microbatches m", 1, 128, 1),
    ("chunks", "chunks per rank v", 1, 8, 1),
    ("slices", "slices per row n", 1, 16, 1),
    ("ratio", "backward ÷ forward", 0, 4, 0.5),
    ("F", "forward F", 0.5, 4, 0.5),
    ("I", "input half I", 0, 4, 0.5),
    ("W", "weight half W", 0, 4, 0.5),
    ("latency", "message time", 0, 3, 0.25),
)
CONTROLS = ("two", "few", "all")
MOST = {"ranks": 64, "microbatches": 4096, "chunks": 16, "slices": 64}
OPTIONS = ("chunks", "slices")  # of some schedules only
MOST_BOXES = 300_000  # of one schedule: about 3 for each rank, microbatch and chunk
CHOSEN = ("schedules", "ranks", "microbatches", "chunks", "slices", "F", "I", "W", "latency", "typed")


def explore(
    *shown: str | Schedule | Timeline | list,
    ranks: int = 4,
    microbatches: int = 8,
    chunks: int = 2,
    slices: int = 2,
    F: float = 1,
    I: float = 1,
    W: float = 1,
    latency: float = 0,
    controls: str = "few",
    play: bool = False,
    machine: bool = False,
    run=None,
) -> "Explorer":
    """Live timelines on one time axis, with their three bubbles and the activations that each rank holds.

    shown    names of schedules, which follow all sliders ("1f1b" if none is given); your own schedules, which follow
             the costs and may deadlock; timelines as `hl.simulate` and `hl.run` return them, which stay as they are
    ranks    the number of ranks;  microbatches  the number in a step;  latency  the latency of a message
    chunks   stages per rank v;  slices  token slices of a row n: for the schedules that take them
    F, I, W  durations of forward, input half, weight half (a full backward takes I + W) of all stages of a rank
             together, so that with v chunks or v slices each stage takes 1/v of them
    controls  shown at first: "two" sliders and Play; "few": schedules and steps too; "all"
    play     play the timelines once when they become visible, unless the browser asks for reduced motion
    machine  open the machine view: a card for each rank, with its action, its activations and its messages
    run      runs a schedule on real processes; `hl.explore` passes `hl.run`

    raises  ValueError for a schedule or a number that is not possible

    >>> import hybridlab as hl
    >>> live = hl.explore("1f1b", "zb_h1", ranks=4)
    >>> [one.schedule.name for one in live.timelines]
    ['1f1b', 'zb_h1']
    """
    flat = [one for item in shown for one in (item if isinstance(item, list | tuple) else [item])] or ["1f1b"]
    if controls not in CONTROLS:
        raise ValueError(f"controls={controls!r} is not known: choose {' or '.join(map(repr, CONTROLS))}")
    for one in flat:
        if not isinstance(one, str | Schedule | Timeline):
            raise ValueError(f"a {type(one).__name__} cannot be explored: give names, schedules or timelines")
    names = [one for one in flat if isinstance(one, str)]
    given = [one for one in flat if not isinstance(one, str)]
    sizes = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks, "slices": slices}
    more = {"F": F, "I": I, "W": W, "latency": latency, "controls": controls, "play": play, "machine": machine}
    return Explorer(given, run, schedules=names, **sizes, **more)


class Explorer(anywidget.AnyWidget):
    """The widget of `explore`: its traits are the choices; `picture` and `problem` follow from them.

    timelines  those that are shown, from top to bottom
    problem    a sentence that says why the current choice has no timeline, and the last picture stays; or ""
    fault      the error in the typed schedule: {"text", "begin", "end"}, or {}
    running    {"can", "on", "text"}: whether ranks may be started, whether they run, how far they are
    """

    _esm = module("explorer.js")
    _css = stylesheet()

    schedules = traitlets.List(traitlets.Unicode()).tag(sync=True)
    ranks = traitlets.Int().tag(sync=True)
    microbatches = traitlets.Int().tag(sync=True)
    chunks = traitlets.Int().tag(sync=True)
    slices = traitlets.Int().tag(sync=True)
    latency = traitlets.Float().tag(sync=True)
    ratio = traitlets.Float().tag(sync=True)
    F = traitlets.Float().tag(sync=True)
    I = traitlets.Float().tag(sync=True)
    W = traitlets.Float().tag(sync=True)
    typed = traitlets.Unicode().tag(sync=True)
    fault = traitlets.Dict().tag(sync=True)
    choices = traitlets.Dict().tag(sync=True)
    sliders = traitlets.List().tag(sync=True)
    controls = traitlets.Unicode().tag(sync=True)
    play = traitlets.Bool().tag(sync=True)
    machine = traitlets.Bool().tag(sync=True)
    style_data = traitlets.Dict().tag(sync=True)
    picture = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)
    running = traitlets.Dict().tag(sync=True)

    def __init__(self, given, run, **chosen):
        self._given, self._run, self._attempt, self._own = given, run, None, None
        self._turn = threading.RLock()  # a run shows pictures too, from a separate thread
        super().__init__(
            **chosen,
            choices={name: takes(name) for name in schedules()},
            sliders=[list(slider) for slider in SLIDERS if chosen["schedules"] or slider[0] not in MOST],
            style_data=STYLE,
        )
        self._computed = [getattr(self, name) for name in CHOSEN]
        self._show(self._predicted(self._costs))
        self.running = {"can": run is not None and not any(map(is_measured, self.timelines)), "on": False, "text": ""}
        self.observe(self._split_backward, "ratio")
        self.observe(self._compute, list(CHOSEN))
        self.on_msg(self._asked)

    # --- choices → timelines ---------------------------------------------------------------------------------------

    @property
    def _costs(self):
        return Costs(F=self.F, I=self.I, W=self.W, latency=self.latency)

    def _predicted(self, costs) -> list[Timeline]:
        """The stack from top to bottom: the typed schedule, the arguments, the schedules chosen by name."""
        plans = ([self._own] if self._own else []) + self._given + [self._made(name) for name in self.schedules]
        return [one if isinstance(one, Timeline) else simulated(one, costs) for one in plans]

    def _made(self, name):
        sizes = {size: getattr(self, size) for size in ("ranks", "microbatches", *takes(name))}
        _refuse_too_much(sizes)
        return _schedule(name, **sizes)

    def _split_backward(self, change):
        """The slider changes both halves of the backward and keeps their ratio."""
        whole = self.I + self.W
        if abs(change.new * self.F - whole) < 1e-9:  # the slider followed the halves
            return
        share = self.I / whole if whole else 0.5
        with self.hold_trait_notifications():
            self.I, self.W = change.new * self.F * share, change.new * self.F * (1 - share)

    def _compute(self, _):
        with self._turn:
            self._follow()

    def _follow(self):
        chosen = [getattr(self, name) for name in CHOSEN]
        if chosen == self._computed:  # both halves moved at once: one change
            return
        self._computed = chosen
        self._leave_run()
        own, self.fault = parsed(self.typed)
        if own or not self.fault:  # with a fault, the last valid one stays
            self._own = own
        try:
            self._show(self._predicted(self._costs))
        except ValueError as error:
            self.problem = str(error).split("\n")[0]

    def _show(self, timelines, live=False):
        self.timelines = timelines
        with self.hold_sync():  # one message, so that picture and words change together
            self.picture = picture(*timelines) | {"live": live}
            self.ratio = (self.I + self.W) / self.F if self.F else 1.0
            self.problem = ""

    # --- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the top schedule on real ranks; its measured timeline grows under the prediction. Returns at once.

        A schedule with a deadlock is not run.
        """
        if not self.running["can"] or self.running["on"] or "stuck" in self.timelines[0].origin:
            return
        top, toy = self.timelines[0], self._costs
        costs = in_seconds(toy, simulated(top.schedule, toy).length, top.schedule.chunks)
        self._ahead = [simulated(top.schedule, costs), *self._predicted(costs)[1:]]
        self._attempt = Attempt(self._run, top.schedule, per_stage(costs, top.schedule), self._told, self._ended)
        self._tell_running(on=True, text=self._attempt.growing.progress)
        self._attempt.start()

    def stop(self) -> None:
        """End the current run."""
        if self._attempt:
            self._attempt.stop()
            self._tell_running(on=True, text="stopping")

    def _leave_run(self):
        """A new choice ends a run; its measurement disappears together with its prediction."""
        if self._attempt:
            self._attempt.stop()
            self._attempt = None
        self._tell_running(on=False, text="")

    def _told(self, attempt):
        with self._turn:
            if attempt is self._attempt:
                self._show([*self._ahead, attempt.growing.timeline()], live=True)
                self._tell_running(on=True, text=attempt.growing.progress)

    def _ended(self, attempt, real, why):
        with self._turn:
            if attempt is self._attempt:
                self._attempt, text = None, ""
                if real:
                    text = self._measured(real)
                else:
                    self._show(self._predicted(self._costs))
                    self.problem = why
                self._tell_running(on=False, text=text)

    def _measured(self, real):
        """Show the measurement under its prediction with the costs of the run, and return the caption."""
        calibrated = predicted_for(real)
        self._show([calibrated, *self._ahead[1:], real])
        gap = abs(real.bubble_fraction - calibrated.bubble_fraction)
        where = f"measured on {real.schedule.ranks} real processes, work emulated by waiting"
        return f"{where}; idle / total is {gap:.3f} from the prediction with the costs of the run"

    def _tell_running(self, **now):
        self.running = self.running | now

    # --- calls from the page ---------------------------------------------------------------------------------------

    def _asked(self, _, content, buffers):
        does = {"run": self.run, "stop": self.stop, "svg": lambda: self.send({"svg": self.twin})}
        does.get(content.get("ask"), lambda: None)()

    @property
    def summary(self) -> str:
        """The picture in words, one line per timeline."""
        return self.picture["summary"]

    @property
    def twin(self) -> str:
        """The static twin, as SVG text."""
        return twin(self.picture)

    def save_svg(self, path) -> None:
        """Write the current picture to an SVG file."""
        put(path, self.twin)

    def _repr_mimebundle_(self, **more):
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/svg+xml": self.twin, "text/plain": self.summary}, metadata


@lru_cache(maxsize=16)
def _schedule(name, **sizes):
    """A schedule by name; while only costs change, it is made and checked once."""
    return make(name, **sizes)


def takes(name: str) -> list[str]:
    """The sliders that affect only some schedules, and that affect the schedule of this name."""
    return [option for option in OPTIONS if name in GENERATORS and option in options_of(name)]


def _refuse_too_much(sizes):
    for name, number in sizes.items():
        if isinstance(number, int) and number > MOST[name]:
            raise ValueError(
                f"{name}={number} is too large for the explorer: give {MOST[name]} at most, or use hl.draw"
            )
    boxes = 3 * math.prod(sizes.values())
    if boxes > MOST_BOXES:
        raise ValueError(f"about {boxes} boxes are too many for the explorer: give fewer ranks or microbatches")
