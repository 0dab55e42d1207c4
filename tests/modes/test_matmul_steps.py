"""The steps of SUMMA and Cannon's algorithm: every part of k is added once, and real ranks send just these messages."""

import sys

import cloudpickle
import pytest
import torch

from hybridlab.core.where.mesh import Mesh
from hybridlab.modes.products import matmul
from hybridlab.modes.products.steps import ALGORITHMS, moments
from hybridlab.predict.bytes.matmul_by_rank import sent
from hybridlab.world.processes.launch import ranks

cloudpickle.register_pickle_by_value(sys.modules[__name__])
CASES = [
    ("summa", (6, 6, 6), (3, 3)),
    ("summa", (7, 11, 5), (2, 3)),
    ("summa_ahead", (6, 7, 5), (2, 3)),
    ("cannon", (6, 6, 6), (3, 3)),
    ("cannon", (7, 11, 5), (2, 2)),
    ("cannon", (8, 9, 10), (4, 4)),
]
every_case = pytest.mark.parametrize("algorithm, sizes, grid", CASES)
FUNCTIONS = {"summa": matmul.summa, "summa_ahead": matmul.summa_ahead, "cannon": matmul.cannon}


@every_case
def test_each_rank_sends_what_is_predicted(algorithm, sizes, grid):
    every = moments(algorithm, sizes, grid)
    for rank in range(grid[0] * grid[1]):
        words = sum(one.words for moment in every for one in moment.sends if one.source == rank)
        rule = algorithm.removesuffix("_ahead")
        assert words == sent(rule, sizes, (*grid, 1), (*divmod(rank, grid[1]), 0)).forward, rank


@every_case
def test_each_pair_fits_and_every_part_of_k_is_added_once(algorithm, sizes, grid):
    every = moments(algorithm, sizes, grid)
    assert all(moment.a == moment.b for moment in every[1:])
    for done in every[-1].done:
        assert sorted(number for span in done for number in range(*span)) == list(range(sizes[1]))


@every_case
def test_what_is_added_was_on_the_rank(algorithm, sizes, grid):
    """When the matmul of a step begins: at its end, or one step early if the next panel is under way meanwhile."""
    every, early = moments(algorithm, sizes, grid), algorithm == "summa_ahead"
    for before, moment in zip(every, every[1:]):
        for rank, held in enumerate((before if early else moment).a):
            assert moment.done[rank] in ((*before.done[rank], held), ())
            assert bool(moment.done[rank]) == (not early or moment is not every[1])


def test_one_panel_ahead_are_the_messages_of_the_next_matmul():
    plain, early = (moments(one, (6, 7, 5), (2, 3)) for one in ("summa", "summa_ahead"))
    assert [one.sends for one in early[1:]] == [*(one.sends for one in plain[1:]), ()]
    assert [one.done for one in early[2:]] == [one.done for one in plain[1:]] and early[1].done == plain[0].done


def test_in_cannons_algorithm_no_block_is_on_two_ranks():
    for moment in moments("cannon", (6, 6, 6), (3, 3)):
        assert all(len(set(moment.a[row : row + 3])) == 3 for row in (0, 3, 6))
        assert all(len(set(moment.b[column::3])) == 3 for column in range(3))


@pytest.mark.parametrize("algorithm, grid, told", [("cannon", (2, 3), "square grid"), ("strassen", (2, 2), "choose")])
def test_an_algorithm_without_steps_is_refused(algorithm, grid, told):
    with pytest.raises(ValueError, match=told):
        moments(algorithm, (6, 6, 6), grid)


def messages(comm, algorithm, sizes):
    """(receiver, words) of each message that this rank sends in the forward, in their order."""
    m, k, n = sizes
    a, b = (
        torch.ones(shape, dtype=torch.float64)[matmul.home(comm.mesh, comm.coordinates, shape, matmul.FLAT[name])]
        for name, shape in (("A", (m, k)), ("B", (k, n)))
    )
    start = len(comm.ledger)
    FUNCTIONS[algorithm](comm, a, b, sizes)
    return [(row["peer"], row["bytes"] // 8) for row in list(comm.ledger.rows())[start:] if row["op"] == "isend"]


@pytest.mark.ranks
def test_ranks_send_the_messages_of_these_steps_in_this_order():
    sizes, grid = (6, 8, 10), (2, 2)
    with ranks(Mesh(i=2, j=2, l=1)) as pool:
        for algorithm in ALGORITHMS:
            every = [one for moment in moments(algorithm, sizes, grid) for one in moment.sends]
            for rank, counted in enumerate(pool.run(messages, algorithm, sizes)):
                assert counted == [(one.target, one.words) for one in every if one.source == rank], (algorithm, rank)
