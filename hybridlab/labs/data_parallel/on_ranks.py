"""Notebook 21: gradients and all-reduces of two ranks on one clock; mistakes; and training with large batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch

import hybridlab as hl
from hybridlab.core.where.layout import Layout
from hybridlab.core.where.packs import packed
from hybridlab.labs.data_parallel.pictures import grouped
from hybridlab.predict.bytes.collectives import Link, cost
from hybridlab.predict.time.buckets import Bucket, Overlap, overlap
from hybridlab.show.paper.still import Still
from hybridlab.show.timelines.buckets import Row, buckets
from hybridlab.training.job import Job
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of

SMALL = hl.Shape(layers=4, width=64, heads=4, context=64)
BATCH = 16  # sequences of the global batch
FIRST, OTHER = 64 << 10, 256 << 10  # bytes of buckets that suit a model of one megabyte
SWEEP = tuple(1 << k for k in (14, 16, 17, 18, 20))  # 16 KiB to 1 MiB
STEPS = 6  # the first warms up
TINY = hl.Shape(layers=2, width=32, heads=2, context=32)
RATE = 0.03  # the learning rate of the smallest batch


class Step(NamedTuple):
    """One step of one rank as it was measured, in seconds on the clock of this machine.

    made  {parameter: when its gradient was made};  backward  its start and end
    sums  (names, bytes, when it was posted, when it ended) for every all-reduce, in order
    """

    made: dict[str, float]
    backward: tuple[float, float]
    sums: list[tuple]


@dataclass(frozen=True, eq=False)
class InBuckets(Job):
    """A job whose gradients are sent in given buckets: it contains its layout, so the ranks do not make one."""

    layout: Layout | None = None


def job(form: str = "buckets", limits=(FIRST, OTHER), shape: hl.Shape = SMALL, dp: int = 2, **more) -> Job:
    """A GPT on `dp` ranks, one microbatch each: `form` is "after", "each" or "buckets", `limits` are the bytes of the
    buckets.
    """
    one = job_of(hl.Mesh(dp=dp), "1f1b", 1, more.pop("batch", BATCH), shape=shape, sums=form, **more)
    return with_packs(one, packed(one.layout, one.homes, limits)) if form == "buckets" else one


def with_packs(one: Job, layout: Layout) -> Job:
    """The same job with another layout's packs."""
    about = {field.name: getattr(one, field.name) for field in fields(one)}
    return InBuckets(**about, layout=layout.validate())


def measured(pool, jobs: dict, link: Link, steps: int = STEPS) -> dict:
    """{name: the fastest step of a job}: the measured backward and all-reduces, and those that the gradients predict.

    The jobs alternate, one step each, so that other programs on the machine disturb all of them equally. A row shows
    the rank whose backward ended last. An all-reduce begins when all ranks have called it and the one before has ended.
    """
    homes = pool.run(_by_turns, list(jobs.values()), steps)
    rows = {}
    for number, (name, one) in enumerate(jobs.items()):
        ranks = ([Step(*parts) for parts in home[number]] for home in homes)  # a rank returns plain tuples
        found = [_row(one, each, link) for each in zip(*ranks)]
        rows[name] = min(found[1:] or found, key=lambda row: row.length)
    return rows


def _row(one, ranks, link):
    """One step of all ranks as a row of the picture."""
    drawn = max(ranks, key=lambda step: step.backward[1])
    start, end = drawn.backward
    found, free = [], start
    for parts in zip(*(step.sums for step in ranks)):
        posted, over = max(part[2] for part in parts), max(part[3] for part in parts)
        begin = max(posted, free)
        free = max(begin, over)
        found.append(Bucket(tuple(parts[0][0]), parts[0][1], posted, begin, free))
    made = {name: max(step.made[name] for step in ranks) for name in drawn.made}
    said = overlap(one.layout, made, link, early=one["sums"] != "after", start=start, end=end)
    return Row(one["sums"], drawn.made, predicted=said, measured=Overlap(start, end, tuple(found)))


def _by_turns(comm, jobs, steps):
    """Some steps of every job on a rank, each with the moments of its gradients and all-reduces."""
    watched = [_Watched(comm, one) for one in jobs]
    turns = [[one.step(number) for one in watched] for number in range(steps)]
    return list(zip(*turns))


class _Watched:
    """A trainer that records when each gradient is made, and when each all-reduce is posted and ends."""

    def __init__(self, comm, one):
        self.comm, self.trainer, self.clock = comm, Trainer(comm, one), comm.clock(comm.device)
        self._start, self.trainer.weights._started = self.trainer.weights._started, self._started
        for name, weight in self.trainer.weights.by_name.items():
            weight.register_hook(lambda _, name=name: self._note(name))  # called before the weights' own hook sends

    def _note(self, name):
        self.made[name] = self.clock.mark()

    def _started(self, pack, names, flat):
        """Start an all-reduce as the weights do; its start is in the ledger, its end comes from the device's clock or a
        thread.
        """
        sum = self._start(pack, names, flat)
        row, over = len(self.comm.ledger) - 1, []
        sum.message.when_over(over.append, self.clock)
        self.sums.append((tuple(names), row, over))
        return sum

    def step(self, number) -> Step:
        self.made, self.sums = {}, []
        self.clock.anchor()
        self.comm.barrier()
        _, times = self.trainer.gradients(number)
        backward = next(i for i, action in enumerate(self.trainer.player.program) if action.kind == "B")
        begin, _, end, _ = (int(at) / 1e9 for at in times[backward])
        self.trainer.update()
        made = {name: self.clock.read(mark) / 1e9 for name, mark in self.made.items()}
        return Step(made, (begin, end), [self._told(*one) for one in self.sums])

    def _told(self, names, row, over):
        ledger = self.comm.ledger
        ends = [ledger.end_ns[row], *map(self.clock.read, over)]
        end = min(at for at in ends if at) / 1e9  # the ledger has no end before the host has learned of it
        return names, ledger.bytes[row], ledger.begin_ns[row] / 1e9, end


def beside(rows: Sequence[Row]) -> Still:
    """Measured backwards on one time axis, with their all-reduces: the prediction above the measurement."""
    return buckets(*rows, title="All-reduces during a backward, predicted and measured")


def counted(pool, one: Job) -> tuple[int, int]:
    """(all-reduces, their bytes) of one step of rank 0, from its ledger, without the all-reduce of the loss."""
    return pool.run(_counted, one)[0]


def in_groups(groups) -> Job:
    """The small model with buckets given as lists of names."""
    one = job("each")
    return with_packs(one, grouped(one.layout, groups))


def gradients() -> list[tuple[str, int]]:
    """(name, bytes) of every gradient of the small model, in the order in which the backward makes them."""
    return [(param.name, 4 * math.prod(param.shape)) for param in reversed(job().layout.params)]


def _counted(comm, one):
    trainer = Trainer(comm, one)
    before = len(comm.ledger)
    trainer.step(0)
    rows = [row for row in comm.ledger.rows()[before:] if row["purpose"] == one.keeper.purpose]
    return len(rows), sum(row["bytes"] for row in rows)


def sent(size: float, ranks: int = 2) -> float:
    """The bytes that each rank sends in all-reduces of `size` bytes: 2·size·(p-1)/p."""
    return cost("all_reduce", ranks, size).bytes


def sweep(pool, link: Link, sizes: Sequence[int] = SWEEP) -> dict[int, Row]:
    """{bytes in a bucket: the fastest step with it}; the first bucket has the same size as the others."""
    return measured(pool, {size: job(limits=(size, size)) for size in sizes}, link)


# --- what goes wrong ----------------------------------------------------------------------------------------------


def mean_for_sum():
    """A sabotage for hl.check: every rank divides the summed gradients by the number of ranks."""
    from hybridlab.modes.parts.replicated import Replicated

    take = Replicated._take
    Replicated._take = lambda weights, names, flat: take(weights, names, flat / weights.comm.size)


def one_use_forgotten():
    """A sabotage for hl.check: a tied weight gets the gradient of its use in the head, not that of the embedding."""
    from hybridlab.training.models.gpt import Embed

    def forward(embed, tokens_BT):
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        return embed.dropout(embed.token.weight.detach()[tokens_BT] + embed.position(positions_T))

    Embed.forward = forward


UNUSED = "blocks.2.mlp.up.bias"


def launched_inside(pool, form: str = "each") -> list[tuple[int, int]]:
    """For each rank, (number of all-reduces posted during the backward, number of all-reduces), in a step in which
    rank 1 does not use one of the weights.
    """
    return pool.run(_launched_inside, job(form))


def _launched_inside(comm, one):
    watched = _Watched(comm, one)
    if comm.rank == 1:
        watched.trainer.weights.by_name[UNUSED].requires_grad_(False)
    step = watched.step(0)
    return sum(posted < step.backward[1] for _, _, posted, _ in step.sums), len(step.sums)


# --- large batches ------------------------------------------------------------------------------------------------


def train(pool, batch: int, rate: float = RATE, samples: int = 2048) -> list[float]:
    """The losses of a tiny GPT that is trained on `samples` sequences in steps of `batch`, on the ranks of a pool."""
    one = job(limits=(1 << 20, 1 << 20), shape=TINY, dp=pool.size, batch=batch, steps=samples // batch, rate=rate)
    return pool.run(_losses, one)[0]


def _losses(comm, one):
    trainer = Trainer(comm, one)
    return [loss for number in range(one.steps) for loss in trainer.step(number)[0]]
