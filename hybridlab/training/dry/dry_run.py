"""The dry run of a job: one of its ranks, and a device into whose memory it should fit."""

import math
import time

import numpy as np

from hybridlab.core.afford import refuse
from hybridlab.core.dry import KINDS, SENT, DryRun
from hybridlab.core.what.machines import machine_of
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.lanes import COMPUTE
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.simulate import simulate
from hybridlab.signatures import spelled
from hybridlab.training import asked
from hybridlab.training.check import UNCOUNTED
from hybridlab.training.costs import costs_of
from hybridlab.training.dry.one_rank import Dry, played
from hybridlab.training.job import Job
from hybridlab.training.make_job import job_of
from hybridlab.training.models.gallery import model_of
from hybridlab.training.models.transformer import Transformer

AS_ON_GPUS = {"dtype": "bfloat16", "optimizer": "adamw"}  # defaults
TEXT_BYTES = 24  # for each token of a batch: its place in the text, input and target
A_RANK, A_PASS = 3e-3, 4e-3  # minimum seconds: for each rank of the mesh, for a layer's forward and backward
LONGEST, LONGEST_FOR_RANKS = 600.0, 60.0  # maximum seconds to wait for an answer; and because of the mesh alone


@spelled(asked.arguments, positional=asked.FIRST, **AS_ON_GPUS)
def dry_run(*, rank: int = 0, machine: str = "a100", memory: float | None = None, **given) -> DryRun:
    """A dry run: one rank of any job in one training step, without arithmetic, with the real bytes held and sent.

    It runs the training program on tensors with shapes but without numbers, and without the other ranks. So one rank of
    a job with thousands of ranks takes less than a minute.

    {arguments}
    rank           the index of the rank to run, in the mesh
    machine        a name in the catalog, or a TOML file, to predict times and to compare the memory with its device
    memory         bytes of a device, instead of the machine's

    raises  ValueError for invalid arguments, and for a job that would hang

    >>> import hybridlab as hl
    >>> one = hl.dry_run(hl.Mesh(dp=24, pp=2), model=hl.Shape(layers=2), rank=17, zero=1)
    >>> one.actions[:2], one.fits, one.bytes["messages"]
    (('1F32@8', '1B32@8'), True, 16384)
    """
    began = time.perf_counter()
    asked.mesh_of(given).coordinates(rank)
    kind = machine_of(machine)
    if memory is not None and not 0 < memory < math.inf:
        raise ValueError(f"memory={memory} is not an amount of memory: give bytes, such as 40e9")
    ranks = asked.mesh_of(given).size
    refuse(f"{ranks:,} ranks", seconds=A_RANK * ranks, longest=LONGEST_FOR_RANKS, ranks=ranks)
    _refuse_sizes(given)
    job = job_of(**given)
    _refuse(job)
    trainer, before = played(job, rank)
    timeline = simulate(job.schedule, costs_of(job, kind))
    room = kind.capacity if memory is None else memory
    return _told(job, trainer, before, timeline, room, time.perf_counter() - began)


def _refuse_sizes(given: dict):
    """Refuse a shape with too many layers for its microbatches, before its modules are made, which takes long too."""
    of = {name: one.usual for name, one in asked.OWN.items()} | {name: x for name, x in given.items() if x is not None}
    shape = of["model"] if isinstance(of["model"], Shape) else of["shape"]
    if isinstance(shape, Shape) and of["microbatches"]:
        model = model_of(shape, of["loss"], of["data"])
        model.refuse()  # it raises the more precise errors first
        _refuse_passes(shape.layers + sum(model.ends), of["microbatches"] * of["accumulate"])


def _refuse_passes(layers: int, times: int):
    passes = layers * times
    refuse(f"{passes:,} passes of layers", seconds=A_PASS * passes, longest=LONGEST, layers=layers)


def _refuse(job: Job):
    if isinstance(job.model, Transformer):
        rows = job.rows * job.microbatches
        refuse(f"{rows:,} sequences", size=TEXT_BYTES * rows * (job.model.shape.context + 1), batch=rows)
    _refuse_passes(len(job.layers), len(job.schedule.replica_of) // job.schedule.replicas * job.accumulate)
    if job.driven:
        raise ValueError(
            "driven=True takes its order from arriving messages, and a dry run sends none: give driven=False"
        )
    if job["offload"]:
        raise ValueError("offload=True runs the optimizer on the host, which a dry run does not model: leave it out")


def _told(job: Job, trainer: Dry, before: int, timeline: Timeline, room, seconds: float) -> DryRun:
    """The record of a trainer after operation number `before`, as plain values."""
    held, kept = _by_action(trainer, before)
    begin, end = _times(job, trainer, timeline)
    rows = [row for row in trainer.comm.ledger.rows() if row["bytes"] and row["purpose"] not in UNCOUNTED]
    return DryRun(
        f"{job.schedule.name}, {job.dtype}",
        job.mesh,
        trainer.comm.rank,
        tuple(what for what, _ in trainer.work.marks),
        held,
        kept,
        {column: [row[column] for row in rows] for column in SENT},
        begin,
        end,
        timeline.length,
        timeline.unit,
        seconds,
        room,
    )


def _by_action(trainer: Dry, before: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes by kind at the peak of each action, and after it."""
    history, ends = trainer.alive.history(tuple(KINDS)), [at for _, at in trainer.work.marks]
    highest = []
    for first, last in zip([before, *ends], ends):
        part = history[first + 1 : last + 1]
        highest.append(part[part.sum(axis=1).argmax()])
    return np.array(highest), history[ends]


def _times(job: Job, trainer: Dry, timeline: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """The start and end of each action; work after the schedule counts at its end."""
    seat = trainer.line.index(trainer.comm.rank)
    mine = np.flatnonzero((timeline.flow.rank == seat) & (timeline.lane == COMPUTE))
    length, behind = timeline.length, len(trainer.work.marks) - job.accumulate * len(mine)
    spans = []
    for column in (timeline.begin, timeline.end):
        once = column[timeline.typical, mine] * timeline.tick
        plays = [once + number * length for number in range(job.accumulate)]
        spans.append(np.concatenate([*plays, np.full(behind, job.accumulate * length)]))
    return tuple(spans)
