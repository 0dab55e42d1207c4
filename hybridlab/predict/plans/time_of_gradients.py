"""Compute the seconds to reduce gradients and gather weights among ranks with the same weights, and the exposed part.

An all-reduce is a reduce-scatter and an all-gather; in ZeRO, the optimizer step comes between the two. `software` gives
the hidden fraction: the reduce-scatter overlaps with a backward, a gather with a forward.

  stage of ZeRO     gathers                            reduce-scatters
  0, 1, 2           one in a step                      one in a step
  2, of `each`      one for every microbatch           one for every microbatch
  3                 two for every microbatch           one in a step; of `each`: one for every microbatch

With local steps, ranks with the same weights are those of one copy; `predict.plans.time_of_moves` has the seconds to
exchange the moves of all copies.

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
    gather there. `again`: of one gather from second copies, or else of a usual gather."""

    gather: float
    reduce: float
    others: float
    again: float


def among_copies(plan: Plan, rates: Rates, held: tuple[Amount, Amount], layers: Amount, software: Software) -> Copies:
    """The seconds to send each kind of message once.

    held  weights of experts, which ranks along ep do not share, and all other weights;  layers  the layers of a stage
    """
    found = [
        _among(plan, copies, near, sharers, rates, weights, layers, software)
        for near, copies, sharers, weights in zip(spread(plan, rates), plan.copies, plan.sharers, held)
        if np.any(weights)
    ]
    return Copies(*(added(seconds) for seconds in zip(*found)))


def spread(plan: Plan, rates: Rates) -> tuple[Near, Near]:
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


def seconds_of_copies(
    once: Copies, plan: Plan, microbatches: Amount, forward: Amount, backward: Amount, software: Software
) -> Amount:
    """The exposed seconds of these messages in a step.

    forward, backward  seconds of one microbatch in all layers of a stage, which can overlap with messages
    """
    gather, reduce, others, repeated = once
    hidden = lambda carried, beside: shown(carried, beside, software.gradients)
    reduced = hidden(reduce, backward)
    once_each = np.where(plan.zero == 0, hidden(2 * reduce, backward), hidden(gather, forward) + reduced)
    collected = later = shown(gather, forward, software.gathers)
    first = 0.0
    if np.any(plan.secondary):
        later = shown(repeated, forward, software.gathers)
        first = np.where(plan.zero == 3, collected - later, 0.0)  # the first of a step, if the others are shorter
    if not software.each:
        again = later + shown(repeated, backward, software.gathers)
        return np.where(plan.zero == 3, first + microbatches * again + hidden(reduce + others, backward), once_each)
    again = later + shown(repeated + reduce, backward, software.gathers)
    each = microbatches * np.where(plan.zero == 3, again, collected + reduced)
    return np.where(plan.zero >= 2, first + each + hidden(others, backward), once_each)
