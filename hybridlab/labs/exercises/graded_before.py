"""Rows of submissions that were graded before: if a late file arrives, the others are not graded again.

A row is kept under the digest of everything that it follows from: the submission, the exercises that count, the time
limit, the files of this package, and the versions of Python and torch. Rows with a problem are never kept, since time
limits depend on the machine's load. They are in the folder `.graded` next to the submissions. A user who can write
there can write grades.
"""

import hashlib
import json
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import hybridlab
from hybridlab.core.files import content

FOLDER = ".graded"
HOUSE = Path(hybridlab.__file__).parent


@cache
def _house() -> bytes:
    """The digest of this package's files, tables included, and of the versions of Python and torch."""
    found = hashlib.sha256(f"{sys.version} {version('torch')}".encode())
    for file in sorted(one for one in HOUSE.rglob("*") if one.is_file() and "__pycache__" not in one.parts):
        found.update(file.read_bytes())
    return found.digest()


def key(submission: dict, seconds: float) -> str:
    """The name under which the row of a submission is kept.

    >>> key({"answers": {}}, 60) == key({"answers": {}}, 60) != key({"answers": {"tour.bubble": 1}}, 60)
    True
    """
    said = json.dumps([submission, seconds], sort_keys=True).encode()
    return hashlib.sha256(_house() + said).hexdigest()


def found(folder: Path, name: str) -> dict | None:
    """The fields of a row of this name, or None."""
    try:
        return json.loads(content(folder / FOLDER / f"{name}.json"))
    except (ValueError, RecursionError):
        return None


def keep(folder: Path, name: str, row: dict):
    """Write the fields of a row; nothing is kept if the folder cannot be written."""
    try:
        (folder / FOLDER).mkdir(exist_ok=True)
        (folder / FOLDER / f"{name}.json").write_text(json.dumps(row), encoding="utf-8")
    except OSError:
        pass
