"""Moves: the elements that ranks send to one another when one layout replaces another.

A rank keeps the elements that its old and its new piece have in common. Every other element of its new piece is in the
old piece of some rank. If several ranks have it, the one that has sent the fewest bytes so far sends it. (Pieces of
different ranks need not be equal or disjoint: a parameter that tp does not shard may share a buffer with one that tp
cuts unevenly, and then ZeRO cuts that buffer at other elements on every rank along tp.)

Read next: `training.reshard`, which makes the moves on ranks. Relatives: `core.where.reshard`, which finds the
elements that two pieces have in common.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hybridlab.core.where.layout import Layout
from hybridlab.core.where.reshard import Piece, stretches

Stretch = tuple[int, int, int]  # position in the old piece, position in the new piece, number of elements


class Move(NamedTuple):
    """The elements of one parameter that a rank takes from another rank, or keeps.

    source     the rank that has them under the old layout
    to         the rank that needs them under the new one; the same rank: they are there already
    name       of the parameter
    stretches  (position in the old piece, position in the new piece, number of elements), in rising order

    >>> Move(0, 2, "w", ((0, 4, 2), (6, 6, 1))).elements
    3
    """

    source: int
    to: int
    name: str
    stretches: tuple[Stretch, ...]

    @property
    def elements(self) -> int:
        """The number of elements that move."""
        return sum(count for _, _, count in self.stretches)


def piece(layout: Layout, name: str, rank: int, used: bool = False) -> Piece | None:
    """The piece of a parameter that a rank keeps between steps; None: it holds no part of it.

    layout, name, rank  the layout, the parameter and the rank
    used                the piece of the weight with which it computes, if it keeps that (below ZeRO's stage 3), instead
                        of the piece that its optimizer updates

    >>> from hybridlab.core.where.layout import Mesh, Param
    >>> one = Layout(Mesh(dp=2), (Param("w", (6,), partial=("dp",), owners=2, rest=1),))
    >>> piece(one, "w", 1).share, piece(one, "w", 1, used=True).share
    (slice(3, 6, None), slice(0, 6, None))
    """
    if rank >= layout.mesh.size or (box := layout.box(name, rank)) is None:
        return None
    full = used and layout[name].rest < 3
    return Piece(box, slice(0, layout.size(name, rank)) if full else layout.share(name, rank))


def moves(
    before: Layout, after: Layout, used: bool = False, width: Callable | None = None, sent: Counter | None = None
) -> list[Move]:
    """The moves from one layout to another, in the order of senders, receivers and parameters.

    before  the layout that the ranks have
    after   the layout that they need: the same parameters on ranks with the same numbers
    used    as in `piece`
    width   width(name): the bytes of one element; None: 1 for each
    sent    {rank: bytes that it already sends}; the bytes of the new moves are added to them

    >>> from hybridlab.core.where.layout import Cut, Mesh, Param, even
    >>> rows = Layout(Mesh(tp=2), (Param("w", (4, 2), shard={"tp": Cut(0, even(4, 2))}),))
    >>> columns = Layout(Mesh(tp=2), (Param("w", (4, 2), shard={"tp": Cut(1, even(2, 2))}),))
    >>> for one in moves(rows, columns): print(*one)
    0 0 w ((0, 0, 1), (2, 1, 1))
    0 1 w ((1, 0, 1), (3, 1, 1))
    1 0 w ((0, 2, 1), (2, 3, 1))
    1 1 w ((1, 2, 1), (3, 3, 1))
    """
    width, sent = width or (lambda name: 1), Counter() if sent is None else sent
    wishes = [wish for name in after.named for wish in _wishes(before, after, name, used)]
    found = []
    for wish in sorted(wishes, key=lambda one: width(one.name) * one.elements, reverse=True):  # small ones level it
        source = wish.to if wish.to in wish.there else min(wish.there, key=lambda rank: (sent[rank], rank))
        sent[source] += width(wish.name) * wish.elements * (source != wish.to)
        found.append(Move(source, wish.to, wish.name, wish.stretches(source)))
    number = {name: place for place, name in enumerate(after.named)}
    return sorted(found, key=lambda move: (move.source, move.to, number[move.name], move.stretches))


class _Wish(NamedTuple):
    """Elements that a rank needs, and that the same ranks have.

    there   {a rank that has them: the positions in its old piece};  here  in the new piece
    length  of each run of elements that are side by side in all of these pieces
    """

    to: int
    name: str
    there: dict[int, np.ndarray]
    here: np.ndarray
    length: np.ndarray

    @property
    def elements(self) -> int:
        return int(self.length.sum())

    def stretches(self, source: int) -> tuple[Stretch, ...]:
        """The elements as stretches, if they come from this rank: runs are joined where they continue."""
        there, here, length = self.there[source], self.here, self.length
        goes_on = (there[:-1] + length[:-1] == there[1:]) & (here[:-1] + length[:-1] == here[1:])
        first = np.flatnonzero(np.concatenate([[True], ~goes_on]))
        every = there[first], here[first], np.add.reduceat(length, first)
        return tuple(zip(*(one.tolist() for one in every)))


def _wishes(before: Layout, after: Layout, name: str, used: bool):
    """The wishes for one parameter: for each rank its own elements, and the others by the ranks that have them."""
    shape, have = before[name].shape, _holders(before, name, used)
    tables = [stretches(shape, one) for one, _ in have]
    for new, receivers in _holders(after, name, used):
        mine = stretches(shape, new)
        ends = np.unique(
            np.concatenate([end for one in (mine, *tables) for end in (one.whole, one.whole + one.length)])
        )
        needed, here = mine.find(ends[:-1])  # between two neighbouring ends, a piece has everything or nothing
        begin, here, length = ends[:-1][needed], here[needed], np.diff(ends)[needed]
        found = [table.find(begin) for table in tables]
        for to in receivers:
            own = [to in holders for _, holders in have]
            local = np.any([has & is_own for (has, _), is_own in zip(found, own)], axis=0)
            which = np.stack([has & (is_own | ~local) for (has, _), is_own in zip(found, own)], axis=1)
            kinds, kind = np.unique(which, axis=0, return_inverse=True)
            for number, its in enumerate(kinds):
                runs = kind.ravel() == number
                holding = [(at[runs], holders) for has, (_, at), (_, holders) in zip(its, found, have) if has]
                there = {rank: at for at, holders in holding for rank in holders if to not in holders or rank == to}
                yield _Wish(to, name, there, here[runs], length[runs])


def _holders(layout: Layout, name: str, used: bool) -> list[tuple[Piece, list[int]]]:
    """Every piece with the ranks that keep it, without empty ones."""
    found: dict[tuple, tuple[Piece, list[int]]] = {}
    for rank in range(layout.mesh.size):
        one = piece(layout, name, rank, used)
        if one and one.share.stop > one.share.start:
            key = *((span.start, span.stop) for span in one.box), one.share.start, one.share.stop
            found.setdefault(key, (one, []))[1].append(rank)
    return list(found.values())
