"""Notebook 32: the cost of one hot expert. The rank with the largest load determines when a layer ends.

Here neighbouring experts are on one rank, even the hottest ones; `predict.bytes.experts` assigns them at random.
"""

import math
from collections.abc import Sequence

from hybridlab.core.where.layout import even

EXPERTS = 16  # experts in the layers that are drawn and timed


def by_rank(loads: Sequence[float], ranks: int) -> list[float]:
    """The load of each rank, if neighbouring experts share a rank."""
    return [math.fsum(loads[begin:end]) for begin, end in even(len(loads), ranks)]


def factor(loads: Sequence[float], ranks: int) -> float:
    """The largest load of any rank divided by the mean: the layer takes longer by this factor than with even loads.

    >>> factor([2, 1, 1, 1, 1, 1, 1, 1], ranks=4)
    1.3333333333333333
    """
    return max(by_rank(loads, ranks)) / (math.fsum(loads) / ranks)


def whole_numbers(shares: Sequence[float], choices: int) -> list[int]:
    """A number of choices, divided into integers in proportion to fractions: the rest goes to the largest remainders.

    >>> whole_numbers([0.48, 0.24, 0.16, 0.12], 10)
    [5, 2, 2, 1]
    """
    dealt = [int(share * choices) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda place: dealt[place] - shares[place] * choices)
    for place in by_remainder[: choices - sum(dealt)]:
        dealt[place] += 1
    return dealt


def dropped(shares: Sequence[float], capacity: float) -> float:
    """The fraction of all choices that is dropped, if an expert takes at most `capacity` times the mean.

    >>> round(dropped([0.5, 0.2, 0.2, 0.1], capacity=1.2), 2), dropped([0.25] * 4, capacity=1)
    (0.2, 0.0)
    """
    room = capacity / len(shares)
    return math.fsum(max(share - room, 0) for share in shares)


def capacities(shares: Sequence[float], ranks: int, every: Sequence[float]) -> list[tuple[str, str, str]]:
    """(capacity, the time relative to even loads, the fraction of the choices that is dropped), for a table."""
    rows = [("none", factor(shares, ranks), 0.0)]
    for capacity in every:
        kept = by_rank([min(share, capacity / len(shares)) for share in shares], ranks)
        rows.append((f"{capacity:g}", ranks * max(kept), dropped(shares, capacity)))
    return [(name, f"{times:.2f}", f"{lost:.0%}") for name, times, lost in rows]
