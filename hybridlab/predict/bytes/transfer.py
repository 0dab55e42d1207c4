"""A transfer: one operation among some ranks, and its bytes.

Formulas return transfers, and a step's ledgers are compared with their sum. Relatives: `predict.bytes.sharing` (what
packs send), `modes.mode` (what each mode sends).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.bytes.collectives import cost


class Transfer(NamedTuple):
    """Ranks that do one operation together: for a message the sender and the receiver.

    what   is sent, in a word;  axis  along which the ranks differ, or several: "dp+tp";  op  as in the ledger
    bytes  of the full tensor, all times of a step together
    """

    what: str
    axis: str
    op: str
    ranks: tuple[int, ...]
    bytes: float

    @property
    def counted(self) -> float:
        """What the ledgers of all ranks add up to: a collective counts on each, a message where it leaves."""
        return self.bytes * (1 if self.op == "isend" else len(self.ranks))

    @property
    def sent(self) -> float:
        """What leaves each rank that sends: all of a message, of a collective its part of the ring."""
        return self.bytes if self.op == "isend" else cost(self.op, len(self.ranks), self.bytes).bytes

    @property
    def wire(self) -> float:
        """The bytes sent by all ranks together."""
        return self.between(1)

    def between(self, per_node: int) -> float:
        """The bytes that leave a node of so many ranks; rings go round in rank order."""
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
    means = {key: round(table[key], 3) for key in sorted(table) if table[key]}  # of uneven ranks they need not be whole
    return {key: size if size % 1 else int(size) for key, size in means.items()}
