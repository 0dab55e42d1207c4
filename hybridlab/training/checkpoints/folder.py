"""The folder of a run's checkpoints: their list, the newest one, the removal of old ones, and one run at a time."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hybridlab.core.files import is_file, listed
from hybridlab.training.checkpoints import index

COMING, GOING = ".writing", ".deleting"  # suffixes that no one gives by hand; a backup may be called step-….old


def newest(folder) -> Path | None:
    """The newest complete checkpoint in a folder; None if there is none.

    >>> newest("no/such/folder")
    """
    steps = steps_of(folder)
    return steps[max(steps)] if steps else None


def steps_of(folder) -> dict[int, Path]:
    """The checkpoints in a folder by step, without those that are being written or deleted.

    raises  ValueError if the folder cannot be read
    """
    numbers = {name: name.removeprefix("step-") for name in listed(folder) if name.startswith("step-")}
    return {int(step): Path(folder) / name for name, step in numbers.items() if step.isdecimal()}


def before(folder, step: int | str) -> list[Path]:
    """The checkpoints of the steps before this one, the newest first; empty if `step` is not a number."""
    steps = steps_of(folder) if str(step).isdecimal() else {}
    return [steps[other] for other in sorted(steps, reverse=True) if other < int(step)]


def retire(folder, step, keep):
    """Delete the oldest checkpoints before this step. Each is renamed first, so that no program sees a part of it.

    The checkpoints of runs that this one continues count among them: they are one training run, and a hundred runs
    would otherwise leave two hundred. Other files, and checkpoints renamed by hand, stay.
    """
    every = [path for path in before(folder, step) if is_file(path / index.NAME)]
    for path in every[keep - 1 :]:
        path.rename(path.with_suffix(GOING))
    sweep(folder)


def sweep(folder):
    """Delete renamed checkpoints, and incomplete ones of killed runs."""
    for ending in (COMING, GOING):
        for path in folder.glob(f"step-*{ending}"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@contextmanager
def alone_in(folder: Path | None, patience: float = 0.0) -> Iterator[None]:
    """A context in which no other run on this machine saves into a folder; None: nothing is saved.

    Two runs would each delete the files that the other one is writing (`sweep`). The lock ends with its process, even
    if that is killed, and leaves no file. A file system without locks has none.

    patience  seconds to wait for a run that is about to end

    raises  ValueError if another run has the folder
    """
    if folder is None:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        _lock(place, folder, time.monotonic() + patience)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_UN)  # a process that this one has started may hold the handle too
        os.close(place)


def _lock(place: int, folder: Path, until: float):
    while True:
        try:
            return fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise ValueError(
                    f"another run is saving into {folder}: wait for its end, or save into another folder"
                ) from None
            time.sleep(0.1)
        except OSError:
            return None


def flush(path):
    """Wait until a file's content, or a folder's list of names, is on the disk and not only in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
