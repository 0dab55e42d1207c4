"""Spans of a dim, (from, to): the overlap of two spans, and the inputs on which some outputs depend.

A layer that sees neighbouring positions, such as a convolution, has a *sight* along each dim: its outputs `low` to
`high` depend on a span of inputs, which may reach into the padding.

    input    · 0 1 2 3 4 5 6 7 ·        kernel 3, stride 2, one of padding before and after
    output   [ 0 ] [ 2 ]                outputs 0 to 2 need the inputs -1 to 4, of which -1 is padding
               [ 1 ] [ 3 ]

Halos, their bytes and their pictures follow from sights and from how a dim is sharded.

Relatives: `world.talk.windows`, which fetches the inputs that a rank sees; `modes.parts.halos`;
`predict.bytes.spatial`; `core.what.operators`, whose convolutions look along dims by name.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.core.where.layout import even
from hybridlab.doors import AMOUNT, COUNT, guarded

Span = tuple[int, int]


def overlap(one: Span, other: Span) -> Span:
    """The intersection of two spans; if it is empty, a span of length 0 at the nearer end of the other.

    one, other  spans, (from, to)

    >>> overlap((0, 5), (3, 8)), overlap((0, 3), (5, 8)), overlap((9, 10), (5, 8))
    ((3, 5), (5, 5), (8, 8))
    """
    begin = min(max(one[0], other[0]), other[1])
    return begin, max(begin, min(one[1], other[1]))


@guarded(COUNT, before=AMOUNT, after=AMOUNT)
class Sight(NamedTuple):
    """The inputs on which the outputs of a convolution or a pooling depend, along one dim.

    kernel         positions on which an output depends
    stride         positions from one output to the next
    dilation       positions from one of these to the next
    before, after  positions of padding
    """

    kernel: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """The number of inputs that one output spans."""
        return self.dilation * (self.kernel - 1) + 1

    def outputs(self, length: int) -> int:
        """The number of outputs for a dim of this length.

        >>> Sight(3, stride=2, before=1, after=1).outputs(8)
        4
        """
        return max(0, (length + self.before + self.after - self.reach) // self.stride + 1)

    def seen(self, outputs: Span) -> Span:
        """The inputs on which some outputs depend, including positions beyond the borders.

        >>> Sight(3, stride=2, before=1, after=1).seen((0, 2))
        (-1, 4)
        """
        low, high = outputs
        first = low * self.stride - self.before
        return first, first + (high - 1 - low) * self.stride + self.reach if high > low else first

    def within(self, inputs: Span) -> Span:
        """The outputs that depend on these inputs only, and on no padding.

        >>> Sight(3, before=1, after=1).within((4, 8))
        (5, 7)
        """
        low, high = inputs
        first = -(-(low + self.before) // self.stride)
        return first, max(first, (high - self.reach + self.before) // self.stride + 1)

    def beyond(self, outputs: Span, length: int) -> Span:
        """The number of padding places on which some outputs depend, before and after the inputs.

        >>> Sight(3, before=1, after=1).beyond((0, 4), 8), Sight(3, before=1, after=1).beyond((0, 8), 8)
        ((1, 0), (1, 1))
        """
        first, last = self.seen(outputs)
        return max(0, -first), max(0, last - length)


class Look(NamedTuple):
    """A `Sight` with the names of its dims: outputs along `made` depend on the positions along `of` that it gives.

    If there are as many outputs as inputs, both dims may have one name.
    """

    of: str
    made: str
    sight: Sight


class Repeat(NamedTuple):
    """The inputs seen along one dim that is stretched: each input is repeated `times` times (nearest neighbour)."""

    times: int

    def outputs(self, length: int) -> int:
        return length * self.times

    def seen(self, outputs: Span) -> Span:
        """The inputs on which some outputs depend.

        >>> Repeat(2).seen((3, 6))
        (1, 3)
        """
        low, high = outputs
        return low // self.times, -(-high // self.times) if high > low else low // self.times


def wanted(spans: Sequence[Span], sight: "Sight") -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """(outputs of each rank, inputs on which they depend) for a dim whose inputs are cut into these spans; its
    outputs are split evenly.

    spans  of the inputs, (from, to), one for each rank
    sight  what an output sees, a `Sight`

    >>> wanted(((0, 4), (4, 8)), Sight(3, before=1, after=1))
    (((0, 4), (4, 8)), ((0, 5), (3, 8)))
    """
    length = spans[-1][1]
    made = even(sight.outputs(length), len(spans))
    return made, tuple(overlap(sight.seen(one), (0, length)) for one in made)
