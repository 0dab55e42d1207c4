"""Chunks of a sequence: which positions each rank has, and which chunks have to meet in attention.

Relatives: `core.where.attended`, where a position looks; `modes.context_parallel`, which deals them out;
`modes.parts.ring_attention`.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.where.attended import looks, seen
from hybridlab.core.where.layout import even


class Chunks(NamedTuple):
    """Which positions each rank has: the sequence is cut into chunks, and a rank has one or several of them.

    spans  from where to where each chunk goes;  of  the numbers of the chunks that each rank has, in order
    documents, causal  where positions look: see `core.where.attended.looks`
    """

    spans: tuple[tuple[int, int], ...]
    of: tuple[tuple[int, ...], ...]
    documents: tuple[int, ...] = ()
    causal: bool = True

    @classmethod
    def in_order(cls, context: int, ranks: int) -> "Chunks":
        """One chunk for each rank, as long as each other if they can be."""
        return cls(tuple(even(context, ranks)), tuple((rank,) for rank in range(ranks)))

    @classmethod
    def zigzag(cls, context: int, ranks: int) -> "Chunks":
        """Two for each rank, one from the front and one from the back: then all have as many pairs to compute.

        >>> Chunks.zigzag(8, 2).positions(0), Chunks.zigzag(8, 2).pairs
        ([0, 1, 6, 7], [18, 18])
        """
        return cls(tuple(even(context, 2 * ranks)), tuple((rank, 2 * ranks - 1 - rank) for rank in range(ranks)))

    def positions(self, rank: int) -> list[int]:
        """The positions of a rank, in the order in which it holds them."""
        return [place for chunk in self.of[rank] for place in range(*self.spans[chunk])]

    @property
    def order(self) -> list[int]:
        """All positions, rank after rank."""
        return [place for rank in range(len(self.of)) for place in self.positions(rank)]

    @property
    def looks(self) -> np.ndarray:
        """From where to where each position looks."""
        return looks(self.spans[-1][1], self.documents, self.causal)

    @property
    def pairs(self) -> list[int]:
        """For each rank, how many pairs of a query and a key that it sees there are."""
        return [int((self.looks[self.positions(rank)] @ [-1, 1]).sum()) for rank in range(len(self.of))]

    def meet(self, mine: int, other: int) -> bool:
        """Whether a position of one chunk looks at one of another chunk."""
        (begin, end), (low, high) = self.spans[mine], self.spans[other]
        return self.looks[begin, 0] < high and low < self.looks[end - 1, 1]

    def seen(self, mine: int, other: int) -> np.ndarray | None:
        """Which keys of another chunk each query of one chunk sees, (Q, S); None where all see all."""
        (begin, end), (low, high) = self.spans[mine], self.spans[other]
        if self.looks[end - 1, 0] <= low and high <= self.looks[begin, 1]:
            return None
        return seen(self.looks[begin:end], np.arange(low, high))

    def length(self, rank: int) -> int:
        """How many positions a rank has."""
        return len(self.positions(rank))

    def slices(self, rank: int) -> list[tuple[int, slice]]:
        """(number of a chunk, where it lies in what the rank holds)."""
        found, begin = [], 0
        for chunk in self.of[rank]:
            low, high = self.spans[chunk]
            found.append((chunk, slice(begin, begin + high - low)))
            begin += high - low
        return found
