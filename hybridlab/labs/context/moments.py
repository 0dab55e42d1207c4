"""Notebook 33, a ring step by step: the source of each rank's keys, the chunks that meet, and the pairs computed."""

from typing import NamedTuple

from hybridlab.core.where.chunks import Chunks


class Moment(NamedTuple):
    """One step of a ring.

    sources  for each rank, the source of the keys and values that it has now
    meets    (chunk of queries, chunk of keys) that are computed in this step;  skipped  those that need not be computed
    pairs    for each rank, the (query, key) pairs that it computes in this step
    """

    sources: tuple[int, ...]
    meets: frozenset[tuple[int, int]]
    skipped: frozenset[tuple[int, int]]
    pairs: tuple[int, ...]


def moments(chunks: Chunks) -> list[Moment]:
    """Every step of a ring.

    >>> [one.pairs for one in moments(Chunks.in_order(6, 3))]
    [(3, 3, 3), (0, 4, 4), (0, 0, 4)]
    """
    ranks = range(len(chunks.of))
    found = []
    for step in ranks:
        sources = tuple((rank - step) % len(ranks) for rank in ranks)
        every = [[(mine, other) for mine in chunks.of[rank] for other in chunks.of[sources[rank]]] for rank in ranks]
        meets = frozenset(one for its in every for one in its if chunks.meet(*one))
        pairs = tuple(sum(_pairs(chunks, *one) for one in its if one in meets) for its in every)
        found.append(Moment(sources, meets, frozenset(one for its in every for one in its) - meets, pairs))
    return found


def _pairs(chunks, mine, other) -> int:
    seen = chunks.seen(mine, other)
    lengths = [high - low for low, high in (chunks.spans[mine], chunks.spans[other])]
    return lengths[0] * lengths[1] if seen is None else int(seen.sum())
