"""Files named by the user: checked before anything is read, and before the work whose result they store.

A FIFO never ends, /dev/zero neither, and a folder is no text; a place where nothing can be written is better known
before the work than after it.
"""

import errno
import os
import stat
import tempfile
from os import PathLike
from pathlib import Path

LONGEST = 200  # letters of a name in a sentence
KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
KINDS |= {stat.S_IFSOCK: "a socket"}


def looked_at(path: str | PathLike[str]) -> os.stat_result | None:
    """What the system says of a path; None where nothing is there.

    raises  ValueError in one sentence where one cannot look: a name that is too long, a folder that may not be searched

    >>> looked_at("no/such/file")
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot look at {_shown(path)}: {getattr(error, 'strerror', None) or error}") from None


def is_folder(path: str | PathLike[str]) -> bool:
    """Whether a folder is there; raises as `looked_at`."""
    return (found := looked_at(path)) is not None and stat.S_ISDIR(found.st_mode)


def is_file(path: str | PathLike[str]) -> bool:
    """Whether a plain file is there; raises as `looked_at`."""
    return (found := looked_at(path)) is not None and stat.S_ISREG(found.st_mode)


def listed(path: str | PathLike[str]) -> list[str]:
    """The names of what is in a folder; of none that is there, nothing.

    raises  ValueError in one sentence where one may not look into it
    """
    try:
        return os.listdir(path) if is_folder(path) else []
    except OSError as error:
        raise ValueError(f"cannot look into {_shown(path)}: {error.strerror}") from None


def _shown(path) -> str:
    name = str(path)
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}…"
    return name if name.isprintable() else repr(name)


def content(path: str | PathLike[str], what: str = "the file", most: float = 4e9) -> bytes:
    """The bytes of a plain file; the arguments and errors are those of `regular`, also where reading fails."""
    try:
        return regular(path, what, most).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {what} {_shown(path)}: {error.strerror}") from None


def regular(path: str | PathLike[str], what: str = "the file", most: float = 4e9) -> Path:
    """A path that can be read as data.

    raises  ValueError in one sentence for what is no plain file, may not be read, or holds more than `most` bytes
    """
    named = f"cannot read {what} {_shown(path)}"
    if not isinstance(path, str | os.PathLike):  # a number would be one of this process's open files
        raise ValueError(f"{named}: give the name of a file")
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{named}: {getattr(error, 'strerror', None) or error}") from None
    if kind := KINDS.get(stat.S_IFMT(found.st_mode)):
        raise ValueError(f"{named}: it is {kind}; give a plain file")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{named}: {os.strerror(errno.EACCES)}")
    if found.st_size > most:
        raise ValueError(
            f"{named}: it has {found.st_size / 1e6:.0f} MB, and the limit is {most / 1e6:g} MB; give a smaller file"
        )
    return Path(path)


def writable(path: str | PathLike[str]) -> Path:
    """A path that a file can be written to; what is there stays as it is.

    raises  ValueError in one sentence where that is impossible
    """
    path = Path(path)
    try:
        there = path.exists()
        kind = KINDS.get(stat.S_IFMT(path.stat().st_mode)) if there else None
        if kind is None:
            with open(path, "ab"):
                pass
            if not there:
                path.unlink()
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot write {_shown(path)}: {getattr(error, 'strerror', None) or error}") from None
    if kind not in (None, "a device"):  # /dev/null is one
        raise ValueError(f"cannot write {path}: it is {kind}; give the name of a file")
    return path


def put(path: str | PathLike[str], text: str) -> None:
    """Write a text file as a whole: whoever is stopped halfway leaves the one that was there.

    raises  OSError where that is impossible
    """
    path = Path(path)
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def folder(path: str | PathLike[str]) -> Path:
    """A path of a folder in which files can be made; it is made if it is not there.

    raises  ValueError in one sentence where that is impossible
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return Path(path)
    except FileExistsError:
        raise ValueError(f"cannot write into {path}: it is not a folder; give a folder") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot write into {_shown(path)}: {getattr(error, 'strerror', None) or error}") from None
