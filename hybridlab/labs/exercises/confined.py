"""A place of its own for one submission: the rights and limits that this system gives to whoever asks, root or not.

`python -m hybridlab.labs.exercises.confined ROOM GRADER [FOLDER…]` reads a submission from its input and checks it
behind

- namespaces of its own (Linux, where users may make them): no network, no other processes to see, no file that can be
  written outside of ROOM; the FOLDERs and the solutions of the exercises cannot be read;
- limits on memory, processes and the size of files;
- and no new rights, as setuid programs would give; when it ends, all that it has started ends. When the process GRADER
  has gone, which asked for this, so has it, and the ROOM with it.

The first line that it tells is what of this there is; the next ones are those of `regrade`. It does not filter system
calls: what the kernel itself lets through, this does too. Source: namespaces(7), mount_setattr(2), prctl(2).
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

from hybridlab.core.afford import memory
from hybridlab.world.processes import namespaces
from hybridlab.world.processes.namespaces import MOUNTS, NETWORK, PROCESSES, TALK
from hybridlab.world.processes.strays import PR_SET_CHILD_SUBREAPER, strays

PACKAGE = Path(__file__).parents[2]
BESIDE = ("tests", "build", "dist", ".git", "notebooks")  # beside the package, where it is not installed: they say much
RECURSIVE, PRIVATE, BIND, READ_ONLY = 0x4000, 0x40000, 0x1000, 0x1  # MS_…
MOUNT_SETATTR, HERE, AT_RECURSIVE = 442, -100, 0x8000
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
NOBODY = 1000  # what this user is called inside; not 0, so that the program that begins there has no rights over it
LARGEST_FILE, MOST_PROCESSES = 100_000_000, 1000
ROOM = "512m"  # for all that it writes
LOOK_SECONDS = 0.02  # between two looks whether the grader is still there
NAMESPACES = ("no network", "no file to write elsewhere", "no other process in sight", "the solutions out of reach")
ALWAYS = ("limits on time, memory and files", "no new rights", "an end for all that it starts")
libc = ctypes.CDLL(None, use_errno=True)


def main(room: str, grader: str, *hidden: str) -> int:
    """Check what comes in; returns the exit code, 128 and more for a signal."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    signal.signal(signal.SIGTERM, lambda *_: (sweep(), os._exit(128 + signal.SIGTERM)))
    place = _forked(lambda: _place(room, hidden))
    while not (ended := os.waitpid(place, os.WNOHANG))[0]:
        if os.getppid() != int(grader):  # nobody is left to tell, or to clear up
            sweep()
            shutil.rmtree(room, ignore_errors=True)
            return 128 + signal.SIGKILL
        time.sleep(LOOK_SECONDS)
    sweep()
    return _code(ended[1])


def _forked(work) -> int:
    """A child that does this work, returns its exit code, and does not outlive this process; its process number."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os._exit(work())
    return child


def _place(room: str, hidden: tuple[str, ...]) -> int:
    """Make the place; the next process is the first inside it."""
    _limit()
    apart = namespaces.own(MOUNTS | PROCESSES | NETWORK | TALK, NOBODY)
    return _code(os.waitpid(_forked(lambda: _inside(room, hidden, apart)), 0)[1])


def _inside(room: str, hidden: tuple[str, ...], apart: bool) -> int:
    """The first process of the place: it closes it, starts the check, and collects whoever ends here."""
    if apart:
        _close(room, hidden)
    os.chdir(room)
    os.environ["TMPDIR"] = room
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)  # torch, once imported, names one outside
    print(json.dumps([*(NAMESPACES if apart else ()), *ALWAYS]), flush=True)
    check = _forked(lambda: os.execv(sys.executable, [sys.executable, "-m", "hybridlab.labs.exercises.regrade"]))
    while True:
        pid, status = os.wait()
        if pid == check:
            return _code(status)


def sweep():
    """End all that came from this process."""
    while left := strays(set()):
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def prctl(option: int, value: int):
    if sys.platform == "linux":
        libc.prctl(option, value, 0, 0, 0)


def _limit():
    """Limits for each process; what a whole submission takes is bounded by its time."""
    free = (memory() or (2**33,))[0]
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, LARGEST_FILE),
        (resource.RLIMIT_DATA, free // 2),
        (resource.RLIMIT_NPROC, MOST_PROCESSES),
    ):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _close(room: str, hidden: tuple[str, ...]):
    """Make everything read-only but the room, hide what is not the submission's business, and open loopback."""
    _mount("none", "/", None, RECURSIVE | PRIVATE)
    read_only = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)
    _must(libc.syscall(MOUNT_SETATTR, HERE, b"/", AT_RECURSIVE, ctypes.byref(read_only), 32), "reading alone")
    for folder in [*hidden, *(str(PACKAGE.parent / name) for name in BESIDE)]:
        if os.path.isdir(folder) and not _within(PACKAGE, folder) and not _within(sys.prefix, folder):
            _mount("none", folder, "tmpfs", READ_ONLY, "size=4k,mode=0")
    for file in (*PACKAGE.glob("labs/*/*solutions.py"), *PACKAGE.glob("labs/*/__pycache__/*solutions.*")):
        if file.parent.parent.name != "exercises" and file.parent.name != "exercises":
            _mount("/dev/null", str(file), None, BIND)
    for place in filter(os.path.isdir, (room, "/dev/shm")):
        _mount("none", place, "tmpfs", 0, f"size={ROOM},mode=700")
    _mount("none", "/proc", "proc", 0)
    namespaces.open_loopback()


def _within(path, folder) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = ""):
    code = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    _must(libc.mount(*code, flags, data.encode() or None), target)


def _must(result: int, what: str):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
