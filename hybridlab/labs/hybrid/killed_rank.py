"""A rank killed in the middle of a step: the other copies of its stage do the step, from the state that they hold.

A pool of ranks ends when one of them dies, so its processes cannot continue. What a rank holds between steps is
therefore kept in a folder, one for each rank, which stands for the memory of that rank: new processes continue with
exactly this state, each from its own folder, and the folder of the dead rank is gone. Nothing else is read: no
checkpoint, and no weight or state of another rank.

Source: Gandhi et al. 2024, "ReCycle", arXiv:2405.14009. Relatives: `scheduling.rerouted`; `predict.time.goodput`.
"""

import os
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

import hybridlab as hl
from hybridlab.training.gaps import Gaps, largest, tolerance_of
from hybridlab.training.job import Job
from hybridlab.training.loop import Trainer
from hybridlab.training.make_job import job_of
from hybridlab.training.reference import alone_on_rank

KEPT = 2  # states that are kept: when a rank dies, some ranks may have ended the step, and others not


class Killed(NamedTuple):
    """The record of a training run in which one rank was killed.

    said   the supervisor's sentence about the dead rank, without the place where it died
    step   the first step that the other ranks did without it
    losses of all steps;  alone  of one device
    gaps   {weight: its largest difference from one device, relative to its move}, without those that noise explains
    moved  bytes that the ranks exchanged before that step, to recover
    held   bytes of weights and optimizer state on each rank, 0 for the dead rank
    """

    said: str
    step: int
    losses: list[float]
    alone: list[float]
    gaps: dict[str, float]
    moved: int
    held: list[int]

    @property
    def largest_gap(self) -> float:
        """The largest difference, including that between the losses."""
        off = [abs(one - other) / abs(other) for one, other in zip(self.losses, self.alone, strict=True)]
        return max([*off, *self.gaps.values()])


def killed(
    dp: int = 2, pp: int = 2, rank: int = 1, step: int = 2, steps: int = 4, schedule: str = "1f1b", **learning
) -> Killed:
    """Train copies of a pipeline, kill one rank with SIGKILL in the middle of a step, and let the others continue.

    dp, pp    copies, and stages of each;  rank  the one that dies, q·pp + r for stage r of copy q
    step      the step in which it dies, counted from 0;  steps  of the training
    schedule  of each pipeline
    learning  other arguments of the job, such as optimizer="adamw"; not zero: then no other rank has all of its state

    raises  ValueError if the rank dies after the last step, or no copy of its stage or of its state is left; RankError
            if a rank fails for another reason
    """
    if learning.get("zero"):
        raise ValueError(f"zero={learning['zero']} shards the state, so the dead rank's part is lost: leave out zero")
    if not 0 <= step < steps:
        raise ValueError(f"step={step} is not one of the {steps} steps: give 0 to {steps - 1}")
    one = hl.schedule(schedule, ranks=pp, microbatches=4)
    same = {"shape": hl.Shape(layers=pp), "dtype": "float64", "steps": steps, "batch": 8 * dp} | learning
    before = job_of(mesh=hl.Mesh(dp=dp, pp=pp), schedule=schedule, microbatches=4, **same)
    after = job_of(mesh=hl.Mesh(pp=dp * pp), schedule=hl.rerouted(one, dp, [rank]), **same)
    with tempfile.TemporaryDirectory() as folder:
        memories = [Path(folder) / str(number) for number in range(dp * pp)]
        said = _until_killed(before, memories, rank, step)
        shutil.rmtree(memories[rank])
        first = min(_newest(one) for number, one in enumerate(memories) if number != rank)
        with hl.ranks(after.mesh) as pool:
            homes = pool.run(_continued, after, memories, first)
    with hl.ranks(1) as pool:
        (alone,) = pool.run(alone_on_rank, before)
    losses = [*max((home["past"] for home in homes), key=len), *homes[0]["losses"]]
    held = [home["held"] for home in homes]
    return Killed(said, first, losses, alone["losses"], _gaps(before, homes, alone), homes[0]["moved"], held)


def _until_killed(job: Job, memories: list[Path], rank: int, step: int) -> str:
    for one in memories:
        one.mkdir()
    try:
        with hl.ranks(job.mesh) as pool:
            pool.run(_training, job, memories, rank, step)
    except hl.RankError as error:
        if (error.rank, error.kind) != (rank, "SIGKILL"):
            raise
        return str(error).partition(",")[0]
    raise RuntimeError(f"rank {rank} was not killed in step {step}")


# --- on a rank ------------------------------------------------------------------------------------------------------


def _training(comm, job: Job, memories: list[Path], rank: int, step: int):
    """Train; after each step, keep what this rank holds."""
    watch = partial(_die, job, rank, step) if comm.rank == rank else None
    trainer, losses = Trainer(comm, job, watch), []
    _keep(trainer, memories[comm.rank], 0, losses)
    for number in range(job.steps):
        try:
            losses += trainer.step(number)[0]
        except BaseException:  # the messages of the dead rank will not come
            comm.ledger.failed = True
            raise
        _keep(trainer, memories[comm.rank], number + 1, losses)


def _die(job: Job, rank: int, step: int, played: int, index: int, begin, end):
    """Die after the middle action of a step."""
    if played == step and 2 * index >= len(job.schedule.program[rank]):
        os.kill(os.getpid(), signal.SIGKILL)


@torch.no_grad()
def _keep(trainer: Trainer, memory: Path, step: int, losses: list[float]):
    """Keep the state from which this step starts, on the host; a state is complete, or does not exist."""
    held = {name: (weight.cpu(), _moved(state[weight], "cpu")) for name, (weight, state) in trainer.optimized().items()}
    torch.save({"held": held, "losses": losses}, memory / "new")
    (memory / "new").rename(memory / str(step))
    (memory / str(step - KEPT)).unlink(missing_ok=True)


def _newest(memory: Path) -> int:
    return max(int(one.name) for one in memory.iterdir() if one.name != "new")


def _continued(comm, job: Job, memories: list[Path], first: int) -> dict:
    """Continue from a step, with the state that this rank holds, if it is alive."""
    trainer, before = Trainer(comm, job), len(comm.ledger)
    kept = memories[comm.rank] / str(first)
    past = _take(trainer, kept) if kept.exists() else []
    moved = sum(row["bytes"] for row in comm.ledger.rows()[before:])
    held = sum(x.nbytes for weight, state in trainer.optimized().values() for x in (weight, *_tensors(state[weight])))
    losses = [loss for step in range(first, job.steps) for loss in trainer.step(step)[0]]
    weights = {name: weight.detach() for name, weight in trainer.parameters.items()}
    return {"past": past, "losses": losses, "weights": weights, "moved": moved, "held": held}


@torch.no_grad()
def _take(trainer: Trainer, kept: Path) -> list[float]:
    """Set weights and optimizer state to those that were kept, and return the losses until then."""
    stored = torch.load(kept, weights_only=True)
    for name, (weight, state) in trainer.optimized().items():
        value, its = stored["held"][name]
        weight.copy_(value)
        state[weight] = _moved(its, weight.device)
    return stored["losses"]


def _moved(its: dict, device) -> dict:
    """The optimizer's state of a weight, on a device."""
    return {name: x.to(device) if torch.is_tensor(x) else x for name, x in its.items()}


def _tensors(its: dict) -> list[torch.Tensor]:
    return [x for x in its.values() if torch.is_tensor(x)]


# --- compared -------------------------------------------------------------------------------------------------------


def _gaps(job: Job, homes: list[dict], alone: dict) -> dict[str, float]:
    """The gaps of all weights, on every rank that holds them, but those that rounding noise hides."""
    gaps, loudest = Gaps(tolerance_of(job)), max(largest(x) for x in alone["moves"].values())
    for name, weight in alone["weight"].items():
        off = max(largest(home["weights"][name] - weight) for home in homes if name in home["weights"])
        gaps.add(name, off, largest(alone["moves"][name]), alone["noise"]["moves"][name], loudest)
    return {name: gap for name, gap in gaps.found.items() if name not in gaps.allowed}
