"""A run on real ranks shown live: its growing timeline, and costs that make it last some seconds."""

import contextvars
import threading
import time

import numpy as np

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lanes import COMPUTE, lanes
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.scheduling.lower import lower

SHORTEST = 0.02  # seconds: the clock's jitter would hide a shorter wait
STEP = 1.5  # seconds that one step should last at least
STEPS = 2  # steps that ranks run: one to warm up, one that is measured
PAUSE = 0.1  # seconds between two pictures of a run


class Growing:
    """The timeline of a run in progress: the actions of the current step that its ranks have reported."""

    def __init__(self, schedule: Schedule):
        self.schedule = lower(schedule)
        self.flow = Flow(self.schedule)
        self.lane = lanes(self.flow)
        self.actions = int((self.lane == COMPUTE).sum())
        self.step = -1

    def add(self, rank: int, event: dict) -> bool:
        """Record an event that a rank reports; True when it was an action of the current step."""
        if "index" not in event or event["step"] < self.step:
            return False
        if event["step"] > self.step:
            self.step = event["step"]
            self.begin, self.end = np.zeros((2, self.flow.actions), dtype=np.int64)
        action = self.flow.program[rank] + event["index"]
        self.begin[action], self.end[action] = event["begin"], event["end"]
        return True

    @property
    def done(self) -> int:
        """The number of actions of the current step that have ended."""
        return int((self.end > 0).sum()) if self.step >= 0 else 0

    @property
    def progress(self) -> str:
        """The progress of the run, in words."""
        if self.step < 0:
            return f"starting {self.schedule.ranks} ranks"
        warm = ", to warm up" if self.step == 0 else ", measured"
        return f"step {self.step + 1} of {STEPS}{warm}: {self.done} of {self.actions} actions"

    def timeline(self) -> Timeline:
        """The timeline so far; an action that has not ended has no length."""
        over = self.end > 0
        start = self.begin[over].min()
        begin, end = (np.where(over, column - start, 0) for column in (self.begin, self.end))
        columns = (column[None] for column in (begin, begin, end))
        origin = {"kind": "measured", "live": True}
        return Timeline(self.schedule, *columns, self.lane, tick=1e-9, unit="s", origin=origin)


def in_seconds(costs: Costs, length: float, chunks: int = 1) -> Costs:
    """The same costs in seconds, so that a step of `length` units lasts `STEP` or longer and no action is too short.

    costs  of all `chunks` stages of a rank together

    >>> in_seconds(Costs(F=1, I=1, W=1), length=33).F
    0.05
    """
    own = {kind: costs.of(kind, 0) for kind in ("F", "I", "W")}
    durations = [cost / chunks for cost in (own["F"], own["I"] + own["W"]) if cost > 0]
    unit = max(SHORTEST / min(durations, default=1), STEP / max(length, 1e-9))
    unit = round(unit, 2) or 0.01
    return Costs(**{kind: cost * unit for kind, cost in own.items()}, latency=costs.of_message(0) * unit, unit="s")


class Attempt:
    """One run on real ranks, in a separate thread, so that the kernel stays usable.

    run    a function like `hybridlab.training.run.run`; the caller passes it, because pictures cannot import it
    told   called as told(attempt) when there is news, at most once in `PAUSE` seconds
    ended  called once as ended(attempt, timeline, why): the measured timeline, or None and the reason
    """

    def __init__(self, run, schedule: Schedule, costs: Costs, told, ended):
        self.growing = Growing(schedule)
        self._call = lambda: run(schedule, work="emulated", costs=costs, latency=costs.of_message(0), steps=1,
                                 on_event=self._hear, live=True)  # fmt: skip
        self._told, self._ended, self._stopped, self._last = told, ended, False, 0.0

    def start(self):
        """Begin, and return at once."""
        here = contextvars.copy_context()  # in it a kernel keeps the destination of messages to the browser
        threading.Thread(target=here.run, args=(self._play,), daemon=True).start()

    def stop(self):
        """End the ranks at their next report, after one action at the latest."""
        self._stopped = True

    def _play(self):
        try:
            real = self._call()
        except _Stop:
            self._ended(self, None, "")
        except Exception as error:  # the caller shows any error
            self._ended(self, None, str(error) or type(error).__name__)
        else:
            self._ended(self, real, "")

    def _hear(self, rank, event):
        if self._stopped:
            raise _Stop
        if self.growing.add(rank, event) and time.monotonic() - self._last > PAUSE:
            self._told(self)
            self._last = time.monotonic()


class _Stop(Exception):
    """Raised inside a run to end it: its ranks end with it."""
