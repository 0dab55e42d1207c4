"""The plans that run with a given schedule: the fields that its name fixes, and a sentence for all other schedules.

Relatives: `predict.plans.jobs.schedule_name`, the same relation in the other direction; `predict.plans.by_schedule`.
"""

import numpy as np

from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.space import SHORTEST
from hybridlab.scheduling.registry import options_of

FIXED = {
    "1f1b": {"v": 1, "n": 1, "spread_head": False},
    "interleaved": {"n": 1, "spread_head": False},
    "seq1f1b": {"spread_head": False},
    "vocabulary_1f1b": {"v": 1, "n": 1, "spread_head": True},
}


def fixed_by(schedule: str | None, given: dict) -> dict:
    """The given fields of a plan, with those that a schedule fixes.

    raises  ValueError for an unknown schedule, one that is not searched, and a given field that contradicts it

    >>> fixed_by("1f1b", {"p": 4})
    {'p': 4, 'v': 1, 'n': 1, 'spread_head': False}
    """
    if schedule is None:
        return given
    options_of(schedule)  # refuses an unknown name
    if schedule not in FIXED:
        raise ValueError(
            f"schedule={schedule!r} is not searched, because the closed formulas of plans do not cover it: choose from "
            f"{', '.join(FIXED)}, or simulate a plan with it by hl.plans.by_schedule"
        )
    for name, value in FIXED[schedule].items():
        if given.get(name, value) != value:
            raise ValueError(f"schedule={schedule!r} has {name}={value}, not {given[name]}: leave out {name}")
    return given | FIXED[schedule]


def runs_with(schedule: str, plans: Plan) -> np.ndarray:
    """Whether plans with the fields that a schedule fixes have the chunks or slices which it needs.

    >>> print(runs_with("interleaved", Plan(v=np.array([1, 2]))))
    [False  True]
    """
    every = np.ones(np.shape(plans.p), bool)
    return every & {"interleaved": np.greater(plans.v, 1), "seq1f1b": np.greater(plans.n, 1)}.get(schedule, True)


def found_none(schedule: str, shape: Shape, given: dict) -> str:
    """The error message if no legal plan with these fields runs with a schedule.

    >>> found_none("interleaved", Shape(), {})
    "no legal plan runs with schedule='interleaved': leave it out, or give other sizes or batch"
    """
    if schedule == "seq1f1b" and "n" not in given and shape.context < 2 * SHORTEST:
        return (
            f"schedule={schedule!r} is searched with slices of {SHORTEST:,} tokens or more, but a row has only "
            f"{shape.context:,}: give the number of slices, such as 4"
        )
    return f"no legal plan runs with schedule={schedule!r}: leave it out, or give other sizes or batch"
