"""Compute the seconds to reduce gradients and gather weights among ranks with the same weights, and the exposed part.

An all-reduce is a reduce-scatter and an all-gather; in ZeRO, the optimizer step comes between the two. `software` gives
the hidden fraction: the reduce-scatter overlaps with a backward, a gather with a forward.

  stage of ZeRO     gathers                            reduce-scatters
  0, 1, 2           one in a step                      one in a step
  2, of `each`      one for every microbatch           one for every microbatch
  3                 two for every microbatch           one in a step; of `each`: one for every microbatch

With local steps, ranks with the same weights are those of one copy. The copies all-reduce their moves, in numbers as
wide as gradients, once in `sync_every` steps. This follows the last backward of a step, so nothing hides it.

Relatives: `predict.plans.performance`, `predict.plans.software`, notebook 22.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import Near, Rates
from hybridlab.predict.plans.software import Software, shown

VALUE = 2  # bytes of a weight that is sent


class Copies(NamedTuple):
    """Seconds of one gather of the weights among the ranks that shard them, of one reduce-scatter of their gradients,
    and of the all-reduce over all other copies if only z copies shard; with two levels, of a reduce-scatter and a
    gather there. `again`: of one gather from second copies, or a usual one."""

    gather: float
    reduce: float
    others: float
    again: float


def among_copies(plan: Plan, rates: Rates, held: tuple[Amount, Amount], layers: Amount, software: Software) -> Copies:
    """The bytes sent once.

    held  weights of experts, which ranks along ep do not share, and all other weights;  layers  the layers of a stage
    """
    found = [
        _among(plan, copies, near, sharers, rates, weights, layers, software)
        for near, copies, sharers, weights in zip(_spread(plan, rates), plan.copies, plan.sharers, held)
        if np.any(weights)
    ]
    return Copies(*(added(seconds) for seconds in zip(*found)))


def _spread(plan: Plan, rates: Rates) -> tuple[Near, Near]:
    """The spread of all ranks along cp, ep and d that have the same experts, and of those with the same other weights,
    if the copies are equal."""
    return rates.of_experts(plan, "d", "cp+d"), rates.near(plan, "cp+ep+d")


def _among(plan: Plan, copies, near, sharers, rates: Rates, weights, layers, software: Software):
    parts = layers if software.layered else 1
    half = lambda bytes, ways: parts * rates.sum(ways, near.first(ways), bytes * weights / parts) / 2
    gather = half(VALUE, sharers)
    reduce = gather if software.gradient == VALUE else half(software.gradient, sharers)
    again = gather
    if np.any(plan.secondary):
        again = np.where(plan.secondary > 0, half(VALUE, np.maximum(plan.secondary, 1)), gather)
    if not np.any(plan.z):
        return gather, reduce, 0.0, again
    rest = copies // sharers
    width = np.where(plan.two_levels, (software.gradient + VALUE) / 2, software.gradient)
    others = rates.sum(rest, near.every(sharers, rest), width * weights / sharers)
    return gather, reduce, np.where(plan.z, others, 0.0), again


def seconds_of_moves(plan: Plan, rates: Rates, held: tuple[Amount, Amount], software: Software) -> Amount:
    """The seconds of one all-reduce of the copies' moves; 0 without local steps."""
    if not np.any(plan.sync_every):
        return 0.0
    found = [
        rates.sum(plan.d, near.every(inside, plan.d), software.gradient * weights)
        for near, inside, weights in zip(_spread(plan, rates), plan.copies, held)
        if np.any(weights)
    ]
    return np.where(plan.sync_every, added(found), 0.0)


def seconds_of_copies(
    once: Copies, plan: Plan, microbatches: Amount, forward: Amount, backward: Amount, software: Software
) -> Amount:
    """The exposed part of it in a step.

    forward, backward  seconds of one microbatch in all layers of a stage, which can overlap with messages
    """
    gather, reduce, others, repeated = once
    hidden = lambda carried, beside: shown(carried, beside, software.gradients)
    once_each = np.where(
        plan.zero == 0, hidden(2 * reduce, backward), hidden(gather, forward) + hidden(reduce, backward)
    )
    collected, later = (shown(one, forward, software.gathers) for one in (gather, repeated))
    first = np.where(plan.zero == 3, collected - later, 0.0)  # the first one of a step, where others are shorter
    if not software.each:
        again = later + shown(repeated, backward, software.gathers)
        return np.where(plan.zero == 3, first + microbatches * again + hidden(reduce + others, backward), once_each)
    summed = collected + hidden(reduce, backward)
    again = later + shown(repeated + reduce, backward, software.gathers)
    each = microbatches * np.where(plan.zero == 3, again, summed)
    return np.where(plan.zero >= 2, first + each + hidden(others, backward), once_each)
