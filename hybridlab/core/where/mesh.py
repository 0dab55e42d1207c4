"""A mesh: ranks arranged along named axes, and the groups that communicate along an axis.

Read next: `hybridlab.core.when.schedule` (the order of actions). Only the mesh turns an axis into ranks.
"""

import functools
import itertools
import math
from numbers import Integral

MOST = 1_000_000  # ranks whose groups are listed: it takes ten seconds, and 0.1 GB
PLAYED = ("dp", "pp")  # the axes that a schedule knows: copies, and stages; all others are inside a stage


class Mesh:
    """Ranks 0 … size-1 laid out on named axes, in the order of the keywords: the first axis varies slowest.

    axes     the number of ranks along each axis, as in dp=3, pp=2. The course's axes are dp (data), pp (pipeline),
             tp (tensor), cp (context) and ep (expert), but any name is allowed
    unnamed  numbers without a name; they raise an error that shows the right form

    raises  ValueError if an axis has fewer than one coordinate, or a number has no name

    >>> mesh = Mesh(dp=3, pp=2)
    >>> mesh.size, mesh.coordinates(4), mesh.rank(dp=2, pp=0)
    (6, {'dp': 2, 'pp': 0}, 4)
    >>> mesh.groups("dp")
    [(0, 2, 4), (1, 3, 5)]
    """

    def __init__(self, *unnamed: int, **axes: int):
        if unnamed:
            said = ", ".join(map(repr, unnamed))
            raise ValueError(f"Mesh({said}) names no axis: name each axis and its length, such as hl.Mesh(dp=2, pp=4)")
        for axis, length in axes.items():
            if not isinstance(length, Integral) or isinstance(length, bool) or length < 1:
                raise ValueError(f"axis {axis} has length {length!r}: give a whole number of ranks, 1 or more")
        self.axes = {axis: int(length) for axis, length in axes.items()}
        self.size = math.prod(self.axes.values())

    def __getitem__(self, axis: str) -> int:
        """The number of coordinates along `axis`; an axis that the mesh does not name has one."""
        return self.axes.get(axis, 1)

    def __contains__(self, axis: object) -> bool:
        """Whether the mesh names `axis`.

        >>> "dp" in Mesh(dp=2), "tp" in Mesh(dp=2)
        (True, False)
        """
        return axis in self.axes

    __iter__ = None  # with __getitem__ alone, Python would try 0, 1, 2, … without end

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and list(self.axes.items()) == list(other.axes.items())

    def __hash__(self) -> int:
        return hash(tuple(self.axes.items()))

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{axis}={length}' for axis, length in self.axes.items())})"

    def coordinates(self, rank: int) -> dict[str, int]:
        """The coordinates of `rank`.

        raises  ValueError if the mesh has no such rank
        """
        self._refuse(rank)
        place = {}
        for axis, length in reversed(self.axes.items()):
            rank, place[axis] = divmod(rank, length)
        return {axis: place[axis] for axis in self.axes}

    def _refuse(self, rank: int) -> None:
        if not isinstance(rank, Integral) or not 0 <= rank < self.size:
            raise ValueError(f"{self} has no rank {rank!r}: choose from 0 to {self.size - 1}")

    def rank(self, **coordinates: int) -> int:
        """The rank at these `coordinates`, as in dp=2, pp=0; an omitted axis counts as 0.

        raises  ValueError for an unknown axis, or a coordinate beyond its end
        """
        unknown = set(coordinates) - set(self.axes)
        if unknown:
            raise ValueError(f"{self} has no axis {', '.join(sorted(unknown))}: choose from {', '.join(self.axes)}")
        rank = 0
        for axis, length in self.axes.items():
            place = coordinates.get(axis, 0)
            if not isinstance(place, Integral) or not 0 <= place < length:
                raise ValueError(f"{self} has no coordinate {axis}={place!r}: choose from 0 to {length - 1}")
            rank = rank * length + place
        return rank

    def group(self, rank: int, axes: str | tuple[str, ...]) -> tuple[int, ...]:
        """The ranks that differ from `rank` only along `axes`, itself included, in rank order.

        raises  ValueError if the mesh has no such rank, or the group is too large to be listed

        >>> Mesh(dp=2, pp=2, tp=2).group(3, ("dp", "tp"))
        (2, 3, 6, 7)
        """
        self._refuse(rank)
        axes = _listed(axes)
        _refuse_too_many(self, math.prod(self[axis] for axis in {*axes}))
        return _group(self, rank, axes)

    def line(self, rank: int) -> tuple[int, ...]:
        """The ranks that run one schedule together with `rank`: they differ in their data or stages (dp, pp), but hold
        the same part of a stage.

        >>> Mesh(dp=2, pp=2, tp=2).line(3)
        (1, 3, 5, 7)
        """
        return self.group(rank, tuple(self.played.axes))

    @property
    def played(self) -> "Mesh":
        """The mesh of the ranks that run one schedule together: this mesh, with dp and pp only."""
        return Mesh(**{axis: length for axis, length in self.axes.items() if axis in PLAYED})

    @property
    def inside(self) -> tuple[str, ...]:
        """The axes inside a stage: ranks that differ only along these hold parts of one stage.

        >>> Mesh(dp=2, tp=2, cp=1).inside
        ('tp',)
        """
        return tuple(axis for axis, length in self.axes.items() if axis not in PLAYED and length > 1)

    def place(self, rank: int, axes: str) -> int:
        """The coordinate of `rank` along one axis, or along combined axes, "y+z", of which the last varies fastest.

        >>> Mesh(y=2, x=2, z=3).place(8, "y+z"), Mesh(y=2, x=2, z=3).length("y+z")
        (5, 6)
        """
        here, number = self.coordinates(rank), 0
        for axis in _joined(axes):
            number = number * self[axis] + here.get(axis, 0)
        return number

    def length(self, axes: str) -> int:
        """The number of coordinates along one axis, or along combined axes."""
        return math.prod(self[axis] for axis in _joined(axes))

    def between(self, one: int, other: int) -> str:
        """The axes on which two ranks, `one` and `other`, differ, joined by "+".

        >>> Mesh(dp=2, pp=2, tp=2).between(0, 5)
        'dp+tp'
        """
        here, there = self.coordinates(one), self.coordinates(other)
        return "+".join(axis for axis in self.axes if here[axis] != there[axis])

    def groups(self, axes: str | tuple[str, ...]) -> list[tuple[int, ...]]:
        """Every group along `axes`, in the order in which all ranks open them. Each rank is in exactly one group.

        raises  ValueError if the mesh has too many ranks
        """
        axes = _listed(axes)
        _refuse_too_many(self, self.size)
        firsts = itertools.product(*(range(1 if axis in axes else length) for axis, length in self.axes.items()))
        return sorted(self.group(self.rank(**dict(zip(self.axes, first))), axes) for first in firsts)


@functools.cache
def _group(mesh: Mesh, rank: int, axes: tuple[str, ...]) -> tuple[int, ...]:
    """The ranks that differ from `rank` only along these `axes` of a `mesh`, itself included, in rank order."""
    here, ranks, stride = mesh.coordinates(rank), [rank], 1
    for axis, length in reversed(mesh.axes.items()):
        if axis in axes:
            ranks = [one + (place - here[axis]) * stride for one in ranks for place in range(length)]
        stride *= length
    return tuple(sorted(ranks))


def _refuse_too_many(mesh: Mesh, ranks: int) -> None:
    if ranks > MOST:
        raise ValueError(f"the groups of {mesh} have too many ranks, {ranks:.3g}: list those of at most {MOST:,}")


def _listed(axes: str | tuple[str, ...]) -> tuple[str, ...]:
    """The names of axes, given as one or several."""
    several = (axes,) if isinstance(axes, str) else axes
    if not isinstance(several, tuple | list) or not all(isinstance(one, str) for one in several):
        raise ValueError(f"{axes!r} does not name axes: give a name, such as 'dp', or a tuple of names")
    return tuple(several)


def _joined(axes: str) -> list[str]:
    """The names of axes joined by "+"."""
    if not isinstance(axes, str):
        raise ValueError(f"{axes!r} does not name axes: give a name, such as 'dp', or several joined by +")
    return axes.split("+")
