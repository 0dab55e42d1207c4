"""Parallel matrix products on real ranks: C, dA and dB are those of one device; every rank sends what is foretold."""

import itertools
import sys

import cloudpickle
import pytest
import torch

from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.products import matmul
from hybridlab.predict.bytes.collectives import cost
from hybridlab.predict.bytes.matmul import moved
from hybridlab.predict.bytes.matmul_by_rank import sent
from hybridlab.world.processes.launch import ranks
from hybridlab.world.talk.windows import turned

cloudpickle.register_pickle_by_value(sys.modules[__name__])
SIZES = ((24, 36, 48), (17, 13, 11), (7, 5, 3))
GRIDS = {  # of (i, j, l): the algorithms that work on it
    (4, 1, 1): ("1d", "summa"),
    (3, 1, 1): ("1d", "summa"),
    (2, 2, 1): ("cannon", "summa", "3d"),
    (2, 3, 1): ("summa", "3d"),
    (3, 3, 1): ("cannon", "summa"),
    (2, 2, 2): ("2.5d", "3d"),
    (1, 2, 3): ("3d",),
}
FEW = [(2, 2, 1), (2, 3, 1), (2, 2, 2)]  # without --long
EVERY = [pytest.param(grid, marks=() if grid in FEW else pytest.mark.long) for grid in GRIDS]


def dense(shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def words(ledger, since):
    """Elements sent from row `since` on; of a collective, what one rank sends round a ring."""
    total = 0
    for op, group, size in list(zip(ledger.op, ledger.group, ledger.bytes))[since:]:
        total += size if op == "isend" else 0 if op == "irecv" else cost(op, group, size).bytes
    return total / 8


def gap(mine, right):
    if mine.shape != right.shape:
        return float("inf")
    return float((mine - right).abs().max() / right.abs().max()) if right.numel() else 0.0


def multiplied(comm, algorithm, sizes, how=None):
    """(gaps of C, dA, dB; words forward, backward) on this rank."""
    m, k, n = sizes
    A, B, G = dense((m, k), 1), dense((k, n), 2), dense((m, n), 3)
    a_home, b_home, c_home = (
        matmul.home(comm.mesh, comm.coordinates, X.shape, matmul.HOMES[algorithm][name])
        for name, X in (("A", A), ("B", B), ("C", G))
    )
    a, b = A[a_home].clone().requires_grad_(), B[b_home].clone().requires_grad_()
    start = len(comm.ledger)
    c = (how or matmul.PRODUCTS[algorithm])(comm, a, b, sizes)
    forward, middle = words(comm.ledger, start), len(comm.ledger)
    (c * G[c_home]).sum().backward()
    gaps = gap(c.detach(), (A @ B)[c_home]), gap(a.grad, (G @ B.T)[a_home]), gap(b.grad, (A.T @ G)[b_home])
    return gaps, (forward, words(comm.ledger, middle))


@pytest.mark.ranks
@pytest.mark.parametrize("grid", EVERY)
def test_products_are_equal_and_every_rank_sends_what_is_foretold(grid):
    mesh = Mesh(i=grid[0], j=grid[1], l=grid[2])
    with ranks(mesh) as pool:
        for algorithm, sizes in itertools.product(GRIDS[grid], SIZES):
            for rank, (gaps, counted) in enumerate(pool.run(multiplied, algorithm, sizes)):
                place = tuple(mesh.coordinates(rank)[axis] for axis in "ijl")
                assert max(gaps) < 1e-13, (algorithm, sizes, place, gaps)
                assert counted == sent(algorithm, sizes, grid, place), (algorithm, sizes, place)


@pytest.mark.ranks
def test_with_the_next_panel_under_way_nothing_else_changes():
    with ranks(Mesh(i=2, j=2, l=1)) as pool:
        for sizes in SIZES:
            plain, early = (pool.run(multiplied, "summa", sizes, how) for how in (matmul.summa, matmul.summa_ahead))
            assert max(max(gaps) for gaps, _ in early) < 1e-13
            assert [counted for _, counted in plain] == [counted for _, counted in early]


def panels(comm, number):
    return multiplied(comm, "summa", SIZES[1], lambda *about: matmul.summa(*about, panels=number))


@pytest.mark.ranks
def test_any_number_of_panels_sends_the_same():
    with ranks(Mesh(i=2, j=3, l=1)) as pool:
        found = [pool.run(panels, number) for number in (1, 3, 5, 13)]
    assert len({tuple(counted for _, counted in homes) for homes in found}) == 1
    assert max(max(gaps) for homes in found for gaps, _ in homes) < 1e-13


def not_aligned(comm, a, b, sizes):
    """Cannon's walk without the first move."""
    total = 0
    blocks = matmul.even(sizes[1], comm.mesh["j"])
    for step in range(comm.mesh["j"]):
        now = turned(blocks, step), turned(blocks, step + 1)
        total = total + a @ b
        a = matmul.window(comm, a, "j", 1, have=now[0], want=now[1])
        b = matmul.window(comm, b, "i", 0, have=now[0], want=now[1])
    return total


def one_panel_twice(comm, a, b, sizes):
    real, matmul.even = matmul.even, lambda length, parts, whole=1: (real(length, parts)[0],) * parts
    try:
        panel = real(sizes[1], 2)[0]
        have = {"have": real(sizes[1], 2), "want": (panel, panel)}
        return 2 * matmul.window(comm, a, "j", 1, **have) @ matmul.window(comm, b, "i", 0, **have)
    finally:
        matmul.even = real


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", (not_aligned, one_panel_twice))
def test_a_mutant_is_caught(mutant):
    with ranks(Mesh(i=2, j=2, l=1)) as pool:
        assert max(max(gaps) for gaps, _ in pool.run(multiplied, "cannon", (8, 8, 8), mutant)) > 0.1


def test_the_busiest_rank_of_equal_blocks_is_the_one_that_moved_tells():
    for grid, algorithms in GRIDS.items():
        for algorithm in set(algorithms) - {"1d"}:
            places = itertools.product(*map(range, grid))
            most = max(sent(algorithm, (72, 36, 72), grid, place).forward for place in places)
            assert most == moved(algorithm, (72, 36, 72), grid).sent, (algorithm, grid)
    assert sent("1d", (24, 36, 48), (4, 1, 1), (0, 0, 0)).forward == moved("summa", (24, 36, 48), (4, 1, 1)).sent


@pytest.mark.parametrize("algorithm", sorted(matmul.HOMES))
def test_every_number_is_at_home_once(algorithm):
    mesh = Mesh(i=2, j=1, l=1) if algorithm == "1d" else Mesh(i=2, j=2, l=2)
    for name, axes in matmul.HOMES[algorithm].items():
        found = torch.zeros(7, 5)
        for rank in range(mesh.size):
            if algorithm not in ("cannon", "summa") or mesh.coordinates(rank)["l"] == 0:
                found[matmul.home(mesh, mesh.coordinates(rank), (7, 5), axes)] += 1
        assert torch.equal(found, torch.ones(7, 5)), name
