"""Count the FLOPs of operators on a rank under a strategy, and find repeated work.

If an axis shards no dim of an operator, it is *unused* there: all ranks along it do the same work. The result is right
and nothing is sent, but time is lost. With one table of rules for a program this is easy to miss, since each rule fits
some operators and not others.

Only the forward is counted: the backward of a matmul is two more matmuls, which are repeated equally often. A matmul or
convolution takes two FLOPs for each combination of its dims, attention the FLOPs of two matmuls, and all other
operators one for each combination; pooling takes one for each input of an output.

Source: Shazeer et al. 2018, arXiv:1811.02084, section 4. Relatives: `core.what.operators`, `predict.bytes.arrows`.
"""

from math import prod
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.what.operators import Graph, Operator, Strategy
from hybridlab.core.where.mesh import Mesh


class Work(NamedTuple):
    """FLOPs of one operator: the work of each rank, and the work of one device divided by the number of ranks."""

    operator: str
    done: float
    share: float

    @property
    def times(self) -> float:
        """The number of ranks that repeat the same computation."""
        return self.done / self.share


def work(graph: Graph, strategy: Strategy, mesh: Mesh) -> list[Work]:
    """The work of every operator, in order.

    >>> from hybridlab.core.what.operators import shared
    >>> from hybridlab.core.what.programs import mlp
    >>> rules, mesh = {"F": "tp"}, Mesh(dp=2, tp=2)
    >>> [(one.operator, one.times) for one in work(mlp(), shared(mlp(), rules, mesh), mesh)]
    [('up', 2.0), ('gelu', 2.0), ('down', 2.0), ('loss', 4.0)]
    """
    found = []
    for operator in graph.operators:
        ways = prod(mesh[axis] for axis, dim in zip(mesh.axes, strategy[operator.name]) if dim)
        whole = flops(operator, graph.sizes)
        found.append(Work(operator.name, whole / ways, whole / mesh.size))
    return found


def flops(operator: Operator, sizes: dict[str, int]) -> int:
    """The FLOPs of one device.

    >>> flops(Operator("up", "BTD,FD->BTF", ("x", "A")), dict(B=1, T=2, D=3, F=4))
    48
    """
    products = {"einsum": len(operator.operands) - 1, "convolution": 1, "attention": 2}.get(operator.does, 0)
    places = prod(look.sight.kernel for look in operator.looks) if not products else 1
    return max(1, 2 * products) * places * prod(sizes[dim] for dim in operator.dims)


def times(works: list[Work]) -> float:
    """The FLOPs of a rank over all operators, relative to a division without repeated work; 1 if no work is
    repeated."""
    return added(one.done for one in works) / added(one.share for one in works)
