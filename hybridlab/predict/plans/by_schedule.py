"""Simulate the step of a plan action by action, with its real schedule instead of the closed formula.

The formula of `predict.plans.performance` is m + (p - 1)/v. Here the ranks' lists of actions give the time.

Relatives: `predict.plans.performance`, `predict.time.simulate`, `schedules`, notebook 41.
"""

from hybridlab.core.added import added
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.performance import FITTED, Fit, pieces
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.lower import lower
from hybridlab.scheduling.registry import schedule


def schedule_of(plan: Plan, batch: int) -> Schedule:
    """The schedule of one copy of a plan's pipeline: 1F1B, interleaved if ranks have several chunks.

    >>> schedule_of(Plan(p=4, b=1, v=2), batch=8).name
    'interleaved'
    """
    name, more = ("interleaved", {"chunks": plan.v}) if plan.v > 1 else ("1f1b", {})
    return schedule(name, ranks=plan.p, microbatches=plan.microbatches(batch), **more)


def by_schedule(shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED) -> Timeline:
    """The timeline of one copy, in seconds, without the all-reduce over copies and the optimizer, which follow it.

    shape    of the model
    plan     to simulate
    batch    sequences in the global batch
    machine  on which it runs
    fit      the three fitted numbers

    A message occupies each of its two ranks for half its time, since nothing overlaps in the measured programs.

    >>> from hybridlab.core.what.catalog import machine, model
    >>> one = Plan(p=8, t=8, d=24, b=2, v=2, recompute=2, scatter=True)
    >>> timeline = by_schedule(model("gpt-145.6b").shape, one, 2304, machine("a100"))
    >>> print(f"{timeline.length:.1f} s, idle {timeline.bubble_fraction:.1%}")
    24.4 s, idle 8.7%
    """
    forward, backward, head, hop, _, _ = pieces(shape, plan, batch, machine, fit)
    third = float(head) / 3  # one of the three matmuls of the head belongs to the forward
    F, B = (
        [blocks * float(added(one)) for blocks in dealt(shape.layers, plan.p * plan.v)] for one in (forward, backward)
    )
    F[-1], B[-1] = F[-1] + third, B[-1] + 2 * third
    return simulate(lower(schedule_of(plan, batch)), Costs(F=tuple(F), B=tuple(B), post=float(hop) / 2, unit="s"))
