"""A student's answers, stored in one JSON file, only on this machine.

The file is in the user's folder for data, not next to the notebooks, because these are opened as copies in many places
and are updated; the answers must outlive both. HYBRIDLAB_PROGRESS names another folder, or says "off". With "off", and
under pytest, whose environment nbval's kernels inherit, nothing is read or written, and only the session remembers.
"""

import contextlib
import copy
import fcntl
import json
import os
import sys
import tempfile
from pathlib import Path

FORM = 1  # format of the file
EMPTY = {"form": FORM, "student": None, "tasks": {}}
_session: dict = copy.deepcopy(EMPTY)  # the record, if nothing is kept on disk
_told: set[str] = set()  # sentences that are printed only once


def place() -> Path | None:
    """The file, or None if nothing is stored."""
    named = os.environ.get("HYBRIDLAB_PROGRESS")
    if named == "off" or (named is None and "PYTEST_VERSION" in os.environ):
        return None
    if named:
        return Path(named).expanduser() / "progress.json"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "hybridlab" / "progress.json"


def read() -> dict:
    """{"student": name, number or None, "tasks": {task: {"right", "tries", "answer"}}}; a copy."""
    file = place()
    return _load(file) if file else copy.deepcopy(_session)


@contextlib.contextmanager
def changing():
    """The record, to be changed inside the `with`; then it is written atomically, while no other process writes."""
    global _session
    file = place()
    if file is None:
        record = copy.deepcopy(_session)
        yield record
        _session = record
        return
    with _alone(file) as possible:
        record = _load(file)
        yield record
        if possible:
            _save(file, record)
        else:
            _session = record


@contextlib.contextmanager
def _alone(file: Path):
    """A lock, so that no other process changes the file; False if it cannot be written at all."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = open(file.with_name(".lock"), "w")
    except OSError as error:
        _tell(f"progress is not saved: {file.parent} cannot be written ({error.strerror})")
        yield False
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield True


def _load(file: Path) -> dict:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return copy.deepcopy(EMPTY)
    except (OSError, UnicodeDecodeError):
        text = ""
    try:
        record = json.loads(text)
        if record["form"] == FORM and all(
            {"right", "tries", "answer"} <= one.keys() for one in record["tasks"].values()
        ):
            return {"student": None} | record
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return _set_aside(file)


def _set_aside(file: Path) -> dict:
    """A file that cannot be read is kept under another name."""
    number = 1
    while (kept := file.with_name(f"progress-damaged-{number}.json")).exists():
        number += 1
    with contextlib.suppress(OSError):
        file.rename(kept)
        _tell(f"the file of your answers could not be read: it is saved as {kept}, and a new one is started")
    return copy.deepcopy(EMPTY)


def _save(file: Path, record: dict):
    """Write a new file and rename it over the old one: a reader finds either the old one or the new one."""
    try:
        handle, beside = tempfile.mkstemp(dir=file.parent, prefix=".progress-")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(record, out, indent=1)
        os.replace(beside, file)
    except OSError as error:
        _tell(f"this answer is not saved: {file} cannot be written ({error.strerror})")


def _tell(sentence: str):
    if sentence not in _told:
        _told.add(sentence)
        print(sentence, file=sys.stderr)
