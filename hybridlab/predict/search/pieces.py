"""Define pieces: one rank's part of an operator under a choice, which determines its time.

If two operators, or two choices, give a rank the same piece, they take the same time. So a table of pieces is small. It
is FlexFlow's cache of costs, measured once for each operator and shape.

Source: Jia, Zaharia, Aiken 2018, arXiv:1807.05358, section 5.1. Relatives: `core.what.operators`; `measuring.pieces`,
which times them on real ranks; `predict.search.profile`.
"""

from math import prod
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.operators import Choice, Graph, Operator, choices, ways_of
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.spans import Look
from hybridlab.predict.time.operators import flops


class Seconds(NamedTuple):
    """The time of a piece, forward and backward."""

    forward: float
    backward: float


class Piece(NamedTuple):
    """An operator's work on one rank.

    lengths  {dim: its length on this rank}, as pairs;  learns  for each operand whether it needs a gradient
    looks    dims with a kernel, with a halo or padding around the operand; these elements count as work too
    """

    does: str
    signature: str
    lengths: tuple[tuple[str, int], ...]
    learns: tuple[bool, ...]
    looks: tuple[Look, ...] = ()

    @property
    def operator(self) -> Operator:
        """An operator that does the work of this piece, without names."""
        return Operator("", self.signature, ("",) * len(self.learns), self.does, looks=self.looks)

    @property
    def flops(self) -> tuple[float, float]:
        """FLOPs of the forward and the backward. The gradients of all operands are twice the work of the forward.

        >>> Piece("einsum", "BD,FD->BF", (("B", 2), ("D", 3), ("F", 4)), (False, True)).flops
        (48, 48.0)
        """
        once = flops(self.operator, dict(self.lengths))
        return once, 2 * once * added(self.learns) / len(self.learns)

    @property
    def words(self) -> int:
        """The number of elements of all operands and of the result.

        >>> Piece("einsum", "BD,FD->BF", (("B", 2), ("D", 3), ("F", 4)), (False, True)).words
        26
        """
        sizes = dict(self.lengths)
        tensors = *self.operator.operands, self.operator.result
        return added(prod(sizes[dim] for dim in dims) for dims in tensors)


def piece(graph: Graph, operator: Operator, choice: Choice, mesh: Mesh) -> Piece:
    """Each rank's part of an operator under a choice.

    >>> from hybridlab.core.what.programs import mlp
    >>> piece(mlp(), mlp().operators[0], ("B", "F"), Mesh(x=2, y=2)).lengths
    (('B', 2), ('T', 4), ('D', 8), ('F', 4))
    """
    made = {look.of: look.made for look in operator.looks}
    dims = dict.fromkeys(letter for letter in operator.signature if letter.isalpha())
    lengths = tuple((dim, graph.sizes[dim] // ways_of(choice, mesh, made.get(dim, dim))) for dim in dims)
    learns = tuple(one in graph.learning for one in operator.takes)
    return Piece(operator.does, operator.signature, lengths, learns, operator.looks)


def pieces(graph: Graph, mesh: Mesh) -> list[Piece]:
    """Every piece of every strategy, each once.

    >>> from hybridlab.core.what.programs import mlp
    >>> len(pieces(mlp(), Mesh(x=2, y=2)))
    50
    """
    every = (
        piece(graph, operator, choice, mesh)
        for operator in graph.operators
        for choice in choices(operator, graph.sizes, mesh)
    )
    return list(dict.fromkeys(every))
