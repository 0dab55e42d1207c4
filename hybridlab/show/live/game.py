"""The scheduling game: choose the next action of each rank, and watch the idle time and the memory grow.

Python holds the rules and the state of the game (`scheduling.by_hand`); `game.js` has a button for every rank and kind
of action, and no rules. The picture under the buttons is the explorer's.
"""

from dataclasses import replace

import anywidget
import numpy as np
import traitlets

from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.automatic import automatic
from hybridlab.predict.time.bound import shortest
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.overlay import predicted_for
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.by_hand import ByHand
from hybridlab.scheduling.registry import schedule as make
from hybridlab.show.live.attempt import Attempt, in_seconds
from hybridlab.show.live.board import board_svg
from hybridlab.show.live.module import module, stylesheet
from hybridlab.show.paper.style import STYLE, look
from hybridlab.show.timelines.drawn import shown
from hybridlab.show.timelines.picture import picture
from hybridlab.show.timelines.twin import twin

MOST = {"ranks": 8, "microbatches": 16}  # more would take too long to play


def play(
    ranks: int = 3,
    microbatches: int = 4,
    split: bool = False,
    limit: int | None = None,
    F: float = 1,
    I: float = 1,
    W: float = 1,
    latency: float = 0,
    run=None,
) -> "Game":
    """A game in which you are the scheduler: you choose the next action of each rank, until all actions are done.

    ranks         p, with one stage each
    microbatches  m
    split         whether the halves of a backward, I and W, are placed separately
    limit         the most activations that a rank may hold; None: no limit
    F, I, W       durations of forward, input half, weight half (a full backward takes I + W)
    latency       of a message, in the unit of the durations
    run           runs a schedule on real processes; `hl.play` passes `hl.run`

    raises  ValueError for numbers that are not possible

    >>> import hybridlab as hl
    >>> hl.play(ranks=2, microbatches=2).schedule
    <schedule by hand: 2 ranks, 2 stages, 2 microbatches, 0 actions>
    """
    for what, number in (("ranks", ranks), ("microbatches", microbatches)):
        if isinstance(number, int) and number > MOST[what]:
            raise ValueError(f"{what}={number} is too large for the game: give at most {MOST[what]}")
    return Game(ByHand(ranks, microbatches, split, limit), Costs(F=F, I=I, W=W, latency=latency), run)


class Game(anywidget.AnyWidget):
    """The widget of `play`. `schedule` and `timeline` hold the actions chosen so far.

    told     a sentence: the effect of the last choice, or why it is not possible
    running  {"can", "on"}: whether the schedule can be run on real ranks now, and whether it is running
    """

    _esm = module("game.js")
    _css = stylesheet("game.css")

    board = traitlets.Dict().tag(sync=True)
    picture = traitlets.Dict().tag(sync=True)
    told = traitlets.Unicode().tag(sync=True)
    running = traitlets.Dict().tag(sync=True)
    style_data = traitlets.Dict().tag(sync=True)
    looks = traitlets.Dict().tag(sync=True)

    def __init__(self, hand: ByHand, costs: Costs, run=None):
        self.costs, self._run, self._attempt = costs, run, None
        looks = {kind: look(kind)._asdict() for kind in hand.kinds}
        super().__init__(style_data=STYLE, looks=looks)
        self._show(hand, _goal(hand, costs))
        self.on_msg(self._asked)

    @property
    def schedule(self):
        """The actions chosen so far, as a `Schedule`; it is complete when the game is finished."""
        return self.hand.schedule

    @property
    def finished(self) -> bool:
        """Whether every action has been chosen."""
        return self.hand.finished

    def choose(self, rank: int, kind: str) -> None:
        """Run a rank's next action of a kind.

        raises  ValueError if that is not possible; it says why, and which action must come first
        """
        self._show(self.hand.choose(rank, kind))

    def undo(self) -> None:
        """Take the last choice back."""
        if not self.hand.chosen:
            raise ValueError("there is nothing to undo: choose an action first")
        self._show(self.hand.undo(), f"Undid {self.hand.everything.action(self.hand.chosen[-1])}.")

    def restart(self) -> None:
        """Begin again."""
        self._show(replace(self.hand, chosen=()), _goal(self.hand, self.costs))

    def _show(self, hand, told=""):
        self._leave_run()
        self.hand, self.timeline = hand, simulate(hand.schedule, self.costs)
        rivals = _rivals(hand, self.costs) if hand.finished else []
        with self.hold_sync():  # one message, so that buttons, picture and words change together
            self.told = told or _done(self.timeline, hand) + _verdict(self.timeline, rivals, self._least, hand)
            self.board = _board(hand, self.timeline, self.costs)
            self.picture = self._drawn(self.timeline, *rivals)
            self.running = {"can": hand.finished and self._run is not None, "on": False}

    @property
    def _least(self):
        return shortest(self.hand.everything.schedule, self.costs)

    def _drawn(self, *timelines):
        drawn = picture(*timelines)
        return drawn | {"length": max(drawn["length"], self._least)}  # a fixed axis while boxes appear

    # --- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the finished schedule on real ranks, and show the measured timeline under the prediction. Returns at
        once.
        """
        if not self.running["can"] or self.running["on"]:
            return
        costs = in_seconds(self.costs, self.timeline.length)
        self._ahead = simulate(self.schedule, costs)
        self._attempt = Attempt(self._run, self.schedule, costs, self._grown, self._ended)
        self.running, self.told = {"can": True, "on": True}, f"Running: {self._attempt.growing.progress}."
        self._attempt.start()

    def stop(self) -> None:
        """End the current run."""
        if self._attempt:
            self._attempt.stop()

    def _leave_run(self):
        self.stop()
        self._attempt = None

    def _grown(self, attempt):
        if attempt is self._attempt:
            self.picture = picture(self._ahead, attempt.growing.timeline()) | {"live": True}
            self.told = f"Running: {attempt.growing.progress}."

    def _ended(self, attempt, real, why):
        if attempt is not self._attempt:
            return
        if real is None:
            drawn, told = self._drawn(self.timeline), why or "Stopped."
        else:
            drawn, told = _overlaid(predicted_for(real), real)
        self._attempt = None
        with self.hold_sync():
            self.picture, self.told, self.running = drawn, told, {"can": True, "on": False}

    # --- calls from the page ---------------------------------------------------------------------------------------

    def _asked(self, _, message, __):
        do = {"undo": self.undo, "restart": self.restart, "run": self.run, "stop": self.stop, "choose": self.choose}
        try:
            do[message["ask"]](*message.get("with", ()))
        except ValueError as error:
            self.told = str(error)

    @property
    def twin(self) -> str:
        """The static twin, as SVG text: the timeline, or, before anything is chosen, the board."""
        return twin(self.picture) if self.hand.chosen else board_svg(self.board["rows"], self.told)

    def _repr_mimebundle_(self, **more):
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/svg+xml": self.twin, "text/plain": f"{self.told} {self.timeline.summary}"}, metadata


def _goal(hand, costs):
    times = ", ".join(f"{kind} {shown(costs.of(kind, 0))}" for kind in hand.kinds)
    limit = f" Activations on a rank: {hand.limit} at most." if hand.limit else ""
    return (
        f"You are the scheduler of {hand.ranks} ranks and {hand.microbatches} microbatches: "
        f"choose the next action of each rank. Durations: {times}.{limit}"
    )


def _board(hand, timeline, costs):
    """The state that `game.js` shows: a row of choices per rank, and a few numbers."""
    rows = [
        {
            "held": hand.held[r],
            "peak": timeline.peak_live[r],
            "choices": [_button(hand, r, one, costs) for one in hand.choices(r)],
        }
        for r in range(hand.ranks)
    ]
    return {
        "rows": rows,
        "limit": hand.limit or 0,
        "chosen": len(hand.chosen),
        "all": hand.everything.actions,
        "length": shown(timeline.length),
        "lost": shown(lost(timeline)),
    }


def _button(hand, rank, choice, costs):
    text = f"{choice.kind}{choice.action.microbatch}" if choice.action else choice.kind
    told = "" if choice.why_not else _when(simulate(hand.choose(rank, choice.kind).schedule, costs), rank)
    return {"kind": choice.kind, "text": text, "left": choice.action is not None, "why": choice.why_not, "told": told}


def lost(timeline: Timeline) -> float:
    """Idle rank-time before each rank's last chosen action, in units, which no later choice can fill.

    >>> from hybridlab.scheduling.registry import schedule
    >>> lost(simulate(schedule("naive", ranks=2, microbatches=1), Costs(F=1, B=2)))
    4.0
    """
    of_rank = zip(timeline.flow.program, timeline.flow.program[1:])
    ends = [timeline.end[timeline.typical, a:b].max(initial=0) for a, b in of_rank]
    return float(np.sum(ends) * timeline.tick - sum(timeline.busy))


def _when(timeline, rank):
    """The last action of a rank in words: its start and end, and how long the rank waits for it."""
    a, b = timeline.flow.program[rank : rank + 2]
    last = timeline.span(timeline.typical, b - 1)
    free = float(timeline.end[timeline.typical, a : b - 1].max(initial=0) * timeline.tick)
    waits = f", after waiting {shown(last.begin - free)}" if last.begin > free else ""
    return f"{last.action} on rank {rank}: {shown(last.begin)} to {shown(last.end)}{waits}"


def _done(timeline, hand):
    rank = int(hand.everything.rank[hand.chosen[-1]])
    return f"{_when(timeline, rank)}. Rank {rank} holds {hand.held[rank]}."


def _overlaid(predicted, real):
    """The picture of a run under its prediction, and how well they agree."""
    return picture(predicted, real), (
        f"Measured on {real.schedule.ranks} real processes, work emulated by waiting: idle/total "
        f"{real.bubble_fraction:.1%}, predicted with the costs of the run {predicted.bubble_fraction:.1%}."
    )


def _rivals(hand, costs):
    """The schedules to compare a finished game with: 1F1B, and the best that `automatic` finds with two halves."""
    chosen = [make("1f1b", ranks=hand.ranks, microbatches=hand.microbatches),
              automatic(hand.ranks, hand.microbatches, costs, limit=hand.limit)]  # fmt: skip
    return [simulate(one, costs) for one in chosen]


def _verdict(mine, rivals, least, hand):
    """A finished game in words: its length, its idle time and memory, and how much better it could be."""
    if not rivals:
        return ""
    fifo, found = rivals
    kinds = " and ".join([", ".join(hand.kinds[:-1]), hand.kinds[-1]])
    beyond = hand.limit is not None and max(fifo.peak_live) > hand.limit
    words = [
        f"Finished: {shown(mine.length)} units, idle/total {mine.bubble_fraction:.1%}, "
        f"at most {max(mine.peak_live)} activations on a rank.",
        f"1F1B needs {shown(fifo.length)} units and {max(fifo.peak_live)} activations"
        + (", more than the limit." if beyond else "."),
        f"hl.automatic, with F, I and W, needs {shown(found.length)} and {max(found.peak_live)}.",
    ]
    if mine.length <= least:
        words.append(f"No order of {kinds} on these ranks is shorter than yours.")
    else:
        words.append(f"No order of {kinds} on these ranks is shorter than {shown(least)} units.")
    return " " + " ".join(words)
