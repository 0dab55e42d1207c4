"""A step after ranks were lost: the other copies of their stages take over, or the other pipelines."""

from collections.abc import Sequence
from dataclasses import replace

from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.goodput import Troubles, daly, replay
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule
from hybridlab.scheduling.rerouted import rerouted

RESTARTING = Troubles(device_hours=50_000, save=60, restart=15 * 60)
REROUTING = replace(RESTARTING, copies=16, reroute=30, repair=4 * 3600)
STEP, STEPS = 10.0, 20_000  # seconds of a step, and their number
PIPELINES, STAGES, EACH = 3, 4, 6  # the notebook's: dp, pp, and microbatches of one pipeline


def length(name: str, lost: Sequence[int]) -> float:
    """Units of a step whose work was rerouted, with F=1, B=2, and halves of 1.

    >>> length("1f1b", [2]), length("zb_h1", [2])
    (36.0, 29.0)
    """
    one = schedule(name, ranks=STAGES, microbatches=EACH)
    return simulate(rerouted(one, PIPELINES, lost), Costs(F=1, I=1, W=1)).length


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
