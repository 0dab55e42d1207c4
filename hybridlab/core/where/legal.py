"""Legal records: each element of a parameter is on some rank, and no dim or axis is used twice.

Read next: `core.where.layout`, which calls this.
"""

import math
from typing import TYPE_CHECKING

from hybridlab.core.where.mesh import Mesh

if TYPE_CHECKING:
    from hybridlab.core.where.layout import Param


def refuse(param: "Param", mesh: Mesh) -> None:
    """Raise a ValueError with a one-sentence message if a parameter's record does not fit a mesh."""
    for axis, cut in param.shard.items():
        _refuse_holes(param, mesh, axis, cut)
    _refuse_double_cuts(param)
    for axis, held in param.at.items():
        if not held or not set(held) <= set(range(mesh[axis])):
            raise ValueError(
                f"{param.name} is stored at {axis}={held}, but {axis} has {mesh[axis]} places: give 0 to "
                f"{mesh[axis] - 1}"
            )
    there = math.prod(mesh[axis] for axis in param.over)
    if there % param.owners:
        ways = [n for n in range(1, there + 1) if there % n == 0]
        raise ValueError(
            f"{param.owners} ranks cannot share {param.name}: {'·'.join(param.over)}={there} must be "
            f"divisible by their number; choose one of {ways}"
        )


def _refuse_double_cuts(param):
    axes = [axis for axes in param.shard for axis in axes.split("+")]
    for axis in axes:
        if axes.count(axis) > 1:
            raise ValueError(f"{param.name} is sharded twice along {axis}: leave one of the two out")
    dims = [cut.dim for cut in param.shard.values()]
    for dim in dims:
        if dims.count(dim) > 1:
            both = [axis for axis, cut in param.shard.items() if cut.dim == dim]
            raise ValueError(
                f"dim {dim} of {param.name} is sharded along {' and along '.join(both)}: shard it once, along the "
                f"product {'+'.join(both)!r}"
            )


def _refuse_holes(param, mesh, axis, cut):
    if len(cut.spans) != (length := mesh.length(axis)):
        raise ValueError(f"{param.name} has {len(cut.spans)} spans along {axis}={length}: give {length} of them")
    at = 0
    for low, high in sorted({span for span in cut.spans if span[1] > span[0]}):
        if low != at:
            raise ValueError(
                f"{param.name} has spans that end at {at} and begin at {low} along {axis}: let each span begin where "
                "the previous one ends, or make the spans equal"
            )
        at = max(at, high)
    if at != param.shape[cut.dim]:
        raise ValueError(
            f"{param.name} has length {param.shape[cut.dim]}, but its spans along {axis} end at {at}: make the "
            "spans cover it"
        )
