"""The training loop of one rank, the same for one process and for a mesh of them."""

import math
import time

import numpy as np
import torch

from hybridlab.modes import tensor_parallel
from hybridlab.modes.data_parallel import Policy, Replicated
from hybridlab.modes.message_driven import MessageDriven
from hybridlab.modes.pipeline import Player
from hybridlab.modes.versions import Versions
from hybridlab.modes.work import ModelWork
from hybridlab.modes.zero import Sharded
from hybridlab.schedules.lower import lower
from hybridlab.schedules.sharded import sharded
from hybridlab.schedules.sums import forward_only, without_sums
from hybridlab.train import stages
from hybridlab.train.model import GPT, token_loss
from hybridlab.train.resume import Saving, resumed, saved
from hybridlab.train.task import OPTIMIZERS, Task
from hybridlab.train.text import Text


class Trainer:
    """One rank's part of a task: its stages, its player, its optimizer.

    layout   what lives where;  weights  those of this rank, see `modes`
    watch    as in `Player`

    raises  ValueError when another rank has made another layout
    """

    def __init__(self, comm, task: Task, watch=None):
        self.comm, self.task, self.layout = comm, task, task.layout
        refuse_other_layouts(comm, self.layout)
        self.text = Text.of(task.data)
        self.line = comm.mesh.line(comm.rank)
        comm.open(*sorted({comm.mesh.line(rank) for rank in range(comm.size)}))
        model = GPT(task.shape, task.seed, getattr(torch, task.dtype)).to(comm.device)
        self._make_weights(model)
        self.work = ModelWork(self.weights, len(task.bounds) - 1, self._loss(), self.rooms, model.draws)
        self.player = player(comm, task.schedule, self.work, task.driven, watch)
        self.before_last = player(comm, without_sums(task.schedule), self.work, task.driven)
        evaluation = forward_only(task.schedule)
        self.evaluation = Player(comm, lower(sharded(evaluation)) if task.zero == 3 else evaluation, self.work)

    def _make_weights(self, model):
        """Cut the model to this rank's stages and boxes; synchronous schedules share one optimizer and one version."""
        comm, task = self.comm, self.task
        every = stages.stages_of(model, task.bounds)
        named = stages.names_of(model, every)
        self.rooms = stages.rooms_of(model, task.bounds, task.sequences)
        if self.comm.mesh["tp"] > 1:
            tensor_parallel.split(model, comm, self.layout, task.sequence)
            if task.sequence or task.scatter:
                self.rooms = tensor_parallel.narrowed_rooms(self.rooms, comm)
            if task.scatter and not task.sequence:
                every = [tensor_parallel.narrowed(stage, comm, task.shape) for stage in every]
        seat = self.line.index(comm.rank)
        mine = sorted({stage for (stage, _), rank in task.schedule.place.items() if rank == seat})
        held, self.named = {stage: every[stage] for stage in mine}, {stage: named[stage] for stage in mine}
        if not task.flushes:
            one = lambda weights: OPTIMIZERS[task.optimizer](weights, lr=task.rate)
            self.weights = Versions(held, one, task.schedule, seat, task.stash)
            return
        kind = Sharded if task.owners > 1 else Replicated
        other = lambda dtype: None if dtype == task.dtype else getattr(torch, dtype)
        place = torch.device("cpu") if task.offload else None
        policy = Policy(other(task.sum_dtype), other(task.master_dtype), place)
        program, early = task.schedule.program[seat], task.sums != "after"
        self.weights = kind(comm, self.layout, held, self.named, program, early, policy)
        self.optimizer = task.optimizer_of(self.weights.shares)

    def _loss(self):
        return tensor_parallel.token_loss(self.comm, self.task.shape) if self.comm.mesh["tp"] > 1 else token_loss

    @property
    def parameters(self) -> dict:
        """What this rank's optimizer updates, by name: weights, or shares of them; the latest of several versions."""
        if self.task.flushes:
            return self.weights.shares
        return {
            name: weight
            for stage, names in self.named.items()
            for name, weight in zip(names, self.weights.latest(stage).values())
        }

    def gradients(self, step: int) -> tuple[list[float], torch.Tensor]:
        """Play one step; every share's gradient is then that of the global batch.

        returns the losses in nats per token, one for each update: of the global batch, or of every window that an
        asynchronous schedule has updated after; and the times of the actions of its last play
        """
        self.weights.begin()
        self.work.draws.step = step
        inputs, targets = self._batch(self.text, step)
        losses, each = [], len(self.task.schedule.replica_of)
        for first in range(0, self.task.microbatches, each):
            last = first + each == self.task.microbatches
            part = slice(first, first + each)
            self.work.load(inputs[part], targets[part], self.task.tokens, first)
            self.weights.arm(last)
            times = (self.player if last else self.before_last).step()
            losses += self._everywhere(self.work.losses)
        self.weights.finish()
        updates = np.split(np.array(losses), len(losses) // (self.task.schedule.window or len(losses)))
        return [math.fsum(update) for update in updates], times

    def evaluate(self, step: int) -> float:
        """The loss on text that is never trained on, in nats per token: forwards only, and nothing is dropped."""
        each = len(self.task.schedule.replica_of)
        inputs, targets = self._batch(self.text.unseen, step)
        self.weights.begin()
        self.work.draws.on = False
        self.work.load(inputs[:each], targets[:each], each * self.task.sequences * self.task.shape.context)
        self.evaluation.step()
        self.work.draws.on = True
        return math.fsum(self._everywhere(self.work.losses))

    def _batch(self, text, step):
        both = self.task.batch(text, step)
        return [[part.to(self.comm.device) for part in parts] for parts in both]

    def _everywhere(self, losses) -> list[float]:
        """The losses of all microbatches, wherever their last stage is."""
        return self.comm.all_reduce(losses.clone(), self.line).tolist()

    def gradient_norm(self) -> float:
        """The norm of the whole model's gradient: every element once, whoever holds it.

        Each parameter's sum of squares travels in a place of its own and `fsum` rounds once, so that the number does
        not depend on how the stages were cut.
        """
        squares = torch.zeros(len(self.layout.params), dtype=torch.float64)
        for i, name in enumerate(self.layout.named):
            if self.layout.counts(name, self.comm.rank):
                squares[i] = self.parameters[name].grad.double().square().sum()
        return math.sqrt(math.fsum(self.comm.all_reduce(squares).tolist()))

    def step(self, step: int) -> tuple[list[float], torch.Tensor]:
        """One step; returns the losses, each before its update, and the times of the actions."""
        losses, times = self.gradients(step)
        if self.task.flushes:
            self.update()
        return losses, times

    def update(self):
        """One optimizer step for all weights of this rank, from gradients that are clipped if the task says so."""
        self.task.clipped([weight.grad for weight in self.parameters.values()], self.gradient_norm)
        self.optimizer.step()
        self.weights.publish()


def memory(trainer: Trainer) -> dict[str, int]:
    """Bytes that a rank keeps between two steps: of weights, of gradients, and of what else its optimizer holds; with
    offload, what the optimizer holds is on the host.

    Every piece of memory is counted once, however many tensors look at it; Adam's step counts, single numbers, are not.
    """
    weights = trainer.weights  # of which only shares are left at rest with ZeRO's stage 3
    values, gradients = [*weights.weights.values()], [w.grad for w in weights.weights.values()]
    gradients += [share.grad for share in weights.shares.values()]
    state = [x for one in trainer.optimizer.state.values() for x in one.values() if torch.is_tensor(x) and x.dim()]
    counted, seen = {}, set()
    shares = list(weights.shares.values())
    values, state = (values + shares, state) if trainer.task.zero == 3 else (values, state + shares)
    for what, tensors in (("value", values), ("optimizer", state), ("gradient", gradients)):
        own = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors if x is not None}
        counted[what] = sum(size for place, size in own.items() if place not in seen)
        seen |= own.keys()
    return counted | ({"host": counted.pop("optimizer")} if trainer.task.offload else {})


def refuse_other_layouts(comm, layout):
    """Compare fingerprints before the first step: ranks with different layouts would add what does not belong together.

    raises  ValueError naming a rank whose layout is not this one's
    """
    mine = torch.frombuffer(bytearray(layout.fingerprint.encode()), dtype=torch.uint8)
    for rank, other in enumerate(comm.all_gather(mine[None])):
        if not torch.equal(other, mine):
            raise ValueError(f"rank {rank} has another layout than rank {comm.rank}: give all ranks the same task")


def player(comm, schedule, work, driven=False, watch=None):
    """Who plays a step: in the written order of the schedule, or driven by messages."""
    return MessageDriven(comm, schedule, work, watch=watch) if driven else Player(comm, schedule, work, watch)


def train_on_rank(comm, task: Task, live: bool = False, saving: Saving | None = None) -> dict:
    """Run a whole task on this rank, from the newest checkpoint if it is to resume; the first rank emits every step.

    returns the losses, the action times of each step, what was done where no order was written, the ledger's rows, the
    peak of activations, and the first step that was not done
    """
    trainer = Trainer(comm, task, watching(comm) if live else None)
    first = resumed(trainer, saving) if saving else 0
    home = {"losses": [], "times": [], "programs": [], "end": first}
    for step in range(first, task.steps):
        comm.barrier()  # what is measured begins together
        begin = time.perf_counter()
        losses, times = trainer.step(step)
        home["losses"] += losses
        home["times"].append(times)
        home["programs"] += [[str(action) for action in trainer.player.program]] * task.driven
        home["end"] = step + 1
        if comm.rank == 0:
            comm.emit(step=step, loss=losses[-1], tokens_per_second=task.tokens / (time.perf_counter() - begin))
        if saving and saved(trainer, saving, step + 1):
            break
    kept = memory(trainer) if task.flushes else {}
    return home | {"ledger": comm.ledger.rows(), "peak_live": trainer.work.peak_live, "memory": kept}


def watching(comm):
    """A `watch` for a player that tells the kernel of each compute action as it ends."""
    return lambda step, index, begin, end: comm.emit(step=step, index=index, begin=begin, end=end)
