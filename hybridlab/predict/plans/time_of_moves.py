"""Compute the seconds in which copies that train alone exchange their updates, and the exposed part.

All copies all-reduce their updates, in numbers as wide as gradients, once in H = `sync_every` steps. This follows the
last backward of a step, so nothing hides it. With P = `fragments`, only the layers of one fragment are exchanged at a
time; and an exchange with a delay runs during the next τ = `sync_delay` steps, which hide it, if it does not take
longer. Of the P fragments one is the largest (`fragments`), and all others are counted as equal. An exchange that runs
during a step is assumed not to slow down the step's own messages.

Relatives: `modes.local_steps`, which does it; `predict.bytes.local_steps`, the same for one link; `performance`;
`link_needed`; notebook 21.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.fragments import largest_fragment, others
from hybridlab.predict.plans.heaviest import Load
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import Rates
from hybridlab.predict.plans.software import Software
from hybridlab.predict.plans.time_of_gradients import spread


class Exchange(NamedTuple):
    """The all-reduce of one fragment: how many of this length there are in H steps, and the seconds of one."""

    times: Amount
    seconds: Amount


def exchanges(shape: Shape, plan: Plan, rates: Rates, software: Software) -> tuple[Exchange, Exchange]:
    """The exchange of the largest fragment, and those of all others."""
    seconds = lambda moved: _once(plan, rates, moved, software)
    return (
        Exchange(1, seconds(largest_fragment(shape, plan))),
        Exchange(plan.fragments - 1, seconds(others(shape, plan))),
    )


def _once(plan: Plan, rates: Rates, moved: Load, software: Software) -> Amount:
    found = [
        rates.sum(plan.d, near.every(inside, plan.d), software.gradient * weights)
        for near, inside, weights in zip(spread(plan, rates), plan.copies, moved)
        if np.any(weights)
    ]
    return added(found) if found else 0.0


def seconds_of_moves(shape: Shape, plan: Plan, rates: Rates, software: Software, step: Amount) -> Amount:
    """The exposed seconds of exchanges in a step, on average; 0 without local steps.

    step  the seconds of a step without them
    """
    if not np.any(plan.sync_every):
        return 0.0
    exposed = [
        one.times * np.maximum(one.seconds - plan.rounds.hiding * step, 0)
        for one in exchanges(shape, plan, rates, software)
    ]
    return where(plan.sync_every, added(exposed) / plan.rounds.every, 0.0)
