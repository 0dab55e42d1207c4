"""Judges of students' programs on one rank that is no process: what each one notices, and what must not fool it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hybridlab.labs.experts import on_ranks as experts
from hybridlab.labs.hybrid import trial as hybrid
from hybridlab.labs.matmul import grids
from hybridlab.labs.megatron import hunt
from hybridlab.labs.one_device import explorer
from hybridlab.labs.out_of_core import chains
from hybridlab.labs.trials import against
from hybridlab.labs.trials.against import Off, Run
from hybridlab.labs.zero_bubble import rank as zero_bubble

RIGHT = torch.arange(6.0, dtype=torch.float64).reshape(2, 3)


@pytest.fixture
def run(monkeypatch):
    """One rank alone: its mistake is the mistake of all."""
    monkeypatch.setattr(against, "anywhere", lambda comm, told: bool(told))
    monkeypatch.setattr(against, "words_of", lambda ledger, since: sum(ledger[since:]))
    return Run(SimpleNamespace(ledger=[], mesh=SimpleNamespace(axes={})))


@pytest.mark.parametrize(
    "made, told",
    [
        (None, "returned None; return this rank's part of Z, a tensor."),
        (RIGHT[0], r"returned a tensor of shape \(3,\); its part of Z has \(2, 3\)."),
        (RIGHT.float(), "returned Z in float32; its inputs are in float64: begin a sum with 0"),
        (RIGHT + 1, "returned another Z than one device: was a row left out?"),
        (2 * RIGHT, "twice"),
        (RIGHT.clone(), "has the right Z, but it has no backward: use typed collectives"),
    ],
)
def test_the_first_mistake_in_a_result_is_told(run, made, told):
    with pytest.raises(Off, match=told):
        run.result(made, RIGHT, "Z", near=[(2 * RIGHT, "twice")], otherwise="was a row left out?")


@pytest.mark.parametrize("words, told", [(5, "sent 4 words forward; 5 are needed.few"), (3, "sent 4 words forward; 3")])
def test_words_are_counted_once_the_numbers_are_right(run, words, told):
    run.comm.ledger += [1, 3]
    with pytest.raises(Off, match=told):
        run.result(RIGHT.clone().requires_grad_(), RIGHT, "Z", words=words, fewer="few")
    run.since = 0
    run.result(RIGHT.clone().requires_grad_(), RIGHT, "Z", words=4)
    assert run.since == 2, "what was sent is counted"


def test_what_a_program_writes_into_its_inputs_does_not_fool_the_judge():
    """Two halves that are right, and then use the memory of their inputs for something else."""

    def input_half(gy, y, w):
        gz = gy * (1 - y * y)
        gx = gz @ w
        for one in (gy, y, w):
            one.zero_()
        return gx, gz

    def weight_half(gz, x):
        gw = gz.T @ x
        x.zero_()
        return gw

    case = SimpleNamespace(shapes=[(3, 4, 2), (2, 2, 5)])
    assert zero_bubble.halve(None, (input_half, weight_half), case) == ""
    wrong = lambda gy, y, w: (gy @ w, gy.clone(), gy.zero_())[:2]
    assert "gx is that of a layer without tanh" in zero_bubble.halve(None, (wrong, weight_half), case)


def test_every_group_and_every_rank_of_a_grid_is_looked_at():
    case = hybrid.Grid(2, 2, 2)
    right = [hybrid.Did(case.groups(rank), 0.0, 1.0, 1.0, 1.0, 2) for rank in range(8)]
    assert hybrid.judge(case, right) == ""
    for number, name in enumerate(hybrid.NAMES):
        groups = case.groups(5)
        groups[number] = [0, 1]
        homes = [one._replace(groups=groups) if rank == 5 else one for rank, one in enumerate(right)]
        assert hybrid.judge(case, homes).startswith(f"my_groups says that the {name} of rank 5 is [0, 1].")
    own_rows = [one._replace(gap=1.0, alone=0.0) for one in right]
    assert "has the gradients of its own rows" in hybrid.judge(case, own_rows)
    but_one = [own_rows[0]._replace(alone=1.0), *own_rows[1:]]
    assert "has the gradients of its own rows" not in hybrid.judge(case, but_one)


@pytest.mark.parametrize("mistake", hunt.MISTAKES)
def test_a_mistake_is_made_in_a_copy(mistake):
    right = hunt._summed()
    was = {name: value.copy() for name, value in right.items()}
    hunt.MISTAKES[mistake](right)
    assert all(np.array_equal(right[name], value) for name, value in was.items())


def test_masks_are_those_of_both_branches_and_of_the_scores():
    shape = explorer.catalog.model("gpt3-175b").shape
    branches, scores = 2 * shape.width, shape.heads * shape.context
    assert explorer._masks(shape, "none") == shape.layers * (branches + scores)
    assert explorer._masks(shape, "selective") == shape.layers * branches + scores
    assert explorer._masks(shape, "full") == branches + scores


def test_every_expert_has_a_column():
    """Ranks are asked for their rows only; here nobody answers but this test."""
    table = experts.counts(SimpleNamespace(run=lambda work, case: [(1, 2, 3)] * 3), experts.CASE)
    owned = [rank for rank, count in enumerate(experts.CASE.owned) for _ in range(count)]
    assert table.heading == ("of rank", *(f"expert {n} (on rank {rank})" for n, rank in enumerate(owned)))
    assert table.rows[1] == ("1", "1", "2", "3")


def test_a_copy_takes_units():
    cost = chains.costs(swap=3.0, unit=0.5)
    assert (cost.F, cost.B, cost.swap) == (0.5, 1.0, 1.5)


def test_the_bound_is_that_of_an_algorithm_with_as_much_memory():
    (row,) = grids.bounds(4096, (1024,)).rows
    held = 5 * (4096 // 32) ** 2  # a block of each matrix, and those of A and B that arrive
    assert row[2] == f"{4096**3 / (8**0.5 * 1024 * held**0.5) - held:,.0f}"
