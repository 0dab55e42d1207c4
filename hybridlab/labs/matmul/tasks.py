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
SQUARE = "That would be right if the grid were as long one way as the other. It is not square: count A and B apart."
NAMES = ("Y = X·W with many tokens", "dW = Xᵀ·dY with many tokens", "Y = X·W with few tokens")

task = partial(Task, notebook="31_matmul")


class On(NamedTuple):
    """A product of (m, k, n) = sizes on an i × j grid, which must send what `algorithm` sends."""

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
        f"A and B are {n} × {n}, and lie in blocks on a grid of {r} × {c} ranks, which is not square. How many words "
        "does each rank send in SUMMA's forward? As all blocks are equal, that is as many as it receives: the numbers "
        "of A and B that it needs for its block of C and does not have.",
        Number(
            lambda: right,
            "words",
            within=1e-6,
            slips=[
                (square * (p - 1) // p, "That is 1D: all of B but its own rows."),
                ((c - 1) * block, "That is A alone; it needs blocks of B too."),
                ((r - 1) * block, "That is B alone, or one block of each. How many blocks of A are in its row?"),
                ((r + c) * block, "That counts its own blocks too, which need not travel."),
                (2 * (c - 1) * block, SQUARE),
                (2 * (r - 1) * block, SQUARE),
                (2 * square * (p - 1) // p, "That would be all of A and B. It needs one row of blocks and one column."),
            ],
        ),
        (
            "To compute one block of C a rank needs all blocks of A in its row of the grid and all blocks of B in its "
            "column. How many are in a row, how many in a column?",
            f"One block of each it has already. A block has {n}/{r} · {n}/{c} numbers.",
            f"({c} - 1 + {r} - 1) · {n // r} · {n // c}.",
        ),
        objective="Derive what a rank sends in a two-dimensional product.",
        difficulty=1,
        minutes=3,
    )


@cache
def least(sizes: tuple[int, int, int]) -> tuple[int, tuple[tuple[int, int, int], ...]]:
    """The fewest words that a rank can send in a 3D product on the ranks of matmul.tall, and all grids that send them.

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
        f"One layer of {width} × {width} weights on {RANKS} ranks, by the 3D algorithm on a grid r × c × d: m is cut "
        "over r, n over c, k over d. Which grid sends fewest words (a) for Y = X·W with "
        f"{tokens:,} tokens: m, k, n = {tokens}, {width}, {width}; (b) for dW = Xᵀ·dY of the same layer: m, k, n = "
        f"{width}, {tokens}, {width}; (c) for Y = X·W with {few} tokens: m, k, n = {few}, {width}, {width}? Answer "
        "with three grids, [(r, c, d), (r, c, d), (r, c, d)]. Where two grids send equally few, either counts.",
        partial(_grids, asked),
        (
            "A rank gathers its block of A among c ranks, its block of B among r, and adds its block of C among d. A "
            "matrix whose axis has length 1 does not travel.",
            "Which of the three matrices is smallest? In (a) and (b) the tall ones should stay where they are. In (c) "
            "W is the large one.",
            f"(a) and (b): all {RANKS} ranks along the axis that cuts the tokens. (c): keep r = 1, and share {RANKS} "
            f"ranks between c and d: {best[2]} is one of the best.",
        ),
        objective="Choose the grid for a product that is not square.",
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
    return True, "No grid of 8 ranks sends less: all of them were tried."


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
    """What forward and backward send together where panels are fetched again for the backward, over the forward."""
    one = sent(algorithm, (24, 24, 24), (2, 2, 1), (0, 0, 0))
    return (2 * one.forward + one.backward) / one.forward


TASKS: dict[str, Task] = {
    "matmul.rows": task(
        "Write the 1D product: my_rows(comm, a, b, sizes). The ranks are a column along the axis i; a and b are this "
        "rank's rows of A and of B, and sizes is (m, k, n). Return this rank's rows of C = A·B, in one typed move and "
        "one product. Gradients of A and B must come back right, and no word more than needed may be sent. Tried on "
        f"{ROWS[0]}, then where the ranks' parts are not equal, then on 3 ranks.",
        OnMeshes(try_product, first_found, ROWS, "C, both gradients and every word are right, with unequal parts too."),
        (
            "A rank has its rows of A, all of them. Of which matrix does it miss something, and along which dim?",
            "typed.all_gather(comm, b, axis, dim, to=…, sizes=…). Each rank uses all of B for rows of its own: is that "
            "I or R? sizes are the lengths of all parts: even(k, ranks) gives their spans.",
            'b = typed.all_gather(comm, b, "i", 0, to="R", sizes=[end - begin for begin, end in even(sizes[1], '
            'comm.mesh["i"])]), then a @ b.',
        ),
        objective="Write a parallel product in one dimension, and let its backward follow.",
        difficulty=2,
        minutes=6,
    ),
    "matmul.words": varying(_words, side=(1200, 2400, 3600), columns=(4, 6, 8)),
    "matmul.cannon": task(
        "Write Cannon's product: my_cannon(comm, a, b, sizes) on a square grid. In step s = 0, 1, … rank (i, j) must "
        "hold of A the block number i + j + s of its row, of B the same number of its column (counted modulo the side "
        "of the grid), and add their product. Bring a block with typed.window from where it was in the step before. "
        f"Tried on {CANNON[0]}, then on 3 × 3 ranks and with unequal blocks. Both gradients must be right, and every "
        "word is counted.",
        OnMeshes(
            try_product, first_found, CANNON, "C, both gradients and every word are right, on both grids and all sizes."
        ),
        (
            "As many steps as the grid is wide. In each, two windows and one product. The first windows bring the "
            "blocks into place, so even step 0 moves.",
            "blocks are the spans of k at home. In step s, the ranks of row i want turned(blocks, i + s) along j; "
            "those of column j want turned(blocks, j + s) along i. What they have is what they wanted in the step "
            "before.",
            "have_a = have_b = blocks; in each step: want_a, want_b = turned(blocks, i + step), turned(blocks, j + "
            'step); a = typed.window(comm, a, "j", 1, have=have_a, want=want_a); b = typed.window(comm, b, "i", 0, '
            "have=have_b, want=want_b); total = total + a @ b; have_a, have_b = want_a, want_b.",
        ),
        objective="Write a two-dimensional product from one typed move.",
        difficulty=3,
        minutes=12,
    ),
    "matmul.kept": task(
        "To save memory, SUMMA now drops each panel as soon as it is multiplied; its own blocks of A and B are all "
        "that a rank keeps for the backward. All blocks are equal, and in the forward a rank sends W words. How many "
        "times W does it send in forward and backward together?",
        Number(
            _times,
            "times W",
            within=1e-6,
            slips=[
                (1, "That is the forward alone. Partial sums of dA and dB must reach the ranks that own them."),
                (2, "That is right with the panels kept. Here dA = dC·Bᵀ needs blocks of B that are gone: whose?"),
                (4, "The panels of the forward are not needed twice: one more pass of A and B serves both dA and dB."),
            ],
        ),
        (
            "Write down what dA = dC·Bᵀ needs on rank (i, j). Where are the panels of B after the forward?",
            "The panels were dropped, so they travel again before the backward can multiply. Then what leaves a rank?",
            "W for the forward, W for the same panels again, and W for the partial sums of dA and dB.",
        ),
        objective="Trade words for memory in a parallel product.",
        difficulty=1,
        minutes=2,
    ),
    "matmul.tall": _tall(65536, 1024),
}
