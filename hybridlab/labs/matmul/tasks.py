"""The exercises of notebook 31. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import cache, partial
from typing import NamedTuple

from hybridlab.core.where.mesh import Mesh
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.matmul.trial import try_product
from hybridlab.labs.trials.cases import OnMeshes, first_found
from hybridlab.predict.bytes.matmul import moved, ranked
from hybridlab.predict.bytes.matmul_by_rank import sent

RANKS = 8  # in matmul.tall
WORDS_ROWS = 3  # of the grid in matmul.words
SQUARE = "That would be right on a square grid. This one is not square: count A and B separately."
NAMES = ("Y = X·W with many tokens", "dW = Xᵀ·dY with many tokens", "Y = X·W with few tokens")

task = partial(Task, notebook="31_matmul")


class On(NamedTuple):
    """A matmul of (m, k, n) = sizes on an i × j grid, which must send the words of `algorithm`."""

    algorithm: str
    grid: tuple[int, int]
    sizes: tuple[int, int, int]

    @property
    def ranks(self) -> Mesh:
        return Mesh(i=self.grid[0], j=self.grid[1], l=1)

    def __str__(self):
        """
        >>> print(On("cannon", (2, 2), (6, 4, 8)))
        2 × 2 ranks with m, k, n = 6, 4, 8
        """
        return f"{self.grid[0]} × {self.grid[1]} ranks with m, k, n = {', '.join(map(str, self.sizes))}"


ROWS = (On("1d", (4, 1), (8, 12, 4)), On("1d", (4, 1), (7, 10, 5)), On("1d", (3, 1), (5, 7, 3)))
CANNON = (
    On("cannon", (2, 2), (6, 4, 8)),
    On("cannon", (3, 3), (6, 9, 3)),
    On("cannon", (2, 2), (7, 5, 3)),
    On("cannon", (3, 3), (7, 11, 5)),
)


def _words(side: int, columns: int) -> Task:
    n, r, c = side, WORDS_ROWS, columns
    square, p = n * n, r * c
    block = square // p
    right = moved("summa", (n, n, n), (r, c, 1)).sent
    return task(
        f"A and B are {n} × {n}, stored as blocks on a grid of {r} × {c} ranks, which is not square. How many words "
        "does each rank send in SUMMA's forward? As all blocks are equal, it sends as many words as it receives: the "
        "entries of A and B that it needs for its block of C but does not have.",
        Number(
            lambda: right,
            "words",
            within=1e-6,
            slips=[
                (square * (p - 1) // p, "That is 1D: all of B but its own rows."),
                ((c - 1) * block, "That is A alone; it needs blocks of B too."),
                ((r - 1) * block, "That is B alone, or one block of each. How many blocks of A are in its row?"),
                ((r + c) * block, "That counts its own blocks too, which it need not receive."),
                (2 * (c - 1) * block, SQUARE),
                (2 * (r - 1) * block, SQUARE),
                (2 * square * (p - 1) // p, "That would be all of A and B. It needs one row of blocks and one column."),
            ],
        ),
        (
            "To compute one block of C a rank needs all blocks of A in its row of the grid and all blocks of B in its "
            "column. How many are in a row, how many in a column?",
            f"It already has one block of each. A block has {n}/{r} · {n}/{c} numbers.",
            f"({c} - 1 + {r} - 1) · {n // r} · {n // c}.",
        ),
        objective="Derive how much a rank sends in a two-dimensional matmul.",
        difficulty=1,
        minutes=3,
    )


@cache
def least(sizes: tuple[int, int, int]) -> tuple[int, tuple[tuple[int, int, int], ...]]:
    """The fewest words that a rank can send in a 3D matmul on the ranks of matmul.tall, and all grids that send them.

    >>> least((65536, 1024, 1024))
    (917504, ((8, 1, 1),))
    """
    found = ranked("3d", sizes, RANKS)
    fewest = found[0][1].sent
    return fewest, tuple(grid for grid, one in found if one.sent == fewest)


def _tall(tokens: int, width: int) -> Task:
    few = 256
    asked = ((tokens, width, width), (width, tokens, width), (few, width, width))
    best = tuple(least(sizes)[1][0] for sizes in asked)
    return task(
        f"One layer of {width} × {width} weights on {RANKS} ranks, with the 3D algorithm on a grid r × c × d: m is cut "
        f"over r, n over c, k over d. Which grid sends the fewest words (a) for Y = X·W with {tokens:,} tokens: m, k, "
        f"n = {tokens}, {width}, {width}; (b) for dW = Xᵀ·dY of the same layer: m, k, n = {width}, {tokens}, {width}; "
        f"(c) for Y = X·W with {few} tokens: m, k, n = {few}, {width}, {width}? Answer with three grids, [(r, c, d), "
        "(r, c, d), (r, c, d)]. If two grids send equally few words, either is right.",
        partial(_grids, asked),
        (
            "A rank gathers its block of A among c ranks, its block of B among r, and adds its block of C among d. A "
            "matrix whose axis has length 1 is not sent.",
            "Which of the three matrices is smallest? In (a) and (b) the tall ones should stay where they are. In (c) "
            "W is the large one.",
            f"(a) and (b): all {RANKS} ranks along the axis that cuts the tokens. (c): keep r = 1, and share {RANKS} "
            f"ranks between c and d: {best[2]} is one of the best.",
        ),
        objective="Choose the grid for a matmul that is not square.",
        difficulty=2,
        minutes=5,
    )


def _grids(asked, answer) -> Verdict:
    """Three grids, each compared with the best of all."""
    grids = _triples(answer)
    if grids is None:
        return False, f"Answer with three grids of {RANKS} ranks: [(r, c, d), (r, c, d), (r, c, d)]."
    for letter, sizes, grid, name in zip("abc", asked, grids, NAMES):
        if grid[0] * grid[1] * grid[2] != RANKS:
            return False, f"({letter}) {'×'.join(map(str, grid))} is a grid of {grid[0] * grid[1] * grid[2]} ranks."
        (fewest, _), mine = least(sizes), moved("3d", sizes, grid).sent
        if mine > fewest:
            return False, f"({letter}) {name}: this grid sends {mine:,} words, the best {fewest:,}."
    return True, "No grid of 8 ranks sends less: the check tests all of them."


def _triples(answer) -> list[tuple[int, int, int]] | None:
    """Three grids of whole numbers from 1 on, or None."""
    if not isinstance(answer, list | tuple) or len(answer) != 3:
        return None
    grids = []
    for one in answer:
        if not isinstance(one, list | tuple) or len(one) != 3:
            return None
        if not all(type(length) is int and 1 <= length <= RANKS for length in one):
            return None
        grids.append(tuple(one))
    return grids


def _times(algorithm: str = "summa") -> float:
    """The words of forward and backward with panels fetched again for the backward, divided by those of the forward."""
    one = sent(algorithm, (24, 24, 24), (2, 2, 1), (0, 0, 0))
    return (2 * one.forward + one.backward) / one.forward


TASKS: dict[str, Task] = {
    "matmul.rows": task(
        "Write the 1D matmul: `my_rows(comm, a, b, sizes)`. The ranks form a column along the axis i; `a` and `b` are "
        "this rank's rows of A and of B, and `sizes` is (m, k, n). Return this rank's rows of C = A·B, with one typed "
        "collective and one matmul. The gradients of A and B must be right, and no more words than necessary may be "
        f"sent. Your code is tested on {ROWS[0]}, then with unequal parts, then on 3 ranks.",
        OnMeshes(
            try_product,
            first_found,
            ROWS,
            "C, both gradients and the number of words are right, with unequal parts too.",
        ),
        (
            "A rank has all of its rows of A. Which matrix does it have only in part, and along which dim?",
            "typed.all_gather(comm, b, axis, dim, to=…, sizes=…). Each rank uses all of B for its own rows: is that "
            "I or R? sizes are the lengths of all parts: even(k, ranks) gives their spans.",
            'b = typed.all_gather(comm, b, "i", 0, to="R", sizes=[end - begin for begin, end in even(sizes[1], '
            'comm.mesh["i"])]), then a @ b.',
        ),
        objective="Write a parallel matmul in one dimension, and let autograd derive its backward.",
        difficulty=2,
        minutes=6,
    ),
    "matmul.words": varying(_words, side=(1200, 2400, 3600), columns=(4, 6, 8)),
    "matmul.cannon": task(
        "Write Cannon's algorithm: `my_cannon(comm, a, b, sizes)` on a square grid. In step s = 0, 1, … rank (i, j) "
        "must hold block i + j + s of its row of A and block i + j + s of its column of B (modulo the side of the "
        "grid), multiply them, and add the result to its block of C. Use `typed.window` to fetch a block from the rank "
        f"that held it in the step before. Your code is tested on {CANNON[0]}, then on 3 × 3 ranks and with unequal "
        "blocks. Both gradients must be right, and every word is counted.",
        OnMeshes(
            try_product,
            first_found,
            CANNON,
            "C, both gradients and the number of words are right, on both grids and all sizes.",
        ),
        (
            "The number of steps is the side of the grid. Each step has two windows and one matmul. The first "
            "windows align the blocks, so even step 0 moves blocks.",
            "blocks are the initial spans of k. In step s, the ranks of row i want turned(blocks, i + s) along j; "
            "those of column j want turned(blocks, j + s) along i. They have the spans that they wanted in the step "
            "before.",
            "have_a = have_b = blocks; in each step: want_a, want_b = turned(blocks, i + step), turned(blocks, j + "
            'step); a = typed.window(comm, a, "j", 1, have=have_a, want=want_a); b = typed.window(comm, b, "i", 0, '
            "have=have_b, want=want_b); total = total + a @ b; have_a, have_b = want_a, want_b.",
        ),
        objective="Write a two-dimensional matmul with one typed collective.",
        difficulty=3,
        minutes=12,
    ),
    "matmul.kept": task(
        "To save memory, SUMMA now frees each panel as soon as it is multiplied; a rank saves only its own blocks of A "
        "and B for the backward. All blocks are equal, and in the forward a rank sends W words. How many words does it "
        "send in forward and backward together? Answer with a multiple of W.",
        Number(
            _times,
            "times W",
            within=1e-6,
            slips=[
                (1, "That is the forward alone. Partial sums of dA and dB must reach the ranks that own them."),
                (2, "That is right if the panels are saved. Here dA = dC·Bᵀ needs blocks of B that are gone: whose?"),
                (4, "The panels of the forward are not needed twice: one more pass of A and B serves both dA and dB."),
            ],
        ),
        (
            "Write down what dA = dC·Bᵀ needs on rank (i, j). Where are the panels of B after the forward?",
            "The panels were freed, so they are sent again before the backward can multiply. What does a rank send "
            "afterwards?",
            "W for the forward, W for the same panels again, and W for the partial sums of dA and dB.",
        ),
        objective="Trade communication for memory in a parallel matmul.",
        difficulty=1,
        minutes=2,
    ),
    "matmul.tall": _tall(65536, 1024),
}
