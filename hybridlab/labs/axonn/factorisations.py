"""Notebook 36: every grid of 8 ranks for the same GPT: its name, the words sent along each axis, the memory."""

from collections import Counter
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.hybrid.traffic import transfers
from hybridlab.labs.trials.table import Table
from hybridlab.show.layouts.grid_of_ranks import grid_of_ranks
from hybridlab.show.paper.still import Still

RANKS, SEQUENCES = 8, 8
SMALL = Shape(layers=2, width=24, heads=8, context=8)  # a GPT that every grid of 8 ranks can cut


class Grid(NamedTuple):
    """A grid: x cuts the width, y (our tp) heads and hidden units, and z shards weights; `copies` of all this."""

    x: int
    y: int
    z: int
    copies: int

    @property
    def name(self) -> str:
        """The usual name of the grid.

        >>> Grid(1, 1, 8, 1).name, Grid(1, 8, 1, 1).name, Grid(2, 2, 2, 1).name, Grid(1, 2, 2, 2).name
        ('fully sharded', "Megatron's", '3-D', "Megatron's, sharded, copies")
        """
        x, y, z, copies = self
        if x == y == 1:
            return "data parallelism" if z == 1 else "fully sharded" if copies == 1 else "hybrid sharding"
        if x > 1 and y > 1:
            kind = "2-D" if z == 1 else "3-D"
        else:
            kind = ("Megatron's" if y > 1 else "the width alone") + (", sharded" if z > 1 else "")
        return kind + (", copies" if copies > 1 else "")

    @property
    def mesh(self) -> Mesh:
        return Mesh(dp=self.z * self.copies, x=self.x, tp=self.y)

    @property
    def options(self) -> dict:
        """The options with which z copies shard the weights."""
        return {"zero": 3, "owners": self.z} if self.z > 1 else {}


def grids(ranks: int = RANKS) -> list[Grid]:
    """Every factorization of the number of ranks.

    >>> len(grids(8))
    20
    """
    lengths = [one for one in range(1, ranks + 1) if ranks % one == 0]
    every = (Grid(*one) for one in product(lengths, repeat=4))
    return [one for one in every if one.x * one.y * one.z * one.copies == ranks]


@lru_cache(maxsize=64)
def job(grid: Grid, shape: Shape = SMALL):
    """The job of a step on a grid; no rank is started."""
    from hybridlab.training.make_job import job_of  # here, because it loads torch

    return job_of(grid.mesh, microbatches=1, batch=SEQUENCES, shape=shape, **grid.options)


class Words(NamedTuple):
    """The words that rank 0 sends in a step, and the largest number of the model's elements that a rank keeps between
    steps.
    """

    x: float
    tp: float
    gathers: float
    gradients: float
    kept: int

    @property
    def sent(self) -> float:
        return self.x + self.tp + self.gathers + self.gradients


def words(grid: Grid, shape: Shape = SMALL) -> Words:
    """The words of a step on a grid, by the formulas of the modes that take part.

    >>> words(Grid(1, 1, 8, 1)).tp, words(Grid(1, 8, 1, 1)).gathers
    (0, 0)
    """
    one, sent = job(grid, shape), Counter()
    for each in transfers(one):
        if 0 in each.ranks:
            what = each.axis if each.axis in ("x", "tp") else "gathers" if each.op == "all_gather" else "gradients"
            sent[what] += each.sent / one.widths.value
    layout = one.layout
    spans = [[layout.share(param.name, rank) for param in layout.params] for rank in range(grid.mesh.size)]
    kept = max(sum(span.stop - span.start for span in its) for its in spans)
    return Words(sent["x"], sent["tp"], sent["gathers"], sent["gradients"], kept)


def table(shape: Shape = SMALL) -> Table:
    """A row for every grid of 8 ranks: the words that a rank sends in a step by kind, and the numbers it stores."""
    rows = []
    for grid in grids():
        its = words(grid, shape)
        sent = (its.x, its.tp, its.gathers, its.gradients, its.sent, its.kept)
        rows.append((" · ".join(map(str, grid)), grid.name, *(f"{number:,.0f}" for number in sent)))
    heading = (
        "x · y · z · copies",
        "known as",
        "along x",
        "along y",
        "gathers",
        "gradients",
        "words in all",
        "stored",
    )
    return Table(heading, tuple(rows))


def twice(shape: Shape = SMALL) -> Table:
    """Eight ranks along x or y: the words that a rank sends, and the number of ranks that compute the same attention
    and GELU."""
    rows = []
    for x in (8, 4, 2, 1):
        grid = Grid(x, RANKS // x, 1, 1)
        its = words(grid, shape)
        rows.append((f"{x}×{RANKS // x}", f"{its.x + its.tp:,.0f}", f"{shape.heads // grid.y}", f"{x}"))
    heading = ("x×y", "words that a rank sends", "heads of a rank", "ranks that do the same attention and GELU")
    return Table(heading, tuple(rows))


def picture(grid: tuple = (2, 2, 2, 1), rank: int = 5, parameter: str = "blocks.1.mlp.down.weight") -> Still:
    """The grid of ranks, seen from one of them."""
    return grid_of_ranks(job(Grid(*grid)).layout, parameter, rank)
