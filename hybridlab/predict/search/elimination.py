"""Elimination: the fastest strategy of any graph, exact, by eliminating one operator after another.

To take an operator out, join all terms that know it, and note for each choice of its neighbours which of its own is
best; what is left is a term of the neighbours alone. On a chain that is dynamic programming. A residual sum leaves
terms of three or four operators, tables with so many axes, and on a large mesh there is no room for them: exact search
pays with memory for every operator that must be remembered at once.

Within a room it does not try to be exact: it puts a price on bytes, and raises it until the fastest strategy fits.
Everything it finds so is best for the bytes that it holds; between two of these there may be a better one.

Source: Bertelè and Brioschi 1972, *Nonserial Dynamic Programming*. Relatives: `predict.search.chain`, exact within a
room too; Alpa, which gives the same sum to an integer program (Zheng et al. 2022, arXiv:2201.12023, section 4).
"""

import math

import numpy as np

from hybridlab.core.added import added
from hybridlab.predict.search.found import Found, Tried, nothing_fits
from hybridlab.predict.search.problem import Problem
from hybridlab.predict.search.terms import placed, strategy_at, terms

MOST = 60_000_000  # numbers in a joined table
TIMES = 40  # how often the price of bytes is mended


def elimination(problem: Problem, most: int = MOST) -> Found:
    """The fastest strategy.

    raises  ValueError where a table would have more than `most` numbers, where sums overlap, or where nothing fits

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
    """The fastest strategy that was met while the price of a byte was halved and doubled around where it begins to
    fit."""
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
    """The number of each operator's choice at which a sum of tables is least; and how many numbers were looked at."""
    lengths = {name: len(its) for name, its in problem.choices.items()}
    left, noted, looked = dict(lengths), [], 0
    while left:
        name = min(left, key=lambda one: _joint(one, tables, lengths)[1])
        names, size = _joint(name, tables, lengths)
        if size > most:
            raise ValueError(
                f"elimination: {', '.join(names)} must be kept at once, {size:,} combinations: use a smaller mesh, or "
                "search by mcmc"
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
    """All operators that share a table with one, itself first, and the size of the table of them all."""
    names = tuple(dict.fromkeys([name, *(one for its, _ in tables if name in its for one in its)]))
    return names, math.prod(lengths[one] for one in names)
