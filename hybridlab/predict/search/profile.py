"""Define profiles: the times of a machine for a piece and for a message.

There are two kinds, with the same three methods.

`Rated` computes the times from a few rates. `Measured` looks them up in tables measured on real ranks, as FlexFlow does
(`measuring.pieces`): it has no other times.

Source: Jia, Zaharia, Aiken 2018, arXiv:1807.05358, section 5.1. See also `predict.bytes.collectives` (the number of
messages and bytes of a collective).
"""

from dataclasses import dataclass

from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.search.pieces import Piece, Seconds

HERE = Link(5e-6, 1e-11)


@dataclass(frozen=True)
class Rated:
    """A machine, described by its rates: a piece takes a launch, and then the longer of two times: that of its FLOPs
    and that of its memory traffic.

    multiply  FLOP/s;  memory  bytes per second of reading and writing;  launch  seconds, for each kernel
    links     the links of each axis, or one for all;  word  bytes of a number

    >>> Rated(multiply=1e9, launch=1e-6).of(Piece("gelu", "B->B", (("B", 1000),), (True,)))
    Seconds(forward=2e-06, backward=3e-06)
    """

    multiply: float = 1e14
    memory: float = 1e12
    launch: float = 5e-6
    links: Link | dict[str, Link] = HERE
    word: int = 4

    def of(self, piece: Piece) -> Seconds:
        """The seconds of a piece."""
        read = self.word * piece.words / self.memory
        took = (self.launch + max(flops / self.multiply, read) if flops else 0.0 for flops in piece.flops)
        return Seconds(*took)

    def link(self, op: str, axis: str) -> Link:
        """The link along an axis; along several axes at once, the slowest of their links."""
        every = [self.links] if isinstance(self.links, Link) else [self.links[one] for one in axis.split("+")]
        return Link(max(one.alpha for one in every), max(one.beta for one in every))


@dataclass(frozen=True)
class Measured:
    """A machine, described by its measurements.

    seconds  {piece: its time};  links  {(operation, axis): the fitted link};  word  bytes of a number
    """

    seconds: dict[Piece, Seconds]
    links: dict[tuple[str, str], Link]
    word: int = 4

    def of(self, piece: Piece) -> Seconds:
        """
        raises  ValueError for a piece that was not measured
        """
        if piece not in self.seconds:
            raise ValueError(
                f"{piece.does} {piece.signature} of {dict(piece.lengths)} was not measured: measure it too"
            )
        return self.seconds[piece]

    def link(self, op: str, axis: str) -> Link:
        """
        raises  ValueError for a collective that was not measured
        """
        if (op, axis) not in self.links:
            raise ValueError(f"{op} along {axis} was not measured: measure it too")
        return self.links[op, axis]
