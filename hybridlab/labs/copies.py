"""Copies of the notebooks for your own work, without outputs: they show no answer in advance, and no update
overwrites your work.

A notebook that is not there yet is copied. A copy that its owner has not changed is updated with the course. A copy
that was changed or run stays, and a message says if the course has a newer one. Nothing is ever deleted.
"""

import hashlib
import json
import pathlib

import nbformat

from hybridlab.core import files
from hybridlab.core.beside import beside

TOLD = {"new": "copied", "updated": "untouched by you, so now the newer one", "kept": "changed by you, kept"}
TAKEN = ".taken.json"  # the file in the folder with the digest of each notebook when it was copied


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def fresh(path: pathlib.Path) -> str:
    """The text of a notebook in which no cell has been run."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(notebook) + "\n"


def take(folder: pathlib.Path, source: pathlib.Path | None = None) -> dict[str, str]:
    """Copy notebooks into a folder; {name: "new", "updated", "kept" or "newer"} for each with something to report.

    source  the course's own notebooks; None: those that came with the package
    kept    its owner has changed it, and the course has not;  newer  both have changed it: the owner's version stays

    raises  ValueError if the folder holds the originals, or cannot be read or written
    """
    source = source or beside("notebooks")
    if files.folder(folder).samefile(source):
        raise ValueError(f"{folder} holds the course's own notebooks: choose another folder for your copies")
    record = folder / TAKEN
    taken = _taken(record)
    found = {}
    for original in sorted(source.glob("*.ipynb")):
        name, own, text = original.name, folder / original.name, fresh(original)
        had, now = files.looked_at(own) and _digest(files.content(own)), _digest(text.encode())
        if not had or had == taken.get(name) != now:
            found[name] = "updated" if had else "new"
            files.put(own, text)
            taken[name] = now
        elif had != now:
            found[name] = "kept" if taken.get(name) == now else "newer"
    files.put(record, json.dumps(taken, indent=1) + "\n")
    return found


def _taken(record: pathlib.Path) -> dict[str, str]:
    """The digest of each notebook when it was copied; {} if the record is damaged: all copies then count as changed."""
    try:
        found = json.loads(record.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def told(taken: dict[str, str], folder: pathlib.Path) -> str:
    """The result of `take` in words.

    >>> print(told({"a.ipynb": "new", "b.ipynb": "newer"}, pathlib.Path("mine")))
    copied: a.ipynb
    b.ipynb: yours is kept; the course has a newer one. To get it, rename yours and call this again.
    Your copies are in mine
    """
    names = {word: " ".join(name for name, one in taken.items() if one == word) for word in TOLD}
    lines = [f"{sentence}: {names[word]}" for word, sentence in TOLD.items() if names[word]]
    lines += [
        f"{name}: yours is kept; the course has a newer one. To get it, rename yours and call this again."
        for name, one in taken.items()
        if one == "newer"
    ]
    return "\n".join([*lines, f"Your copies are in {folder}"])
