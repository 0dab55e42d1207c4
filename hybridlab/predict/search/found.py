"""Describe the result of a search, and its trace."""

import math
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from hybridlab.core.what.operators import Choice, Strategy

if TYPE_CHECKING:
    from hybridlab.predict.search.problem import Problem


class Tried(NamedTuple):
    """One strategy that a search tried.

    operator, choice  the change to the previous strategy; "" if it is not a change of that one
    seconds           of a step, with a penalty if it exceeds the memory;  kept  whether the search accepted it
    back              whether the search first returned to its best strategy
    """

    seconds: float
    kept: bool = True
    operator: str = ""
    choice: Choice = ()
    back: bool = False


class Found(NamedTuple):
    """The fastest strategy that a search has found.

    by     the search's name;  trace  the strategies that it tried, in order;  asked  number of costs computed

    >>> found = Found("chance", {}, 2.0, (Tried(3.0), Tried(4.0, kept=False), Tried(2.0)), 3)
    >>> found.now, found.best
    ([3.0, 3.0, 2.0], [3.0, 3.0, 2.0])
    """

    by: str
    strategy: Strategy
    seconds: float
    trace: tuple[Tried, ...]
    asked: int

    @property
    def best(self) -> list[float]:
        """The smallest number of seconds so far, at every try."""
        return list(accumulate((one.seconds for one in self.trace), min))

    @property
    def now(self) -> list[float]:
        """The seconds of the current strategy, at every try."""
        where, best = [], self.best
        for i, one in enumerate(self.trace):
            here = best[i - 1] if one.back else where[-1] if where else one.seconds
            where.append(one.seconds if one.kept else here)
        return where


def fastest(by: str, problem: "Problem", strategies: Iterable[Strategy]) -> Found:
    """The fastest of some strategies that fits.

    raises  ValueError if none fits
    """
    trace, best, least = [], None, math.inf
    for strategy in strategies:
        if problem.fits(strategy):
            seconds = problem.seconds(strategy)
        else:
            seconds, least = math.inf, min(least, problem.bytes(strategy))
        trace.append(Tried(seconds, kept=best is None or seconds < best[0]))
        if seconds < (best[0] if best else math.inf):
            best = seconds, strategy
    if best is None:
        raise ValueError(nothing_fits(by, problem.room, least))
    return Found(by, best[1], best[0], tuple(trace), len(trace))


def nothing_fits(by: str, room: float, least: float) -> str:
    """The error message if no strategy fits in memory."""
    needs = f"the smallest one needs {least:,.0f}"
    return f"{by}: nothing fits into {room:,.0f} bytes, {needs}: give more memory, or more ranks"
