"""One training step on a grid of ranks, as students write it in notebook 40: the inputs of a rank, and its result.

p stages, each y = tanh(x·Aᵀ)·Bᵀ; A is sharded by rows and B by columns over t ranks, the rows of the batch are divided
among d copies, with one microbatch for each.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hybridlab.labs.hybrid.trial import Did, Grid

WIDTH, INSIDE, ROWS = 6, 24, 12  # sizes in every case; 24 and 12 can be divided by 2, 3 and 4


class Batch(NamedTuple):
    """The rows of the whole batch, and the targets for the output of the last stage."""

    x: Tensor
    target: Tensor


def drawn(stages: int) -> tuple[list[list[Tensor]], Batch]:
    """([A, B] of every stage, the batch): the same numbers on every rank.

    >>> weights, batch = drawn(2)
    >>> [tuple(one.shape) for one in weights[0]], tuple(batch.x.shape)
    ([(24, 6), (6, 24)], (12, 6))
    """
    draw = torch.Generator().manual_seed(40)
    normal = lambda *shape: torch.randn(*shape, generator=draw, dtype=torch.float64) / WIDTH**0.5
    return [[normal(INSIDE, WIDTH), normal(WIDTH, INSIDE)] for _ in range(stages)], Batch(
        normal(ROWS, WIDTH), normal(ROWS, WIDTH)
    )


def one_process(stages: int, rows: slice = slice(None)) -> list[list[Tensor]]:
    """The gradients of [A, B] of every stage, from these rows of the batch; the loss is divided by the number of all
    rows.
    """
    weights, (x, target) = drawn(stages)
    leaves = [[one.requires_grad_() for one in stage] for stage in weights]
    y = x[rows]
    for A, B in leaves:
        y = torch.tanh(y @ A.T) @ B.T
    ((y - target[rows]).square().sum() / ROWS).backward()
    return [[one.grad for one in stage] for stage in leaves]


def shards(stage: list[Tensor], part: int, parts: int) -> list[Tensor]:
    """One rank's part of a stage's [A, B]: rows of A, columns of B."""
    A, B = stage
    return [A.chunk(parts)[part].clone(), B.chunk(parts, dim=1)[part].clone()]


def try_step(comm, answer, case: Grid) -> Did:
    """On a rank: call my_groups for this rank, do one step with my_step, and return the result."""
    my_groups, my_step = answer
    p, d, t = case
    stage, copy, part = case.place(comm.rank)
    every = [[[int(one) for one in group] for group in my_groups(p, d, t, rank)] for rank in range(comm.size)]
    groups = every[comm.rank]
    if every != [case.groups(rank) for rank in range(comm.size)]:
        return Did(groups)  # on all ranks, so that none waits for another
    weights, batch = drawn(p)
    mine = [one.requires_grad_() for one in shards(weights[stage], part, t)]
    x, target = (one.chunk(d)[copy].clone() for one in batch)
    x = x if stage == 0 else torch.full_like(x, torch.nan)
    target = target if stage == p - 1 else torch.full_like(target, torch.nan)
    start = len(comm.ledger)
    made = my_step(comm, (p, d, t), mine, (x, target, ROWS))
    widest = max((row["group"] for row in comm.ledger.rows()[start:] if row["op"] in COLLECTIVES), default=1)
    rows = slice(copy * ROWS // d, (copy + 1) * ROWS // d)
    whole, alone = (shards(one_process(p, those)[stage], part, t) for those in (slice(None), rows))
    return Did(
        groups,
        _gap(made, whole),
        _gap(made, alone),
        *(_gap(made, [one * f for one in whole]) for f in (1 / d, d)),
        widest,
    )


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def _gap(made, wanted) -> float:
    """The largest difference of two gradients, relative to the largest entry; infinite if the two do not match."""
    pair = list(made) if isinstance(made, list | tuple) else []
    if [getattr(one, "shape", None) for one in pair] != [one.shape for one in wanted]:
        return float("inf")
    gap = max(float((one.detach() - right).abs().max() / right.abs().max()) for one, right in zip(pair, wanted))
    return gap if gap == gap else 1.0
