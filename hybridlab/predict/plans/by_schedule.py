"""Simulate the step of a plan action by action, with its real schedule instead of the closed formula.

The formula of `predict.plans.performance` is m + (p - 1)/v. Here the ranks' lists of actions give the time.

Relatives: `predict.plans.performance`, `predict.time.simulate`, `schedules`, notebook 41.
"""

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.plans.jobs import schedule_name
from hybridlab.predict.plans.kinds import stages_of
from hybridlab.predict.plans.performance import FITTED, Fit, pieces
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.slicing import first_of
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.lower import lower
from hybridlab.scheduling.registry import schedule


def schedule_of(plan: Plan, batch: int) -> Schedule:
    """The schedule of one copy of a plan's pipeline: 1F1B, interleaved if ranks have several chunks, or Seq1F1B.

    >>> schedule_of(Plan(p=4, b=1, v=2), batch=8).name
    'interleaved'
    """
    more = {name: many for name, many in (("chunks", plan.v), ("slices", plan.n)) if many > 1}
    return schedule(schedule_name(plan), ranks=plan.p, microbatches=plan.microbatches(batch), **more)


def by_schedule(shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED) -> Timeline:
    """The timeline of one copy, in seconds, without the all-reduce over copies and the optimizer, which follow it.

    shape    of the model
    plan     the plan to simulate
    batch    sequences in the global batch
    machine  the machine on which it runs
    fit      the three fitted numbers

    Slices of equal cost take equal times in blocks; in the head, their times are proportional to their tokens. A
    message occupies each of its two ranks for half its time, since nothing overlaps in the measured programs.

    >>> from hybridlab.core.what.catalog import machine, model
    >>> one = Plan(p=8, t=8, d=24, b=2, v=2, recompute=2, scatter=True)
    >>> timeline = by_schedule(model("gpt-145.6b").shape, one, 2304, machine("a100"))
    >>> print(f"{timeline.length:.1f} s, idle {timeline.bubble_fraction:.1%}")
    24.4 s, idle 8.7%
    """
    found = pieces(shape, plan, batch, machine, fit)
    forward, backward, head, hop = found[:4]
    third = float(head) / 3  # one of the three matmuls of the head belongs to the forward
    blocks, tokens = stages_of(shape, plan), np.diff(first_of(shape, plan.n, np.arange(plan.n + 1)))
    kinds = zip((forward, backward), found.plain)
    F, B = ([one.sum(*map(float, map(added, both))) / plan.n for one in blocks for _ in tokens] for both in kinds)
    for slice_, part in enumerate(tokens, start=-plan.n):
        F[slice_], B[slice_] = F[slice_] + part * third, B[slice_] + 2 * part * third
    return simulate(lower(schedule_of(plan, batch)), Costs(F=tuple(F), B=tuple(B), post=float(hop) / 2, unit="s"))
