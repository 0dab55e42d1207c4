"""Notebook 22 on real ranks: memory and bytes are counted, gathers are placed in programs, two mistakes are made."""

import textwrap
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

import hybridlab as hl
from hybridlab.core.when.action import Action
from hybridlab.core.where.layout import Layout
from hybridlab.predict.bytes.collectives import cost
from hybridlab.training.held import memory
from hybridlab.training.job import Job
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of

RANKS, UNITS = 4, 4


def job(zero: int, owners: int | None = None, active: int = 1, units: int = UNITS, ranks: int = RANKS, **more) -> Job:
    """The small GPT in `units`, one pack each, for any ZeRO stage; with AdamW, and one microbatch on every rank."""
    loop = hl.schedule("looped_bfs", ranks=1, microbatches=1, chunks=units, dp=ranks)
    options = {"sums": "buckets", "optimizer": "adamw"} | ({"active": active} if zero == 3 else {}) | more
    return job_of(hl.Mesh(dp=ranks), loop, zero=zero, owners=owners, **options)


class Home(NamedTuple):
    """The result of training on one rank: its losses, the weights that it owns, and the counts of that rank.

    kept  bytes between steps;  whole  the most bytes of gathered weights at a time;  sent  ledger bytes of a step
    """

    losses: list
    weights: dict
    kept: dict[str, int]
    whole: int
    sent: float


def train(pool, *jobs: Job) -> list[list[Home]]:
    """Every job trained on the ranks of a pool: for each job, the result of every rank."""
    return [[Home(*home) for home in homes] for homes in zip(*pool.run(_train, jobs))]


def _train(comm, jobs):
    return [_train_one(comm, one) for one in jobs]


def _train_one(comm, job):
    held = [0]
    watch = lambda *_: held.append(_whole(trainer.weights))
    trainer, before = Trainer(comm, job, watch), len(comm.ledger)
    losses = [loss for step in range(job.steps) for loss in trainer.step(step)[0]]
    rows = [row for row in comm.ledger.rows()[before:] if row["purpose"] == job.keeper.purpose]
    sent = sum(cost(row["op"], row["group"], row["bytes"]).bytes for row in rows) / job.steps
    owned = {name: weight.detach().clone() for name, weight in trainer.parameters.items()}
    return Home(losses, owned, memory(trainer), max(held), sent)


def _whole(weights) -> int:
    """Bytes of weights that a rank has gathered for a while, or allocated while they arrive."""
    if getattr(weights, "rest", 0) < 3:
        return 0
    values, arriving = weights.values, weights.gathering
    there = sum(values[pack].untyped_storage().nbytes() for pack in values if pack not in arriving)
    return there + sum(values[pack].nbytes for pack in arriving)


def sent(job: Job, rank: int = 0) -> float:
    """Bytes that a rank sends in a step of a job, by the formulas; gathers are counted in its program."""
    return sum(one.sent for one in job.keeper.transfers(job) if rank in one.ranks)


def same_bits(job: Job, homes: list[Home], plain: list[Home]) -> bool:
    """Whether losses and every shard of every weight are those of plain data parallelism, to the last bit."""
    pairs = (
        (home.weights[name].flatten(), plain[0].weights[name].flatten()[job.layout.share(name, rank)])
        for rank, home in enumerate(homes)
        for name in job.layout.named
    )
    return homes[0].losses == plain[0].losses and all(torch.equal(mine, its) for mine, its in pairs)


# --- programs: the places of gathers ------------------------------------------------------------------------------


def kept_after_forward(schedule: hl.Schedule) -> hl.Schedule:
    """The same schedule, but gathered weights stay until their backward: no RESHARD that a gather follows.

    >>> print(kept_after_forward(hl.sharded(hl.Schedule.from_csv("0F0,1F0,1B0,0B0"), active=1)))
    rank 0: 0UNSHARD 0F0 1UNSHARD 1F0 1B0 1RESHARD 1REDUCE_GRAD 0B0 0RESHARD 0REDUCE_GRAD
    """
    return schedule.with_programs([_without_pairs(program) for program in schedule.program])


def _without_pairs(program):
    moves = [i for i, action in enumerate(program) if action.kind in ("UNSHARD", "RESHARD")]
    left_out = set()
    for i in moves:
        later = [j for j in moves if j > i and program[j].stage == program[i].stage]
        if program[i].kind == "RESHARD" and later:
            left_out |= {i, later[0]}
    return [action for i, action in enumerate(program) if i not in left_out]


def always_freed(schedule: hl.Schedule) -> hl.Schedule:
    """The same schedule, but the stage between the last forward and the first backward frees and regathers its weights.

    >>> print(always_freed(hl.sharded(hl.Schedule.from_csv("0F0,0B0"), active=1)))
    rank 0: 0UNSHARD 0F0 0RESHARD 0UNSHARD 0B0 0RESHARD 0REDUCE_GRAD
    """
    return schedule.with_programs(
        [[one for pair in _neighbours(program) for one in pair] for program in schedule.program]
    )


def _neighbours(program):
    """Each action, and the actions to insert after it."""
    for action, after in zip(program, [*program[1:], None]):
        turns = action.kind == "F" and after and (after.kind, after.stage) == ("B", action.stage)
        between = [Action(kind, action.stage, replica=action.replica) for kind in ("RESHARD", "UNSHARD")]
        yield [action, *(between if turns else [])]


def looped(units: int = UNITS, ranks: int = 2) -> hl.Schedule:
    """Every rank has the full model in units and one microbatch: forwards first to last, backwards last to first."""
    return hl.schedule("looped_bfs", ranks=1, microbatches=1, chunks=units, dp=ranks)


def written(schedule: hl.Schedule) -> str:
    """The program of rank 0 in short lines; the backwards begin a new one.

    >>> print(written(hl.sharded(hl.Schedule.from_csv("0F0,1F0,1B0,0B0"), active=1)))
    0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0
    1B0 1RESHARD 1REDUCE_GRAD 0UNSHARD 0B0 0RESHARD 0REDUCE_GRAD
    """
    program = schedule.program[0]
    turn = 1 + max(i for i, action in enumerate(program) if action.kind == "F")
    halves = (" ".join(map(str, half)) for half in (program[:turn], program[turn:]))
    return "\n".join(textwrap.fill(half, 100) for half in halves)


def foreseen(schedule: hl.Schedule, costs: hl.Costs) -> hl.Timeline:
    """The predicted timeline of ranks that all do the same: one rank is simulated and copied to the others.

    It begins with the first action that computes, as a measured timeline does.

    >>> foreseen(hl.sharded(looped(units=2), active=1), hl.Costs(F=1, B=2, gather=1, reduce=1)).length
    10.0
    """
    first, stages = schedule.program[0], range(schedule.stages)
    place = {(stage, 0): 0 for stage in stages}
    alone = schedule.with_programs([first], place=place, replica_of=(0,) * schedule.microbatches, dp=1)
    one, ranks = hl.simulate(alone, costs), schedule.ranks
    start = one.begin[:, one.lane == 0].min()
    columns = {what: np.tile((getattr(one, what) - start).clip(0), ranks) for what in ("ready", "begin", "end")}
    return replace(one, schedule=schedule, lane=np.tile(one.lane, ranks), **columns)


# --- mistakes, for hl.check ---------------------------------------------------------------------------------------


def keep_old_weights():
    """No rank gathers shards after the update: each continues with new weights in its shard and old ones elsewhere."""
    from hybridlab.modes.zero import Sharded

    Sharded.publish = lambda weights: None


def forget_the_other_groups():
    """Hybrid sharding reduces within each group of owners, but not over the groups."""
    Layout.twins = lambda layout, name, rank: (rank,)
