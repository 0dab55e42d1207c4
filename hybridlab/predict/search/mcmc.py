"""FlexFlow's search: a random walk that always accepts a faster strategy, and sometimes a slower one.

Begin with data parallelism. Draw an operator, draw one of its legal choices, and compute the time of the changed
strategy. If it is faster, accept it; if it is slower by Δ, accept it with probability exp(−α·Δ). After every hundredth
of the budget return to the best known strategy. A strategy that exceeds the memory costs 1 ms more for each missing MB.

The cost is computed for complete strategies, so it may be anything that a simulator computes, such as overlap or
memory. Exact searches need a cost that is a sum of parts.

α has a unit. The published program counts Δ in ms and uses α = 1 by default: a choice that costs 0.1 ms is accepted
nine times in ten, one that costs 1 s never. So with a step of less than a ms it accepts nearly everything, and with a
step of many seconds it only descends into the nearest valley. `relative` is an α in units of the step.

Source: Jia, Zaharia, Aiken 2018, arXiv:1807.05358, section 6.2; the returns, the memory cost and α in
flexflow/FlexFlow, `src/runtime/model.cc` (optimize, DefaultConfig) and `simulator.cc` (simulate_runtime).
"""

import math
import random
from dataclasses import replace

from hybridlab.core.what.operators import Strategy
from hybridlab.predict.search.data_parallel import data_parallel
from hybridlab.predict.search.found import Found, Tried, nothing_fits
from hybridlab.predict.search.problem import Problem

PUBLISHED = 1e3  # α per second: 1 for each ms
CHARGE = 1e-9  # seconds for each byte over the memory limit: 1 ms for each MB
PARTS = 100  # parts of the budget; after each, the walk returns to the best strategy
LONGEST = 1000  # proposals in such a part


def mcmc(
    problem: Problem,
    budget: int = 1000,
    seed: int = 0,
    alpha: float = PUBLISHED,
    start: Strategy | None = None,
    back: bool = True,
) -> Found:
    """The fastest strategy that a random walk finds.

    problem  a graph on a mesh, with a profile
    budget   proposals
    seed     of the walk
    alpha    α, per second of a step;  start  a strategy to begin with, instead of data parallelism
    back     whether the walk returns to the best known strategy at intervals

    raises  ValueError if the walk found no strategy that fits

    >>> from hybridlab.core.where.mesh import Mesh
    >>> from hybridlab.core.what.programs import mlp
    >>> from hybridlab.predict.search.profile import Rated
    >>> found = mcmc(Problem(mlp(), Mesh(x=2), Rated()), budget=50)
    >>> len(found.trace), found.now[0] >= found.seconds
    (51, True)
    >>> any(one.back for one in mcmc(Problem(mlp(), Mesh(x=2), Rated()), budget=50, back=False).trace)
    False
    """
    draw, names = random.Random(seed), list(problem.choices)
    here = dict(start or data_parallel(replace(problem, room=math.inf)).strategy)
    now, fits = charged(problem, here)
    best, at, known = now, here, (now, here) if fits else None
    trace, part = [Tried(now)], min(LONGEST, max(1, budget // PARTS))
    for proposal in range(budget):
        if called := back and proposal > 0 and proposal % part == 0:
            here, now = at, best
        name = draw.choice(names)
        there = here | {name: draw.choice(problem.choices[name])}
        seconds, fits = charged(problem, there)
        kept = accepted(now, seconds, alpha, draw.random())
        trace.append(Tried(seconds, kept, name, there[name], called))
        if kept:
            here, now = there, seconds
        if seconds < best:
            best, at = seconds, there
        if fits and (known is None or seconds < known[0]):
            known = seconds, there
    if known is None:
        raise ValueError(nothing_fits("mcmc", problem.room, problem.bytes(at)))
    return Found("mcmc", known[1], known[0], tuple(trace), len(trace))


def accepted(now: float, seconds: float, alpha: float, drawn: float) -> bool:
    """Whether the walk accepts a step of `seconds` after one of `now` seconds; drawn  uniform from 0 to 1.

    >>> accepted(0.002, 0.001, PUBLISHED, drawn=1.0), accepted(0.001, 0.002, PUBLISHED, drawn=0.5)
    (True, False)
    """
    return seconds < now or drawn < math.exp(-alpha * (seconds - now))


def charged(problem: Problem, strategy: Strategy) -> tuple[float, bool]:
    """The seconds of a strategy, with the penalty if it does not fit; and whether it fits."""
    seconds = problem.seconds(strategy)
    if problem.fits(strategy):
        return seconds, True
    return seconds + CHARGE * (problem.bytes(strategy) - problem.room), False


def relative(seconds: float, times: float = 20) -> float:
    """The value of α for which a change that makes a step longer by 1/`times` is accepted with probability 1/e.

    seconds  of a step
    times    the length of a step divided by the time that the change adds to it

    >>> relative(0.5)
    40.0
    """
    return times / seconds
