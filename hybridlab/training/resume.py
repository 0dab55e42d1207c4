"""What a checkpoint keeps of a trainer, and how a run goes on from it.

Kept are a rank's shares, the optimizer's state of them, and the number of the next step. The data of a step and what it
draws at random follow from the seed and that number (`Job.batch`, `Draws`), so no other state is needed.
"""

import hashlib
import json
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hybridlab.core.where.layout import Layout, Param
from hybridlab.training import placing
from hybridlab.training.checkpoints import checkpoint, index
from hybridlab.training.models.model import buffers_of
from hybridlab.training.models.trees import flat

PURPOSE = "checkpoint"
STOP = "stop"  # a file of this name in the folder asks the run to end after the step under way


@dataclass(frozen=True)
class Saving:
    """Where checkpoints go, after how many steps each is made (0: at the end only), and whether to go on from there.

    raises  ValueError when it is to go on from a folder that is not there; in an empty one it begins
    """

    folder: Path
    every: int = 0
    resume: bool = False

    def __post_init__(self):
        if self.resume and not self.folder.is_dir():
            raise ValueError(f"there is no folder {self.folder} to go on from: mend its name, or begin without resume")

    def noted(self, name: str):
        """What the newest checkpoint notes under a name, if it is to go on from one; else None."""
        newest = checkpoint.newest(self.folder) if self.resume else None
        return newest and index.read(newest)["notes"].get(name)


@contextmanager
def stopping_gently(saving: Saving | None):
    """While it lasts, the first Ctrl-C, or a batch system's SIGTERM, asks the ranks to save and stop; the second stops
    at once, as without it."""
    if saving is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    stop = saving.folder / STOP
    saving.folder.mkdir(parents=True, exist_ok=True)
    stop.unlink(missing_ok=True)

    def ask(number, frame):
        stop.touch()
        signal.signal(number, before[number])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.unlink(missing_ok=True)


def _stored(trainer) -> Layout:
    """The layout of a checkpoint: beside the parameters what layers keep, such as averages, whole on every holder."""
    job, kept = trainer.job, []
    homes = placing.homes_of_buffers(job)
    for name, buffer in buffers_of(job.whole).items():
        at = {"pp": placing.seats_of(job, homes[name])}
        kept.append(Param(name, tuple(buffer.shape), at=at, pack=len(job.records) + len(kept)))
    return replace(trainer.layout, params=(*trainer.layout.params, *kept))


def resumed(trainer, saving: Saving) -> int:
    """Bring a trainer to where the newest checkpoint stands, if it is to; returns the first step to be done.

    raises  ValueError in one sentence when the checkpoint is of another model, seed, optimizer, dtype, batch or other
            data, or damaged
    """
    newest = checkpoint.newest(saving.folder) if saving.resume else None
    if newest is None:
        return 0
    pieces, notes = checkpoint.load(trainer.comm.for_purpose(PURPOSE), newest, _stored(trainer))
    for name, mine in _notes(trainer.job, notes["step"]).items():
        if notes.get(name) != mine:
            raise ValueError(f"{newest} was made with {name}={notes.get(name)}, this run has {mine}: make them equal")
    _restore(trainer, pieces)
    return notes["step"]


def saved(trainer, saving: Saving, step: int) -> bool:
    """Save a checkpoint before this step if it is time; returns whether the run has been asked to stop."""
    door = trainer.comm.for_purpose(PURPOSE)
    asked = torch.tensor([float((saving.folder / STOP).exists())], device=door.device)
    stop = bool(door.broadcast(asked).item())
    end = step == trainer.job.steps
    if stop or end or (saving.every and step % saving.every == 0):
        checkpoint.save(door, saving.folder, _stored(trainer), pieces(trainer), _notes(trainer.job, step))
    return stop


def pieces(trainer) -> checkpoint.Pieces:
    """This rank's share of every parameter and what the optimizer knows of it, flat; and what its layers keep."""
    kept = {name: {"value": buffer.flatten()} for name, buffer in trainer.buffers.items()}
    return kept | {
        name: {"value": share.detach().flatten()}
        | {kind: x.flatten() if x.dim() else x for kind, x in _state(trainer, share).items() if torch.is_tensor(x)}
        for name, share in trainer.parameters.items()
    }


def _state(trainer, share) -> dict:
    return trainer.optimizer.state.get(share, {})


@torch.no_grad()
def _restore(trainer, found: checkpoint.Pieces):
    for name, share in trainer.parameters.items():
        kinds = {kind: x.to(share.device).view_as(share) if x.dim() else x for kind, x in found[name].items()}
        share.copy_(kinds.pop("value"))
        if kinds:
            trainer.optimizer.state[share] = kinds
    for name, buffer in trainer.buffers.items():
        buffer.copy_(found[name]["value"].view_as(buffer))
    trainer.weights.publish()


def _notes(job, step: int) -> dict:
    """What has to be the same in the run that goes on; as a file gives it back."""
    notes = {"step": step, "seed": job.seed, "optimizer": job.optimizer, "dtype": job.dtype}
    notes |= {"batch": job.microbatches * job.rows} | job.model.notes(job.whole)
    return json.loads(json.dumps(notes | {"data": job.once(_data_in_short)}))


def _data_in_short(job) -> str:
    """A digest of the first batch: with another text, other rows, or drawn otherwise, it is another one."""
    digest = hashlib.sha256()
    for x in (x for microbatches in job.batch(0) for one in microbatches for x in flat(one)):
        digest.update(x.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
