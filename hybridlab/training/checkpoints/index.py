"""The record of a checkpoint: what `checkpoint.json` says, and its comparison with the files and with a layout.

It is the only way into a checkpoint: what does not agree with it is refused in one sentence, before a number is read.
"""

import hashlib
import json
from pathlib import Path

from hybridlab.core.where.layout import Layout

NAME, FORMAT, VERSION = "checkpoint.json", "hybridlab checkpoint", 1


def write(folder: Path, layout: Layout, files: dict[str, dict], notes: dict):
    """Write the record; `files` are those of all ranks, {name: what `of_file` says}."""
    record = {
        "format": FORMAT,
        "version": VERSION,
        "mesh": layout.mesh.axes,
        "shapes": {param.name: param.shape for param in layout.params},
        "files": files,
        "notes": notes,
    }
    (folder / NAME).write_text(json.dumps(record | {"sha256": _signature(record)}, indent=1) + "\n", encoding="utf-8")


def of_file(file: Path, layout: Layout, rank: int, pieces: dict[str, dict]) -> dict:
    """What the record says of a rank's file: its length and digest, and where each piece lies in its parameter."""
    return {
        "bytes": file.stat().st_size,
        "sha256": _digest(file),
        "pieces": {name: _of_piece(layout, rank, name, kinds) for name, kinds in pieces.items()},
    }


def _of_piece(layout, rank, name, kinds) -> dict:
    box, share = layout.box(name, rank), layout.share(name, rank)
    return {
        "box": [[span.start, span.stop] for span in box],
        "share": [share.start, share.stop],
        "kinds": {kind: str(tensor.dtype).removeprefix("torch.") for kind, tensor in kinds.items()},
    }


def read(folder: Path) -> dict:
    """The record of a checkpoint.

    raises  ValueError when there is none, or it is not ours, damaged, or of a later version
    """
    file = folder / NAME
    if not file.is_file():
        raise ValueError(f"{folder} is no checkpoint: there is no {NAME} in it")
    try:
        record = json.loads(file.read_text())
    except ValueError:
        raise ValueError(f"{file} is damaged: it is not JSON") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{file} is not of the format {FORMAT!r}: another program wrote it, or it is damaged")
    if record["version"] > VERSION:
        raise ValueError(f"{file} has version {record['version']}, this hybridlab reads {VERSION}: install a newer one")
    if record.pop("sha256", None) != _signature(record):
        raise ValueError(f"{file} is damaged: what it says has another sha256 than when it was written")
    return record


def refuse_another_model(folder: Path, record: dict, layout: Layout):
    """Raise ValueError unless the layout has the same parameters, with the same shapes."""
    shapes = record["shapes"]
    for name in [*layout.named, *shapes]:
        if name not in shapes:
            raise ValueError(f"{folder} is of another model: it has no parameter {name}")
        if name not in layout.named:
            raise ValueError(f"{folder} is of another model: this one has no parameter {name}")
        there, here = tuple(shapes[name]), layout[name].shape
        if there != here:
            raise ValueError(f"{folder} is of another model: {name} has shape {there}, in this one {here}")


def refuse_damage(folder: Path, record: dict, rank: int = 0, ranks: int = 1):
    """Raise ValueError unless every file is there, with its length and digest.

    Of several ranks each compares other digests, so that no file is read whole twice.
    """
    for number, (name, told) in enumerate(record["files"].items()):
        file, holds = folder / name, f"it holds pieces of {', '.join(told['pieces'])}"
        if not file.is_file():
            raise ValueError(f"{file} is missing: {holds}")
        if file.stat().st_size != told["bytes"]:
            raise ValueError(f"{file} has {file.stat().st_size} bytes, and had {told['bytes']} when saved: {holds}")
        if number % ranks == rank and _digest(file) != told["sha256"]:
            raise ValueError(f"{file} is damaged, its sha256 is another than when saved: {holds}")


def _digest(file) -> str:
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _signature(record) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()
