"""The state of a trainer in a checkpoint, and resuming a run from it.

A checkpoint contains a rank's shards, the optimizer's state for them, and the number of the next step. The data of a
step and its random draws follow from the seed and that number (`Job.batch`, `Draws`), so no other state is needed.

If copies train alone, it contains every copy's state and that of the outer step. Its weights are those of the first
copy.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hybridlab.core.files import is_folder
from hybridlab.core.where.layout import Layout, Param
from hybridlab.modes.data_parallel import LOCAL
from hybridlab.modes.full_matrices import blocks_of
from hybridlab.training import placing
from hybridlab.training.checkpoints import checkpoint, index
from hybridlab.training.checkpoints import folder as runs
from hybridlab.training.checkpoints.stored import of_copy
from hybridlab.training.models.draws import buffers_of
from hybridlab.training.models.trees import flat
from hybridlab.training.models.vocabulary_pieces import pieces_in
from hybridlab.training.stopping import STOP

PURPOSE, LOCAL_STEPS = "checkpoint", "local steps"
COUNT = "step"  # the only number in the state of an optimizer; even a weight without dims has pieces of all others
TAKEN = ("warmup", "decay", "clip", "stash", "predict_weights")  # these may differ in the resumed run, which reports it


@dataclass(frozen=True)
class Saving:
    """The folder of checkpoints, the number of steps between them (0: only at the end), and whether to resume.

    async_save  whether training continues while files are written

    raises  ValueError if it should resume from a missing folder; in an empty one it starts from the beginning
    """

    folder: Path
    every: int = 0
    resume: bool = False
    async_save: bool = False

    def __post_init__(self):
        if self.every < 0:
            raise ValueError(
                f"every={self.every} is not a number of steps: give 1 or more, or 0 to save at the end only"
            )
        if self.resume and not is_folder(self.folder):
            raise ValueError(
                f"there is no folder {self.folder} to resume from: correct its name, or start without resume"
            )
        self.refuse_earlier()

    def refuse_earlier(self):
        """Raise ValueError if a run that does not resume finds a checkpoint."""
        if not self.resume and (there := runs.newest(self.folder)):
            raise ValueError(f"{there} already exists: continue from it with resume, or save into another folder")

    @property
    def newest(self) -> Path | None:
        """The checkpoint to resume from, if there is one."""
        return runs.newest(self.folder) if self.resume else None

    def noted(self, name: str):
        """The note with this name in the newest checkpoint, if the run should resume from it; else None."""
        return self.newest and checkpoint.record_of(self.newest)["notes"].get(name)

    def refuse(self, job):
        """Raise an error unless a job can resume from here.

        raises  ValueError if the checkpoint has another model, seed, optimizer, dtype, batch or other
                data, and for a complex buffer
        """
        for name, buffer in buffers_of(job.whole).items():
            if buffer.is_complex():
                raise ValueError(
                    f"{name} is complex, and a checkpoint holds real numbers: register it with persistent=False, so "
                    "that the model makes it again, or keep torch.view_as_real of it"
                )
        if newest := self.newest:
            record = checkpoint.record_of(newest)
            layout = stored_layout(job)
            _refuse_other_copies(newest, record["notes"].get(LOCAL_STEPS, {}), _local_steps(job))
            refuse_other_pieces(_saved(newest), pieces_in(record["shapes"]), pieces_in(layout.named))
            index.refuse_another_model(newest, record, layout)
            refuse_other_notes(_saved(newest), record["notes"], job)

    def told(self, job) -> str:
        """A sentence that names the checkpoint from which a job resumes, and the changes since then; "" if it does not
        resume."""
        if not self.resume:
            return ""
        if not (newest := self.newest):
            return f"there is no checkpoint in {self.folder} yet: the run begins with step 0"
        notes, now = checkpoint.record_of(newest)["notes"], _taken(job)
        if notes["step"] >= job.steps:
            return f"{newest} has {notes['step']} steps, and {job.steps} are asked for: nothing is left to do"
        differ = [name for name in now if notes.get(name, now[name]) != now[name]]
        changed = [f"{name} is now {now[name]}, was {notes[name]}" for name in differ]
        return "; ".join([f"continues from {newest}", *changed])


def stored_layout(job) -> Layout:
    """The layout of a checkpoint: parameters, and buffers such as averages, which every rank with their layer has in
    full.
    """
    kept, homes = [], placing.homes_of_buffers(job)
    for name, buffer in buffers_of(job.whole).items():
        at = {"pp": placing.seats_of(job, homes[name])}
        kept.append(Param(name, tuple(buffer.shape), at=at, pack=len(job.records) + len(kept)))
    params = (*job.layout.params, *kept)
    if (copies := job.keeper.alone(job)) > 1:
        params = tuple(_of_copy(copy, param, len(params)) for copy in range(copies) for param in params)
    return replace(job.layout, params=params)


def _of_copy(copy: int, param: Param, packs: int) -> Param:
    """The record of a parameter, or of a buffer, of a copy that trains alone; each copy has `packs` packs."""
    at = param.at | {"dp": (copy,)}
    return replace(param, name=of_copy(copy, param.name), at=at, pack=param.pack + copy * packs)


def resumed(trainer, saving: Saving) -> int:
    """Load the newest checkpoint into a trainer, if it should resume, and return the first step to run.

    raises  as `Saving.refuse`, and if the checkpoint is damaged
    """
    newest = saving.newest
    if newest is None:
        return 0
    pieces, notes = checkpoint.load(trainer.comm.for_purpose(PURPOSE), newest, stored_layout(trainer.job))
    refuse_other_notes(_saved(newest), notes, trainer.job)
    restore(trainer, pieces)
    if trainer.job.flushes:
        trainer.weights.publish()
    return notes["step"]


def refuse_other_notes(had: str, notes: dict, job):
    """Raise ValueError if this job cannot continue the run that these notes describe.

    had  the words before a note in the error message: "step-000003 was saved with"
    """
    for name, mine in same(job).items():
        theirs = notes.get(name, mine)  # an older version recorded less
        if theirs != mine and isinstance(theirs, dict) and isinstance(mine, dict):
            differ = [one for one in mine if theirs.get(one) != mine[one]]
            theirs, mine = ({one: each.get(one) for one in differ} for each in (theirs, mine))
        if theirs != mine:
            theirs, mine = (_in_words(name, each) for each in (theirs, mine))
            raise ValueError(f"{had} {theirs}, but this run has {mine}: make them equal")


def refuse_other_pieces(had: str, there: int, here: int):
    """Raise ValueError if the head of a stored model is in another number of pieces; `had` as above."""
    if there != here:
        how = f"pp={there} and schedule=vocabulary_1f1b" if there else "a schedule other than vocabulary_1f1b"
        raise ValueError(f"{had} a head of {there or 1} piece(s), but this run has {here or 1}: use {how}")


def _saved(newest: Path) -> str:
    return f"{newest} was saved with"


def _refuse_other_copies(newest: Path, there: dict, here: dict):
    """Raise ValueError if copies trained alone with other settings."""
    if there != here:
        differ = [name for name in there | here if there.get(name) != here.get(name)]
        there, here = (_in_words("", {name: one[name] for name in differ if name in one}) for one in (there, here))
        raise ValueError(
            f"{newest} was saved with {there or 'sums of gradients'}, but this run has {here or 'sums of gradients'}: "
            "make them equal"
        )


def _in_words(name: str, value) -> str:
    """The recorded value of a checkpoint, in words; for a table, such as a shape, only the differing part."""
    return ", ".join(f"{one}={it}" for one, it in value.items()) if isinstance(value, dict) else f"{name}={value}"


class Saver:
    """Saves a trainer's checkpoints when they are due; all ranks call it together.

    under_way  the checkpoint whose files are being written

    raises  ValueError if ranks see different folders
    """

    def __init__(self, trainer, saving: Saving):
        self.trainer, self.saving, self.under_way = trainer, saving, None
        self.door, self.layout = trainer.comm.for_purpose(PURPOSE), stored_layout(trainer.job)
        checkpoint.refuse_unshared(self.door, saving.folder)

    def after(self, step: int) -> bool:
        """Save a checkpoint before this step if one is due, and return whether the run has been asked to stop."""
        stop, job, every = self._agreed(), self.trainer.job, self.saving.every
        if stop or step == job.steps or (every and step % every == 0):
            self.finish()
            about = self.saving.folder, self.layout, pieces(self.trainer), _notes(job, step)
            self.under_way = checkpoint.Writing(self.door, *about, aside=self.saving.async_save)
        if self.under_way and self._written():
            self.finish()
        return stop

    def finish(self):
        """Complete the checkpoint that is being written, if there is one."""
        if self.under_way:
            self.under_way.finish()
            self.under_way = None

    def _agreed(self) -> bool:
        """Whether the first rank has seen the request to stop."""
        asked = torch.tensor([float((self.saving.folder / STOP).exists())], device=self.door.device)
        return bool(self.door.broadcast(asked).item())

    def _written(self) -> bool:
        """Whether all ranks have written their files."""
        written = torch.tensor([float(self.under_way.written)], device=self.door.device)
        return bool(self.door.all_reduce(written, op="min").item())


def pieces(trainer) -> checkpoint.Pieces:
    """For every parameter, this rank's flat shard and the optimizer's state of this shard; also its layers' buffers.

    All ranks call it together: a step that still waits for the norm of its gradients ends first.
    """
    trainer.settle()
    shares, copy = trainer.parameters, _copy(trainer)
    kept = {of_copy(copy, name): {"value": buffer.flatten()} for name, buffer in trainer.buffers.items()}
    for name, (updated, states) in trainer.optimized().items():
        state = {kind: x for kind, x in states.get(updated, {}).items() if torch.is_tensor(x)}
        state |= trainer.weights.states(name) if trainer.job.flushes else {}
        its = kept[of_copy(copy, name)] = {"value": shares[name].detach().flatten()}
        its |= {kind: x if kind == COUNT else x.flatten() for kind, x in state.items()}
    return kept


@torch.no_grad()
def restore(trainer, found: checkpoint.Pieces):
    """Give a trainer these pieces, in the form of `pieces`; the weights that it computes with are published later."""
    shares, copy = trainer.parameters, _copy(trainer)
    for name, (updated, states) in trainer.optimized().items():
        share, its = shares[name], found[of_copy(copy, name)]
        kinds = {kind: x.to(share.device).view_as(share) if x.dim() else x for kind, x in its.items()}
        share.copy_(kinds.pop("value"))
        if trainer.job.flushes:
            trainer.weights.restore(name, kinds)
        if kinds:
            states[updated] = kinds
    for name, buffer in trainer.buffers.items():
        buffer.copy_(found[of_copy(copy, name)]["value"].view_as(buffer))


def _copy(trainer) -> int:
    """The index of a rank's copy, if copies train alone; else 0."""
    return trainer.comm.mesh.place(trainer.comm.rank, "dp") if trainer.job.keeper.alone(trainer.job) > 1 else 0


def _notes(job, step: int) -> dict:
    """The notes of a checkpoint about its run that may change, and those that must not."""
    local = _local_steps(job)
    return {"step": step} | _taken(job) | same(job) | ({LOCAL_STEPS: local} if local else {})


def _local_steps(job) -> dict:
    """The number of copies that train alone, and how they exchange their updates; {} if they do not train alone."""
    if job["sums"] != LOCAL:
        return {}
    return {"sums": LOCAL, "dp": job.mesh["dp"]} | {name: job[name] for name in job.keeper.options}


def _taken(job) -> dict:
    """The values that may change in the resumed run."""
    taken = {name: getattr(job, name) for name in TAKEN} | {"schedule": job.schedule.name, "betas": list(job.betas)}
    taken["rate"] = "a function of the step" if callable(job.rate) else job.rate
    return taken | {"anneal": job.anneal if job.anneal == "constant" else f"{job.anneal} over {job.steps} steps"}


def same(job) -> dict:
    """The values that must be equal in a resumed run, in the form in which they come back from a file."""
    notes = {"seed": job.seed, "optimizer": _optimizer(job), "dtype": job.dtype, "master_dtype": job["master_dtype"]}
    notes |= {"batch": job.microbatches * job.rows} | job.model.notes(job.whole)
    return json.loads(json.dumps(notes | {"data": job.once(_data_in_short)}))


def _optimizer(job) -> str:
    """The optimizer's name, with the cuts on which its result depends."""
    blocks = blocks_of(job)
    return job.optimizer + f" in blocks of {blocks}" * bool(blocks)


def _data_in_short(job) -> str:
    """A digest of the first batch: it changes with another text, other rows, or another order."""
    digest = hashlib.sha256()
    for x in (x for microbatches in job.batch(0) for one in microbatches for x in flat(one)):
        digest.update(x.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
