"""The optimizer step of a rank whose schedule has the norm: it may come before the norm is known, and be undone.

    NORM    add this rank's squares to those of the ranks before
    OPT     if the norm is known: clip and step. If not: step at once, unless the squares so far already require
            clipping
    VALID   learn the norm. If it requires clipping: undo the step, clip, step again

The squares of some ranks are at most those of all. So a rank that did not step at once always has to clip, and a
rank that did step may have to undo it. Undoing is exact: until it learns the norm, the rank keeps its
gradients, and copies of its weights and of the optimizer's state.

Source: the zero-bubble repository, `megatron/core/optimizer/optimizer.py`; it keeps the gradients too. Relatives:
`scheduling.norms`, the order; `runtime.norms`, the messages; `Trainer.gradient_norm`, the same norm by an all-reduce.
"""

import math

import torch

from hybridlab.scheduling.norms import repeated
from hybridlab.training.held import squares


def refuse_other_norms(job, validated: str | None):
    """Raise ValueError if a job cannot have the norm in its schedule, or has no use for it.

    validated  as given, see `training.asked`
    """
    if not job.norms:
        if validated:
            raise ValueError(
                f"validated={validated!r} has no effect on {job.schedule.name}, which already has its messages: give "
                "it without messages"
            )
        if any(action.kind == "OPT" for program in job.schedule.program for action in program) and job.flushes:
            raise ValueError(f"{job.schedule.name} has optimizer steps, but no norm: give it without optimizer steps")
        return
    if job.clip is None:
        raise ValueError(f"{job.schedule.name} sums a norm, but nothing is clipped: give clip, or leave out validated")
    if job.schedule.window:
        raise ValueError(f"{job.schedule.name} has several steps: give one step, made by hl.orders.with_norm")
    never = {"driven": job.driven, "offload": job["offload"], "device_memory": job["device_memory"] is not None}
    never["sums='local'"] = job["sums"] == "local"
    undone = {
        "zero": job["zero"] > 0,
        "slices": job.schedule.slices > 1,
        "activations that move": job.schedule.moves,
        "optimizer='muon' inside stages": job.optimizer == "muon" and bool(job.mesh.inside),
    }
    late = any(repeated(job.schedule).program)
    for name, asked in (never | (undone if late else {})).items():
        if asked:
            instead = ", or give validated='before'" * (name in undone)
            what = f"validated={validated!r}" if validated else f"the norm of {job.schedule.name}"
            raise ValueError(f"{what} cannot be combined with {name}: leave one of them out{instead}")


class Validated:
    """A rank's optimizer step, with a norm that is passed from rank to rank.

    unsettled  whether the norm of the latest step is still unknown
    summed     squares of the gradients of this rank and of the ranks before
    repeated   the number of steps whose first forwards were repeated
    """

    def __init__(self, trainer):
        self.trainer, self.job, self.weights = trainer, trainer.job, trainer.weights
        self.optimizer, self.shares = trainer.optimizer, trainer.weights.shares
        mesh, comm = trainer.comm.mesh, trainer.report
        beside = [axis for axis in mesh.axes if axis != "pp"]
        self.beside = mesh.group(comm.rank, beside)
        comm.open(*sorted({mesh.group(rank, beside) for rank in range(mesh.size)}))
        self.last_stage = max(trainer.weights.stages, default=None)  # a lost rank has no stage, and no action
        trainer.player.pause("NORM")  # `Trainer.update` continues
        self.unsettled, self.norm, self.kept, self.repeated = False, None, None, 0

    def squares(self, before: torch.Tensor | None) -> torch.Tensor:
        """The squares of this rank's gradients, added to those of the ranks before. Ranks that share this stage add
        theirs up first, so every element counts once."""
        here = squares(self.trainer).sum()
        if len(self.beside) > 1:
            here = self.trainer.report.all_reduce(here, self.beside)
        self.summed = here if before is None else here + before
        self.unsettled, self.norm, self.kept = True, None, None
        return self.summed

    def update(self, stage: int, version: int):
        """Take this rank's optimizer step, when the last of its stages is updated."""
        if stage != self.last_stage:
            return
        if not self.unsettled:
            self._step(self.norm)
            return
        self.kept = _Kept(self.optimizer, self.shares)
        if not self._clips(self.summed):
            self._step(None)

    def settled(self, total: torch.Tensor) -> bool:
        """Receive the squares of all gradients. Returns whether a step, taken or pending, had to be replaced."""
        self.unsettled, self.norm = False, math.sqrt(self.trainer.number(total))
        again = self.kept is not None and self._clips(total)
        if again:
            self.kept.restore()
            self._step(self.norm)
            self.kept.leave()
        self.kept = None
        return again

    @property
    def besides(self) -> list[torch.Tensor]:
        """The tensors that are kept until the norm is known: copies of weights and of the optimizer state."""
        return self.kept.copies if self.kept else []

    def drop(self):
        """Forget the forwards of a step that begins again: nothing remains of them but the count."""
        self.repeated += 1
        for layer in self.trainer.tallying.values():
            layer.tally.zero_()

    def _clips(self, squares) -> bool:
        return self.job.clipping(math.sqrt(self.trainer.number(squares))) < 1

    def _step(self, norm: float | None):
        """Clip by a norm that is known, step, and give the stages their weights."""
        if norm is not None:
            self.job.clipped([share.grad for share in self.shares.values()], lambda: norm)
        self.optimizer.step()
        self.weights.publish()


class _Kept:
    """The tensors that an optimizer step changes, and its inputs: weights, state, gradients, learning rates."""

    def __init__(self, optimizer, shares: dict):
        self.optimizer, self.shares = optimizer, shares.values()
        self.values = [share.detach().clone() for share in self.shares]
        self.gradients = [share.grad for share in self.shares]
        self.states = {share: _copied(state) for share, state in optimizer.state.items()}
        self.rates = self._rates()

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    @property
    def copies(self) -> list[torch.Tensor]:
        """The copied tensors."""
        return self.values + [x for state in self.states.values() for x in state.values() if torch.is_tensor(x)]

    @torch.no_grad()
    def restore(self):
        """Restore everything, for another step with these gradients."""
        self.later = self._rates()
        for share, value, gradient in zip(self.shares, self.values, self.gradients):
            share.copy_(value)
            share.grad = gradient
        self.optimizer.state.clear()
        self.optimizer.state.update(self.states)
        self._set(self.rates)

    def leave(self):
        """Continue with the next step: its gradients are empty, and its learning rate is set."""
        for share in self.shares:
            share.grad = None
        self._set(self.later)

    def _set(self, rates):
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate


def _copied(state: dict) -> dict:
    return {name: x.clone() if torch.is_tensor(x) else x for name, x in state.items()}
