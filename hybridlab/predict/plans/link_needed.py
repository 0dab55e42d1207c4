"""Compute the bandwidth between nodes with which the sums over copies that step alone cost almost no time.

Relatives: `predict.bytes.local_steps.link_needed`, the same for exchanges that steps hide; `predict.plans.planner`,
which prints it; notebook 21.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from hybridlab.predict.plans.heaviest import heaviest
from hybridlab.predict.plans.rates import Rates
from hybridlab.predict.plans.time_of_gradients import seconds_of_moves

if TYPE_CHECKING:
    from hybridlab.predict.plans.planner import Planned

LITTLE = 0.01  # fraction of a step


def link_needed(planned: "Planned", share: float = LITTLE) -> float:
    """Bytes/s that a device must send to other nodes, so that the sums of the best plan's moves take at most this share
    of its steps. The other terms of the step stay as they are.

    0 if all copies are in one node, or gradients are summed in every step; infinite if latency alone takes longer.

    >>> import hybridlab as hl
    >>> planned = hl.plan("gpt-18.4b", "a100", gpus=256, batch=1024, sums="local", sync_every=100)
    >>> print(f"{link_needed(planned) / 1e9:.2f} GB/s")
    0.68 GB/s
    """
    best = planned.best
    others = best.step.total - _seconds(planned, planned.machine.across)
    allowed, least = share / (1 - share) * others, _seconds(planned, math.inf)
    sent = (_seconds(planned, planned.machine.across) - least) * planned.machine.across
    if not sent:
        return 0.0
    return sent / (allowed - least) if allowed > least else math.inf


def told(planned: "Planned") -> str:
    """The cost of the best plan's sums in a sentence, and the link that makes them cheap."""
    share = _seconds(planned, planned.machine.across) / planned.best.step.total
    needed = link_needed(planned)
    link = f"; from {needed / 1e9:.3g} GB/s between nodes for each device, at most {LITTLE:.0%}"
    if math.isinf(needed):
        link = f"; their latency alone is more than {LITTLE:.0%}"
    return f"Sums over the copies take {share:.2%} of the quickest plan's steps{link * (needed > 0)}"


def _seconds(planned: "Planned", across: float) -> float:
    """The seconds of sums in a step of the best plan, on average, with so many bytes/s between nodes."""
    plan, machine = planned.best.plan, replace(planned.machine, across=across)
    rates = Rates.of(machine, planned.fit, planned.software)
    once = seconds_of_moves(plan, rates, heaviest(planned.shape, plan), planned.software)
    return float(once) / max(plan.sync_every, 1)
