"""Copies of popular experts, and their places on ranks: the loads of the ranks become even, without dropped tokens.

Every rank has the same number of slots, each for one expert, and there are more slots than experts. A popular expert
gets several, and its copies share its tokens equally. Two greedy steps place the copies:

  copy   each further slot goes to the expert whose copies have the largest load
  pack   copies, the largest load first, go to the rank with the smallest load that still has a free slot

No placement is better than a bound: the busiest rank has at least the mean, and at least one copy with the largest
load. So two things limit the balance: the mean of the loads, and the number of copies of the hottest expert.

This is EPLB, which moves experts to other ranks too. In training, an expert has an owner with its optimizer's state,
and stays there. Then only *loans* have to be found (`lent`): the busiest rank lends an expert to the rank with the
smallest load, as often as this helps. `modes.copied_experts` runs them, and `loaned` counts their bytes.

Source: DeepSeek-AI 2025, EPLB, github.com/deepseek-ai/EPLB (its global form); loans, He et al. 2022, FasterMoE, PPoPP.
Relatives: `core.where.slots`; `predict.bytes.experts`, loads by Zipf's law; `predict.plans.hot_expert`, the time of a
skew; notebook 32.
"""

from collections.abc import Mapping, Sequence

from hybridlab.core.added import added
from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import even
from hybridlab.core.where.slots import Slots
from hybridlab.predict.bytes.experts import held

Placed = tuple[tuple[int, ...], ...]


def copied(loads: Sequence[float], slots: int) -> list[int]:
    """The number of copies of each expert, at least 1, for this number of slots.

    loads  of the experts;  slots  of all ranks together

    raises  ValueError if there are fewer slots than experts

    >>> copied([6, 2, 1, 1], slots=6)
    [3, 1, 1, 1]
    """
    if slots < len(loads):
        raise ValueError(f"{slots} slots cannot hold {len(loads)} experts: give {len(loads)} slots or more")
    copies = [1] * len(loads)
    for _ in range(slots - len(loads)):
        copies[max(range(len(loads)), key=lambda expert: loads[expert] / copies[expert])] += 1
    return copies


def packed(loads: Sequence[float], ranks: int, slots: int) -> Placed:
    """The experts on each rank, copies included: the same number on every rank.

    loads  of the experts;  ranks, slots  the numbers of ranks and of slots

    raises  ValueError if the slots cannot be divided equally among the ranks, or are fewer than the experts

    >>> packed([6, 2, 1, 1], ranks=2, slots=6)
    ((0, 0, 2), (0, 1, 3))
    """
    if slots % ranks:
        raise ValueError(f"{slots} slots cannot be divided equally among {ranks} ranks: give a multiple of {ranks}")
    return placed(loads, copied(loads, slots), ranks)


def placed(loads: Sequence[float], copies: Sequence[int], ranks: int) -> Placed:
    """The experts on each rank for given numbers of copies. Copies of an expert may be on the same rank.

    loads, copies  of the experts;  ranks  the number of ranks, which divides the sum of the copies

    >>> placed([6, 2, 1, 1], [2, 2, 1, 1], ranks=2)
    ((0, 1, 2), (0, 1, 3))
    """
    each = [(loads[expert] / number, expert) for expert, number in enumerate(copies) for _ in range(number)]
    found, totals = [[] for _ in range(ranks)], [0.0] * ranks
    for load, expert in sorted(each, key=lambda one: -one[0]):
        free = (rank for rank in range(ranks) if len(found[rank]) < len(each) // ranks)
        rank = min(free, key=lambda rank: totals[rank])
        found[rank].append(expert)
        totals[rank] += load
    return tuple(map(tuple, found))


def busiest(loads: Sequence[float], placed: Sequence[Sequence[int]]) -> float:
    """The load of the busiest rank over the mean, if the copies of an expert share its tokens equally.

    loads  of the experts;  placed  the experts on each rank

    >>> busiest([6, 2, 1, 1], [(0, 1), (2, 3)]), busiest([6, 2, 1, 1], packed([6, 2, 1, 1], ranks=2, slots=6))
    (1.6, 1.0)
    """
    return max(on_ranks(loads, placed)) * len(placed) / added(loads)


def on_ranks(loads: Sequence[float], placed: Sequence[Sequence[int]]) -> list[float]:
    """The load of each rank, if the copies of an expert share its tokens equally.

    loads  of the experts;  placed  the experts on each rank

    >>> on_ranks([6, 2, 1, 1], [(0, 1), (2, 3, 0)])
    [5.0, 5.0]
    """
    every = [expert for its in placed for expert in its]
    each = [load / max(every.count(expert), 1) for expert, load in enumerate(loads)]
    return [added(each[expert] for expert in its) for its in placed]


def bound(loads: Sequence[float], ranks: int, slots: int) -> float:
    """A lower bound on the load of the busiest rank over the mean, for any choice of copies in this number of slots.

    loads  of the experts;  ranks, slots  the numbers of ranks and of slots

    >>> bound([6, 2, 1, 1], ranks=4, slots=4), bound([6, 2, 1, 1], ranks=4, slots=8)
    (2.4, 1.0)
    """
    largest = max(load / number for load, number in zip(loads, copied(loads, slots)))
    return max(1.0, largest * ranks / added(loads))


# --- loans: every expert stays with its owner -----------------------------------------------------------------------


def lent(loads: Sequence[float], ranks: int, each: int = 1) -> dict[int, tuple[int, ...]]:
    """Copies of experts, {expert: ranks other than its owner}: the value of `expert_copies` for `hl.check`.

    loads  the loads of the experts; neighbouring experts are on one rank, as `hl.check` distributes them
    ranks  the number of ranks;  each  the largest number of experts that are lent to one rank

    >>> lent([6, 2, 1, 1], ranks=2)
    {0: (1,)}
    >>> lent([2, 2, 2, 2], ranks=2)
    {}
    """
    loads, owned = list(map(float, loads)), [end - begin for begin, end in even(len(loads), ranks)]
    slots = Slots(owned, {})
    while True:
        more = min(_further(loads, slots, each), key=lambda one: _uneven(loads, one), default=slots)
        if _uneven(loads, more) >= _uneven(loads, slots):
            return {expert: tuple(sorted(its)) for expert, its in sorted(slots.lent.items())}
        slots = more


def _further(loads, slots: Slots, each: int):
    """One more loan, for each expert of the busiest rank: to the rank with the smallest load that may borrow it."""
    now = on_ranks(loads, slots.held)
    for expert in slots.held[now.index(max(now))]:
        free = [rank for rank, its in enumerate(slots.held) if expert not in its and len(slots.borrowed[rank]) < each]
        if free:
            ranks = *slots.lent.get(expert, ()), min(free, key=now.__getitem__)
            yield Slots(slots.owned, {**slots.lent, expert: ranks})


def _uneven(loads, slots: Slots) -> list[float]:
    """The loads of the ranks over the mean, the largest first, without rounding errors: smaller is better."""
    mean = added(loads) / len(slots.owned)
    return sorted((round(load / mean, 9) for load in on_ranks(loads, slots.held)), reverse=True)


def loaned(shape: Shape, copies: Mapping[int, Sequence[int]], ways: Amount, ways_of_one: Amount = 1) -> Amount:
    """Elements that a rank sends, on average, for loans in one layer and microbatch: weights to copies in the forward,
    and the same number of gradients back in the backward.

    copies  {expert: ranks};  ways  ranks over which experts are distributed;  ways_of_one  ranks that shard one expert

    >>> loaned(Shape(width=8, experts=4), {0: (1, 2)}, ways=4)
    276.0
    """
    sharded, full = held(shape)
    one = (sharded / ways_of_one + full) / shape.experts
    return added(map(len, copies.values())) * one / ways
