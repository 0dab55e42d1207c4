"""A sandbox for one submission: the restrictions that this system offers to any user, root or not.

`python -m hybridlab.labs.exercises.confined ROOM GRADER` reads a submission from its input and checks it with

- separate namespaces (Linux, if users may create them) and a separate root (`labs.exercises.root`): no IP network, no
  other processes, no files of the machine except those that Python needs, read-only, and no settings of the host;
- another user of the kernel, if the grader is root: otherwise the submission would have root's files and settings;
- limits on processes, on the size of files, and on each process's own memory (shared memory has no limit); and of the
  grader's environment only the variables that Python needs;
- no new rights, as setuid programs would give. When it ends, all processes that it has started end. When the process
  GRADER, which asked for this, has ended, it ends too, and removes the ROOM.

Its first line lists the restrictions that are in effect; the next lines are those of `regrade`. It does not filter
system calls: all calls that the kernel allows are allowed. If root has no namespaces, nothing is checked. Source:
namespaces(7), prctl(2).
"""

import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import sys
import time

from hybridlab.core.afford import memory
from hybridlab.labs.exercises import root
from hybridlab.world.processes import namespaces
from hybridlab.world.processes.namespaces import GROUPS, HOST, MOUNTS, NETWORK, PROCESSES, TALK
from hybridlab.world.processes.strays import PR_SET_CHILD_SUBREAPER, strays

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
STUDENT = 64_000  # the user's number inside, and in the kernel if the grader is root: that of the user nobody
LARGEST_FILE, MOST_PROCESSES = 100_000_000, 256  # processes and threads: eight ranks need more than 64
MOST_SHARED = 1000  # the limit if the count includes all processes of this user
USERS = 1000  # submissions that are checked at the same time are counted separately
LOOK_SECONDS = 0.02  # between two looks whether the grader is still there
UNSAFE = 78  # the exit code if root has no namespaces
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUTF8")  # of the environment
KEPT += ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NAMESPACES = (
    "no IP network",
    "only the files that Python needs, read-only",
    "no access to settings of the host",
    "no other process visible",
    "no access to the solutions",
)
ALWAYS = (
    "limits on time, on files and on the memory of each process",
    "no new privileges",
    "only the environment variables that Python needs",
    "all its processes are ended",
)
libc = ctypes.CDLL(None, use_errno=True)


def main(room: str, grader: str) -> int:
    """Check the submission from the input, and return the exit code, 128 and more for a signal."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    signal.signal(signal.SIGTERM, lambda *_: (sweep(), os._exit(128 + signal.SIGTERM)))
    place = _forked(lambda: _place(room))
    while not (ended := os.waitpid(place, os.WNOHANG))[0]:
        if os.getppid() != int(grader):  # no process is left to report to, or to clear up after
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


def _place(room: str) -> int:
    """Make the sandbox's namespaces; the next process is the first inside them."""
    _limit()
    user = STUDENT + os.getpid() % USERS
    kinds = MOUNTS | PROCESSES | NETWORK | TALK | HOST | GROUPS
    apart = namespaces.split(kinds) if os.getuid() == 0 else namespaces.own(kinds, user)
    if os.getuid() == 0 and not apart:
        return UNSAFE
    return _code(os.waitpid(_forked(lambda: _inside(room, apart, user)), 0)[1])


def _inside(room: str, apart: bool, user: int) -> int:
    """The first process of the sandbox: it closes the sandbox, starts the check, and waits for ended processes."""
    if apart:
        namespaces.open_loopback()
        socket.sethostname("place")
        root.enter(room, user)
        room = root.ROOM
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _lower(resource.RLIMIT_NPROC, MOST_PROCESSES if apart else MOST_SHARED)
    os.chdir(room)
    print(json.dumps([*(NAMESPACES if apart else ()), *ALWAYS]), flush=True)
    words, about = [sys.executable, "-m", "hybridlab.labs.exercises.regrade"], {"HOME": room, "TMPDIR": room}
    about |= {name: os.environ[name] for name in KEPT if name in os.environ}
    check = _forked(lambda: os.execve(words[0], words, about))
    while True:
        pid, status = os.wait()
        if pid == check:
            return _code(status)


def sweep():
    """End all processes that this process has started."""
    while left := strays(set()):
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def prctl(option: int, value: int):
    if sys.platform == "linux":
        libc.prctl(option, value, 0, 0, 0)


def _limit():
    """Set limits for each process; the total use of a submission is limited by its time."""
    free = (memory() or (2**33,))[0]
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, LARGEST_FILE),
        (resource.RLIMIT_DATA, free // 2),
    ):
        _lower(what, most)


def _lower(what: int, most: int):
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
