"""Notebook 31: grids of ranks, compared by the traffic and memory of a rank, without running anything."""

from typing import NamedTuple

from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.matmul import lower_bound, moved, ranked
from hybridlab.predict.bytes.matmul_by_rank import sent


class Way(NamedTuple):
    """A way to multiply: its name, its grid, and the words that the busiest rank sends and holds."""

    name: str
    grid: tuple[int, int, int]
    sent: int
    held: int


def ways(side: int, ranks: int) -> list[Way]:
    """1D, 2D, 2.5D and 3D for square matrices on this number of ranks, if such a grid exists.

    >>> [(way.name, way.grid) for way in ways(64, 64)]
    [('1D', (64, 1, 1)), ('2D', (8, 8, 1)), ('2.5D', (4, 4, 4)), ('3D', (4, 4, 4))]
    """
    sizes, square, cube = (side,) * 3, round(ranks**0.5), round(ranks ** (1 / 3))
    found = [one_dimension(side, ranks)]
    layered = [grid for grid, _ in _all("2.5d", sizes, ranks) if 1 < grid[2] < ranks]
    flat, deep = (square, square, 1), (cube, cube, cube)
    tried = [("2D", "summa", flat), *(("2.5D", "2.5d", one) for one in layered[:1]), ("3D", "3d", deep)]
    for name, algorithm, grid in tried:
        if grid[0] * grid[1] * grid[2] == ranks:
            cost = moved(algorithm, sizes, grid)
            found.append(Way(name, grid, cost.sent, cost.held))
    return found


def _all(algorithm, sizes, ranks):
    """All grids on which an algorithm can work, with the best first; empty if there is none."""
    try:
        return ranked(algorithm, sizes, ranks)
    except ValueError:
        return []


def one_dimension(side: int, ranks: int) -> Way:
    """Rows of A, all of B, rows of C."""
    grid = (ranks, 1, 1)
    held = 2 * side * side // ranks + side * side
    return Way("1D", grid, sent("1d", (side,) * 3, grid, (0, 0, 0)).forward, held)


def compared(side: int, ranks: int, names=("1D", "2D", "2.5D", "3D")) -> Table:
    """The traffic and memory of one rank for each of these ways, in units of one full matrix."""
    square = side * side
    rows = []
    for way in (one for one in ways(side, ranks) if one.name in names):
        grid = "×".join(map(str, way.grid))
        rows.append((way.name, grid, f"{way.sent:,}", f"{way.sent / square:.3f}", f"{way.held / square:.3f}"))
    heading = ("way", "grid", "words sent by a rank", "in matrices", "held, in matrices")
    return Table(heading, tuple(rows))


def bounds(side: int, every_ranks: tuple[int, ...]) -> Table:
    """For 2D: the words that a rank sends and receives, and the lower bound for algorithms that hold as little."""
    rows = []
    for ranks in every_ranks:
        (way,) = (one for one in ways(side, ranks) if one.name == "2D")
        least = lower_bound((side,) * 3, ranks, way.held)
        ratio = f"{2 * way.sent / least:.0f} times" if least else ""
        rows.append((f"{ranks:,}", f"{2 * way.sent:,}", f"{least:,.0f}" if least else "says nothing", ratio))
    return Table(("ranks", "sent and received", "lower bound", "over the bound"), tuple(rows))
