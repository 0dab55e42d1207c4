"""Compute the elements that ranks on a grid send and hold for a parallel matmul C = A·B.

A is m×k, B is k×n, C is m×n; a grid is r rows × c columns × d deep. "Within a row" means among the ranks that differ
only in their column. Blocks are equal, and gathers, scatters and all-reduces use a ring (`predict.bytes.collectives`).

*One matmul.* A, B and C are sharded evenly over all ranks, without copies, before and after.

    cannon  q×q×1: blocks of A shift within their rows and blocks of B within their columns, until all pairs are
            multiplied (Cannon 1969). The first shift aligns them; only a single rank sends nothing.
    summa   r×c×1: panels of k / lcm(r, c) columns of A and rows of B are broadcast within rows and within columns (van
            de Geijn and Watts 1997). This sends the same bytes as a gather of all panels, but a rank holds only one
            panel of each.
    2.5d    q×q×d, where d divides q: all d layers gather copies of the blocks, each runs 1/d of Cannon's steps, and
            their sums are scattered (Solomonik and Demmel 2011; there one layer holds A, B and C before and after).
    3d      r×c×d: A is gathered within rows, B within columns, the sums are scattered along the depth (Agarwal et al.
            1995).

*A linear layer.* A is the input, B the weights; the backward computes the gradients of both.

    axonn   r×c×d: the weights' k is sharded over the rows and n over the columns, the batch m along the depth, where
            each block of the weights is sharded too. Forward: weights are gathered along the depth and kept; outputs
            are all-reduced within columns. Backward: gradients of the input are all-reduced within rows, those of the
            weights reduce-scattered along the depth (Singh et al. 2023, arXiv:2305.13525). 1×1×d is sharded data
            parallelism.
    column  1×c×1 of it, and
    row     r×1×1: the two layers of Megatron (Shoeybi et al. 2019, arXiv:1909.08053).
"""

from math import lcm, prod
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.predict.bytes.collectives import cost


class Moved(NamedTuple):
    """The cost of a matmul for one rank, in elements; if ranks differ, for the one with the most.

    sent    in the matmul; of a layer, in the forward
    back    sent in the backward of a layer; 0 for a single matmul
    held    of A, B and C at the same time, panels included; messages in flight do not count
    copies  of A, B and C on all ranks together: 1 if no element is stored twice
    """

    sent: int
    back: int
    held: int
    copies: float


def moved(algorithm: str, sizes: tuple[int, int, int], grid: tuple[int, int, int]) -> Moved:
    """The elements that an algorithm sends and holds for a matmul (m, k, n) = sizes on a grid (r, c, d) = grid.

    raises  ValueError for an unknown algorithm, or a grid that it cannot use; the error says which number must
            divide which

    >>> moved("cannon", (60, 60, 60), (2, 2, 1))
    Moved(sent=3600, back=0, held=2700, copies=1.0)
    >>> moved("3d", (60, 60, 60), (2, 2, 2))
    Moved(sent=1350, back=0, held=2700, copies=2.0)
    >>> moved("column", (60, 60, 60), (1, 4, 1)), moved("row", (60, 60, 60), (4, 1, 1))
    (Moved(sent=0, back=5400, held=5400, copies=2.0), Moved(sent=5400, back=0, held=5400, copies=2.0))
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"there is no algorithm {algorithm!r}: choose one of {', '.join(ALGORITHMS)}")
    if min(*sizes, *grid) < 1:
        raise ValueError(f"sizes and grids must be positive: give 1 or more, not {sizes} on {_shown(grid)}")
    m, k, n = sizes
    sent, back, held = ALGORITHMS[algorithm](*sizes, *grid)
    return Moved(int(sent), int(back), held, held * prod(grid) / (m * k + k * n + m * n))


def ranked(algorithm: str, sizes: tuple[int, int, int], ranks: int) -> list[tuple[tuple[int, int, int], Moved]]:
    """All grids of `ranks` ranks that an algorithm can use, sorted by elements sent, then by elements held.

    algorithm  its name, such as "cannon"
    sizes      (m, k, n) of the matmul
    ranks      how many

    raises  ValueError when there is none

    >>> [(grid, one.sent + one.back) for grid, one in ranked("axonn", (4096, 512, 512), ranks=4)[:3]]
    [((1, 1, 4), 393216), ((1, 2, 2), 1179648), ((2, 1, 2), 1179648)]
    """
    found, why = [], None
    for r in _divisors(ranks):
        for c in _divisors(ranks // r):
            grid = (r, c, ranks // r // c)
            try:
                found.append((grid, moved(algorithm, sizes, grid)))
            except ValueError as error:
                why = why or error
    if not found:
        why = why or "count ranks from 1"
        raise ValueError(f"{algorithm} has no grid of {ranks} ranks for {sizes}: {why}")
    return sorted(found, key=lambda one: (one[1].sent + one[1].back, one[1].held, one[0]))


def lower_bound(sizes: tuple[int, int, int], ranks: int, held: float) -> float:
    """A lower bound on the elements that some rank sends and receives, for any algorithm with this memory per rank.

    sizes  (m, k, n) of the matmul
    ranks  how many
    held   elements that a rank can hold

    m·k·n / (2·√2·ranks·√held) - held. Source: Irony, Toledo, Tiskin 2004, *Communication lower bounds for
    distributed-memory matrix multiplication*. The bound is useful for many ranks with little memory; with much memory
    it may be negative.

    >>> cannon = moved("cannon", (4096, 4096, 4096), (32, 32, 1))
    >>> 2 * cannon.sent, round(lower_bound((4096, 4096, 4096), 32 * 32, cannon.held))
    (2097152, 57868)
    """
    return max(0.0, prod(sizes) / (8**0.5 * ranks * held**0.5) - held)


def _axonn(m, k, n, r, c, d):
    m, k, n = _cut("m", m, d), _cut("k", k, r), _cut("n", n, c)
    inputs, weights, outputs = m * k, k * n, m * n
    gathered = _around("a block of the weights", weights, d)  # forward; scattered backward
    return (
        gathered + 2 * _around("outputs", outputs, r),
        2 * _around("inputs", inputs, c) + gathered,
        (inputs + weights + outputs),
    )


def _column(m, k, n, r, c, d):
    _fits(r == d == 1, "column", "1×c×1", (r, c, d))
    return _axonn(m, k, n, r, c, d)


def _row(m, k, n, r, c, d):
    _fits(c == d == 1, "row", "r×1×1", (r, c, d))
    return _axonn(m, k, n, r, c, d)


def _cannon(m, k, n, r, c, d):
    _fits(r == c and d == 1, "cannon", "q×q×1", (r, c, d))
    return _layers(m, k, n, r, c, d)


def _layers(m, k, n, q, c, d):
    _fits(q == c, "2.5d", "q×q×d", (q, c, d))
    moves = _cut("q", q, d) * (q > 1)  # to the start position, then to the next pair, for 1/d of all steps
    m, k, n = _cut("m", m, q), _cut("k", k, q), _cut("n", n, q)
    blocks = {"A": m * k, "B": k * n, "C": m * n}
    copied = added(_around(f"a block of {name}", size, d) for name, size in blocks.items())
    return copied + moves * (blocks["A"] + blocks["B"]), 0, added(blocks.values())


def _summa(m, k, n, r, c, d):
    _fits(d == 1, "summa", "r×c×1", (r, c, d))
    m, n, panel = _cut("m", m, r), _cut("n", n, c), _cut("k", k, lcm(r, c))
    sent = _around("A in a row", m * k, c) + _around("B in a column", k * n, r)
    visiting = panel * (m * (c > 1) + n * (r > 1))
    return sent, 0, m * k // c + k * n // r + m * n + visiting


def _cube(m, k, n, r, c, d):
    m, k, n = _cut("m", m, r), _cut("k", k, d), _cut("n", n, c)
    faces = (("a block of A", m * k, c), ("a block of B", k * n, r), ("a block of C", m * n, d))
    return added(_around(*face) for face in faces), 0, added(size for _, size, _ in faces)


ALGORITHMS = {  # (m, k, n, r, c, d) → sent, back, held
    "cannon": _cannon,
    "summa": _summa,
    "2.5d": _layers,
    "3d": _cube,
    "axonn": _axonn,
    "column": _column,
    "row": _row,
}


def _around(what: str, size: int, ranks: int) -> float:
    """The elements that each rank sends to gather or scatter `size` elements; both send the same number."""
    _cut(what, size, ranks)
    return cost("all_gather", ranks, size).bytes


def _cut(what: str, size: int, parts: int) -> int:
    if size % parts:
        raise ValueError(f"{what} = {size} must be divisible by {parts}: choose another grid")
    return size // parts


def _fits(fits: bool, algorithm: str, form: str, grid):
    if not fits:
        raise ValueError(f"{algorithm} cannot use the grid {_shown(grid)}: give one of {form}")


def _shown(grid) -> str:
    return "×".join(map(str, grid))


def _divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]
