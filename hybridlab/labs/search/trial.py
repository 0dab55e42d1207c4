"""Notebook 43: a student's searches, tested on small tables: a dynamic program over a chain, and a random walk."""

import math
import random

from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.trials.trial import Gave

# --- a chain ------------------------------------------------------------------------------------------------------


def _drawn(lengths, seed) -> tuple[list, list]:
    """Random costs: (of each choice of each operator, of each pair of neighbouring choices)."""
    draw = random.Random(seed)
    number = lambda: draw.randint(0, 9)
    own = [[number() for _ in range(length)] for length in lengths]
    pairs = [[[3 * number() for _ in range(b)] for _ in range(a)] for a, b in zip(lengths, lengths[1:])]
    return own, pairs


CHAINS = (
    ([[1, 4], [2, 0], [5, 1]], [[[0, 9], [0, 0]], [[0, 0], [9, 0]]]),
    *(_drawn(lengths, seed) for seed, lengths in enumerate([(2, 2), (3, 2, 4), (4, 4, 4, 4), (5, 1, 3, 2), (3,)])),
    _drawn((4,) * 24, 7),  # to try all choices would take years
)


def total(own, between, places) -> float:
    """The cost of a chain with these choices."""
    alone = sum(costs[place] for costs, place in zip(own, places))
    return alone + sum(table[a][b] for table, a, b in zip(between, places, places[1:]))


def least(own, between) -> float:
    """The least sum.

    >>> least(*CHAINS[0])
    4
    """
    best = own[0]
    for table, costs in zip(between, own[1:]):
        best = [cost + min(b + row[here] for b, row in zip(best, table)) for here, cost in enumerate(costs)]
    return min(best)


def ahead(own, between) -> list[int]:
    """The choices of a greedy walk along a chain: each is the cheapest after the previous one, and is never revised.

    >>> ahead(*CHAINS[0]), total(*CHAINS[0], ahead(*CHAINS[0]))
    ([0, 0, 1], 4)
    """
    places = [own[0].index(min(own[0]))]
    for table, costs in zip(between, own[1:]):
        sums = [cost + more for cost, more in zip(costs, table[places[-1]])]
        places.append(sums.index(min(sums)))
    return places


def judged_chain(gave: list[Gave]) -> Verdict:
    for number, ((own, between), one) in enumerate(zip(CHAINS, gave)):
        name = "the example" if number == 0 else f"a chain of {len(own)} operators"
        if one.raised:
            return False, f"On {name} it raised {one.raised}"
        if told := _malformed(own, one.value) or _too_dear(own, between, one.value, gave):
            return False, f"On {name}: {told}"
    return True, f"Right on {len(CHAINS)} chains, also on one with {4**24:,} strategies."


def _malformed(own, value) -> str:
    """The reason why a value cannot be a list of choices, in a sentence; empty if it can."""
    if not isinstance(value, list | tuple) or len(value) != len(own):
        return f"return one number for each of its {len(own)} operators: the number of its choice."
    if not all(isinstance(one, int) and 0 <= one < len(costs) for one, costs in zip(value, own)):
        return f"you returned {list(value)}; choices are counted from 0."
    return ""


def _too_dear(own, between, value, gave) -> str:
    found, right = total(own, between, value), least(own, between)
    if found == right:
        return ""
    slip = MISREAD if _misread(gave) else _greedy(own, between, value)
    return f"your choices {list(value)[:6]} cost {found:g}, but {right:g} is possible.{slip}"


MISREAD = " In between[n][a][b], a is the choice of operator n, b that of operator n + 1."


def _misread(gave: list[Gave]) -> bool:
    """Whether all results are the best ones for the tables of other operators, or for tables with a and b exchanged."""
    exchanged = lambda tables: [[list(column) for column in zip(*table)] for table in tables]
    misread = (exchanged, lambda tables: tables[1:] + tables[:1], lambda tables: tables[-1:] + tables[:-1])
    cases = [(own, between, one.value) for (own, between), one in zip(CHAINS, gave) if not one.raised]
    return any(all(_best(own, read(between), places) for own, between, places in cases) for read in misread)


def _best(own, between, places) -> bool:
    """Whether these choices are the best; False if the tables do not fit the operators."""
    try:
        return not _malformed(own, places) and total(own, between, places) == least(own, between)
    except IndexError:
        return False


def _greedy(own, between, value) -> str:
    if list(value) == [costs.index(min(costs)) for costs in own]:
        return " Each is the cheapest alone, but resharding between neighbours costs more."
    if list(value) == ahead(own, between):
        return (
            " Each is the cheapest after the previous one, so your search looks only one operator ahead. Keep a way to "
            "every choice."
        )
    return ""


# --- a walk -------------------------------------------------------------------------------------------------------


def _walks(seed, alpha, count) -> tuple:
    draw = random.Random(seed)
    prices = {a + b: draw.randint(10, 60) / 10 for a in "BDF" for b in "BDF"}
    proposals = [(draw.randrange(2), draw.choice("BDF"), round(draw.random(), 3)) for _ in range(count)]
    return prices, "BB", proposals, alpha


WALKS = (
    ({"BB": 4.0, "FB": 5.0, "BF": 6.0, "FF": 2.0}, "BB", [(0, "F", 0.3), (1, "F", 0.9), (0, "B", 0.01)], 1.0),
    _walks(1, 1.0, 12),
    _walks(2, 0.2, 30),
    _walks(3, 20.0, 30),
)


def walked(prices, start, proposals, alpha, inverted: bool = False, always: str = "") -> list[str]:
    """The current strategy after each proposal.

    With two mistakes: `inverted` takes a slower strategy if the right walk does not; every proposal changes `always`.

    >>> walked(*WALKS[0])
    ['FB', 'FF', 'BF']
    """
    here, stands = start, []
    for place, dim, drawn in proposals:
        there = (always or here)[:place] + dim + (always or here)[place + 1 :]
        slower = prices[there] - prices[here]
        if slower < 0 or (drawn < math.exp(-alpha * slower)) != inverted:
            here = there
        stands.append(here)
    return stands


def judged_walk(gave: list[Gave]) -> Verdict:
    for number, (case, one) in enumerate(zip(WALKS, gave)):
        name = "In the example" if number == 0 else f"With α = {case[3]:g}"
        if one.raised:
            return False, f"{name} it raised {one.raised}"
        if told := _wrong_walk(case, one.value):
            return False, f"{name} {told}"
    return True, "Every step of four walks is right: faster is always taken, slower with probability exp(−α·Δ)."


def _wrong_walk(case, value) -> str:
    prices, start, proposals, alpha = case
    right = walked(*case)
    if not isinstance(value, list | tuple) or len(value) != len(right):
        return f"return a list of {len(right)} strategies: the current one after each proposal, even if it stays."
    known = {
        " Your test is inverted.": walked(*case, inverted=True),
        " So you changed the start, not the current strategy.": walked(*case, always=start),
    }
    slip = next((told for told, other in known.items() if list(value) == other), "")
    for number, (found, wanted) in enumerate(zip(value, right)):
        if found == wanted:
            continue
        here = right[number - 1] if number else start
        place, dim, drawn = proposals[number]
        there = here[:place] + dim + here[place + 1 :]
        slower = prices[there] - prices[here]
        if found not in (here, there):
            return f"proposal {number} changes {here} to {there}, but your walk is at {found}.{slip}"
        if slower < 0:
            return f"proposal {number} is faster by {-slower:.1f} ms: it is always taken.{slip}"
        chance = math.exp(-alpha * slower)
        verdict = "below it, so it is taken" if drawn < chance else "not below it, so the walk stays"
        told = f"exp(−α·Δ) = {chance:.3f}, and {drawn:g} is {verdict}.{slip}"
        return f"proposal {number} is slower by {slower:.1f} ms: {told}"
    return ""
