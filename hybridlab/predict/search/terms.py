"""Terms: the cost of a bulk-synchronous step as a sum in which each term depends on the choices of a few neighbours.

The time of an operator's work depends on its own choice; the price of an arrow depends on the choice where the value is
made and on the choices of its users, because users that need it in the same layout share one arrow. A given value has
the layout that its first user needs.

`chain` and `elimination` need these terms; `Problem` adds up the same terms without this module.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.what.operators import Choice, Need, Operator
from hybridlab.core.where.states import at_rest, made, renamed
from hybridlab.predict.bytes.arrows import Arrow, way
from hybridlab.predict.bytes.halos import halo
from hybridlab.predict.search.problem import Problem


class Term(NamedTuple):
    """Seconds and bytes for every combination of some operators' choices: one array axis per operator, in order."""

    operators: tuple[str, ...]
    seconds: np.ndarray
    bytes: np.ndarray


def terms(problem: Problem) -> list[Term]:
    """All terms. Their sum at a strategy's choices gives the seconds and the bytes of the strategy.

    raises  ValueError if all-reduces of gradients overlap: then the step time is not a sum of terms
    """
    if problem.overlap:
        raise ValueError(
            "with overlap, the step time is not a sum of terms: set overlap=False, or choose the mcmc or "
            "exhaustive search"
        )
    graph = problem.graph
    found = [_of_operator(problem, one) for one in graph.operators]
    users: dict[str, list[tuple[Operator, int]]] = {}
    for operator in graph.operators:
        for place, value in enumerate(operator.takes):
            users.setdefault(value, []).append((operator, place))
    for value, its in users.items():
        found += _of_value(problem, value, its)
    return found


def _of_operator(problem, operator) -> Term:
    """An operator's work and its result; for the last operator, also the move of the result to its required layout."""
    seconds, held = [], []
    for choice in problem.choices[operator.name]:
        took, left = added(problem.work(operator, choice)), problem.result(operator, choice)
        if operator is problem.graph.result:
            state = made(operator.result, choice)
            end = _whole(problem) if operator.name in problem.graph.held else at_rest(state)
            price = _price(problem, operator.name, state, Need(operator.result, end))
            took, left = took + price.there + price.back, left + price.bytes
        seconds.append(took)
        held.append(left)
    return Term((operator.name,), np.array(seconds), np.array(held))


def _of_value(problem, value, users) -> Iterator[Term]:
    """The moves of a value to its users, each from the layout in which it is made or stored; a move that an earlier
    user has paid for costs nothing.
    """
    graph = problem.graph
    by_name = {one.name: one for one in graph.operators}
    if value in graph.given:
        (source, first), dims = users[0], graph.given[value]
        rests = lambda choice: renamed(at_rest(source.needs(choice)[first].state), source.operands[first], dims)
        state = (lambda choice: _whole(problem)) if value in graph.held else rests
        held = np.array([problem.at_rest(value, state(choice)) for choice in problem.choices[source.name]])
        yield Term((source.name,), np.zeros(len(held)), held)
    else:
        source, dims = by_name[value], by_name[value].result
        state = lambda choice: made(dims, choice)
    needs = lambda user, place: [user.needs(choice)[place] for choice in problem.choices[user.name]]
    for i, (user, place) in enumerate(users):
        called, its = user.operands[place], needs(user, place)
        rows = [
            [_price(problem, value, renamed(state(before), dims, called), need) for need in its]
            for before in problem.choices[source.name]
        ]
        seconds = np.array([[price.there + price.back for price in row] for row in rows])
        copies = np.array([[price.bytes for price in row] for row in rows])
        others = [(other, needs(other, at)) for other, at in users[:i] if other.operands[at] == called]
        yield _unpaid(source, (user, its), others, seconds, copies)


def _unpaid(source, mine, others, seconds, copies) -> Term:
    """The price of a move, if no earlier user needs the value in the same layout."""
    user, needs = mine
    names = tuple(dict.fromkeys((source.name, user.name, *(other.name for other, _ in others))))
    place = lambda table, *whose: placed(table, whose, names)
    one_only = source.name == user.name
    seconds, copies = (np.diagonal(table) if one_only else table for table in (seconds, copies))
    whose = (source.name,) if one_only else (source.name, user.name)
    free = np.ones((1,) * len(names), dtype=bool)
    for other, its in others:
        if other.name == user.name:
            free = free & False
            continue
        differ = np.array([[need != theirs for theirs in its] for need in needs])
        free = free & place(differ, user.name, other.name)
    return Term(names, place(seconds, *whose) * free, place(copies, *whose) * free)


def placed(table: np.ndarray, whose: Sequence[str], names: Sequence[str]) -> np.ndarray:
    """A table with its axes in the order of `names`, and axes of length 1 for the others.

    >>> placed(np.zeros((2, 3)), ("b", "a"), ("a", "c", "b")).shape
    (3, 1, 2)
    """
    order = sorted(range(len(whose)), key=lambda i: names.index(whose[i]))
    lengths = dict(zip(whose, table.shape))
    return np.transpose(table, order).reshape([lengths.get(name, 1) for name in names])


def _price(problem, value, before, need: Need):
    dims, after, looks = need
    lengths, learns = problem.graph.lengths(dims), value in problem.graph.learning
    moves = way(dims, lengths, before, after, problem.mesh, learns)
    seen = halo(dims, lengths, after, looks, problem.mesh)
    return problem.price(Arrow(value, dims, before, after, moves, (), learns, seen))


def _whole(problem):
    return ("I",) * len(problem.mesh.axes)


def at(term: Term, places: dict[str, int]) -> tuple[float, float]:
    """Seconds and bytes of a term, if each operator's choice has the number `places[operator]`."""
    where = tuple(places[name] if length > 1 else 0 for name, length in zip(term.operators, term.seconds.shape))
    return float(term.seconds[where]), float(term.bytes[where])


def strategy_at(problem: Problem, places: dict[str, int]) -> dict[str, Choice]:
    """The strategy of the choices with these numbers."""
    return {name: problem.choices[name][place] for name, place in places.items()}
