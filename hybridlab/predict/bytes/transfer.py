"""Describe a transfer: one operation among some ranks, and its bytes.

Formulas return transfers, and the check compares the ledgers of a step with their sum. See also `predict.bytes.sharing`
(transfers of packs) and `modes.mode` (transfers of each mode).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.bytes.collectives import cost


class Transfer(NamedTuple):
    """Ranks that do one operation together; for a message, the sender and the receiver.

    what   name of the tensor;  axis  the axis or axes along which the ranks differ: "dp+tp";  op  as in the ledger
    bytes  of the full tensor, summed over a step
    """

    what: str
    axis: str
    op: str
    ranks: tuple[int, ...]
    bytes: float

    @property
    def counted(self) -> float:
        """The sum over the ledgers of all ranks: a collective counts on each rank, a message only on its sender."""
        return self.bytes * (1 if self.op == "isend" else len(self.ranks))

    @property
    def sent(self) -> float:
        """The bytes that each sender sends: a full message, or its part of a ring."""
        return self.bytes if self.op == "isend" else cost(self.op, len(self.ranks), self.bytes).bytes

    @property
    def wire(self) -> float:
        """The bytes sent by all ranks together."""
        return self.between(1)

    def between(self, per_node: int) -> float:
        """The bytes that leave a node with this number of ranks; rings follow the rank order."""
        way = [self.ranks] if self.op == "isend" else zip(self.ranks, self.ranks[1:] + self.ranks[:1])
        return self.sent * added(one // per_node != other // per_node for one, other in way)


def transfer(mesh: Mesh, what: str, op: str, ranks: tuple[int, ...], bytes: float) -> Transfer:
    """The transfer of these ranks of a mesh.

    >>> transfer(Mesh(dp=2, tp=2), "gradients", "all_reduce", (1, 3), 80)
    Transfer(what='gradients', axis='dp', op='all_reduce', ranks=(1, 3), bytes=80)
    """
    places = [mesh.coordinates(rank) for rank in ranks]
    axis = "+".join(axis for axis in mesh.axes if len({place[axis] for place in places}) > 1)
    return Transfer(what, axis, op, ranks, bytes)


def by_axis(transfers: Iterable[Transfer]) -> dict[tuple[str, str], float]:
    """{(axis, operation): bytes in the ledgers of all ranks}."""
    table = defaultdict[tuple[str, str], float](float)
    for one in transfers:
        table[one.axis, one.op] += one.counted
    means = {
        key: round(table[key], 3) for key in sorted(table) if table[key]
    }  # with uneven ranks these may not be integers
    return {key: size if size % 1 else int(size) for key, size in means.items()}
