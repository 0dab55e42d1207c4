"""The folder of a run's checkpoints: their list, the newest one, and the removal of old ones."""

import os
import shutil
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


def flush(path):
    """Wait until a file's content, or a folder's list of names, is on the disk and not only in memory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
