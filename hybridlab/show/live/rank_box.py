"""The box of ranks, live: a rank under the pointer, clicked or in focus, highlights its three groups; a step is played.

The browser needs no kernel for that: all groups are in the picture, and the data say when they communicate. The stored
static twin shows the groups of the first chosen rank.
"""

from hybridlab.core.where.mesh import Mesh
from hybridlab.show.layouts.box_of_ranks import box_still, box_svg, refuse, told
from hybridlab.show.layouts.step_in_box import in_all, moments
from hybridlab.show.live.shown import Shown


def box_of_ranks(mesh: Mesh, rank: int = 0, per_node: int = 8) -> Shown:
    """The box of a mesh's stages, copies and parts; the groups of a rank are lines through it.

    rank      the rank whose groups are highlighted at first
    per_node  ranks of one node, neighbours by number: there is a wall between nodes, red where a group crosses it

    raises    ValueError for a mesh with axes other than pp, dp and tp, or with more than 64 ranks, and for a rank not
              in it

    >>> import hybridlab as hl
    >>> hl.pictures.box_of_ranks(hl.Mesh(pp=2, dp=2, tp=2), rank=1, per_node=4).summary
    'rank 1: stage 0, copy 0, part 1. Pipeline 1, 5, crosses nodes. Data group 1, 3. Tensor group 0, 1.'
    """
    refuse(mesh, rank, per_node)
    words = [told(mesh, one, per_node) for one in range(mesh.size)]
    data = {"show": "box", "svg": box_svg(mesh, rank, per_node), "told": words, "rank": rank}
    data |= {"moments": [one._asdict() for one in moments(mesh)], "all": in_all(mesh)}
    return Shown(data, box_still(mesh, rank, per_node))
