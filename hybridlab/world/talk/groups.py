"""Groups: the ranks that differ only along some axes of the mesh, and the label of such a group."""

from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh

COURSE_AXES = ("dp", "pp", "tp", "cp", "ep")  # these may be used on any mesh: an axis that the mesh lacks has one rank


class Group(NamedTuple):
    """The ranks that this rank meets along some axes: their label, their global numbers, and torch's handle."""

    label: str
    ranks: tuple[int, ...]
    handle: object

    @property
    def size(self) -> int:
        return len(self.ranks)


def axes_of(mesh: Mesh, axis: str | tuple[str, ...]) -> tuple[str, ...]:
    """The named axes in mesh order, without axes of length 1, so that the same group has the same name.

    raises  ValueError for a name that is neither an axis of the mesh nor one of `COURSE_AXES`

    >>> axes_of(Mesh(dp=2, pp=1, tp=4), ("tp", "pp", "dp"))
    ('dp', 'tp')
    """
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    for name in names:
        if name not in mesh.axes and name not in COURSE_AXES:
            raise ValueError(f"{mesh} has no axis {name!r}: choose from {', '.join(mesh.axes)}")
    return tuple(name for name, length in mesh.axes.items() if name in names and length > 1)


def label_of(axes) -> str:
    """One name for several axes: "dp+tp"."""
    return "+".join(axes)
