"""The training loop of one rank, the same for one process and for a mesh of them."""

import math

import numpy as np
import torch

from hybridlab.modes.data_parallel import due, holders
from hybridlab.modes.message_driven import MessageDriven
from hybridlab.modes.pipeline import Player
from hybridlab.modes.versions import Versions
from hybridlab.modes.work import Latest, ModelWork
from hybridlab.schedules.sums import forward_only, without_sums
from hybridlab.train import stages
from hybridlab.train.model import GPT, token_loss
from hybridlab.train.task import Task
from hybridlab.train.text import Text

OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


class Trainer:
    """One rank's part of a task: its stages, its player, its optimizer.

    holders  {weight: the ranks that hold it}
    watch    as in `Player`
    """

    def __init__(self, comm, task: Task, watch=None):
        self.comm, self.task = comm, task
        self.text = Text.of(task.data)
        model = GPT(task.shape, task.seed, getattr(torch, task.dtype))
        every = stages.stages_of(model, task.bounds)
        names = stages.names_of(model, every)
        mine = sorted({stage for (stage, _), rank in task.schedule.place.items() if rank == comm.rank})
        self.names = [name for name, _ in model.named_parameters()]
        self.holders = holders(task.schedule, names)
        comm.open(*sorted(set(self.holders.values())))
        self._give_weights({stage: every[stage] for stage in mine}, {stage: names[stage] for stage in mine})
        example = torch.zeros(task.sequences, task.shape.context, dtype=torch.long)
        rooms = stages.rooms_of(every, task.bounds, model.skips, example)
        self.work = ModelWork(self.weights, len(every) - 1, token_loss, rooms)
        self.player = player(comm, task.schedule, self.work, task.driven, watch)
        self.before_last = player(comm, without_sums(task.schedule), self.work, task.driven)
        self.evaluation = Player(comm, forward_only(task.schedule), self.work)

    def _give_weights(self, mine, named):
        """Synchronous schedules share one optimizer and one version; the others have them stage by stage."""
        make, rate = OPTIMIZERS[self.task.optimizer], self.task.rate
        self.named = named
        if self.task.flushes:
            sums = due(self.task.schedule, self.comm.rank, named)
            pairs = {stage: [(named[stage][name], self.holders[name]) for name in its] for stage, its in sums.items()}
            self.weights = Latest(mine, pairs)
            self.optimizer = make(self.parameters.values(), lr=rate)
        else:
            one = lambda weights: make(weights, lr=rate)
            self.weights = Versions(mine, one, self.task.schedule, self.comm.rank, self.task.stash)

    @property
    def parameters(self) -> dict:
        """This rank's weights under the names of the whole model; of an asynchronous schedule, the latest."""
        if self.task.flushes:
            return {name: weight for weights in self.named.values() for name, weight in weights.items()}
        return {
            name: weight
            for stage, names in self.named.items()
            for name, weight in zip(names, self.weights.latest(stage).values())
        }

    def gradients(self, step: int) -> tuple[list[float], torch.Tensor]:
        """Play one step; every parameter's gradient is then that of the global batch.

        returns the losses in nats per token, one for each update: of the global batch, or of every window that an
        asynchronous schedule has updated after; and the times of the actions of its last play
        """
        self.weights.begin()
        *first, last = np.split(np.arange(self.task.microbatches), self.task.accumulate)
        inputs, targets = microbatches(self.text, self.task, step)
        losses = []
        for player, part in [(self.before_last, part) for part in first] + [(self.player, last)]:
            self.work.load([inputs[m] for m in part], [targets[m] for m in part], self.task.tokens)
            times = player.step()
            losses += self.comm.all_reduce(self.work.losses.clone()).tolist()
        updates = np.split(np.array(losses), len(losses) // (self.task.schedule.window or len(losses)))
        return [math.fsum(update) for update in updates], times

    def evaluate(self, step: int) -> float:
        """The loss on text that is never trained on, in nats per token: forwards only."""
        inputs, targets = microbatches(self.text.unseen, self.task, step)
        each = len(self.task.schedule.replica_of)
        self.weights.begin()
        self.work.load(inputs[:each], targets[:each], each * self.task.sequences * self.task.shape.context)
        self.evaluation.step()
        return math.fsum(self.comm.all_reduce(self.work.losses.clone()).tolist())

    def gradient_norm(self) -> float:
        """The norm of the whole model's gradient: every weight once, whoever holds it.

        Each weight's sum of squares travels in a place of its own and `fsum` rounds once, so that the number does not
        depend on how the stages were cut.
        """
        squares = torch.zeros(len(self.names), dtype=torch.float64)
        for name, weight in self.parameters.items():
            if self.comm.rank == self.holders[name][0]:
                squares[self.names.index(name)] = weight.grad.double().square().sum()
        return math.sqrt(math.fsum(self.comm.all_reduce(squares).tolist()))

    def step(self, step: int) -> tuple[list[float], torch.Tensor]:
        """One step; returns the losses, each before its update, and the times of the actions."""
        losses, times = self.gradients(step)
        if self.task.flushes:
            self.update()
        return losses, times

    def update(self):
        """One optimizer step for all weights of this rank, from gradients that are clipped if the task says so."""
        if self.task.clip is not None:
            clip([weight.grad for weight in self.parameters.values()], self.gradient_norm(), self.task.clip)
        self.optimizer.step()


def player(comm, schedule, work, driven=False, watch=None):
    """Who plays a step: in the written order of the schedule, or driven by messages."""
    return MessageDriven(comm, schedule, work, watch=watch) if driven else Player(comm, schedule, work, watch)


def clip(gradients, norm: float, most: float):
    """Scale gradients, in place, so that a whole model's norm becomes `most` if it is larger."""
    if norm > most:
        for gradient in gradients:
            gradient.mul_(most / norm)


def microbatches(text: Text, task: Task, step: int) -> tuple[list, list]:
    """The global batch of one step, cut into microbatches: (inputs, targets), lists of (sequences, context) tensors."""
    sequences = task.microbatches * task.sequences
    both = text.batch(step, sequences, task.shape.context, task.seed)
    return tuple(
        [torch.from_numpy(np.ascontiguousarray(part)) for part in np.split(a, task.microbatches)] for a in both
    )


def train_on_rank(comm, task: Task, live: bool = False) -> dict:
    """Run a whole task on this rank; the first rank emits each step's loss as it comes.

    returns the losses, the action times of each step, what was done where no order was written, the ledger's rows, and
    the peak of activations
    """
    trainer = Trainer(comm, task, watching(comm) if live else None)
    home = {"losses": [], "times": [], "programs": []}
    for step in range(task.steps):
        comm.barrier()  # what is measured begins together
        losses, times = trainer.step(step)
        home["losses"] += losses
        home["times"].append(times)
        home["programs"] += [[str(action) for action in trainer.player.program]] * task.driven
        if comm.rank == 0:
            comm.emit(step=step, loss=losses[-1])
    return home | {"ledger": comm.ledger.rows(), "peak_live": trainer.work.peak_live}


def watching(comm):
    """A `watch` for a player that tells the kernel of each compute action as it ends."""
    return lambda step, index, begin, end: comm.emit(step=step, index=index, begin=begin, end=end)


def train_alone(comm, task: Task) -> list[float]:
    """The same task on one process, without any of the machinery: the loop that everything else must equal."""
    text, model = Text.of(task.data), GPT(task.shape, task.seed, getattr(torch, task.dtype))
    optimizer, losses = OPTIMIZERS[task.optimizer](model.parameters(), lr=task.rate), []
    for step in range(task.steps):
        losses.append(alone_gradients(model, text, task, step))
        comm.emit(step=step, loss=losses[-1])
        alone_update(model, optimizer, task)
    return losses


def alone_gradients(model, text, task, step) -> float:
    """Forward and backward of one global batch on one process, microbatch after microbatch; returns its loss."""
    model.zero_grad()
    losses = []
    for tokens_BT, targets_BT in zip(*microbatches(text, task, step)):
        loss = token_loss(model(tokens_BT), targets_BT) / task.tokens
        loss.backward()
        losses.append(loss.item())
    return math.fsum(losses)


def alone_norm(model) -> float:
    """The norm of the gradient, summed as `Trainer.gradient_norm` does."""
    return math.sqrt(math.fsum(float(weight.grad.double().square().sum()) for weight in model.parameters()))


def alone_update(model, optimizer, task):
    """One optimizer step on one process, clipped if the task says so."""
    if task.clip is not None:
        clip([weight.grad for weight in model.parameters()], alone_norm(model), task.clip)
    optimizer.step()
