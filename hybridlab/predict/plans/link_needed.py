"""Compute the bandwidth between nodes at which the all-reduces over copies that train alone cost almost no time.

Relatives: `predict.bytes.local_steps.link_needed`, the same for exchanges that steps hide; `predict.plans.planner`,
which prints it; `predict.plans.time_of_moves`; notebook 21.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from hybridlab.predict.plans.performance import without_moves
from hybridlab.predict.plans.rates import Rates
from hybridlab.predict.plans.time_of_moves import Exchange, exchanges

if TYPE_CHECKING:
    from hybridlab.predict.plans.planner import Planned

LITTLE = 0.01  # fraction of a step


def link_needed(planned: "Planned", share: float = LITTLE) -> float:
    """The bytes/s that a device must send to other nodes, so that the exposed part of the best plan's exchanges takes
    at most this fraction of its steps (`sync_delay` hides the rest). The other terms of the step stay as they are.

    0 if all copies are in one node, or gradients are summed in every step; infinite if latency alone takes longer.

    >>> import hybridlab as hl
    >>> about = dict(gpus=256, batch=1024, p=2, t=4, v=10, sums="local", sync_every=100)
    >>> for more in ({}, {"sync_delay": 1}, {"fragments": 10, "sync_delay": 1}, {"fragments": 10, "sync_delay": 10}):
    ...     print(f"{link_needed(hl.plan('gpt-18.4b', 'a100', **about | more)) / 1e9:.3f} GB/s")
    0.675 GB/s
    0.320 GB/s
    0.062 GB/s
    0.008 GB/s
    """
    plan = planned.best.plan
    if not plan.sync_every:
        return 0.0
    step, there = _others(planned), _exchanges(planned, planned.machine.across)
    allowed, hidden, needed = plan.sync_every * share / (1 - share) * step, plan.rounds.hiding * step, [0.0]
    for some in ((0,), (1,), (0, 1)):  # whether exchanges are longer than the steps that hide them
        bytes_ = free = 0.0
        for one, least in ((there[at], _exchanges(planned, math.inf)[at]) for at in some):
            bytes_ += one.times * (one.seconds - least.seconds) * planned.machine.across
            free += one.times * (hidden - least.seconds)
        if bytes_:
            needed.append(bytes_ / (allowed + free) if allowed + free > 0 else math.inf)
    return float(max(needed))


def told(planned: "Planned") -> str:
    """A sentence with the cost of the best plan's exchanges, and the link that makes them cheap."""
    total = planned.best.step.total
    share = (total - _others(planned)) / total
    needed = link_needed(planned)
    link = f"; from {needed / 1e9:.3g} GB/s between nodes for each device, at most {LITTLE:.0%}"
    if math.isinf(needed):
        link = f"; their latency alone is more than {LITTLE:.0%}"
    return f"Sums over the copies take {share:.2%} of the quickest plan's steps{link * (needed > 0)}"


def _others(planned: "Planned") -> float:
    """The seconds of a step of the best plan without its exchanges."""
    about = planned.shape, planned.best.plan, planned.batch, planned.machine, planned.fit, planned.software
    return float(without_moves(*about).total)


def _exchanges(planned: "Planned", across: float) -> tuple[Exchange, Exchange]:
    """The exchanges of the best plan, if `across` bytes/s are sent between nodes."""
    rates = Rates.of(replace(planned.machine, across=across), planned.fit, planned.software)
    return exchanges(planned.shape, planned.best.plan, rates, planned.software)
