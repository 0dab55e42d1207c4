"""Simulate the step of a plan action by action, with its real schedule or another one, instead of the closed formula.

The formula of `predict.plans.performance` is m + (p - 1)/v. Here the ranks' lists of actions give the time.

Relatives: `predict.plans.performance`, `predict.time.simulate`, `scheduling.norms`, notebooks 14 and 41.
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
from hybridlab.scheduling.norms import in_a_row, with_norm
from hybridlab.scheduling.registry import options_of
from hybridlab.scheduling.registry import schedule as made


def schedule_of(plan: Plan, batch: int, name: str | None = None) -> Schedule:
    """The schedule of one copy of a plan's pipeline: 1F1B, interleaved if ranks have several chunks, or Seq1F1B; or the
    one with this name.

    >>> schedule_of(Plan(p=4, b=1, v=2), batch=8).name
    'interleaved'
    """
    name, sizes = name or schedule_name(plan), {"chunks": plan.v, "slices": plan.n}
    more = {option: many for option, many in sizes.items() if many > 1 and option in options_of(name)}
    return made(name, ranks=plan.p, microbatches=plan.microbatches(batch), **more)


def by_schedule(
    shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED, schedule: str | None = None
) -> Timeline:
    """The timeline of one copy, in seconds, without the all-reduce over copies and the optimizer, which follow it.

    shape     of the model
    plan      the plan to simulate
    batch     sequences in the global batch
    machine   the machine on which it runs
    fit       the three fitted numbers
    schedule  its name; None: the plan's

    Slices of equal cost take equal times in blocks; in the head, their times are proportional to their tokens. A
    message occupies each of its two ranks for half its time, since nothing overlaps in the measured programs. The two
    halves of a backward take equal times.

    raises  ValueError if the schedule has different stages from the plan

    >>> from hybridlab.core.what.catalog import machine, model
    >>> one = Plan(p=8, t=8, d=24, b=2, v=2, recompute=2, scatter=True)
    >>> timeline = by_schedule(model("gpt-145.6b").shape, one, 2304, machine("a100"))
    >>> print(f"{timeline.length:.1f} s, idle {timeline.bubble_fraction:.1%}")
    24.4 s, idle 8.7%
    """
    return simulate(lower(schedule_of(plan, batch, schedule)), _costs(shape, plan, batch, machine, fit))


def seconds_of_clipping(
    shape: Shape,
    plan: Plan,
    batch: int,
    machine: Machine,
    fit: Fit = FITTED,
    schedule: str | None = None,
    validated: str = "before",
) -> float:
    """The seconds that clipping adds to each of many steps in a row, since ranks wait for the norm of all gradients.

    shape      of the model
    plan       the plan to simulate
    batch      sequences in the global batch
    machine    the machine on which it runs
    fit        the three fitted numbers
    schedule   as in `by_schedule`
    validated  as for a job: ranks learn the norm "before" their optimizer step, or "after" it. Messages take no time
               here

    The plans of `hl.plan` assume that the norm is known before the step. With their schedules, this adds nothing: no
    rank could begin its next step sooner. To ZB-H2 it adds the fill, (p - 1)F, if the slowest rank is idle in the fill
    only: with F = I = W, the fraction (p - 1)/(3m) of its work. The norm after the step adds nothing to 1F1B and ZB-H2.

    raises  ValueError if the schedule has different stages from the plan, or optimizer steps

    >>> from hybridlab.core.what.catalog import machine, model
    >>> about = model("gpt-18.4b").shape, Plan(p=8, t=8), 24, machine("a100")
    >>> for name in ("1f1b", "zb_h2"):
    ...     added = (seconds_of_clipping(*about, schedule=name, validated=place) for place in ("before", "after"))
    ...     print(name, *(f"{seconds:.3f} s" for seconds in added))
    1f1b 0.000 s 0.000 s
    zb_h2 0.092 s 0.000 s
    """
    order, costs = schedule_of(plan, batch, schedule), _costs(shape, plan, batch, machine, fit)
    clipped, plain = (simulate(in_a_row(with_norm(order, place), 2), costs) for place in (validated, None))
    return clipped.length - plain.length  # the first step takes equally long


def _costs(shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit) -> Costs:
    """The seconds of a plan's forwards, backwards and messages."""
    found = pieces(shape, plan, batch, machine, fit)
    forward, backward, head, hop = found[:4]
    third = float(head) / 3  # one of the three matmuls of the head belongs to the forward
    blocks, tokens = stages_of(shape, plan), np.diff(first_of(shape, plan.n, np.arange(plan.n + 1)))
    kinds = zip((forward, backward), found.plain)
    F, B = ([one.sum(*map(float, map(added, both))) / plan.n for one in blocks for _ in tokens] for both in kinds)
    for slice_, part in enumerate(tokens, start=-plan.n):
        F[slice_], B[slice_] = F[slice_] + part * third, B[slice_] + 2 * part * third
    return Costs(F=tuple(F), B=tuple(B), post=float(hop) / 2, unit="s")
