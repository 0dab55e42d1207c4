"""A passage: the bytes of all moves from one layout to another, by kind of tensor and by pair of ranks.

Relatives: `core.where.moves`; `training.reshard`, which makes one for two jobs; `show.layouts.passage_matrix`, its
picture.
"""

from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property

from hybridlab.core.where.layout import Layout
from hybridlab.core.where.moves import Move

PARTS = ("weights", "state")


class Passage(ABC):
    """Moves of weights and of the optimizer's state from one layout to another."""

    @property
    @abstractmethod
    def layouts(self) -> tuple[Layout, Layout]:
        """The old layout and the new one."""

    @property
    @abstractmethod
    def moves(self) -> dict[str, list[Move]]:
        """{"weights", "state": the moves}; those from a rank to itself are there already."""

    @abstractmethod
    def width(self, part: str, name: str) -> int:
        """The bytes that belong to one element of a parameter.

        part  "weights" or "state"
        name  of the parameter
        """

    @cached_property
    def pairs(self) -> dict[tuple[int, int], dict[str, int]]:
        """{(sender, receiver): {"weights", "state": bytes}}, in rank order; from a rank to itself, the bytes that it
        already has."""
        found: dict[tuple[int, int], Counter] = {}
        for part in PARTS:
            for move in self.moves[part]:
                its = found.setdefault((move.source, move.to), Counter())
                its[part] += move.elements * self.width(part, move.name)
        return {pair: {part: found[pair][part] for part in PARTS} for pair in sorted(found)}

    @cached_property
    def sent(self) -> dict[tuple[int, int], int]:
        """{(sender, receiver): bytes of the message}."""
        both = {pair: sum(its.values()) for pair, its in self.pairs.items() if pair[0] != pair[1]}
        return {pair: size for pair, size in both.items() if size}

    @property
    def total(self) -> int:
        """The bytes of all messages."""
        return sum(self.sent.values())

    @property
    def bytes(self) -> dict[str, int]:
        """{"weights", "state": bytes that are sent}."""
        return {part: self._sum(part, stays=False) for part in PARTS}

    @property
    def there(self) -> dict[str, int]:
        """{"weights", "state": bytes that ranks need and already have}."""
        return {part: self._sum(part, stays=True) for part in PARTS}

    def _sum(self, part: str, stays: bool) -> int:
        return sum(its[part] for (one, other), its in self.pairs.items() if (one == other) == stays)

    def __str__(self) -> str:
        before, after = (layout.mesh for layout in self.layouts)
        parts = (f"{part}: {self.bytes[part]:,} bytes sent, {self.there[part]:,} there already" for part in PARTS)
        head = f"{before} → {after}: {len(self.sent)} messages, {self.total:,} bytes"
        return "\n  ".join([head, *parts])
