"""Chunks of a sequence: the positions of each rank, and the pairs of chunks that attention computes.

Relatives: `core.where.attended`, the keys that a position sees; `modes.context_parallel`, which assigns chunks to
ranks; `modes.parts.ring_attention`.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.where.attended import looks, seen
from hybridlab.core.where.layout import even


class Chunks(NamedTuple):
    """The positions of each rank: the sequence is cut into chunks, and a rank has one or several of them.

    spans  (from, to) of each chunk;  of  the numbers of the chunks of each rank, in order
    documents, causal  which keys a position sees: see `core.where.attended.looks`
    """

    spans: tuple[tuple[int, int], ...]
    of: tuple[tuple[int, ...], ...]
    documents: tuple[int, ...] = ()
    causal: bool = True

    @classmethod
    def in_order(cls, context: int, ranks: int) -> "Chunks":
        """One chunk for each rank, of equal lengths if possible."""
        return cls(tuple(even(context, ranks)), tuple((rank,) for rank in range(ranks)))

    @classmethod
    def zigzag(cls, context: int, ranks: int) -> "Chunks":
        """Two chunks for each rank, one from the front and one from the back: then all ranks have the same number of
        pairs.

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
        """The span of keys that each position sees."""
        return looks(self.spans[-1][1], self.documents, self.causal)

    @property
    def pairs(self) -> list[int]:
        """For each rank, the number of pairs of a query and a key that it sees."""
        return [int((self.looks[self.positions(rank)] @ [-1, 1]).sum()) for rank in range(len(self.of))]

    def meet(self, mine: int, other: int) -> bool:
        """Whether any position of one chunk sees a position of another chunk."""
        (begin, end), (low, high) = self.spans[mine], self.spans[other]
        return self.looks[begin, 0] < high and low < self.looks[end - 1, 1]

    def seen(self, mine: int, other: int) -> np.ndarray | None:
        """The mask of the keys of another chunk that each query of one chunk sees, (Q, S); None: all see all."""
        (begin, end), (low, high) = self.spans[mine], self.spans[other]
        if self.looks[end - 1, 0] <= low and high <= self.looks[begin, 1]:
            return None
        return seen(self.looks[begin:end], np.arange(low, high))

    def length(self, rank: int) -> int:
        """The number of positions of a rank."""
        return len(self.positions(rank))

    def slices(self, rank: int) -> list[tuple[int, slice]]:
        """(number of a chunk, its slice of the rank's positions)."""
        found, begin = [], 0
        for chunk in self.of[rank]:
            low, high = self.spans[chunk]
            found.append((chunk, slice(begin, begin + high - low)))
            begin += high - low
        return found
