"""A gang: the living processes of one pool, as the kernel holds them. Read next: `zygote`, their parent."""

import atexit
import contextlib
import json
import os
import select
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import weakref
from dataclasses import asdict

from hybridlab.core.mesh import Mesh
from hybridlab.world.explain.faults import FRESH, RankError, killed_for_memory
from hybridlab.world.processes import frames, zygote
from hybridlab.world.processes.placement import Placement
from hybridlab.world.talk import journal

START_SECONDS = 60.0  # until all ranks are ready; the first import of torch can be slow
END_SECONDS = 5.0  # for killed processes to let go of everything
REAP_SECONDS = 1.0  # for the zygote, if it is not busy, to have seen the last of them


class Gang:
    """The living processes of one pool: a socket to each rank, and the line to the zygote on which they hang.

    longest  seconds that torch may wait in one operation, before it ends a rank with less to say than we have
    """

    def __init__(self, mesh: Mesh, placed: Placement, groups, longest: float):
        self.folder = tempfile.mkdtemp(prefix="hybridlab-")  # mode 0700: the ranks find each other through files in it
        self.pids: dict[int, int] = {}
        self.runs = 0
        self.memory_killings = killed_for_memory()
        self.journal: journal.Journal | None = None
        self.closed = False
        self._ended: set[int] = set()
        self._line, end_of_line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pairs = [socket.socketpair() for _ in range(mesh.size)]
        self._socks = [near for near, _ in pairs]
        self._events = selectors.DefaultSelector()
        self._events.register(self._line, selectors.EVENT_READ)
        for rank, sock in enumerate(self._socks):
            self._events.register(sock, selectors.EVENT_READ, (rank, frames.Inbox(sock)))
        GANGS.add(self)
        try:
            self.journal = journal.create(os.path.join(self.folder, "journal"), mesh.size)
            self._ask_for_ranks([end_of_line, *(far for _, far in pairs)])
            for rank in range(mesh.size):
                self.send(rank, START_SECONDS, "hello", _hello(rank, mesh, placed, groups, longest, self.folder))
        except BaseException:
            self.kill()
            raise

    def _ask_for_ranks(self, ends):
        try:
            ZYGOTE.fork(self.folder, ends)
        finally:
            for end in ends:
                end.close()

    def greet(self, pids: dict[int, int]):
        """Take in that all ranks have met: each has the journal, so nobody needs its name any more."""
        self.pids = pids
        os.unlink(os.path.join(self.folder, "journal"))  # the store stays: groups opened later meet through it

    def send(self, rank: int, seconds: float, kind: str, tree=None, buffers=()):
        """Send one frame to a rank; that it has gone, or does not read, is found out by `poll` afterwards."""
        sock = self._socks[rank]
        sock.settimeout(seconds)
        with contextlib.suppress(ConnectionError, TimeoutError):
            frames.send(sock, kind, tree, buffers)
        sock.setblocking(False)

    def whole(self) -> bool:
        """Whether no rank has ended between two runs, nor the zygote, and this process is still the one that asked."""
        if self.closed:
            return False
        hang_ups = select.poll()
        for sock in (self._line, *self._socks):
            hang_ups.register(sock, 0)  # no events asked for: a hang-up is always told
        return not hang_ups.poll(0)

    def poll(self, seconds: float):
        """Yield (rank, frame) for what arrives within this time; how a rank ended is a frame of kind "exit"."""
        for key, _ in self._events.select(seconds):
            if key.fileobj is self._line:
                yield from self._read_line()
                continue
            rank, inbox = key.data
            try:
                frame = inbox.poll()
            except EOFError:
                self._events.unregister(key.fileobj)  # its exit follows on the line
                continue
            if frame:
                yield rank, frame

    def _read_line(self):
        packet = self._line.recv(4096)
        if packet:
            rank, *ended = json.loads(packet)
            self._ended.add(rank)
            yield rank, frames.Frame("exit", ended, [])
        else:
            self._events.unregister(self._line)
            if len(self._ended) < len(self._socks):
                message = "the parent process of the ranks has ended, and they with it"
                raise RankError(f"{message}; {FRESH}", rank=None, kind="zygote", message=message)

    def kill(self):
        """End every rank and what it started, and wait until they are gone."""
        if self.closed:  # by a fork: these are the ranks of its parent
            return
        try:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)  # this is what the zygote takes as the order
            for rank in self.pids.keys() - self._ended:  # it can be importing torch just now
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pids[rank], signal.SIGKILL)
            self._await_hang_ups()
            with contextlib.suppress(OSError):
                self._line.settimeout(REAP_SECONDS)
                while self._line.recv(4096):
                    pass
        finally:
            self.let_go()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _await_hang_ups(self):
        """Wait until no rank holds its end of its socket any more."""
        end, waiting = time.monotonic() + END_SECONDS, select.poll()
        for sock in self._socks:
            waiting.register(sock, 0)  # no events asked for: a hang-up is always told
        left = len(self._socks)
        while left and time.monotonic() < end:
            for fd, _ in waiting.poll(END_SECONDS * 1000):
                waiting.unregister(fd)
                left -= 1

    def let_go(self):
        """Close this process's side; whoever still holds another side decides about the ranks."""
        self.closed = True
        self._events.close()
        for sock in (self._line, *self._socks):
            sock.close()
        if self.journal:
            self.journal.close()


ZYGOTE = zygote.Handle()
GANGS: weakref.WeakSet[Gang] = weakref.WeakSet()


def _after_fork():
    """A forked child starts its own zygote; holding on to the parent's sockets would keep the parent's ranks alive."""
    ZYGOTE.forget()
    for gang in list(GANGS):
        gang.let_go()


atexit.register(ZYGOTE.close)
os.register_at_fork(after_in_child=_after_fork)


def _hello(rank, mesh, placed, groups, longest, folder) -> dict:
    """What a rank must know before it can meet the others; kernel → rank, plain values."""
    return {
        "rank": rank,
        "axes": list(mesh.axes.items()),
        "placed": asdict(placed),
        "groups": [list(axes) for axes in groups],
        "longest": longest,
        "folder": folder,
        "path": [str(place) for place in sys.path],
        "cwd": os.getcwd(),
        "environ": dict(os.environ),
    }
