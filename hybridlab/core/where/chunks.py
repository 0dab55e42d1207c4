"""Chunks of a sequence: the positions of each rank, and the pairs of chunks that attention computes.

Relatives: `core.where.attended`, the keys that a position sees; `modes.context_parallel`, which assigns chunks to
ranks; `modes.parts.ring_attention`.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.where.attended import looks, seen
from hybridlab.core.where.layout import even
from hybridlab.doors import guarded, intervals


@guarded(spans=intervals)
class Chunks(NamedTuple):
    """The positions of each rank: the sequence is cut into chunks, and a rank has one or several of them.

    spans  (from, to) of each chunk;  of  the indices of the chunks of each rank, in order
    documents, causal  which keys a position sees: see `core.where.attended.looks`
    """

    spans: tuple[tuple[int, int], ...]
    of: tuple[tuple[int, ...], ...]
    documents: tuple[int, ...] = ()
    causal: bool = True

    @classmethod
    def in_order(cls, context: int, ranks: int) -> "Chunks":
        """One chunk for each rank, of equal length if possible."""
        return cls(tuple(even(context, ranks)), tuple((rank,) for rank in range(ranks)))

    @classmethod
    def zigzag(cls, context: int, ranks: int, documents: tuple[int, ...] = ()) -> "Chunks":
        """Two chunks of each document for each rank, one from the front and one from the back: then all ranks have the
        same number of pairs, if 2·ranks divides the length of each document.

        documents  the lengths of the documents, in order; none: the row is one document

        The remainder of a division is distributed to one rank after another, across documents, so ranks differ by at
        most one position. It lengthens the front chunks of one document and the back chunks of the next one.

        >>> Chunks.zigzag(8, 2).positions(0), Chunks.zigzag(8, 2).pairs
        ([0, 1, 6, 7], [18, 18])
        >>> Chunks.zigzag(16, 2)._replace(documents=(12, 4)).pairs, Chunks.zigzag(16, 2, documents=(12, 4)).pairs
        ([20, 68], [44, 44])
        """
        spans, of, end, dealt, uneven = [], [[] for _ in range(ranks)], 0, 0, 0
        for document in documents or (context,):
            whole, rest = divmod(document, 2 * ranks)
            lengths = [whole] * (2 * ranks)
            for turn in range(rest):
                front = (dealt + turn) % ranks
                first, then = (front, -1 - front)[:: -1 if uneven % 2 else 1]
                lengths[first if lengths[first] == whole else then] += 1
            dealt, uneven = dealt + rest, uneven + (rest > 0)
            for chunk, length in enumerate(lengths):
                if length:
                    of[min(chunk, 2 * ranks - 1 - chunk)].append(len(spans))
                    spans.append((end, end + length))
                end += length
        return cls(tuple(spans), tuple(map(tuple, of)), tuple(documents))

    def among(self, ways: int) -> "Chunks":
        """Divide the positions of each rank further, in order, among this number of ranks, which are then neighbours.

        >>> Chunks.zigzag(8, 2).among(2).of, Chunks.zigzag(8, 2).among(2).order
        (((0,), (1,), (2,), (3,)), [0, 1, 6, 7, 2, 3, 4, 5])
        """
        parts = [
            _spans_of(self.positions(rank)[begin:end])
            for rank in range(len(self.of))
            for begin, end in even(self.length(rank), ways)
        ]
        ends = np.cumsum([0, *map(len, parts)]).tolist()
        of = tuple(tuple(range(first, end)) for first, end in zip(ends, ends[1:]))
        return Chunks(tuple(span for part in parts for span in part), of, self.documents, self.causal)

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
        return looks(max(end for _, end in self.spans), self.documents, self.causal)

    @property
    def pairs(self) -> list[int]:
        """For each rank, the number of pairs: one of its queries, and a key that this query sees."""
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
        """(index of a chunk, its slice of the rank's positions)."""
        found, begin = [], 0
        for chunk in self.of[rank]:
            low, high = self.spans[chunk]
            found.append((chunk, slice(begin, begin + high - low)))
            begin += high - low
        return found


def _spans_of(positions: list[int]) -> list[tuple[int, int]]:
    """The spans that positions form, in order.

    >>> _spans_of([4, 5, 6, 9])
    [(4, 7), (9, 10)]
    """
    cuts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
    return [(positions[begin], positions[end - 1] + 1) for begin, end in zip(cuts, cuts[1:]) if begin < end]
