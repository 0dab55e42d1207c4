"""Values that go from rank to rank instead of from stage to stage: squares down the pipeline, and the norm back up.

    rank 0 ── squares ─▶ rank 1 ── squares ─▶ … ── squares ─▶ rank p-1
           ◀── norm ────        ◀── norm ──── … ◀── norm ────

Each data-parallel copy of the pipeline has its own line of ranks. After the last rank the norm *is* the squares: they
are then those of all ranks. Number 0 of both belongs to the step before the schedule and needs no maker.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hybridlab.core.when.action import CODE
from hybridlab.core.when.schedule import Schedule

ALONG = ("squares", "norm")


def lines(schedule: Schedule) -> list[list[int]]:
    """The ranks of each copy of the pipeline, in order.

    >>> lines(Schedule.from_csv("0F0,0B0\\n1F0,1B0"))
    [[0, 1]]
    """
    each = schedule.replicas // schedule.dp
    ranks = [set() for _ in range(schedule.dp)]
    for (_, replica), rank in schedule.place.items():
        ranks[replica // each].add(rank)
    return [sorted(line) for line in ranks]


def neighbours(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """(the rank before, the rank after) each rank in its copy of the pipeline; -1 if there is none.

    >>> [one.tolist() for one in neighbours(Schedule.from_csv("0F0,0B0\\n1F0,1B0"))]
    [[-1, 0], [1, -1]]
    """
    before, after = np.full((2, schedule.ranks), -1)
    for line in lines(schedule):
        before[line[1:]], after[line[:-1]] = line[:-1], line[1:]
    return before, after


def along(flow: Any, name: str, into: bool, parts: np.ndarray, number: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield (flags, values) as `Flow._values` does: the values of the parts between their rank and the one before
    (`into`), or the one after; nothing if no action of the schedule sums squares.

    number  the number of the norm for each part
    """
    if not flow.shape["norm"][0]:
        return
    rank, (before, after) = flow.schedule.rank_of[parts], neighbours(flow.schedule)
    if into:
        there = before[rank] >= 0
        at = before[rank] if name == "squares" else rank
        yield there, flow.number(name, at[there], number[there])
    elif name == "squares":
        yield 1, flow.number(name, rank, number)
    else:
        last = after[rank] < 0
        yield 1, np.where(last, flow.number("squares", rank, number), flow.number("norm", after[rank], number))


def steps(schedule: Schedule) -> np.ndarray:
    """For every row, the number of norm reductions that its rank has begun, up to and including this row."""
    begun = np.cumsum(schedule.rows[:, 0] == CODE["NORM"])
    return begun - np.concatenate([[0], begun])[schedule.starts[:-1]][schedule.rank_of]


def norms(schedule: Schedule) -> int:
    """The number of norms on each rank, including the one of the previous step; 0 if the schedule computes no norms."""
    if not np.isin(schedule.rows[:, 0], [CODE["NORM"], CODE["VALID"]]).any():
        return 0
    return 2 + int(steps(schedule).max())


def first_norms(flow: Any) -> np.ndarray:
    """The squares and the norm of the previous step, on every rank."""
    if not flow.shape["norm"][0]:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([flow.number(name, np.arange(flow.schedule.ranks), 0) for name in ALONG])


def of_a_rank(flow: Any, part: int) -> np.ndarray:
    """The sums of gradients that one NORM takes: those of all stages on its rank."""
    s, version = flow.schedule, max(int(flow.version[part]), 0)
    here = sorted({(stage, s.copy_of[stage, one]) for (stage, one), rank in s.place.items() if rank == s.rank_of[part]})
    return np.concatenate([flow.number("summed", [stage], [one], [version]) for stage, one in here])
