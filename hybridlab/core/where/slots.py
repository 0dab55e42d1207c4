"""Slots for experts: each rank has one for each expert that it owns, and one for each expert that is lent to it.

A layout knows owners only: a loan ends before the layout is read again. Relatives: `modes.copied_experts`, which
lends; `predict.bytes.copied_experts`, which plans.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple


class Loans(NamedTuple):
    """The loans of one rank: the experts that it lends, in the order of the borrowers and numbered from its first
    expert; the number that it lends to each rank; the number that it borrows from each."""

    lent: list[int]
    sent: list[int]
    received: list[int]


class Slots:
    """The slots of all ranks over which experts are distributed, numbered rank by rank.

    owned  the number of experts of each rank; the first rank owns the first ones
    lent   {expert: the ranks with a copy of it}

    >>> slots = Slots((2, 1), {0: (1,)})
    >>> slots.held, slots.holders, slots.sizes
    (((0, 1), (2, 0)), ((0, 3), (1,), (2,)), (2, 2))
    """

    def __init__(self, owned: Sequence[int], lent: Mapping[int, Sequence[int]]):
        self.owned, self.lent = tuple(owned), lent

    @cached_property
    def owner(self) -> tuple[int, ...]:
        """The rank that owns each expert."""
        return tuple(rank for rank, number in enumerate(self.owned) for _ in range(number))

    @cached_property
    def borrowed(self) -> tuple[tuple[int, ...], ...]:
        """For each rank, the experts lent to it, in ascending order, and therefore grouped by owner."""
        found = [[] for _ in self.owned]
        for expert, ranks in sorted(self.lent.items()):
            for rank in ranks:
                found[rank].append(expert)
        return tuple(map(tuple, found))

    @cached_property
    def held(self) -> tuple[tuple[int, ...], ...]:
        """For each rank, the experts of its slots: its own, and then those lent to it."""
        firsts = [sum(self.owned[:rank]) for rank in range(len(self.owned))]
        own = [tuple(range(first, first + number)) for first, number in zip(firsts, self.owned)]
        return tuple(its + more for its, more in zip(own, self.borrowed))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of slots of each rank."""
        return tuple(map(len, self.held))

    @cached_property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """For each expert, the slots with its weights."""
        found = [[] for _ in self.owner]
        for slot, expert in enumerate(expert for its in self.held for expert in its):
            found[expert].append(slot)
        return tuple(map(tuple, found))

    def loans(self, rank: int) -> Loans:
        """The loans that one rank gives and takes.

        >>> Slots((2, 1), {0: (1,)}).loans(0)
        Loans(lent=[0], sent=[0, 1], received=[0, 0])
        """
        given = [[expert for expert in its if self.owner[expert] == rank] for its in self.borrowed]
        taken = [self.owner[expert] for expert in self.borrowed[rank]]
        return Loans(
            [expert - sum(self.owned[:rank]) for its in given for expert in its],
            list(map(len, given)),
            list(map(taken.count, range(len(self.owned)))),
        )
