"""Stored weights in any of several formats, read one tensor after another.

There are three formats, recognized by the files of a folder: one of our runs, or one checkpoint in it; safetensors, in
one file or in several with an index, as Hugging Face writes them; and DCP, written by `torch.distributed.checkpoint`. A
state dict in memory is read in the same way.

Our checkpoints and safetensors contain only numbers and text, and nothing is unpickled. PyTorch unpickles DCP's
metadata (`.metadata`): read such a folder only if you would also run a program from its author.

Relatives: `training.checkpoints.export`, which writes them; `training.first_weights`, which starts training from
them.
"""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from hybridlab.core.files import content, is_file, is_folder, listed
from hybridlab.signatures import typed
from hybridlab.training.checkpoints import checkpoint, index
from hybridlab.training.checkpoints.folder import newest

OTHERS = "copy."  # the prefix of the names of copies other than the first, if copies train alone
PICKLED = (b"PK", b"\x80\x02")  # first bytes of torch.save's files: today's, and those before 2020
ONE, SHARDS, DCP = "model.safetensors", "model.safetensors.index.json", ".metadata"


class Stored(NamedTuple):
    """Weights that can be read.

    said    the origin of the weights, in words
    shapes  {name: shape};  read  a function from a name to its full tensor, on the CPU
    """

    said: str
    shapes: dict[str, tuple[int, ...]]
    read: Callable[[str], torch.Tensor]


@typed
def weights(folder: str | Path) -> dict[str, torch.Tensor]:
    """The full weights of a trained model by name (its state dict), trained under any layout.

    folder  the `checkpoint` folder of `train`, whose newest checkpoint is read; or one checkpoint in it, such as
            "run/step-000012". Or weights from other programs: a safetensors file or folder, such as one from Hugging
            Face, or a folder of torch.distributed.checkpoint. PyTorch unpickles the metadata of such a folder: read one
            only if you trust its author

    returns {name: tensor} on the CPU, with buffers such as averages: `module.load_state_dict(weights)`
    raises  ValueError if there are no weights, or they are damaged

    >>> import tempfile
    >>> import hybridlab as hl
    >>> run = tempfile.mkdtemp()
    >>> trained = hl.train(hl.Mesh(pp=2), steps=1, checkpoint=run, progress=False)  # starts ranks
    >>> hl.models.GPT(hl.Shape()).load_state_dict(hl.weights(run))
    <All keys matched successfully>
    """
    found = stored(folder, whole=True)
    return {name: found.read(name) for name in found.shapes}


def of_copy(copy: int, name: str) -> str:
    """The name of a weight of a copy that trains alone.

    >>> of_copy(0, "head.weight"), of_copy(1, "head.weight")
    ('head.weight', 'copy.1.head.weight')
    """
    return f"{OTHERS}{copy}.{name}" if copy else name


def stored(where: str | Path | Mapping[str, torch.Tensor], whole: bool = False) -> Stored:
    """The weights stored in memory, in a file, or in a folder.

    whole  whether to compare the files of one of our checkpoints with their digests, which reads them once more

    raises  ValueError if there are no weights, or they are damaged
    """
    if isinstance(where, Mapping):
        return _in_memory(where)
    path = newest(where) or Path(where)
    if is_file(path):
        return _safetensors(path.parent, [path.name])
    if is_file(path / index.NAME):
        return _ours(path, whole)
    if is_file(path / DCP):
        return _dcp(path)
    if is_file(path / SHARDS):
        return _safetensors(path, _shards(path))
    files = sorted(name for name in listed(path) if name.endswith(".safetensors"))
    if ONE in files or len(files) == 1:
        return _safetensors(path, [ONE if ONE in files else files[0]])
    if files:
        raise ValueError(f"{path} has {len(files)} safetensors files and no {SHARDS}: give the path of one file")
    if not is_folder(path):
        raise ValueError(f"{path} does not exist: give the path of a folder or file with weights")
    raise ValueError(
        f"{path} has no weights: there is no {index.NAME}, no safetensors file, and no {DCP} of "
        "torch.distributed.checkpoint; give the path of another folder"
    )


def _in_memory(given: Mapping[str, torch.Tensor]) -> Stored:
    for name, x in given.items():
        if not isinstance(name, str) or not torch.is_tensor(x):
            raise ValueError(f"weights[{name!r}] is a {type(x).__name__}: give a state dict, with tensors by name")
    return Stored("weights", {name: tuple(x.shape) for name, x in given.items()}, lambda name: given[name].detach())


def _ours(path: Path, whole: bool) -> Stored:
    record = checkpoint.record_of(path)
    if whole:
        checkpoint.refuse_damage(path, record)
    shapes = {name: tuple(shape) for name, shape in record["shapes"].items() if not name.startswith(OTHERS)}
    return Stored(str(path), shapes, lambda name: checkpoint.read(path, record, name))


def _shards(folder: Path) -> list[str]:
    """The files that an index lists."""
    file = folder / SHARDS
    try:
        files = sorted(set(json.loads(content(file, "the index"))["weight_map"].values()))
        sound = all(Path(name).name == name for name in files)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{file} is damaged: it does not name the file of each weight; write it again")
    return files


def _safetensors(folder: Path, files: list[str]) -> Stored:
    """The weights of all files; the files themselves list their tensors."""
    home, shapes = {}, {}
    for name in files:
        with _opened(folder / name) as file:
            every = file.keys()
            for one in every:
                home[one], shapes[one] = folder / name, tuple(file.get_slice(one).get_shape())

    def read(name):
        with _opened(home[name]) as file:
            return file.get_tensor(name)

    return Stored(str(folder if len(files) > 1 else folder / files[0]), shapes, read)


def _opened(file: Path):
    if not is_file(file):
        raise ValueError(f"{file} is missing, but the index names it: copy it there")
    try:
        return safe_open(file, "pt")
    except (SafetensorError, OSError) as error:
        if _begins(file) in PICKLED:
            told = f"read it with torch.load({str(file)!r}, weights_only=True), and give the state dict in it"
            raise ValueError(f"{file} is a file of torch.save: {told}") from None
        raise ValueError(f"{file} is damaged, or is not a safetensors file: {error}") from None


def _begins(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(2)


def _dcp(path: Path) -> Stored:
    from torch.distributed import checkpoint as dcp  # importing it takes a second
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    try:
        every = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    except Exception as error:
        raise ValueError(f"{path / DCP} cannot be read: {type(error).__name__}: {error}") from None
    told = {name: one for name, one in every.items() if isinstance(one, TensorStorageMetadata)}  # no objects

    def read(name):
        x = torch.empty(told[name].size, device="cpu", dtype=told[name].properties.dtype)
        try:
            with warnings.catch_warnings(action="ignore"):  # it warns that no group is given
                dcp.load({name: x}, storage_reader=dcp.FileSystemReader(path), no_dist=True)
        except Exception as error:
            raise ValueError(f"{path} is damaged: {name} cannot be read: {str(error).splitlines()[0]}") from None
        return x

    return Stored(str(path), {name: tuple(one.size) for name, one in told.items()}, read)
