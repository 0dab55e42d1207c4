"""Pictures in addition to the timeline of `hl.draw`, and its annotations: braces and outlines, rows of tracks, a map of
plans, a box of ranks, a ring, a matmul on a grid, a bubble's formula, a model under three knives, a calculator.
"""

from hybridlab.doors import POSITIVE, door, doors
from hybridlab.modes.products.steps import moments
from hybridlab.show.layouts.memory_bars import size
from hybridlab.show.live.bubble_formula import bubble_formula
from hybridlab.show.live.calculator import calculator
from hybridlab.show.live.cut_model import cut_model
from hybridlab.show.live.moving import grid_panel, ring_panel
from hybridlab.show.live.rank_box import box_of_ranks
from hybridlab.show.live.shown import Shown
from hybridlab.show.plans.plan_map import plan_map
from hybridlab.show.timelines.notes import busy_and_idle, fill_work_drain, triangles
from hybridlab.show.timelines.tracks import Row, tracks
from hybridlab.world.talk.ring import route

__all__ = [
    "Row", "box_of_ranks", "bubble_formula", "busy_and_idle", "calculator", "cut_model", "fill_work_drain",
    "matmul_on_grid", "plan_map", "ring_all_reduce", "size", "tracks", "triangles",
]  # fmt: skip


def ring_all_reduce(ranks: int = 4, size: float | None = None) -> Shown:
    """An all-reduce on a ring, step by step: the chunks that move, the sums that they become, and the amount that is
    sent.

    ranks  the initial number of ranks, from 2 to 8; a slider changes it
    size   bytes of the tensor on each rank; if given, bytes are counted instead of chunks

    raises  ValueError for a number of ranks that is not drawn, and for a size that is not positive

    >>> import hybridlab as hl
    >>> print(hl.pictures.ring_all_reduce(ranks=2, size=8e6).summary.splitlines()[0])
    ring all-reduce, 2 ranks, 2 chunks: of 8 MB each rank sends 8 MB
    """
    return ring_panel(route, ranks, size)


def matmul_on_grid(*algorithms: str, side: int = 3, size: float | None = None) -> Shown:
    """A matmul on a square grid of ranks, step by step: the blocks that move, the sums on each rank, and the amount
    that is sent.

    algorithms  to choose from, the first one first: "summa", "cannon", "summa_ahead" (each panel is sent one step
                early); none: SUMMA and Cannon
    side        of the grid at first, from 2 to 4; a slider changes it
    size        bytes of each matrix: then bytes are counted, and not blocks

    raises  ValueError for an algorithm or a side that is not drawn, and for a size that is not positive

    Source: Cannon 1969; van de Geijn and Watts 1997 (SUMMA).

    >>> import hybridlab as hl
    >>> print(hl.pictures.matmul_on_grid("cannon", side=2, size=8e6).summary.splitlines()[0])
    Cannon, 2 × 2 ranks: of matrices of 8 MB each rank sends 6 MB on average, at most 8 MB
    """
    return grid_panel(moments, algorithms or ("summa", "cannon"), side, size)


ring_all_reduce, matmul_on_grid = doors(ring_all_reduce, matmul_on_grid, size=POSITIVE)
box_of_ranks = door(box_of_ranks)
bubble_formula, cut_model, plan_map, tracks = doors(bubble_formula, cut_model, plan_map, tracks)
busy_and_idle, fill_work_drain, triangles = doors(busy_and_idle, fill_work_drain, triangles)
size = door(size)
