"""Peers: the ranks that hold the same part of a parameter, those that reduce its gradients, and those that shard it
between steps.

The coordinates determine these groups, and parameters that are cut alike have the same peers. So one table serves all
of them: a number for each rank, equal for ranks that belong together. Read next: `core.where.layout`, which calls this.
"""

from functools import cached_property, lru_cache

import numpy as np

from hybridlab.core.where.mesh import Mesh


class Peers:
    """The groups that the ranks of a mesh form for all parameters of one pattern.

    shard    {axis, or product of axes: a number for each coordinate, equal where the spans are}
    at       {axis: the coordinates that hold it}
    partial, owners, over, groups, secondary  as in `core.where.layout.Param`

    >>> peers = Peers(Mesh(dp=4, tp=2), {"tp": (0, 1)}, {}, ("dp",), owners=2)
    >>> peers.summed(2), peers.sharers(2), peers.twins(2)
    ((0, 2, 4, 6), (0, 2), (2, 6))
    >>> levels = Peers(Mesh(dp=4), {}, {}, ("dp",), owners=4, groups=2)
    >>> [levels.share_number(rank) for rank in range(4)], levels.sharers(2), levels.across(2)
    ([0, 2, 1, 3], (2, 3), (0, 2))
    """

    def __init__(
        self,
        mesh: Mesh,
        shard: dict,
        at: dict,
        partial: tuple,
        owners: int,
        over: tuple = ("dp",),
        groups: int = 1,
        secondary: int = 0,
    ):
        self._places = _places(mesh)
        self._box, self._held = self._boxes(mesh, shard), self._holders(at)
        apart = [axis for axis in mesh.axes if axis not in partial]
        self._along = _joined([self._places[axis] for axis in apart], mesh.size)
        place = self._along_all(mesh, over)
        inside = owners // groups
        group, number = np.divmod(place % owners, inside)
        self._share = number * groups + group  # so that the shares of one piece are next to each other
        others = [self._places[axis] for axis in mesh.axes if axis not in over]
        among = lambda *numbers: _joined([*others, *numbers], mesh.size)
        self._sharing, self._crossing = among(place // inside), among(place // owners, number)
        self._nearest = among(place // (secondary or 1))

    def _at(self, axis):
        return self._places.get(axis, self._places[""])

    def _boxes(self, mesh, shard):
        """A number for each rank, equal for ranks that compute with the same box."""
        columns = []
        for axes, numbers in shard.items():
            columns.append(np.asarray(numbers)[self._along_all(mesh, axes.split("+"))])
        return _joined(columns, mesh.size)

    def _along_all(self, mesh, axes):
        """The place of each rank along a product of axes, of which the last varies fastest."""
        place = np.zeros(mesh.size, dtype=np.int64)
        for axis in axes:
            place = place * mesh[axis] + self._at(axis)
        return place

    def _holders(self, at):
        held = np.ones(len(self._places[""]), dtype=bool)
        for axis, coordinates in at.items():
            held &= np.isin(self._at(axis), coordinates)
        return held

    def same_box(self, rank: int) -> tuple[int, ...]:
        """The ranks that compute with the same box as `rank`, itself included; none if it holds nothing."""
        return self._same.of(rank)

    def summed(self, rank: int) -> tuple[int, ...]:
        """The ranks whose gradients of this box have to be added."""
        return self._summed.of(rank)

    def sharers(self, rank: int) -> tuple[int, ...]:
        """The neighbours that gather this rank's box from their pieces, and reduce-scatter its gradient to them."""
        return self._sharers.of(rank)

    def across(self, rank: int) -> tuple[int, ...]:
        """The ranks of all groups of neighbours whose shares are parts of one piece."""
        return self._across.of(rank)

    def near(self, rank: int) -> tuple[int, ...]:
        """The neighbours that have the box in second copies, each a part of it."""
        return self._near.of(rank)

    def share_number(self, rank: int) -> int:
        """The index of this rank's share."""
        return int(self._share[rank])

    def copies(self, rank: int) -> tuple[int, ...]:
        """The ranks that own the same share of the same box."""
        return self._copies.of(rank)

    def twins(self, rank: int) -> tuple[int, ...]:
        """The ranks over which this share still has to be summed after the reduce-scatters."""
        return self._twins.of(rank)

    @cached_property
    def groups(self) -> set[tuple[int, ...]]:
        """Every group of ranks that hold something and meet to add gradients or to gather shares."""
        holders = np.flatnonzero(self._held)
        kinds = self._summed, self._sharers, self._across, self._near, self._twins
        return {kind.members[number] for kind in kinds
                for number in np.unique(kind.number[holders])}  # fmt: skip

    @cached_property
    def sums(self) -> bytes:
        """A value that is equal for patterns whose gradients are added by the same ranks, and only for those."""
        return self._summed.first.tobytes()

    @cached_property
    def _same(self):
        return _Classes([self._box], self._held)

    @cached_property
    def _summed(self):
        return _Classes([self._box, self._along], self._held)

    @cached_property
    def _sharers(self):
        return _Classes([self._sharing], np.ones_like(self._held))

    @cached_property
    def _across(self):
        return _Classes([self._crossing], np.ones_like(self._held))

    @cached_property
    def _near(self):
        return _Classes([self._nearest], np.ones_like(self._held))

    @cached_property
    def _copies(self):
        return _Classes([self._box, self._share], self._held)

    @cached_property
    def _twins(self):
        return _Classes([self._box, self._share, self._along], self._held)


class _Classes:
    """Classes of ranks that hold something and are equal in every column, and one more class for the others.

    number   of each rank's class;  members  of each class, in rank order: none of the class of others
    first    of each rank, the first of its class; -1 of others
    """

    def __init__(self, columns, held):
        joined = np.where(held, _joined(columns, len(held)), -1)
        values, first, self.number = np.unique(joined, return_index=True, return_inverse=True)
        ranks = np.argsort(self.number, kind="stable").tolist()
        ends = np.cumsum(np.bincount(self.number)).tolist()
        self.members = [tuple(ranks[begin:end]) for begin, end in zip([0, *ends], ends)]
        if len(values) and values[0] == -1:
            self.members[0] = ()
        self.first = np.where(held, first[self.number], -1)

    def of(self, rank: int) -> tuple[int, ...]:
        return self.members[self.number[rank]]


def _joined(columns, length) -> np.ndarray:
    """Several numbers as one, in mixed radix."""
    number = np.zeros(length, dtype=np.int64)
    for column in columns:
        number = number * (int(column.max(initial=0)) + 1) + column
    return number


@lru_cache(maxsize=16)
def _places(mesh: Mesh) -> dict[str, np.ndarray]:
    """The coordinates of every rank; "" is any axis that the mesh does not name."""
    every = np.unravel_index(np.arange(mesh.size), tuple(mesh.axes.values()) or (1,))
    return dict(zip(mesh.axes, every)) | {"": np.zeros(mesh.size, dtype=np.int64)}
