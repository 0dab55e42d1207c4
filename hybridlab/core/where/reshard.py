"""Resharding: the elements that two pieces of a parameter, cut under different layouts, have in common.

A *piece* is the part of a parameter that one rank keeps between steps: a share of its flattened box (see
`core.where.layout`). The box may be cut in several dims and the share may start anywhere; still, line by line, its
elements are contiguous in the full parameter. So a piece is a list of *stretches* of the whole, in rising order, and
two pieces overlap where their stretches do.

Read next: `training.checkpoints`, which reads what two pieces have in common from one file into another rank's memory.
"""

import math
from typing import NamedTuple

import numpy as np


class Piece(NamedTuple):
    """A shard of a parameter's flattened box."""

    box: tuple[slice, ...]
    share: slice


class Stretches(NamedTuple):
    """Runs of contiguous elements of a flattened parameter in a piece: their starts in both, and their lengths."""

    whole: np.ndarray
    piece: np.ndarray
    length: np.ndarray

    def find(self, elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For elements of the full parameter: whether the piece has each, and its position there (else meaningless)."""
        if not len(self.whole):
            return np.zeros(len(elements), bool), elements
        number = np.maximum(np.searchsorted(self.whole, elements, side="right") - 1, 0)
        within = elements - self.whole[number]
        return (0 <= within) & (within < self.length[number]), self.piece[number] + within


def stretches(shape: tuple[int, ...], piece: Piece) -> Stretches:
    """The stretches of a piece of a parameter of this shape.

    >>> stretches((3, 6), Piece((slice(1, 3), slice(0, 4)), slice(2, 8)))  # the last two of one line, and the next line
    Stretches(whole=array([ 8, 12]), piece=array([0, 2]), length=array([2, 4]))
    """
    lengths = [span.stop - span.start for span in piece.box]
    cut = max((dim for dim, length in enumerate(lengths) if length < shape[dim]), default=0)
    line = math.prod(lengths[cut:])  # after the last dim that is cut, the box has all that the whole has
    first = np.zeros(1, dtype=np.int64)  # where each line begins in the whole
    for dim, span in enumerate(piece.box):
        index = np.arange(span.start, span.stop if dim < cut else span.start + 1)
        first = np.add.outer(first * shape[dim], index).ravel()
    begin = np.arange(len(first)) * line  # where each line begins in the flattened box
    low, high = (np.clip(end, piece.share.start, piece.share.stop) for end in (begin, begin + line))
    kept = low < high
    return Stretches((first + low - begin)[kept], (low - piece.share.start)[kept], (high - low)[kept])


def overlap(shape: tuple[int, ...], there: Piece, here: Piece) -> list[tuple[int, int, int]]:
    """The elements that two pieces have in common, in rising order: (position in the first, position in the second,
    number).

    >>> rows, columns = (slice(0, 2), slice(0, 4)), (slice(0, 4), slice(2, 4))
    >>> overlap((4, 4), Piece(rows, slice(0, 8)), Piece(columns, slice(0, 8)))
    [(2, 0, 2), (6, 2, 2)]
    """
    ours, theirs = stretches(shape, here), stretches(shape, there)
    # Between two neighbouring ends of any stretch, each piece has everything or nothing.
    ends = np.unique(np.concatenate([ours.whole, ours.whole + ours.length, theirs.whole, theirs.whole + theirs.length]))
    begin, length = ends[:-1], np.diff(ends)
    have_we, at = ours.find(begin)
    have_they, source = theirs.find(begin)
    both = have_we & have_they
    return list(zip(source[both].tolist(), at[both].tolist(), length[both].tolist()))
