"""A schedule simulated for the explorer: in the fastest way for its size, and up to its deadlock if it has one."""

import importlib.util
from dataclasses import replace

from hybridlab.core.when.play import Stuck
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.halted import halted
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.lower import lower

QUICK = 4_000  # from this number of actions, machine code is worth its import: each move of a slider simulates again


def simulated(plan: Schedule, costs: Costs) -> Timeline:
    """The predicted timeline of a schedule, simulated in the fastest way for its size.

    costs  of all stages of a rank together: with v chunks per rank each stage takes 1/v of them

    Messages that take time are explicit actions. A schedule with a deadlock is simulated until no rank can continue.
    """
    try:
        plan = lower(plan) if costs.latency else plan
        quick = len(plan.rows) >= QUICK and importlib.util.find_spec("numba")
        return simulate(plan, per_stage(costs, plan), engine="compiled" if quick else "auto")
    except Stuck as stuck:
        return halted(plan, stuck, per_stage(costs, plan))


def per_stage(costs: Costs, plan: Schedule) -> Costs:
    """The costs of one stage, from those of all stages of a rank together."""
    return replace(costs, **{kind: costs.of(kind, 0) / plan.chunks for kind in ("F", "I", "W")})
