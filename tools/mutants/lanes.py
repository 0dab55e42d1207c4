"""Lanes: copies of the tree, and the child processes that work on them, one at a time in each lane.

A child is forked from this process, which has imported what tests need and nothing of the package: it starts in
milliseconds, and what it imports is its copy's. A lane's work is a generator: it yields what a child shall do, and gets
how that ended.
"""

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tools.mutants.draw import Mutant

LOOK_SECONDS = 0.01
MEMORY = 12 * 2**30  # bytes of data that a child may hold: a mistake can fill a list for ever
NEVER_COPIED = (".git", ".venv")


class Call(NamedTuple):
    """What a child shall do: `function()`; it is ended after so many seconds."""

    function: Callable
    seconds: float


class Ended(NamedTuple):
    """How a child ended: its exit code (negative: a signal), or None when its time was up; and when it did."""

    code: int | None
    seconds: float


class Lane:
    """One copy of the tree, and a folder for what its children write.

    tree   the copy's root;  room  the folder, empty at the start of every child, for temporary files too
    """

    def __init__(self, root: Path, folder: Path):
        self.tree, self.room, self.held = folder / "tree", folder / "room", 0
        ignored = root / ".gitignore"
        names = [line.rstrip("/") for line in ignored.read_text().splitlines()] if ignored.exists() else []
        shutil.copytree(root, self.tree, ignore=shutil.ignore_patterns(*NEVER_COPIED, *names))

    @contextmanager
    def holding(self, mutant: Mutant):
        """While inside, the copy has this mistake."""
        file = self.tree / mutant.file
        right, stamp = file.read_text(encoding="utf-8"), file.stat().st_mtime_ns
        file.write_text(mutant.applied(right), encoding="utf-8")
        self.held += 1  # Python takes compiled code for fresh when time, in seconds, and size agree: a time of its own
        os.utime(file, ns=(stamp, stamp + self.held * 10**9))
        try:
            yield
        finally:
            file.write_text(right, encoding="utf-8")
            os.utime(file, ns=(stamp, stamp))

    def enter(self):
        """In a child: live in the copy. Output goes to `room/said`."""
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        said = os.open(self.room / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(said, stream)
        os.chdir(self.tree)
        os.environ |= {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.room)}
        tempfile.tempdir = None  # it is looked up again
        sys.dont_write_bytecode = True
        sys.path[:] = [str(self.tree), *(one for one in sys.path if one and not (Path(one) / "tools/mutants").exists())]
        for name in [name for name in sys.modules if name.partition(".")[0] == "tools"]:
            del sys.modules[name]  # the copy has its own


@contextmanager
def opened(root: Path, number: int) -> Iterator[list[Lane]]:
    """So many lanes, and nothing left of them afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        yield [Lane(root, Path(folder) / str(n)) for n in range(number)]


def worked(works: Iterable[Callable], lanes: list[Lane], until: float = float("inf")) -> Iterator:
    """Yield what each of the works returns, as they end.

    works  work(lane) is a generator that yields `Call`s and gets `Ended`
    until  no work begins after this time (monotonic, in seconds)
    """
    waiting, idle, busy = iter(works), list(lanes), {}

    def go_on(work, lane, ended=None):
        """Start the next child of a work; [what it returned] when there is none."""
        try:
            call = work.send(ended)
        except StopIteration as end:
            idle.append(lane)
            return [end.value]
        busy[_forked(call.function, lane)] = work, lane, time.monotonic(), call.seconds
        return []

    try:
        while True:
            while idle and time.monotonic() < until and (work := next(waiting, None)):
                lane = idle.pop()
                yield from go_on(work(lane), lane)
            if not busy:
                return
            time.sleep(LOOK_SECONDS)
            for pid, (work, lane, begin, limit) in list(busy.items()):
                seconds = time.monotonic() - begin
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended or seconds > limit:
                    del busy[pid]
                    _kill(pid, reap=not ended)
                    code = os.waitstatus_to_exitcode(status) if ended else None
                    yield from go_on(work, lane, Ended(code, seconds))
    finally:
        for pid, (work, *_) in busy.items():
            _kill(pid, reap=True)
            work.close()


def _forked(function, lane) -> int:
    shutil.rmtree(lane.room, ignore_errors=True)
    lane.room.mkdir()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            lane.enter()
            code = function()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    with suppress(OSError):  # whoever comes first of the two
        os.setpgid(pid, pid)
    return pid


def _kill(pid: int, reap: bool):
    """End a child and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if reap:
        os.waitpid(pid, 0)
