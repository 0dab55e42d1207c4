"""Check the files that a user names, before they are read, and before the work whose result they store.

Reading a FIFO or /dev/zero never ends, and a folder is not a text. And it is better to detect an unwritable path before
the work than after it.
"""

import errno
import os
import shutil
import stat
import tempfile
import threading
from os import PathLike
from pathlib import Path

LONGEST = 200  # letters of a file name in a message
KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
KINDS |= {stat.S_IFSOCK: "a socket"}


def looked_at(path: str | PathLike[str]) -> os.stat_result | None:
    """The system's status of a path; None if nothing is there.

    raises  ValueError if it is not a path, or cannot be read: the name is too long, or the folder may not be searched

    >>> looked_at("no/such/file")
    """
    if not isinstance(path, str | PathLike):  # the system takes 1 for an open file
        raise ValueError(f"{path!r} is not a path: give the name of a file")
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot access {_shown(path)}: {getattr(error, 'strerror', None) or error}") from None


def is_folder(path: str | PathLike[str]) -> bool:
    """Whether a folder exists; errors as in `looked_at`."""
    return (found := looked_at(path)) is not None and stat.S_ISDIR(found.st_mode)


def is_file(path: str | PathLike[str]) -> bool:
    """Whether a plain file is there; errors as in `looked_at`."""
    return (found := looked_at(path)) is not None and stat.S_ISREG(found.st_mode)


def listed(path: str | PathLike[str]) -> list[str]:
    """The names in a folder; empty if the folder does not exist.

    raises  ValueError if the folder may not be read
    """
    try:
        return os.listdir(path) if is_folder(path) else []
    except OSError as error:
        raise ValueError(f"cannot list {_shown(path)}: {error.strerror}") from None


def _shown(path) -> str:
    name = str(path)
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}…"
    return name if name.isprintable() else repr(name)


def content(path: str | PathLike[str], what: str = "the file", most: float = 4e9) -> bytes:
    """The bytes of a plain file; arguments and errors as for `regular`, even if reading fails."""
    try:
        return regular(path, what, most).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {what} {_shown(path)}: {error.strerror}") from None


def regular(path: str | PathLike[str], what: str = "the file", most: float = 4e9) -> Path:
    """A path that can be read as data.

    raises  ValueError if it is not a plain file, may not be read, or has more than `most` bytes
    """
    named = f"cannot read {what} {_shown(path)}"
    if not isinstance(path, str | os.PathLike):  # a number would mean an open file of this process
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
    """A path that a file can be written to; an existing file is not changed.

    raises  ValueError if that is impossible
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
    """Write a text file in one step: if the process is stopped before the end, or the disk is full, the old file stays.

    A link stays a link, and a file keeps its permissions. A device is never replaced: the text goes through it.

    raises  ValueError if that is impossible
    """
    try:
        found, target = looked_at(path), Path(os.path.realpath(path))
        if found is None or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and os.access(target.parent, os.W_OK)):
            _put_beside(target, text)
        else:
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write {_shown(path)}: {error.strerror}") from None


def _put_beside(path: Path, text: str):
    """Write another file in the same folder, and rename it: no reader sees a part of it."""
    beside = path.with_name(f".{os.getpid()}-{threading.get_ident()}.part")  # short: `path` may have the longest name
    try:
        beside.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def folder(path: str | PathLike[str]) -> Path:
    """The path of a folder for new files; it is created if it does not exist.

    raises  ValueError if that is impossible
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return Path(path)
    except FileExistsError:
        raise ValueError(f"cannot write into {path}: it is not a folder; give a folder") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot write into {_shown(path)}: {getattr(error, 'strerror', None) or error}") from None
