"""Weights for other programs, as safetensors or DCP; a model with a config becomes a folder for Hugging Face.

Sources: safetensors, format; Hugging Face transformers, `save_pretrained` (names of files, index, config.json);
PyTorch, torch.distributed.checkpoint. Relatives: `training.checkpoints.stored`, which reads them.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import nn

from hybridlab.core.files import listed
from hybridlab.signatures import typed
from hybridlab.training.checkpoints.folder import COMING
from hybridlab.training.checkpoints.stored import ONE, SHARDS, stored
from hybridlab.training.models.draws import buffers_of

LARGEST = 5e9  # bytes of one safetensors file, the default of Hugging Face
FORMS = ("safetensors", "dcp")


@typed
def export(
    weights: nn.Module | dict | str | Path,
    folder: str | Path,
    form: Literal["safetensors", "dcp"] = "safetensors",
) -> Path:
    """Write a folder with the weights of a model under the module's own names, for other programs, and return its path.

    weights  a module, such as `train(…)["model"]`; a state dict; or a folder that `hl.weights` reads
    folder   the folder to write, new or empty; it appears complete or not at all
    form     "safetensors": model.safetensors, or several files and their index above 5 GB; for a module with a
             `config`, as Hugging Face models have, also config.json, so that `from_pretrained` reads the folder.
             "dcp": a checkpoint of torch.distributed.checkpoint

    raises   ValueError for a folder that is not empty, and for weights that cannot be read

    >>> import tempfile
    >>> import hybridlab as hl
    >>> folder = hl.export(nn.Linear(2, 3), tempfile.mkdtemp())
    >>> {name: tuple(x.shape) for name, x in hl.weights(folder).items()}
    {'bias': (3,), 'weight': (3, 2)}
    """
    if form not in FORMS:
        raise ValueError(f"form={form!r} is not a format: choose one of {', '.join(FORMS)}")
    path = Path(folder)
    if path.is_file() or listed(path):
        raise ValueError(f"{path} exists already: give a new folder")
    found = _named(weights)
    coming = path.with_name(path.name + COMING)
    coming.mkdir(parents=True)
    if form == "dcp":
        _dcp(coming, found)
    else:
        _safetensors(coming, found)
        _config(coming, weights)
    if path.exists():
        path.rmdir()
    return coming.rename(path)


def _named(weights) -> dict[str, torch.Tensor]:
    """Tensors by name, each once: a tied tensor has its first name."""
    if isinstance(weights, nn.Module):
        first = dict(weights.named_parameters()) | buffers_of(weights)
        return {name: x.detach() for name, x in first.items()}
    if isinstance(weights, Mapping):
        own = {}
        for name, x in weights.items():
            own.setdefault((x.data_ptr(), x.shape, x.stride()) if x.numel() else name, (name, x))
        return {name: x.detach() for name, x in own.values()}
    found = stored(weights, whole=True)
    return {name: found.read(name) for name in found.shapes}


def _safetensors(folder: Path, found: dict):
    files = _files(found)
    for number, names in enumerate(files, start=1):
        file = ONE if len(files) == 1 else ONE.replace(".", f"-{number:05d}-of-{len(files):05d}.")
        save_file({name: found[name].cpu().contiguous() for name in names}, folder / file, {"format": "pt"})
    if len(files) > 1:
        total = sum(x.nbytes for x in found.values())
        home = {
            name: ONE.replace(".", f"-{number:05d}-of-{len(files):05d}.")
            for number, names in enumerate(files, start=1)
            for name in names
        }
        (folder / SHARDS).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": home}, indent=1))


def _files(found: dict) -> list[list[str]]:
    """The names in each file: as many as fit, in order."""
    files, left = [[]], LARGEST
    for name, x in found.items():
        if files[-1] and x.nbytes > left:
            files, left = [*files, []], LARGEST
        files[-1].append(name)
        left -= x.nbytes
    return files


def _config(folder: Path, weights: Any):
    """Write the module's config, if it has one, in the form that `from_pretrained` reads."""
    config = getattr(weights, "config", None)
    if hasattr(config, "to_dict"):
        said = config.to_dict() | {"architectures": [type(weights).__name__]}
        (folder / "config.json").write_text(json.dumps(said, indent=2, sort_keys=True, default=str), encoding="utf-8")


def _dcp(folder: Path, found: dict):
    from torch.distributed import checkpoint as dcp  # importing it takes a second

    with warnings.catch_warnings(action="ignore"):  # it warns that no group is given
        dcp.save(found, checkpoint_id=folder, no_dist=True)
