"""The training loop of one rank, the same for one process and for a mesh of them.

A `Task` says what is to be learnt; nothing in it depends on how many ranks share the work, except the schedule.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from hybridlab.core.catalog import Shape
from hybridlab.core.mesh import Mesh
from hybridlab.core.schedule import Schedule
from hybridlab.modes.pipeline import Player
from hybridlab.modes.work import ModelWork
from hybridlab.schedules.lower import lower
from hybridlab.schedules.registry import schedule as named
from hybridlab.schedules.replicate import replicate
from hybridlab.train.model import GPT, token_loss
from hybridlab.train.stages import cut, stages_of
from hybridlab.train.text import Text

OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class Task:
    """What is trained: model, data, optimizer, and the lowered schedule that shares the work.

    sequences  b, in one microbatch;  data  a text file, or None for Python's standard library
    """

    schedule: Schedule
    shape: Shape = Shape()
    sequences: int = 2
    steps: int = 3
    optimizer: str = "sgd"
    rate: float = 0.1
    seed: int = 0
    dtype: str = "float32"
    data: str | None = None

    @property
    def microbatches(self) -> int:
        """The number of microbatches in the global batch."""
        return len(self.schedule.replica_of)

    @property
    def tokens(self) -> int:
        """The number of tokens in the global batch."""
        return self.microbatches * self.sequences * self.shape.context


def task(
    mesh: Mesh, schedule: str | Schedule = "1f1b", microbatches: int = 4, batch: int | None = None, **more
) -> Task:
    """The task for a mesh of dp × pp; `batch` is the number of sequences in the global batch, dp × m × 1 at least.

    raises  ValueError in one sentence when a number does not fit another
    """
    unknown = [axis for axis in mesh.axes if axis not in ("dp", "pp") and mesh[axis] > 1]
    if unknown:
        raise ValueError(f"{mesh} has an axis {unknown[0]}, which cannot be trained yet: use dp and pp")
    if isinstance(schedule, str):
        one = named(schedule, ranks=mesh["pp"], microbatches=microbatches)
        schedule = replicate(one, mesh) if mesh["dp"] > 1 else one
    if (schedule.dp, schedule.ranks) != (mesh["dp"], mesh.size):
        has = f"{schedule.ranks} ranks in {schedule.dp} copies"
        raise ValueError(f"{schedule.name} has {has}, {mesh} has {mesh.size} in {mesh['dp']}: make them equal")
    one = Task(lower(schedule), **more)
    if one.steps < 1:
        raise ValueError(f"steps={one.steps} trains nothing: give 1 or more")
    Text.of(one.data)
    if one.optimizer not in OPTIMIZERS:
        raise ValueError(f"there is no optimizer {one.optimizer!r}: choose one of {', '.join(OPTIMIZERS)}")
    if one.dtype not in DTYPES:
        raise ValueError(f"there is no dtype {one.dtype!r}: choose one of {', '.join(DTYPES)}")
    cut(one.shape.layers, schedule.stages)
    if batch is None:
        return one
    if batch < 1 or batch % one.microbatches:
        m, d = schedule.microbatches, mesh["dp"]
        raise ValueError(
            f"batch {batch} is not divisible by dp × microbatches = {d} × {m}: choose a multiple of {d * m}"
        )
    return replace(one, sequences=batch // one.microbatches)


class Trainer:
    """One rank's part of a task: its stages, its player, its optimizer."""

    def __init__(self, comm, task: Task):
        self.comm, self.task = comm, task
        self.text = Text.of(task.data)
        dtype = getattr(torch, task.dtype)
        model = GPT(task.shape, task.seed, dtype)
        stages = stages_of(model, task.shape, task.schedule.stages)
        mine = {stage: stages[stage] for (stage, _), rank in task.schedule.place.items() if rank == comm.rank}
        self.names = [name for name, _ in model.named_parameters()]
        self.parameters = {name: p for stage in mine.values() for name, p in stage.named_parameters()}
        example = torch.empty(task.sequences, task.shape.context, task.shape.width, dtype=dtype)
        self.work = ModelWork(mine, len(stages) - 1, token_loss, task.tokens, example)
        self.player = Player(comm, task.schedule, self.work)
        self.optimizer = OPTIMIZERS[task.optimizer](self.parameters.values(), lr=task.rate)

    def gradients(self, step: int) -> tuple[float, torch.Tensor]:
        """Play one step; every parameter's gradient is then that of the global batch.

        returns the loss of the global batch, in nats per token, and the times of the actions
        """
        self.work.load(*microbatches(self.text, self.task, step))
        times = self.player.step()
        return self.comm.all_reduce(self.work.total_loss.clone()).item(), times

    def gradient_norm(self) -> float:
        """The norm of the whole model's gradient: every stage once, replicas not again.

        Each parameter's sum of squares travels in a place of its own and `fsum` rounds once, so that the number does
        not depend on how the stages were cut.
        """
        squares = torch.zeros(len(self.names), dtype=torch.float64)
        for name, parameter in self.parameters.items():
            squares[self.names.index(name)] = parameter.grad.double().square().sum()
        return math.sqrt(math.fsum(self.comm.all_reduce(squares, "pp").tolist()))

    def step(self, step: int) -> tuple[float, torch.Tensor]:
        """One optimizer step; returns the loss before it, and the times of the actions."""
        loss, times = self.gradients(step)
        self.optimizer.step()
        return loss, times


def microbatches(text: Text, task: Task, step: int) -> tuple[list, list]:
    """The global batch of one step, cut into microbatches: (inputs, targets), lists of (sequences, context) tensors."""
    sequences = task.microbatches * task.sequences
    both = text.batch(step, sequences, task.shape.context, task.seed)
    return tuple(
        [torch.from_numpy(np.ascontiguousarray(part)) for part in np.split(a, task.microbatches)] for a in both
    )


def train_on_rank(comm, task: Task) -> dict:
    """Run a whole task on this rank; the first rank emits each step's loss as it comes.

    returns the losses, the action times of each step, and the ledger's rows
    """
    trainer, losses, times = Trainer(comm, task), [], []
    for step in range(task.steps):
        loss, taken = trainer.step(step)
        losses.append(loss)
        times.append(taken)
        if comm.rank == 0:
            comm.emit(step=step, loss=loss)
    return {"losses": losses, "times": times, "ledger": comm.ledger.rows()}


def train_alone(comm, task: Task) -> list[float]:
    """The same task on one process, without any of the machinery: the loop that everything else must equal."""
    text, model = Text.of(task.data), GPT(task.shape, task.seed, getattr(torch, task.dtype))
    optimizer, losses = OPTIMIZERS[task.optimizer](model.parameters(), lr=task.rate), []
    for step in range(task.steps):
        losses.append(alone_gradients(model, text, task, step))
        comm.emit(step=step, loss=losses[-1])
        optimizer.step()
    return losses


def alone_gradients(model, text, task, step) -> float:
    """Forward and backward of one global batch on one process, microbatch after microbatch; returns its loss."""
    model.zero_grad()
    total = 0.0
    for tokens_BT, targets_BT in zip(*microbatches(text, task, step)):
        loss = token_loss(model(tokens_BT), targets_BT) / task.tokens
        loss.backward()
        total += loss.item()
    return total
