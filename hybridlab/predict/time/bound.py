"""Compute a lower bound on the length of any order of the same actions."""

import numpy as np

from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.play import play
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.time.costs import Costs


def shortest(schedule: Schedule, costs: Costs | None = None) -> float:
    """A length that no order of this schedule's actions on its ranks can beat; some order may need longer.

    Each rank must wait for its first input, run all its actions one by one, and after its last one wait for the other
    ranks. And no chain of dependent actions can be shorter. Memory limits are not considered. The schedule must not
    contain messages.

    >>> from hybridlab.scheduling.registry import schedule
    >>> shortest(schedule("gpipe", ranks=4, microbatches=8), Costs(F=1, B=2))
    33.0
    """
    costs, flow = costs or Costs(), flow_of(schedule)
    duration, (order, _) = costs.table(schedule), play(flow)
    before, after = np.zeros(flow.actions), np.zeros(flow.actions)  # the longest chains up to, and from, each action
    needs = _needs(flow, costs)
    for action in order.tolist():
        before[action] = max((before[maker] + duration[maker] + late for maker, late in needs[action]), default=0.0)
    for action in order[::-1].tolist():
        for maker, late in needs[action]:
            after[maker] = max(after[maker], late + duration[action] + after[action])
    chains = before + duration + after
    own = [slice(a, b) for a, b in zip(flow.program, flow.program[1:]) if b > a]
    ranks = [before[mine].min() + duration[mine].sum() + after[mine].min() for mine in own]
    return float(max(chains.max(initial=0), *ranks)) if ranks else 0.0


def _needs(flow, costs):
    """needs[action]: (maker, delay until the value arrives) for every value that it takes."""
    needs = [[] for _ in range(flow.actions)]
    for taker, value in zip(flow.takes.owners.tolist(), flow.takes.values.tolist()):
        maker = int(flow.maker[value])
        if maker >= 0:
            crosses = flow.rank[maker] != flow.rank[taker]
            needs[taker].append((maker, float(costs.of_message(int(flow.edge_of(value)))) if crosses else 0.0))
    return needs
