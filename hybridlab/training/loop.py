"""The training loop of one rank, the same for one process and for a mesh of them."""

import math
import time
from collections import deque
from functools import partial

import numpy as np
import torch

from hybridlab.core.what.seams import draws_of
from hybridlab.core.where.mesh import PLAYED
from hybridlab.modes.out_of_core import KeepingWork
from hybridlab.runtime import tallies
from hybridlab.runtime.arena import Arena
from hybridlab.runtime.message_driven import MessageDriven
from hybridlab.runtime.player import Player
from hybridlab.runtime.predicted import Predicted
from hybridlab.runtime.versions import Versions
from hybridlab.runtime.work import ModelWork
from hybridlab.scheduling.lower import lower
from hybridlab.scheduling.sums import forward_only, without_sums
from hybridlab.training import stages
from hybridlab.training.first_weights import part_of
from hybridlab.training.held import memory, squares
from hybridlab.training.job import Job
from hybridlab.training.models.draws import buffers_of
from hybridlab.training.models.trees import flat, mapped
from hybridlab.training.nans import turned_nan, watched
from hybridlab.training.rates import set_rate
from hybridlab.training.resume import Saver, Saving, resumed
from hybridlab.training.same_on_all_ranks import refuse_another_mesh, refuse_other_layouts, refuse_others
from hybridlab.training.unchanged import Unchanged
from hybridlab.training.validated import Validated
from hybridlab.world.talk.nans import UNWATCHED


class Trainer:
    """One rank's part of a job: its stages, its player, its optimizer.

    layout   the layout of all parameters;  weights  those of this rank, see `modes`
    watch    as in `Player`

    raises  ValueError if the ranks belong to another mesh, or one of them has another layout or other initial weights
    """

    nans = UNWATCHED  # the watch for the first tensor with a nan, see `training.nans`

    def __init__(self, comm, job: Job, watch=None):
        refuse_another_mesh(comm.mesh, job.mesh)
        self.comm, self.job, self.layout, self.report = comm, job, job.layout, comm.for_purpose("report")
        refuse_other_layouts(self.report, self.layout)
        module = self._module()
        first = zip(("inputs", "targets"), job.batch(0))
        batch = {name: torch.cat([flat(x)[0] for x in microbatches]) for name, microbatches in first}
        refuse_others(self.report, batch, "data", "has other")
        self.trained = set(job.layout.named) - job.frozen
        self.line, self.watchers = comm.mesh.line(comm.rank), self._watchers(comm.rank)
        one_model = partial(job.keeper.one_model, job)
        self.one_model, meet = one_model(comm.rank), (comm.mesh.line, self._watchers, one_model)
        comm.open(*sorted({ranks for rank in range(comm.size) for one in meet if (ranks := one(rank))}))
        self._make_weights(module)
        rows, ends = (job.rows, job.first_row(comm.rank)), stages.ends_of(job.model, module, job.bounds)
        about = self.weights, ends, self._loss(), job.rooms(comm.rank), draws_of(module), rows, comm.device
        self.work = self.works(*about)
        exchanges = (mode.exchange(comm.for_purpose(mode.purpose), job) for mode in job.modes)
        self.work.exchanging = next(filter(None, exchanges), None)
        door = comm.for_purpose("messages")
        self.player = player(door, job.schedule, self.work, job.driven, watch, job.room)
        self.before_last = player(door, without_sums(job.schedule), self.work, job.driven, room=job.room)
        self.work.step = Validated(self) if job.norms else None
        self.evaluation = Player(door, self._evaluation(), self.work)

    def works(self, *about) -> ModelWork:
        """The work of its stages."""
        if not (room := self.job.room):
            return ModelWork(*about)
        return KeepingWork(Arena(room.capacity, self.comm.rank), *about, sizes=room.keeps)

    def _module(self):
        """This rank's parts of the model. A user's model is first made in full: its code may depend on the rank."""
        original = self.job.model.original(self.job.seed, getattr(torch, self.job.dtype))
        if not self.job.model.by_place:
            refuse_others(self.report, dict(original.named_parameters()), "model", "begins with another weight")
        return part_of(self.job, original, self.job.boxes(self.comm.rank), self.comm.device)

    def _watchers(self, rank: int) -> tuple[int, ...]:
        """The ranks whose losses are added to this one's: those of its pipeline, and those with other rows."""
        return self.comm.mesh.group(rank, (*PLAYED, *self.job.sharing_the_batch))

    def _evaluation(self):
        """A schedule of forwards only, with the actions of the modes."""
        schedule = forward_only(self.job.schedule)
        for mode in self.job.modes:
            schedule = mode.scheduled(schedule, self.job.chosen, active=2)
        return lower(schedule)

    def _make_weights(self, module):
        """Fit the module to this rank, take its stages; synchronous schedules have one optimizer and one version."""
        comm, job = self.comm, self.job
        for mode in job.modes:
            mode.fit(module, comm.for_purpose(mode.purpose), job)
        every = stages.stages_of(job.model, module, job.bounds, job.between)  # after the fit, which may replace layers
        named = stages.names_of(module, every)
        for mode in job.modes:
            every = [mode.around(stage, comm.for_purpose(mode.purpose), job) for stage in every]
        seat, mine = self.line.index(comm.rank), job.stages_on(comm.rank)
        held, self.named = {stage: every[stage] for stage in mine}, {stage: named[stage] for stage in mine}
        self.tallying, self.unchanged = self._tallying(module), Unchanged(module)
        self.buffers = {name: buffer for name, buffer in buffers_of(module).items() if not buffer.is_meta}
        door = comm.for_purpose(job.keeper.purpose)
        if not job.flushes:
            more = job.schedule, seat, getattr(torch, job["sum_dtype"]), job.stash
            made = Predicted if job.predict_weights else Versions
            self.weights = made(door, self.layout, held, self.named, job.optimizer_of, *more)
            return
        program = job.schedule.program[seat]
        self.weights = job.keeper.kept(job, door, held, self.named, program)
        self.optimizer = job.optimizer_of(self.weights.shares, comm)

    def _tallying(self, module):
        """{name of a weight: layer} of the layers of this rank's stages that have tallies."""
        mine = {name for names in self.named.values() for name in names}
        return {name: layer for name, layer in tallies.tallying(module).items() if name in mine}

    def _loss(self):
        """The model's loss, with the changes of the modes."""
        loss = self.job.model.loss
        for mode in self.job.modes:
            loss = mode.loss(self.comm.for_purpose(mode.purpose), self.job, loss)
        return loss

    @property
    def parameters(self) -> dict:
        """The tensors that this rank's optimizer updates, by name: (latest) weights, or shards of them."""
        if self.job.flushes:
            return self.weights.shares
        return {
            name: weight
            for stage, names in self.named.items()
            for name, weight in zip(names, self.weights.latest(stage).values())
        }

    @property
    def alone(self) -> list[torch.Tensor]:
        """The weights of this rank between steps that are in no module: versions, or weights next to shards."""
        return self.weights.alone if self.job.flushes else list(self.parameters.values())

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """This rank's optimizers: one, or one for each stage that is updated while microbatches are in flight."""
        return [self.optimizer] if self.job.flushes else [*self.weights.optimizers.values()]

    def optimized(self) -> dict:
        """{name: (the tensor that its optimizer updates, that optimizer's state)} of all parameters of this rank."""
        if self.job.flushes:
            return {name: (share, self.optimizer.state) for name, share in self.weights.shares.items()}
        return {
            name: (weight, self.weights.optimizers[stage].state)
            for stage, names in self.named.items()
            for name, weight in zip(names, self.weights.updated[stage].values())
        }

    def gradients(self, step: int) -> tuple[list[float], torch.Tensor]:
        """Run one step; then every shard's gradient is that of the global batch.

        returns the losses in nats per token, one for each update, and the times of the actions of its last run
        """
        return self._read(self._played(step))

    def _played(self, step: int) -> list[torch.Tensor]:
        """Run one step; on a GPU it is then queued. Returns the losses that this rank has computed, for each run."""
        self.weights.begin()
        set_rate(self.job, self.optimizers, step)
        self.work.draws.step = step
        inputs, targets = self._batch(step)
        losses, each = [], len(self.job.schedule.replica_of)
        with self.unchanged:
            for first in range(0, self.job.microbatches, each):
                last = first + each == self.job.microbatches
                part = slice(first, first + each)
                self.work.load(inputs[part], targets[part], self.job.tokens, first)
                self.weights.arm(last)
                (self.player if last else self.before_last).play()
                losses.append(self.work.losses)
        self.weights.finish()
        tallies.settle(self.comm.for_purpose(self.job.keeper.purpose), self.layout, self.tallying)
        return losses

    def _read(self, losses: list[torch.Tensor]) -> tuple[list[float], torch.Tensor]:
        """The losses and the times of a step: here the host waits for the device."""
        losses = self._everywhere(torch.cat(losses) / self.job.keeper.alone(self.job))
        updates = np.split(np.array(losses), len(losses) // (self.job.schedule.window or len(losses)))
        return [math.fsum(update) for update in updates], self.player.read()

    def evaluate(self, step: int) -> float:
        """The loss on validation data, per term: forwards only, without random draws or tallies."""
        self.settle()
        each = len(self.job.schedule.replica_of)
        inputs, targets = self._batch(step, unseen=True)
        self.weights.begin()
        self.work.draws.on = False
        self.work.load(inputs[:each], targets[:each], each * self.job.rows * self.job.model.terms)
        self.evaluation.play()
        self.work.draws.on = True
        return math.fsum(self._everywhere(self.work.losses))

    def _batch(self, step, unseen=False):
        here = lambda x: x.to(self.comm.device)
        both = self.job.batch_of(self.comm.rank, step, unseen)
        return [[mapped(here, one) for one in microbatches] for microbatches in both]

    def _everywhere(self, losses) -> list[float]:
        """The losses of all microbatches, gathered from the ranks of their last stages."""
        return self._numbers(self.report.all_reduce(losses.clone(), self.watchers))

    def number(self, x) -> float:
        """The value of a tensor with one element."""
        return self._numbers(x.reshape(1))[0]

    def _numbers(self, x) -> list[float]:
        """The numbers of a tensor. The rank announces its operations first, in case the device is in a deadlock."""
        self.comm.settle()
        return x.tolist()

    def gradient_norm(self) -> float:
        """The norm of the full model's gradient (with sums="local", of this copy's); every element counts once.

        Each parameter's sum of squares is sent separately and `fsum` rounds once, so that the norm does not depend on
        the cut into stages.
        """
        return math.sqrt(math.fsum(self._numbers(self.report.all_reduce(squares(self), self.one_model))))

    def settle(self):
        """Give the last optimizer step its norm, if it was taken without one; from now on, the weights are final."""
        if self.job.norms:
            self.player.settle()

    def step(self, step: int) -> tuple[list[float], torch.Tensor]:
        """Do one step, and return the losses, each before its update, and the times of the actions."""
        losses = self._played(step)
        if self.job.flushes:
            self.update()
        else:
            self._decide("{} after its last update", lambda weight: weight)
        return self._read(losses)

    def update(self):
        """One optimizer step for all weights of this rank, from gradients that are clipped if the job requires it."""
        self._decide("the gradient of {}", lambda weight: weight.grad)
        if self.job.norms:
            self.player.go_on()
        else:
            self.job.clipped([weight.grad for weight in self.parameters.values()], self.gradient_norm)
            self.optimizer.step()
            self.weights.stepped(self.work.draws.step)
            self.weights.publish()
        self._decide("{} after the update", lambda weight: weight)

    def _decide(self, words: str, look):
        """Check a tensor of each trained weight: a nan ends the training."""
        for name, weight in self.parameters.items():
            if name in self.trained:
                self.nans.decides(lambda name=name: words.format(name), look(weight))


def player(comm, schedule, work, driven=False, watch=None, room=None):
    """The object that runs a step: in the schedule's written order, or driven by messages."""
    return MessageDriven(comm, schedule, work, watch=watch) if driven else Player(comm, schedule, work, watch, room)


def train_on_rank(
    comm, job: Job, live: bool = False, saving: Saving | None = None, kept: int | None = None, shares=None
) -> dict:
    """Run a full job on this rank, from the newest checkpoint if it resumes; the first rank emits every step.

    kept    the number of latest steps whose times and operations are kept, since a training run may be long; None: all
    shares  shares(trainer) of the trained weights, to return as "shares"

    returns the losses, the action times of each step, the executed actions if there was no written order, the ledger's
    rows, the peak of activations, and the first step that was not done
    """
    trainer = Trainer(comm, job, watching(comm) if live else None)
    watched(trainer)
    saver, first = (Saver(trainer, saving), resumed(trainer, saving)) if saving else (None, 0)
    home = {"losses": [], "end": first} | {name: deque(maxlen=kept) for name in ("times", "programs", "held")}
    tokens = job.tokens * job.keeper.alone(job)
    begins = deque(maxlen=kept)  # the number of the first operation of each of these steps
    for step in range(first, job.steps):
        comm.barrier()  # all ranks start to measure together
        begin = time.perf_counter()
        begins.append(comm.ledger.forgotten + len(comm.ledger))
        if len(begins) == kept:
            comm.ledger.forget(begins[0])
        trainer.nans.begin()
        losses, times = trainer.step(step)
        if turned_nan(trainer, step, losses, saver):
            break
        home["losses"] += losses
        home["times"].append(times)
        home["held"].extend([trainer.work.arena.told()] if job.room else [])
        home["programs"].extend([[str(action) for action in trainer.player.program]] * job.driven)
        home["end"] = step + 1
        if comm.rank == 0:
            comm.emit(step=step, loss=losses[-1], tokens_per_second=tokens / (time.perf_counter() - begin))
        if saver and saver.after(step + 1):
            break
    trainer.settle()
    if saver:
        saver.finish()
    home |= {name: list(home[name]) for name in ("times", "programs", "held")}
    more = {"peak_live": trainer.work.peak_live, "memory": memory(trainer), "seen": trainer.player.clock.sees}
    more |= {"peak_held": trainer.work.arena.peak} if job.room else {}
    return home | {"ledger": comm.ledger.rows(), "shares": shares(trainer) if shares else {}} | more


def watching(comm):
    """A `watch` for a player that reports each compute action to the kernel as it ends."""
    return lambda step, index, begin, end: comm.emit(step=step, index=index, begin=begin, end=end)
