"""Checkpoints: saved under one layout, loaded under any other.

A checkpoint is a folder. Each rank writes one file with the pieces that it counts (`Layout.counts`): every element is
stored once, by the first rank that holds it. The record contains the position of each piece in its parameter. A rank of
another layout reads from each file the overlap with its own pieces (`core.where.reshard`). Nothing is gathered, and
nothing is unpickled: a checkpoint contains only numbers and text.

    step-000012/
        rank-000.safetensors   flat pieces by parameter and kind: "wte/value", "wte/exp_avg"; and numbers: "wte/step"
        checkpoint.json        format, version, mesh; the shape of each parameter; each file's length and digest, its
                               pieces and the dtypes of their kinds; the notes; a digest of all this

A checkpoint appears complete or not at all. Until everything is on the disk, the folder is called
`step-000012.writing`. Then it is renamed, which is atomic. A run that is killed while saving leaves the previous
checkpoint.

Read next: `training.checkpoints.index` (checkpoint.json), `folder` (the checkpoints of a run).
"""

import json
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from hybridlab.core.where.layout import Layout, Param
from hybridlab.core.where.mesh import Mesh
from hybridlab.core.where.reshard import Piece, overlap
from hybridlab.training.checkpoints import index
from hybridlab.training.checkpoints.folder import COMING, before, flush, retire, sweep

Pieces = dict[str, dict[str, torch.Tensor]]


def save(comm, folder, layout: Layout, pieces: Pieces, notes: dict, keep: int = 2) -> Path:
    """Save a checkpoint, all ranks together, and return its folder, `step-000012` in `folder`.

    pieces  for every parameter that this rank holds, its stored state between steps, by kind ("value", "exp_avg", …):
            each
            the flat shard that `layout.share` gives it, or a tensor without a dim, such as Adam's "step"
    notes   values that JSON can store, with the "step" among them: the task, the position in the data, the random state
    keep    the number of checkpoints that are kept: this one and those of the steps before it

    raises  ValueError if a checkpoint of that step exists, or a tensor is not this rank's shard; OSError if it cannot
            be
            written. The earlier checkpoints always stay complete.
    """
    return Writing(comm, folder, layout, pieces, notes, keep).finish()


class Writing:
    """A checkpoint that is being written; the arguments and errors are those of `save`. All ranks create it together,
    and finish it together: then it appears.

    aside  whether training continues while a thread writes: each rank first copies its pieces
    """

    def __init__(self, comm, folder, layout: Layout, pieces: Pieces, notes: dict, keep: int = 2, aside: bool = False):
        self.comm, self.layout, self.notes, self.keep = comm, layout, notes, keep
        self.target = Path(folder) / f"step-{notes['step']:06d}"
        self.folder = self.target.with_suffix(COMING)
        if self.target.exists():
            raise ValueError(f"{self.target} already exists: delete it, or save into another folder")
        counted = {name: pieces[name] for name in layout.held(comm.rank) if layout.counts(name, comm.rank)}
        tensors = {
            f"{name}/{kind}": _share(layout, comm.rank, name, kind, tensor)
            for name, kinds in counted.items()
            for kind, tensor in kinds.items()
        }
        if comm.rank == 0:
            sweep(self.target.parent)
            self.folder.mkdir(parents=True)
        comm.barrier()
        self.entry, self.error = {}, None
        write = partial(_write_file, self.folder, layout, counted, rank=comm.rank)
        if aside:
            copies = {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}
            self.thread = threading.Thread(target=self._try, args=(write, copies))
            self.thread.start()
        else:
            self.thread, self.entry = None, write(tensors)

    def _try(self, write, tensors):
        try:
            self.entry = write(tensors)
        except Exception as error:  # it is raised in `finish`
            self.error = error

    @property
    def written(self) -> bool:
        """Whether this rank's file is on the disk, or has failed."""
        return self.thread is None or not self.thread.is_alive()

    def finish(self) -> Path:
        """Wait for the files of all ranks, rename the checkpoint to its final name, and return its folder."""
        if self.thread:
            self.thread.join()
        if self.error:
            raise self.error
        entries = gathered(self.comm, self.entry)
        if self.comm.rank == 0:
            files = {name: file for each in entries for name, file in each.items()}
            index.write(self.folder, self.layout, files, self.notes)
            flush(self.folder / index.NAME)
            flush(self.folder)
            self.folder.rename(self.target)
            flush(self.target.parent)
            retire(self.target.parent, self.notes["step"], self.keep)
        self.comm.barrier()
        return self.target


def refuse_unshared(comm, folder: Path):
    """Raise an error unless the ranks of all hosts see the same folder. All ranks call this together, before work that
    could be lost.

    raises  ValueError with the ranks that do not see the first rank's file
    """
    (name, *_) = gathered(comm, f".seen-by-all-{time.time_ns()}")
    if comm.rank == 0:
        (folder / name).touch()
    comm.barrier()
    blind = [rank for rank, sees in enumerate(gathered(comm, (folder / name).exists())) if not sees]
    if comm.rank == 0:
        (folder / name).unlink()
    if blind:
        told = f"rank{'s' * (len(blind) > 1)} {', '.join(map(str, blind))}"
        raise ValueError(
            f"checkpoint={folder} is a different folder on the hosts of {told}: give one that all hosts share"
        )


def load(comm, path, layout: Layout) -> tuple[Pieces, dict]:
    """This rank's pieces under `layout`, on the CPU and in the form that `save` takes, and the notes.

    All ranks call it: they divide the comparison of digests, and no rank reads before all files are known to be
    undamaged.

    raises  ValueError if `path` is not a checkpoint or has a later version, a file is missing or
            damaged,
            or the layout's parameters have other names or shapes
    """
    path = Path(path)
    record = record_of(path)
    index.refuse_another_model(path, record, layout)
    with _naming_another(path):
        index.refuse_damage(path, record, comm.rank, comm.size)
    comm.barrier()
    return _pieces(path, record, layout, comm.rank), record["notes"]


def record_of(path: Path) -> dict:
    """The record of a checkpoint, as `index.read` returns it; an error about damage names an undamaged earlier one."""
    with _naming_another(path):
        return index.read(path)


@contextmanager
def _naming_another(path: Path):
    """A context that adds to an error about a checkpoint the newest undamaged one before it, if there is one."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error}{_another(path)}") from None


def _another(path: Path) -> str:
    for place in before(path.parent, path.name.removeprefix("step-")):
        with suppress(ValueError):
            index.refuse_damage(place, index.read(place))
            return f"; {place} is complete: delete {path} to continue from it"
    return ""


def refuse_damage(path: Path, record: dict):
    """Raise ValueError unless every file of a checkpoint is undamaged; it names another one to resume from."""
    with _naming_another(path):
        index.refuse_damage(path, record)


def read(path: Path, record: dict, name: str) -> torch.Tensor:
    """One full parameter of a checkpoint."""
    shape = tuple(record["shapes"][name])
    files = {file: told for file, told in record["files"].items() if name in told["pieces"]}
    with ExitStack() as at_end:
        opened = {file: at_end.enter_context(safe_open(path / file, "pt")) for file in files}
        return _piece(files, opened, Layout(Mesh(), (Param(name, shape),)), name, 0, only="value")["value"].view(shape)


# the file of one rank


def _write_file(writing, layout, counted, tensors, rank) -> dict:
    """Write the pieces that this rank counts, if any, and return their part of the record once they are on the disk."""
    if not counted:
        return {}
    file = writing / f"rank-{rank:03d}.safetensors"
    try:
        save_file(tensors, file)
    except SafetensorError as error:
        raise OSError(f"cannot write {file}: {error}; earlier checkpoints are complete") from None
    flush(file)
    return {file.name: index.of_file(file, layout, rank, counted)}


def _share(layout, rank, name, kind, tensor):
    """The tensor in the form in which it is written. A wrong length would shift the elements after it."""
    share = layout.share(name, rank)
    if tensor.shape not in ((), (share.stop - share.start,)):
        raise ValueError(
            f"{kind} of {name} has shape {tuple(tensor.shape)}, but rank {rank} owns {share.stop - share.start} "
            f"elements of it: give layout.share({name!r}, {rank}) of the flattened box, without padding"
        )
    return tensor.detach().contiguous()


def gathered(comm, value) -> list:
    """The values of all ranks, in rank order; they are sent as JSON, because objects would have to be unpickled."""
    text = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=comm.device)
    lengths = comm.all_gather(torch.tensor([len(text)], device=comm.device)).tolist()
    return [json.loads(bytes(part.tolist())) for part in comm.all_gather(text, sizes=lengths).split(lengths)]


# the pieces of one rank, from all files


def _pieces(path, record, layout, rank) -> Pieces:
    """A rank's pieces of all parameters that it holds: only slices of the files are read, one after another."""
    with ExitStack() as at_end:
        opened = {file: at_end.enter_context(safe_open(path / file, "pt")) for file in record["files"]}
        return {name: _piece(record["files"], opened, layout, name, rank) for name in layout.held(rank)}


def _piece(files, opened, layout, name, rank, only="") -> dict[str, torch.Tensor]:
    """A rank's part of one parameter, of each kind or of only one kind, from every file that has a part of it."""
    shape, here = layout[name].shape, Piece(layout.box(name, rank), layout.share(name, rank))
    length = here.share.stop - here.share.start
    told = {file: entry["pieces"][name] for file, entry in files.items() if name in entry["pieces"]}
    common = {file: overlap(shape, _place(piece), here) for file, piece in told.items()}
    kinds = next(iter(told.values()))["kinds"]
    return {
        kind: _joined([(_slice(opened[file], file, name, kind), common[file]) for file in told], length, dtype)
        for kind, dtype in kinds.items()
        if only in ("", kind)
    }


def _slice(opened, file, name, kind):
    try:
        return opened.get_slice(f"{name}/{kind}")
    except SafetensorError:
        raise ValueError(
            f"{file} has no {kind} of {name}, but its index lists it: the checkpoint is damaged; load another one"
        ) from None


def _place(told: dict) -> Piece:
    """The position of a piece, from its entry in the record."""
    return Piece(tuple(slice(*span) for span in told["box"]), slice(*told["share"]))


def _joined(parts, length, dtype):
    """A flat tensor joined from slices of files; or a tensor without a dim, which is the same in all of them."""
    if parts[0][0].get_shape() == []:
        return parts[0][0][...]
    joined = torch.empty(length, dtype=getattr(torch, dtype))
    for part, common in parts:
        if common:
            low, high = common[0][0], common[-1][0] + common[-1][2]
            read = part[low:high]
            for there, here, count in common:
                joined[here : here + count] = read[there - low : there - low + count]
    return joined
