"""Find the fastest strategy of a chain by dynamic programming; it is exact, even with a memory limit.

If each operator takes only the output of the one before it, the rest of the cost depends only on the choice of the last
operator. So for each of its choices only the fastest prefix is kept. n operators with c choices each have cⁿ
strategies; n · c² sums find the best of them. With a memory limit, a slower prefix that needs less memory may win in
the end. So all prefixes are kept that no other beats in both time and memory.

A residual sum takes a much earlier output: then the last choice is not enough, and this search raises an error.
`elimination` extends the idea to any graph.

Source: Bellman 1957, *Dynamic Programming*; for parallel layers, Jia, Lin, Qi, Aiken 2018, *Exploring Hidden Dimensions
in Parallelizing Convolutional Neural Networks*, arXiv:1802.04924. Relatives: `predict.plans.partition`.
"""

import math

import numpy as np

from hybridlab.predict.search.found import Found, Tried, nothing_fits
from hybridlab.predict.search.problem import Problem
from hybridlab.predict.search.terms import strategy_at, terms

Label = tuple[float, float, tuple[int, ...]]  # seconds, bytes, the numbers of the choices so far


def chain(problem: Problem) -> Found:
    """The fastest strategy of a chain of operators.

    problem  a graph on a mesh, with a profile

    raises  ValueError if the graph is not a chain, reductions overlap, or no strategy fits

    >>> from hybridlab.core.where.mesh import Mesh
    >>> from hybridlab.core.what.programs import mlp
    >>> from hybridlab.predict.search.exhaustive import exhaustive
    >>> from hybridlab.predict.search.profile import Rated
    >>> problem = Problem(mlp(), Mesh(x=2), Rated())
    >>> round(chain(problem).seconds / exhaustive(problem).seconds, 12)
    1.0
    """
    names = [one.name for one in problem.graph.operators]
    own, between = _along(problem, names)
    every, asked = _ways(names, own, between, problem.room)
    if not every:
        swapped = lambda table: {key: costs[::-1] for key, costs in table.items()}  # bytes first
        least = min(_ways(names, swapped(own), swapped(between), math.inf)[0])[0]
        raise ValueError(nothing_fits("chain", problem.room, least))
    strategy = strategy_at(problem, dict(zip(names, min(every)[2])))
    seconds = problem.seconds(strategy)
    return Found("chain", strategy, seconds, (Tried(seconds),), asked)


def _ways(names, own, between, room) -> tuple[list[Label], int]:
    """All complete prefixes that are kept, and the number of prefixes considered."""
    labels, asked = [front([(*one, (here,))], room) for here, one in enumerate(own[names[0]].T)], 0
    for before, name in zip(names, names[1:]):
        reached = []
        for here, cost in enumerate(own[name].T):
            more = cost[:, None] + between[before, name][:, :, here]
            every = [
                (seconds + more[0, there], held + more[1, there], (*path, here))
                for there, its in enumerate(labels)
                for seconds, held, path in its
            ]
            asked += len(every)
            reached.append(front(every, room))
        labels = reached
    return [label for its in labels for label in its], asked


def front(labels: list[Label], room: float = math.inf) -> list[Label]:
    """The prefixes that no other beats in both seconds and bytes; without a limit, the fastest.

    >>> front([(1, 9, ()), (2, 5, ()), (3, 6, ()), (4, 1, ())], room=8)
    [(2, 5, ()), (4, 1, ())]
    """
    if room == math.inf:
        return [min(labels)] if labels else []
    found: list[Label] = []
    for label in sorted(labels):
        if label[1] <= room and (not found or label[1] < found[-1][1]):
            found.append(label)
    return found


def _along(problem, names):
    """The cost of each operator alone, and together with the one before it, with (seconds, bytes) as the first axis."""
    own = {name: np.zeros((2, len(problem.choices[name]))) for name in names}
    between: dict[tuple[str, ...], np.ndarray] = {
        pair: np.zeros((2, *(len(problem.choices[one]) for one in pair))) for pair in zip(names, names[1:])
    }
    for term in terms(problem):
        if len(term.operators) == 1:
            own[term.operators[0]] += term.seconds, term.bytes
        elif term.operators in between:
            between[term.operators] += np.stack(np.broadcast_arrays(term.seconds, term.bytes))
        else:
            apart = " and ".join(term.operators)
            raise ValueError(
                f"chain: {apart} share a value, but are not neighbours: choose the elimination or mcmc search"
            )
    return own, between
