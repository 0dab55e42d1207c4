"""Every strategy there is, one after the other: the judge of all other searches, on toys."""

import itertools

from hybridlab.predict.search.found import Found, fastest
from hybridlab.predict.search.problem import Problem

MOST = 1_000_000


def exhaustive(problem: Problem, most: int = MOST) -> Found:
    """The fastest of all strategies.

    problem  a graph on a mesh, with a profile
    most     strategies that may be tried

    raises  ValueError where there are more than `most`, or where none fits
    """
    if problem.count > most:
        raise ValueError(f"exhaustive: there are {problem.count:,} strategies: use a smaller model, or another search")
    every = itertools.product(*problem.choices.values())
    return fastest("exhaustive", problem, (dict(zip(problem.choices, each)) for each in every))
