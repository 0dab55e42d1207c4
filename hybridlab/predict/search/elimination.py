"""Find the fastest strategy of any graph, exactly, by eliminating one operator after another.

To eliminate an operator, add all terms that contain it, and store its best choice for each combination of its
neighbours' choices. The result is a term of the neighbours only. On a chain this is dynamic programming. A residual sum
leaves terms of three or four operators: tables with that many axes, which need too much memory on a large mesh. So
exact search costs memory for every operator that it must remember at the same time.

With a memory limit the search is not exact. It adds a cost for each byte, and raises this cost until the fastest
strategy fits. Every strategy found this way is the fastest for its bytes, but a better one may exist between two of
them.

Source: Bertelè and Brioschi 1972, *Nonserial Dynamic Programming*. See also `predict.search.chain`, which is exact with
a memory limit too, and Alpa, which solves the same sum by integer programming (Zheng et al. 2022, arXiv:2201.12023,
section 4).
"""

import math

import numpy as np

from hybridlab.core.added import added
from hybridlab.predict.search.found import Found, Tried, nothing_fits
from hybridlab.predict.search.problem import Problem
from hybridlab.predict.search.terms import placed, strategy_at, terms

MOST = 60_000_000  # largest number of entries in a table
TIMES = 40  # number of corrections of the cost of a byte


def elimination(problem: Problem, most: int = MOST) -> Found:
    """The fastest strategy.

    raises  ValueError if a table would have more than `most` entries, if reductions overlap, or if no strategy fits

    >>> from hybridlab.core.where.mesh import Mesh
    >>> from hybridlab.core.what.programs import block
    >>> from hybridlab.predict.search.profile import Rated
    >>> found = elimination(Problem(block(), Mesh(x=2), Rated()))
    >>> len(found.strategy), found.asked < 10_000
    (11, True)
    """
    every = [(term.operators, term.seconds, term.bytes) for term in terms(problem)]
    trace: list[Tried] = []
    asked = 0

    def tried(price: float, seconds: float = 1.0):
        nonlocal asked
        tables = [(names, seconds * took + price * held) for names, took, held in every]
        places, numbers = _best(problem, tables, most)
        strategy = strategy_at(problem, places)
        asked += numbers
        trace.append(Tried(problem.seconds(strategy)))
        return strategy, problem.fits(strategy)

    strategy, fits = tried(0.0)
    if not fits:
        strategy = _priced(problem, tried)
    return Found("elimination", strategy, problem.seconds(strategy), tuple(trace), asked)


def _priced(problem, tried):
    """The fastest strategy found while the cost of a byte is halved and doubled around the value at which strategies
    begin to fit."""
    smallest, fits = tried(1.0, seconds=0.0)
    if not fits:
        raise ValueError(nothing_fits("elimination", problem.room, problem.bytes(smallest)))
    low, high = 0.0, math.inf
    price, best = problem.seconds(smallest) / problem.bytes(smallest), smallest
    for _ in range(TIMES):
        strategy, fits = tried(price)
        if fits and problem.seconds(strategy) < problem.seconds(best):
            best = strategy
        low, high = (low, price) if fits else (price, high)
        price = (low + high) / 2 if high < math.inf else 2 * price
    return best


def _best(problem, tables, most) -> tuple[dict[str, int], int]:
    """The index of each operator's choice that minimizes a sum of tables, and the number of entries considered."""
    lengths = {name: len(its) for name, its in problem.choices.items()}
    left, noted, looked = dict(lengths), [], 0
    while left:
        name = min(left, key=lambda one: _joint(one, tables, lengths)[1])
        names, size = _joint(name, tables, lengths)
        if size > most:
            raise ValueError(
                f"elimination: the choices of {', '.join(names)} must be kept at once, and these are {size:,} "
                "combinations: use a smaller mesh, or choose the mcmc search"
            )
        joined = added(placed(table, its, names) for its, table in tables if name in its)
        joined = np.broadcast_to(joined, [lengths[one] for one in names])
        noted.append((name, names[1:], joined.argmin(axis=0)))
        tables = [one for one in tables if name not in one[0]] + [(names[1:], joined.min(axis=0))]
        looked += size
        del left[name]
    places: dict[str, int] = {}
    for name, others, choice in reversed(noted):
        places[name] = int(choice[tuple(places[other] for other in others)])
    return {name: places[name] for name in lengths}, looked


def _joint(name, tables, lengths) -> tuple[tuple[str, ...], int]:
    """An operator and all others that share a table with it, and the size of their joint table."""
    names = tuple(dict.fromkeys([name, *(one for its, _ in tables if name in its for one in its)]))
    return names, math.prod(lengths[one] for one in names)
