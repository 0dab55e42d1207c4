"""Predict goodput: the useful fraction of a long run on many ranks with failures, checkpoints and varying steps.

There are two methods: a formula, and a replay that draws every step of every rank and every failure at random. In each
step all ranks wait for the slowest one. A failure loses all work since the last checkpoint; or, where a stage has
copies, only its step: the other copies take over until the rank is repaired (`scheduling.rerouted`).

Sources: Young 1974, *A first order approximation to the optimum checkpoint interval*; Daly 2006, *A higher order
estimate of the optimum checkpoint interval for restart dumps*; Gandhi et al. 2024, *ReCycle*, arXiv:2405.14009.
Relatives: `predict.plans.planner` (seconds of a step), `world.explain` (what fails on real ranks), notebooks 40, 42.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.doors import COUNT, guarded, span

AT_ONCE = 1 << 22  # numbers drawn at a time


def _slow(name: str, value: tuple) -> None:
    for one in value:
        if not isinstance(one, tuple) or len(one) != 2 or not all(isinstance(each, Real) for each in one):
            raise ValueError(f"{name} has {one!r}, not a rank and its slowdown: give pairs, such as ((3, 0.5),)")


@guarded(span(0, math.inf, "give 0 or more"), slow=_slow, copies=COUNT)
@dataclass(frozen=True)
class Troubles:
    """The interruptions of a run: failures, checkpoints, varying steps.

    device_hours  mean hours until one device or its link fails;  restart  seconds until all ranks train again
    copies  of each stage, d: with 2 or more, the others do the work of the f lost ranks of a stage, and a step takes
            d/(d - f) times as long until these ranks are repaired; if no copy is left, the run restarts from a
            checkpoint
    repair  seconds until a lost rank is replaced, with copies;  reroute  seconds until the other ranks train again
    save          seconds in which all ranks save the state
    jitter        the standard deviation of a rank's step, as a fraction of it;  slow  (rank, relative slowdown) pairs

    raises  ValueError if a number is negative, or `copies` is not a positive integer

    >>> Troubles(device_hours=50_000).between_failures(16_384) / 3600  # hours, on as many GPUs as trained Llama 3
    3.0517578125
    """

    device_hours: float = math.inf
    restart: float = 0.0
    save: float = 0.0
    jitter: float = 0.0
    slow: tuple[tuple[int, float], ...] = ()
    copies: int = 1
    repair: float = 0.0
    reroute: float = 0.0

    def between_failures(self, ranks: int) -> float:
        """Mean seconds between two failures on any rank."""
        return 3600 * self.device_hours / ranks


class Spent(NamedTuple):
    """Seconds of a complete run, by cause."""

    training: float
    waiting: float
    saving: float
    lost: float
    restarting: float

    @property
    def total(self) -> float:
        """The sum of all causes."""
        return added(self)

    @property
    def goodput(self) -> float:
        """The time that an undisturbed rank would need, as a fraction of the total."""
        return self.training / self.total


def young(save: float, between: float) -> float:
    """Young's interval: seconds of work between two saves, √(2·save·between failures).

    >>> round(young(save=60, between=3 * 3600) / 60)
    19
    """
    return math.sqrt(2 * save * between)


def daly(save: float, between: float) -> float:
    """The best time between two checkpoints, in seconds, by Daly's formula: Young's with two more terms, for long
    saves.

    save     seconds that a save takes
    between  seconds between two failures

    >>> round(daly(save=60, between=3 * 3600) / 60)
    18
    """
    if save >= 2 * between:
        return between
    share = save / (2 * between)
    return math.sqrt(2 * save * between) * (1 + math.sqrt(share) / 3 + share / 9) - save


@cache
def slowest(ranks: int, jitter: float) -> float:
    """The mean step time of the slowest of some ranks, relative to an undisturbed step.

    Steps are independent and normal.

    It integrates the distribution of the maximum; the result is about 1 + jitter·√(2 ln ranks).

    >>> round(slowest(10_000, jitter=0.02), 4)
    1.077
    """
    at = np.linspace(-8, 10, 20_001)
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in at])
    largest = np.diff(below**ranks)
    return 1 + jitter * float(np.sum(largest * (at[:-1] + at[1:]) / 2))


def expected(seconds: float, steps: int, ranks: int, troubles: Troubles, every: int) -> float:
    """Mean seconds of a run by formula: M·e^(R/M)·(e^((τ+δ)/M) - 1) for each τ of work between saves (Daly).

    With copies, a failure costs half a step and the rerouting, and while any rank awaits its repair, a step takes
    d/(d-1) times as long: this is the first order in the number of failures, and assumes that a copy is repaired before
    another one of its stage is lost. It is infinite if failures cost as much time as passes between them, so that no
    step ends.

    seconds  the seconds of a step of one undisturbed rank;  every  the number of steps from one save to the next
    """
    worst = max((by for _, by in troubles.slow), default=0.0)
    step = seconds * max(slowest(ranks, troubles.jitter), 1 + worst)
    work, between = every * step + troubles.save, troubles.between_failures(ranks)
    if math.isinf(between):
        return steps / every * work
    if troubles.copies > 1:
        slower = 1 - math.expm1(-max(troubles.repair - troubles.reroute, 0) / between) / (troubles.copies - 1)
        paused = (troubles.reroute + slower * step / 2) / between
        return steps * (slower * step + troubles.save / every) / (1 - paused) if paused < 1 else math.inf
    return steps / every * between * math.exp(troubles.restart / between) * math.expm1(work / between)


def replay(seconds: float, steps: int, ranks: int, troubles: Troubles, every: int, seed: int = 0) -> Spent:
    """The replay of one random run: every step of every rank and every failure, including those during saves and
    restarts.

    seconds   of one step
    steps     of the run
    ranks     in the run
    troubles  the rates of failures and their costs
    every     steps from one save to the next
    seed      of the failures

    raises  ValueError if there are no steps, ranks or saves, or the ranks cannot be copies of the same stages

    >>> replay(2.0, steps=100, ranks=64, troubles=Troubles(save=1.0), every=10).goodput
    0.9523809523809523
    """
    if min(steps, ranks, every) < 1:
        raise ValueError(f"steps={steps}, ranks={ranks}, every={every} are not all positive: give 1 or more of each")
    if ranks % troubles.copies:
        raise ValueError(
            f"ranks={ranks} is not a multiple of copies={troubles.copies}, and every copy has the same stages: give a "
            "multiple"
        )
    draw = np.random.default_rng(seed)
    times = _steps(draw, seconds, ranks, troubles)
    between = troubles.between_failures(ranks)
    if troubles.copies > 1:
        return _rerouted(draw, times, seconds=seconds, steps=steps, ranks=ranks, every=every, troubles=troubles)
    until = math.inf if math.isinf(between) else draw.exponential(between)
    spent = dict.fromkeys(Spent._fields, 0.0)
    done = 0
    while done < steps:
        target, since = min(done + every, steps), 0.0
        step = done
        while step < target and since < until:
            since += next(times)
            step += 1
        since += troubles.save if step == target else 0.0
        if since <= until:
            useful = seconds * (target - done)
            spent["training"] += useful
            spent["saving"] += troubles.save
            spent["waiting"] += since - troubles.save - useful
            until, done = until - since, target
            continue
        spent["lost"] += until  # then it restarts until a restart is not interrupted
        until = draw.exponential(between)
        while until < troubles.restart:
            spent["restarting"] += until
            until = draw.exponential(between)
        spent["restarting"] += troubles.restart
        until -= troubles.restart
    return Spent(**spent)


def _rerouted(
    draw: np.random.Generator,
    times: Iterator[float],
    *,
    seconds: float,
    steps: int,
    ranks: int,
    every: int,
    troubles: Troubles,
) -> Spent:
    """The replay of a run in which the copies of a lost rank do its work until it is repaired.

    No rank fails during a pause. If a restart loses the work since the last save, the waiting in it still counts as
    waiting. Failures come at the rate of all ranks, also while some are lost; after a restart, all ranks are back.

    draw   of failures and their stages;  times  of consecutive steps with all ranks;  others  as for `replay`
    """
    stages, between = ranks // troubles.copies, troubles.between_failures(ranks)
    failure = lambda: math.inf if math.isinf(between) else draw.exponential(between)
    spent, gone = dict.fromkeys(Spent._fields, 0.0), []  # gone: (until when, stage) of each lost rank
    now, done, saved, fails = 0.0, 0, 0, failure()
    while done < steps:
        gone = [one for one in gone if one[0] > now]
        most = max(Counter(stage for _, stage in gone).values(), default=0)
        work = next(times) * troubles.copies / (troubles.copies - most)
        save = troubles.save if (done + 1) % every == 0 or done + 1 == steps else 0.0
        if now + work + save <= fails:
            now, done, saved = now + work + save, done + 1, done + 1 if (done + 1) % every == 0 else saved
            for cause, its in (("training", seconds), ("waiting", work - seconds), ("saving", save)):
                spent[cause] += its
            continue
        spent["lost"] += fails - now
        gone = [one for one in gone if one[0] > fails]  # some were repaired during this step
        gone.append((fails + troubles.repair, int(draw.integers(stages))))
        pause = troubles.reroute
        if [stage for _, stage in gone].count(gone[-1][1]) == troubles.copies:  # no rank has the state of this stage
            spent["training"] -= seconds * (done - saved)
            spent["lost"] += seconds * (done - saved)
            pause, done, gone = troubles.restart, saved, []
        spent["restarting"] += pause
        now = fails + pause
        fails = now + failure()
    return Spent(**spent)


def _steps(draw: np.random.Generator, seconds: float, ranks: int, troubles: Troubles) -> Iterator[float]:
    """The times of consecutive steps: the slowest rank's time of each."""
    usual = np.ones(ranks)
    for rank, by in troubles.slow:
        usual[rank] += by
    if not troubles.jitter:
        while True:
            yield seconds * float(usual.max())
    count = max(AT_ONCE // ranks, 1)
    while True:
        drawn = usual + troubles.jitter * draw.standard_normal((count, ranks))
        yield from (seconds * np.maximum(drawn.max(1), 0)).tolist()
