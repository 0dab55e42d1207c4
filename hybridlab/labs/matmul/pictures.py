"""Notebook 31, pictures: each rank's parts of A, B and C; words and memory over ranks."""

import math
from collections.abc import Sequence

from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.matmul.grids import ways
from hybridlab.predict.bytes.matmul_by_rank import sent
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.layouts.cuts import Matrix, Sign, Slice, cuts
from hybridlab.show.live.chooser import Chooser
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.sheet import first_to_last
from hybridlab.show.paper.still import Still

# --- who holds what -----------------------------------------------------------------------------------------------

FORMS = {  # {name in the picture: (the algorithm, the grids of eight ranks to choose from)}
    "1D": ("1d", [(8, 1, 1)]),
    "2D": ("summa", [(2, 4, 1), (4, 2, 1)]),
    "3D": ("3d", [(2, 2, 2), (8, 1, 1), (1, 1, 8), (1, 2, 4), (4, 1, 2)]),
}
SQUARE = (16, 16, 16)


def homes(numbers: bool = True) -> Chooser:
    """A, B and C with the ranks that store them, for several grids of eight ranks."""
    every = [f"{form} {'×'.join(map(str, grid))}" for form, (_, grids) in FORMS.items() for grid in grids]
    shown = [{"way": every[0]}, {"way": "2D 2×4×1"}, {"way": "3D 2×2×2"}]
    return Chooser(lambda way: home_still(way, numbers=numbers), {"way": ("ranks", every, every[0])}, shown)


def home_still(way: str, sizes: tuple[int, int, int] = SQUARE, numbers: bool = True) -> Still:
    """The layout of A, B and C on eight ranks before and after a matmul.

    >>> home_still("3D 2×2×2").summary.split(";")[0]
    '3D on 2×2×2 ranks: rank 5 holds rows 8–11 and columns 8–15 of A, rows 12–15 and columns 0–7 of B'
    """
    from hybridlab.modes.products import matmul

    form, shown = way.split()
    algorithm, grid = FORMS[form][0], tuple(map(int, shown.split("×")))
    mesh, (m, k, n) = Mesh(i=grid[0], j=grid[1], l=grid[2]), sizes
    shapes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    boxes = {
        name: [
            matmul.home(mesh, mesh.coordinates(rank), shape, matmul.HOMES[algorithm][name]) for rank in range(mesh.size)
        ]
        for name, shape in shapes.items()
    }
    parts = [_matrix(name, shapes[name], boxes[name], "forward" if name == "C" else "weight") for name in "ABC"]
    line = [parts[0], Sign("·"), parts[1], Sign("="), parts[2]]
    told = f"{form} on {shown} ranks: rank 5 holds {_in_words('A', boxes)}, {_in_words('B', boxes)}"
    if numbers:
        words_sent = max(sent(algorithm, sizes, grid, tuple(mesh.coordinates(rank)[axis] for axis in "ijl")).forward
                         for rank in range(mesh.size))  # fmt: skip
        told += f"; {m}×{k} · {k}×{n}: each rank sends {words_sent} words"
    return cuts([line], mesh.size, f"{form}, {shown} ranks", told)


def _matrix(name, shape, boxes, kind) -> Matrix:
    slices = tuple(
        Slice((rows.start, rows.stop), (columns.start, columns.stop), (rank,))
        for rank, (rows, columns) in enumerate(boxes)
    )
    return Matrix(name, *shape, slices, kind)


def _in_words(name, boxes) -> str:
    rows, columns = boxes[name][5]
    rows, columns = (first_to_last(one.start, one.stop) for one in (rows, columns))
    return f"rows {rows} and columns {columns} of {name}"


# --- words and memory ---------------------------------------------------------------------------------------------

LOOKS = {"1D": (1, "solid", "square"), "2D": (5, "dash", "circle"), "3D": (2, "dot", "diamond")}


def falling(every_ranks: Sequence[int] = (4, 8, 16, 64, 256, 512, 1024, 4096)) -> Figure:
    """Words that a rank sends for a square matmul, by the number of ranks, for each algorithm that has such a grid."""
    return _curves(every_ranks, "sent", "words a rank sends, in matrices", "Words a rank sends for a square matmul")


def room(every_ranks: Sequence[int] = (4, 8, 16, 64, 256, 512, 1024, 4096)) -> Figure:
    """The numbers that a rank holds while it multiplies, by the number of ranks."""
    return _curves(every_ranks, "held", "numbers a rank holds, in matrices", "Numbers a rank holds for a square matmul")


def _curves(every_ranks, what, label, title) -> Figure:
    side = 1 << 16  # all grids divide it
    found: dict[str, list] = {name: [] for name in LOOKS}
    for ranks in every_ranks:
        for way in ways(side, ranks):
            if way.name in found:
                found[way.name].append((ranks, getattr(way, what) / side**2))
    curves = [
        Curve(name, [math.log2(ranks) for ranks, _ in points], [math.log10(value) for _, value in points], *LOOKS[name])
        for name, points in found.items()
    ]
    low = min(min(curve.y) for curve in curves)
    x = Axis(
        "ranks",
        1.6,
        math.log2(max(every_ranks)) + 0.4,
        marks={math.log2(p): f"{p}" for p in (4, 16, 64, 256, 1024, 4096)},
    )
    marks = {power: f"{10.0**power:g}" for power in range(math.floor(low), 1)}
    y = Axis(label, min(low, min(marks)) - 0.1, 0.45, marks=marks)
    last = "; ".join(f"{name}: {points[-1][1]:.3g} on {points[-1][0]} ranks" for name, points in found.items())
    return chart(curves, x, y, title, f"{title}, in full matrices: {last}.")
