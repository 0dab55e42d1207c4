"""Parallel matrix multiplication: every algorithm played by ranks that hold arrays and count what they pass on."""

from collections import Counter
from itertools import product
from math import lcm, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlab.predict.bytes.matmul import ALGORITHMS, lower_bound, moved, ranked

# --- ranks ------------------------------------------------------------------------------------------------------


class Ranks:
    """Ranks on a grid, each with its arrays by name; counts the elements that each sends, and the most one holds."""

    def __init__(self, grid):
        self.grid = grid
        self.held = {rank: {} for rank in product(*map(range, grid))}
        self.sent, self.peak = Counter(), 0

    def put(self, name, block):
        """Every rank gets what block(i, j, l) says."""
        for rank, have in self.held.items():
            have[name] = block(*rank)

    def check(self, name, block):
        """Every rank has, in whatever shape, what block(i, j, l) says."""
        for rank, have in self.held.items():
            np.testing.assert_array_equal(have[name].ravel(), block(*rank).ravel(), str(rank))

    def work(self, step):
        """Every rank computes with its arrays; a panel of its own block takes no room of its own."""
        for have in self.held.values():
            step(have)
            own = [x for name, x in have.items() if not ("panel" in name and np.shares_memory(x, have[name[0]]))]
            self.peak = max(self.peak, sum(x.size for x in own))

    def most_sent(self) -> int:
        """What the busiest rank has sent since it was last asked."""
        most, self.sent = max(self.sent.values(), default=0), Counter()
        return most

    def lines(self, axis):
        """The ranks of each line along an axis, in order."""
        for rank in self.held:
            if rank[axis] == 0:
                yield [(*rank[:axis], place, *rank[axis + 1 :]) for place in range(self.grid[axis])]

    def move(self, name, to):
        """All at once: every rank sends an array to the rank to(i, j, l), in place of what is there."""
        for rank, target, parcel in [(rank, to(*rank), have[name]) for rank, have in self.held.items()]:
            self.held[target][name] = parcel
            self.sent[rank] += parcel.size * (target != rank)

    def gather(self, name, axis, shape):
        """Around each line, shards become the whole that they are of: what came in last is passed on."""
        for line in self.lines(axis):
            pieces = [{place: self.held[rank][name]} for place, rank in enumerate(line)]
            for step in range(len(line) - 1):
                for place, rank in enumerate(line):
                    which = (place - step) % len(line)
                    pieces[(place + 1) % len(line)][which] = pieces[place][which]
                    self.sent[rank] += pieces[place][which].size
            for have, rank in zip(pieces, line):
                self.held[rank][name] = np.concatenate([have[which] for which in range(len(line))]).reshape(shape)

    def scatter(self, name, axis):
        """Around each line, summands become shards of their sum: a sum grows from rank to rank and ends at its own."""
        for line in self.lines(axis):
            parts = [np.split(self.held[rank][name].ravel(), len(line)) for rank in line]
            for step in range(len(line) - 1):
                for place, rank in enumerate(line):
                    which, after = (place - step - 1) % len(line), (place + 1) % len(line)
                    parts[after][which] = parts[after][which] + parts[place][which]
                    self.sent[rank] += parts[place][which].size
            for place, rank in enumerate(line):
                self.held[rank][name] = parts[place][place]

    def sum(self, name, axis, shape):
        self.scatter(name, axis)
        self.gather(name, axis, shape)

    def hand_round(self, name, axis, root, cut):
        """Along each line, from the root on: a panel of its block, to one after another."""
        for line in self.lines(axis):
            order = line[root:] + line[:root]
            panel = self.held[order[0]][f"{name} panel"] = cut(self.held[order[0]][name])
            for rank, after in zip(order, order[1:]):
                self.held[after][f"{name} panel"] = panel.copy()
                self.sent[rank] += panel.size


def tile(matrix, rows, row, columns, column):
    """A block of a matrix that is cut into rows × columns equal ones."""
    height, width = matrix.shape[0] // rows, matrix.shape[1] // columns
    return matrix[row * height : (row + 1) * height, column * width : (column + 1) * width]


def shard(block, parts, part):
    return np.split(block.ravel(), parts)[part]


def multiply(have, a="A", b="B"):
    have["C"] = have.get("C", 0) + have[a] @ have[b]


# --- the algorithms: on which ranks what lies, and what they do -------------------------------------------------


def walk(ranks, a, b, m, k, n, q, _, d):
    """Cannon's walk in d layers; in one, Cannon's algorithm."""
    ranks.put("A", lambda i, j, l: shard(tile(a, q, i, q, j), d, l))
    ranks.put("B", lambda i, j, l: shard(tile(b, q, i, q, j), d, l))
    ranks.gather("A", 2, (m // q, k // q))
    ranks.gather("B", 2, (k // q, n // q))
    ranks.move("A", lambda i, j, l: (i, (j - i - l * q // d) % q, l))
    ranks.move("B", lambda i, j, l: ((i - j - l * q // d) % q, j, l))
    ranks.work(multiply)
    for _ in range(q // d - 1):
        ranks.move("A", lambda i, j, l: (i, (j - 1) % q, l))
        ranks.move("B", lambda i, j, l: ((i - 1) % q, j, l))
        ranks.work(multiply)
    ranks.scatter("C", 2)
    ranks.check("C", lambda i, j, l: shard(tile(a @ b, q, i, q, j), d, l))


def summa(ranks, a, b, m, k, n, r, c, _):
    panels = lcm(r, c)
    ranks.put("A", lambda i, j, l: tile(a, r, i, c, j))
    ranks.put("B", lambda i, j, l: tile(b, r, i, c, j))
    for panel in range(panels):
        (column, x), (row, y) = divmod(panel, panels // c), divmod(panel, panels // r)
        ranks.hand_round("A", 1, column, lambda block, x=x: tile(block, 1, 0, panels // c, x))
        ranks.hand_round("B", 0, row, lambda block, y=y: tile(block, panels // r, y, 1, 0))
        ranks.work(lambda have: multiply(have, "A panel", "B panel"))
    ranks.check("C", lambda i, j, l: tile(a @ b, r, i, c, j))


def cube(ranks, a, b, m, k, n, r, c, d):
    ranks.put("A", lambda i, j, l: shard(tile(a, r, i, d, l), c, j))
    ranks.put("B", lambda i, j, l: shard(tile(b, d, l, c, j), r, i))
    ranks.gather("A", 1, (m // r, k // d))
    ranks.gather("B", 0, (k // d, n // c))
    ranks.work(multiply)
    ranks.scatter("C", 2)
    ranks.check("C", lambda i, j, l: shard(tile(a @ b, r, i, c, j), d, l))


def axonn(ranks, a, b, m, k, n, r, c, d):
    ranks.put("A", lambda i, j, l: tile(a, d, l, r, i))
    ranks.put("B", lambda i, j, l: shard(tile(b, r, i, c, j), d, l))
    ranks.gather("B", 2, (k // r, n // c))
    ranks.work(multiply)
    ranks.sum("C", 0, (m // d, n // c))
    ranks.check("C", lambda i, j, l: tile(a @ b, d, l, c, j))


def axonn_backward(ranks, a, b, m, k, n, r, c, d):
    g = a @ b - 7  # a gradient of the output
    ranks.put("gradient", lambda i, j, l: tile(g, d, l, c, j))
    ranks.put("dA", lambda i, j, l: tile(g, d, l, c, j) @ ranks.held[i, j, l]["B"].T)
    ranks.put("dB", lambda i, j, l: ranks.held[i, j, l]["A"].T @ tile(g, d, l, c, j))
    ranks.sum("dA", 1, (m // d, k // r))
    ranks.scatter("dB", 2)
    ranks.check("dA", lambda i, j, l: tile(g @ b.T, d, l, r, i))
    ranks.check("dB", lambda i, j, l: shard(tile(a.T @ g, r, i, c, j), d, l))


PLAYED = {"cannon": walk, "summa": summa, "2.5d": walk, "3d": cube, "axonn": axonn, "column": axonn, "row": axonn}
GRIDS = {
    "cannon": [(1, 1, 1), (2, 2, 1), (3, 3, 1), (4, 4, 1)],
    "summa": [(1, 1, 1), (1, 3, 1), (2, 2, 1), (2, 3, 1), (4, 2, 1), (6, 4, 1)],
    "2.5d": [(1, 1, 1), (2, 2, 1), (2, 2, 2), (3, 3, 3), (4, 4, 2), (4, 4, 4), (6, 6, 3)],
    "3d": [(1, 1, 1), (2, 2, 2), (1, 2, 3), (4, 1, 2), (3, 2, 1), (3, 3, 3)],
    "axonn": [(1, 1, 1), (2, 2, 2), (1, 2, 3), (4, 1, 2), (3, 2, 1), (1, 1, 4), (2, 3, 2)],
    "column": [(1, 1, 1), (1, 2, 1), (1, 5, 1)],
    "row": [(1, 1, 1), (2, 1, 1), (5, 1, 1)],
}
CASES = [(algorithm, grid) for algorithm, grids in GRIDS.items() for grid in grids]


def played(algorithm, sizes, grid):
    """The product, played: (sent, back, held), as counted."""
    m, k, n = sizes
    random = np.random.default_rng(0)
    a, b = random.integers(-9, 9, (m, k)), random.integers(-9, 9, (k, n))
    ranks = Ranks(grid)
    PLAYED[algorithm](ranks, a, b, *sizes, *grid)
    sent, back = ranks.most_sent(), 0
    if PLAYED[algorithm] is axonn:
        axonn_backward(ranks, a, b, *sizes, *grid)
        back = ranks.most_sent()
    return sent, back, ranks.peak


def test_every_algorithm_is_played():
    assert set(PLAYED) == set(GRIDS) == set(ALGORITHMS)


@pytest.mark.parametrize("algorithm, grid", CASES)
@given(times=st.tuples(*[st.integers(1, 3)] * 3))
@settings(max_examples=6)
@pytest.mark.long
def test_formulas_are_what_is_counted(algorithm, grid, times):
    sizes = tuple(lcm(*grid) * grid[2] * factor for factor in times)
    said = moved(algorithm, sizes, grid)
    assert (said.sent, said.back, said.held) == played(algorithm, sizes, grid)


# --- between the formulas ---------------------------------------------------------------------------------------


def test_megatrons_layers_follow_each_other_without_a_gather():
    """Column, then row: what the first leaves is what the second takes; one sum forward, one backward."""
    b, h, p = 64, 48, 4
    first, second = moved("column", (b, h, 4 * h), (1, p, 1)), moved("row", (b, 4 * h, h), (p, 1, 1))
    assert (first.sent, second.back) == (0, 0)
    assert first.back == second.sent == 2 * (p - 1) * b * h // p


def test_an_axonn_grid_of_depth_alone_is_sharded_data_parallelism():
    """Only weights travel: gathered forward, scattered backward, whatever the batch."""
    for m in (8, 800):
        one = moved("axonn", (m, 40, 24), (1, 1, 8))
        assert one.sent == one.back == 7 * 40 * 24 // 8


def test_memory_buys_communication_where_ranks_are_many():
    """Copies have to be made first: four of them halve what 4096 ranks send, and save 64 ranks nothing."""
    few, many = (960, 960, 960), (8192, 8192, 8192)
    assert moved("2.5d", few, (8, 8, 1)).sent < moved("2.5d", few, (4, 4, 4)).sent
    one, four = moved("2.5d", many, (64, 64, 1)), moved("2.5d", many, (32, 32, 4))
    cubic = moved("3d", many, (16, 16, 16))
    assert one == moved("cannon", many, (64, 64, 1))
    assert one.sent > 1.7 * four.sent and four.sent > cubic.sent
    assert [one.copies, four.copies, cubic.copies] == [1, 4, 16]


def test_summa_gathers_without_holding_what_it_gathers():
    """It sends as much as gathering a row of A and a column of B, and holds one panel of each besides its blocks."""
    one, gathered = moved("summa", (960, 960, 960), (8, 8, 1)), moved("3d", (960, 960, 960), (8, 8, 1))
    assert one.sent == gathered.sent
    assert one.copies == pytest.approx(1 + 2 / 3) and gathered.copies == pytest.approx((8 + 8 + 1) / 3)


@pytest.mark.parametrize("algorithm, grid", [("cannon", (64, 64, 1)), ("summa", (64, 32, 1)), ("2.5d", (32, 32, 2))])
def test_nobody_beats_the_lower_bound(algorithm, grid):
    sizes = (8192, 8192, 8192)
    one = moved(algorithm, sizes, grid)
    bound = lower_bound(sizes, prod(grid), one.held)
    assert 0 < bound < 2 * one.sent, "sent and received"
    assert lower_bound(sizes, prod(grid), sum(sizes) ** 2) == 0, "all may be there"


# --- grids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("ranks", [1, 4, 12, 16])
def test_all_grids_are_ranked_and_the_best_is_first(algorithm, ranks):
    sizes, sides = (192, 96, 288), range(1, ranks + 1)
    fits = {}
    for grid in product(sides, repeat=3):
        if prod(grid) == ranks:
            try:
                fits[grid] = moved(algorithm, sizes, grid)
            except ValueError:
                continue
    if not fits:
        with pytest.raises(ValueError, match=f"{algorithm} has no grid of 12 ranks"):
            ranked(algorithm, sizes, ranks)
        return
    found = ranked(algorithm, sizes, ranks)
    assert dict(found) == fits and len(found) == len(fits)
    sent = [one.sent + one.back for _, one in found]
    assert sent == sorted(sent)


def test_no_ranks_are_told():
    with pytest.raises(ValueError, match="3d has no grid of 0 ranks for .*: count ranks from 1"):
        ranked("3d", (6, 6, 6), 0)


def test_the_shape_of_a_layer_chooses_its_grid():
    """Much input and few weights: weights travel. Few rows and many weights: they stay where they are."""
    assert ranked("axonn", (1 << 16, 512, 512), 8)[0][0] == (1, 1, 8)
    assert ranked("axonn", (64, 4096, 4096), 8)[0][0][2] == 1
    assert ranked("summa", (4096, 64, 64), 8)[0][0] == (8, 1, 1)


@pytest.mark.parametrize(
    "algorithm, sizes, grid, told",
    [
        ("cannon", (6, 6, 6), (2, 3, 1), "cannon cannot use the grid 2×3×1: give one of q×q×1"),
        ("cannon", (6, 6, 6), (2, 2, 2), "cannon cannot use the grid 2×2×2: give one of q×q×1"),
        ("summa", (6, 6, 6), (2, 2, 2), "summa cannot use the grid 2×2×2: give one of r×c×1"),
        ("2.5d", (6, 6, 6), (2, 3, 1), "2.5d cannot use the grid 2×3×1: give one of q×q×d"),
        ("2.5d", (6, 6, 6), (3, 3, 2), "q = 3 must be divisible by 2"),
        ("column", (6, 6, 6), (2, 3, 1), "column cannot use the grid 2×3×1: give one of 1×c×1"),
        ("row", (6, 6, 6), (2, 3, 1), "row cannot use the grid 2×3×1: give one of r×1×1"),
        ("cannon", (6, 7, 6), (2, 2, 1), "k = 7 must be divisible by 2: choose another grid"),
        ("summa", (4, 8, 6), (4, 6, 1), "k = 8 must be divisible by 12"),
        ("3d", (2, 3, 5), (1, 1, 3), "a block of C = 10 must be divisible by 3"),
        ("3d", (2, 3, 5), (2, 5, 3), "a block of A = 1 must be divisible by 5"),
        ("axonn", (6, 4, 4), (2, 2, 3), "a block of the weights = 4 must be divisible by 3"),
        ("cannon", (0, 6, 6), (1, 1, 1), "sizes and grids must be positive"),
        ("strassen", (6, 6, 6), (1, 1, 1), "there is no algorithm 'strassen': choose one of cannon, summa"),
    ],
)
def test_a_grid_that_cannot_work_is_told(algorithm, sizes, grid, told):
    with pytest.raises(ValueError, match=told):
        moved(algorithm, sizes, grid)
