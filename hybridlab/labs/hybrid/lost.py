"""A step after ranks were lost: the other copies of their stages take over, or the other pipelines. And how often to
save, if ranks are lost."""

from collections.abc import Sequence
from dataclasses import replace

from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.goodput import Troubles, daly, replay
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule
from hybridlab.scheduling.rerouted import rerouted
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.still import Still
from hybridlab.show.timelines.draw import draw

RESTARTING = Troubles(device_hours=50_000, save=60, restart=15 * 60)
REROUTING = replace(RESTARTING, copies=16, reroute=30, repair=4 * 3600)
STEP, STEPS = 10.0, 20_000  # seconds of a step, and their number
NONE = "none"  # the choice without a lost rank
PIPELINES, STAGES, EACH = 3, 4, 6  # the notebook's: dp, pp, and microbatches of one pipeline
RANKS, DAYS, FAILURES = 16_384, 54, 419  # of Llama 3 405B, unexpected interruptions: arXiv:2407.21783, section 3.3.4
BETWEEN = DAYS * 24 * 3600 / FAILURES  # seconds


def step(name: str, lost: Sequence[int]) -> Timeline:
    """A step whose work was rerouted, with F=1, B=2, and halves of 1."""
    one = schedule(name, ranks=STAGES, microbatches=EACH)
    return simulate(rerouted(one, PIPELINES, lost), Costs(F=1, I=1, W=1))


def length(name: str, lost: Sequence[int]) -> float:
    """The units that such a step takes.

    >>> length("1f1b", [2]), length("zb_h1", [2])
    (36.0, 29.0)
    """
    return step(name, lost).length


def gone() -> Chooser:
    """The timeline of such a step; buttons choose the schedule, and one or two lost ranks."""
    ranks = [NONE, *range(PIPELINES * STAGES)]
    names = {"name": ("schedule", ["1f1b", "zb_h1"], "1f1b")}
    return Chooser(gone_still, names | {"first": ("lost", ranks, 1), "second": ("and", ranks, 6)}, [{}])


def gone_still(name: str, first: int | str, second: int | str) -> Still:
    """The picture for one choice."""
    drawn = draw(step(name, sorted({one for one in (first, second) if isinstance(one, int)})))
    return Still(drawn.twin, drawn.summary)


def without(lost: Sequence[int]) -> float | None:
    """Units of a step of 1F1B if the pipelines of these ranks are left out, and the others share their microbatches.

    >>> without([2]), without([1, 6]), without([1, 6, 11])
    (36.0, 63.0, None)
    """
    left = PIPELINES - len({rank // STAGES for rank in lost})
    if not left:
        return None
    return simulate(schedule("1f1b", ranks=STAGES, microbatches=EACH * PIPELINES // left)).length


def goodputs(ranks: int) -> tuple[float, float, float]:
    """(hours between two failures, the goodput of a long run that restarts, that of one that reroutes).

    Both save as often as is best for restarts.

    >>> [round(number, 3) for number in goodputs(1024)]
    [48.828, 0.962, 0.981]
    """
    between = RESTARTING.between_failures(ranks)
    every = round(daly(RESTARTING.save, between) / STEP)
    restarting, rerouting = (replay(STEP, STEPS, ranks, one, every) for one in (RESTARTING, REROUTING))
    return between / 3600, restarting.goodput, rerouting.goodput


def saving(save: float, interval: float) -> tuple[float, ...]:
    """The fractions (saves, lost work, restarts, training) of the time of a long run that fails as often as Llama 3's.

    save      seconds of a save;  interval  seconds of work between two saves

    >>> [round(part, 2) for part in saving(save=60, interval=19 * 60)]
    [0.04, 0.04, 0.07, 0.84]
    """
    failing = replace(RESTARTING, device_hours=RANKS * BETWEEN / 3600, save=save)
    spent = replay(STEP, 10 * STEPS, RANKS, failing, round(interval / STEP))
    return tuple(part / spent.total for part in (spent.saving, spent.lost, spent.restarting, spent.training))
