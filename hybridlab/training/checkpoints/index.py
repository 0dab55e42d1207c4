"""The record of a checkpoint: the content of `checkpoint.json`, compared with the files and with a layout.

Every access to a checkpoint uses it: a mismatch raises a one-sentence error before any number is read.
"""

import hashlib
import json
import math
from pathlib import Path

from hybridlab.core.files import content, is_file, regular
from hybridlab.core.where.layout import Layout

NAME, FORMAT, VERSION = "checkpoint.json", "hybridlab checkpoint", 1
DTYPES = ("float64", "float32", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int16", "int8")
DTYPES += ("uint8", "bool")
LISTED = 3  # parameters in a message


def write(folder: Path, layout: Layout, files: dict[str, dict], notes: dict):
    """Write the record; `files` are those of all ranks, {name: its entry from `of_file`}."""
    record = {
        "format": FORMAT,
        "version": VERSION,
        "mesh": layout.mesh.axes,
        "shapes": {param.name: param.shape for param in layout.params},
        "files": files,
        "notes": notes,
    }
    text = json.dumps(record | {"sha256": _signature(record)}, indent=1) + "\n"
    try:
        (folder / NAME).write_text(text, encoding="utf-8")
    except OSError as error:
        told = f"cannot write {folder / NAME}: {error.strerror}; earlier checkpoints are complete"
        raise OSError(told) from None


def of_file(file: Path, layout: Layout, rank: int, pieces: dict[str, dict]) -> dict:
    """The entry of a rank's file in the record: its length and digest, and each piece's position in its parameter."""
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

    raises  ValueError if there is none, or it cannot be read, is not ours, is damaged, has a later version, or belongs
            to a step other than the one in the folder's name
    """
    file = folder / NAME
    if not is_file(file):
        raise ValueError(f"{folder} is not a checkpoint, because it has no {NAME}: give a folder that hl.train saved")
    text = content(file, "the record")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{file} is damaged (it is not JSON): load another checkpoint") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"{file} is not of the format {FORMAT!r}: load a checkpoint that hybridlab saved")
    if not _whole(record.get("version")):
        raise ValueError(f"{file} is damaged (its version is not a number): load another checkpoint")
    if record["version"] > VERSION:
        raise ValueError(
            f"{file} has version {record['version']}, but this hybridlab reads {VERSION}: install a newer hybridlab"
        )
    if record.pop("sha256", None) != _signature(record):
        raise ValueError(f"{file} is damaged (it does not match its SHA-256 checksum): load another checkpoint")
    refuse_nonsense(file, record)
    named, step = folder.name.removeprefix("step-"), record["notes"]["step"]
    if folder.name.startswith("step-") and named.isdecimal() and int(named) != step:
        raise ValueError(f"{folder} contains step {step}: rename it to step-{step:06d}")
    return record


def refuse_nonsense(file: Path, record: dict):
    """Raise ValueError unless a record has all required entries, and its pieces cover every parameter exactly once."""
    try:
        _refuse_form(record)
        for name, shape in record["shapes"].items():
            pieces = [told["pieces"][name] for told in record["files"].values() if name in told["pieces"]]
            _refuse_holes(name, shape, pieces)
    except _Nonsense as error:
        raise ValueError(f"{file} is damaged ({error}): load another checkpoint") from None


class _Nonsense(Exception):
    """An impossible entry in a record."""


def _refuse_form(record: dict):
    """Check the types of all entries of a record."""
    spans = lambda x, most: all(_span(one, length) for one, length in zip(x, most, strict=True))
    _see(isinstance(record.get("notes"), dict) and _whole(record["notes"].get("step")), "its notes have no step")
    shapes, files = record.get("shapes"), record.get("files")
    _see(isinstance(shapes, dict) and isinstance(files, dict), "it has no table of shapes and files")
    for name, shape in shapes.items():
        _see(isinstance(shape, list) and all(map(_whole, shape)), f"the shape of {name} is {shape}")
    for file, told in files.items():
        _see(Path(file).name == file and isinstance(told, dict), f"it names a file {file!r}")
        _see(_whole(told.get("bytes")) and isinstance(told.get("sha256"), str), f"{file} has no length or digest")
        _see(isinstance(told.get("pieces"), dict), f"{file} has no table of pieces")
        for name, piece in told["pieces"].items():
            _see(name in shapes and isinstance(piece, dict), f"{file} has a piece of {name}, which has no shape")
            box, share, kinds = (piece.get(what) for what in ("box", "share", "kinds"))
            fits = isinstance(box, list) and len(box) == len(shapes[name]) and spans(box, shapes[name])
            _see(fits and _span(share, _size(box)), f"{file} has a piece of {name} that lies outside of it")
            known = isinstance(kinds, dict) and kinds.keys() >= {"value"}
            _see(known and all(x in DTYPES for x in kinds.values()), f"{file} tells no kinds of {name}")


def _refuse_holes(name: str, shape: list, pieces: list):
    """Check the pieces of one parameter: boxes that do not overlap, each divided into consecutive shards."""
    boxes: dict[tuple, list] = {}
    for piece in pieces:
        boxes.setdefault(tuple(map(tuple, piece["box"])), []).append(piece["share"])
    every = list(boxes)
    _see(sum(map(_size, every)) == math.prod(shape), f"its pieces do not make up {name}")
    for number, box in enumerate(every):
        apart = all(_apart(box, other) for other in every[:number])
        _see(not _size(box) or apart, f"two pieces of {name} overlap")
        end = 0
        for low, high in sorted(boxes[box]):
            _see(low == end or low == high, f"its pieces do not make up {name}")
            end = max(end, high)
        _see(end == _size(box), f"its pieces do not make up {name}")
    _see(len({json.dumps(piece["kinds"], sort_keys=True) for piece in pieces}) <= 1, f"pieces of {name} differ in kind")
    _see(bool(pieces), f"no file has {name}")


def _apart(box, other) -> bool:
    """Whether two boxes have no element in common."""
    return any(a[1] <= b[0] or b[1] <= a[0] for a, b in zip(box, other))


def _see(holds: bool, says: str):
    if not holds:
        raise _Nonsense(says)


def _whole(x) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def _span(x, most: int) -> bool:
    return isinstance(x, list) and len(x) == 2 and all(map(_whole, x)) and x[0] <= x[1] <= most


def _size(box) -> int:
    return math.prod(high - low for low, high in box)


def refuse_another_model(folder: Path, record: dict, layout: Layout):
    """Raise ValueError unless the layout has the same parameters, with the same shapes."""
    shapes = record["shapes"]
    for name in [*layout.named, *shapes]:
        if name not in shapes:
            raise ValueError(
                f"{folder} is a checkpoint of a different model (it has no parameter {name}): give the model that it "
                "was saved from"
            )
        if name not in layout.named:
            raise ValueError(
                f"{folder} is a checkpoint of a different model (it has a parameter {name}, which this one lacks): "
                "give the model that it was saved from"
            )
        there, here = tuple(shapes[name]), layout[name].shape
        if there != here:
            raise ValueError(
                f"{folder} is a checkpoint of a different model ({name} has shape {there} there and {here} here): "
                "give the model that it was saved from"
            )


def refuse_damage(folder: Path, record: dict, rank: int = 0, ranks: int = 1):
    """Raise ValueError unless every file is there, with its length and digest.

    If there are several ranks, each compares other digests, so that no file is read completely twice.
    """
    for number, (name, told) in enumerate(record["files"].items()):
        file, parts = folder / name, [*told["pieces"]]
        more = f" and {len(parts) - LISTED} more" * (len(parts) > LISTED)  # the advice must fit into the sentence too
        holds = f"it contains parts of {', '.join(parts[:LISTED])}{more}"
        if not is_file(file):
            raise ValueError(f"{file} is missing, and {holds}: copy it back, or load another checkpoint")
        if file.stat().st_size != told["bytes"]:
            raise ValueError(
                f"{file} has {file.stat().st_size} bytes, but had {told['bytes']} when saved, and {holds}: copy it "
                "again, or load another checkpoint"
            )
        if number % ranks == rank and _digest(file) != told["sha256"]:
            raise ValueError(
                f"{file} is damaged (it does not match its SHA-256 checksum), and {holds}: copy it again, or load "
                "another checkpoint"
            )


def _digest(file) -> str:
    with open(regular(file), "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _signature(record) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()
