"""Search all strategies, to check the other methods on small graphs."""

import itertools

from hybridlab.predict.search.found import Found, fastest
from hybridlab.predict.search.problem import Problem

MOST = 1_000_000


def exhaustive(problem: Problem, most: int = MOST) -> Found:
    """The fastest of all strategies, by exhaustive search.

    problem  a graph on a mesh, with a profile
    most     the largest number of strategies to try

    raises  ValueError if there are more than `most`, or none fits
    """
    if problem.count > most:
        raise ValueError(f"exhaustive: there are {problem.count:,} strategies: use a smaller model, or another search")
    every = itertools.product(*problem.choices.values())
    return fastest("exhaustive", problem, (dict(zip(problem.choices, each)) for each in every))
