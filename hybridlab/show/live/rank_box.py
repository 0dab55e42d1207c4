"""The box of ranks, live: a rank under the pointer, clicked or in focus, highlights its three groups.

The browser needs no kernel for that: all groups are in the picture. The stored static twin shows the groups of the
first chosen rank.
"""

import anywidget
import traitlets

from hybridlab.core.where.mesh import Mesh
from hybridlab.show.layouts.box_of_ranks import box_still, box_svg, refuse, told
from hybridlab.show.live.module import module, stylesheet


def box_of_ranks(mesh: Mesh, rank: int = 0, per_node: int = 8) -> "RankBox":
    """The box of a mesh's stages, copies and parts; the groups of a rank are lines through it.

    rank      the rank whose groups are highlighted at first
    per_node  ranks of one node, neighbours by number: there is a wall between nodes, red where a group crosses it

    raises    ValueError for a mesh with other axes or more than 64 ranks, and for a rank that is not in it

    >>> import hybridlab as hl
    >>> hl.pictures.box_of_ranks(hl.Mesh(pp=2, dp=2, tp=2), rank=1, per_node=4).summary
    'rank 1: stage 0, copy 0, part 1. Pipeline 1, 5, crosses nodes. Data group 1, 3. Tensor group 0, 1.'
    """
    refuse(mesh, rank, per_node)
    return RankBox(mesh, rank, per_node)


class RankBox(anywidget.AnyWidget):
    """The widget of `box_of_ranks`: the picture, each rank in words, and the rank that is highlighted at first."""

    _esm = module("rank_box.js")
    _css = stylesheet("rank_box.css")

    svg = traitlets.Unicode().tag(sync=True)
    told = traitlets.List(traitlets.Unicode()).tag(sync=True)
    rank = traitlets.Int().tag(sync=True)

    def __init__(self, mesh, rank, per_node):
        self._still = box_still(mesh, rank, per_node)
        every = [told(mesh, one, per_node) for one in range(mesh.size)]
        super().__init__(svg=box_svg(mesh, rank, per_node), told=every, rank=rank)

    @property
    def summary(self) -> str:
        """The rank that is highlighted at first, in words."""
        return self._still.summary

    def _repr_mimebundle_(self, **more):
        data, metadata = super()._repr_mimebundle_(**more)
        return {**data, "image/svg+xml": self._still.svg, "text/plain": self.summary}, metadata
