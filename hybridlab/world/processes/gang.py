"""A gang: the running processes of one pool, from the kernel's side. Read next: `handle` and `zygote`, the parent of
the processes.
"""

import atexit
import contextlib
import errno
import json
import os
import select
import selectors
import shutil
import signal
import socket
import sys
import time
import weakref
from dataclasses import asdict
from pathlib import Path

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.placement import Placement
from hybridlab.world.explain.faults import FRESH, RankError, killed_for_memory
from hybridlab.world.processes import frames
from hybridlab.world.processes.handle import MARK, Handle, tidy_up, unguessed
from hybridlab.world.talk import journal

START_SECONDS = 60.0  # until all ranks are ready; the first import of torch can be slow
END_SECONDS = 5.0  # for killed processes to release all resources
REAP_SECONDS = 1.0  # for the zygote, if it is not busy, to notice that they have ended
WHOLE_GROUP = 4  # Linux's PIDFD_SIGNAL_PROCESS_GROUP, since 6.9: also ends the children of a rank, if the zygote cannot


class Gang:
    """The running processes of one pool: a socket to each rank, and the line to the zygote that keeps them alive.

    longest  seconds that torch may wait in one operation before it ends a rank; our own limits give better messages
    """

    def __init__(self, mesh: Mesh, placed: Placement, groups, longest: float):
        self.folder = unguessed()  # the folder in which ranks find each other; the zygote makes it
        self.pids: dict[int, int] = {}
        self._handles: list[int] = []  # in rank order; a pid may belong to another process by now
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
            with contextlib.ExitStack() as ends:  # the ranks have their own copies
                file = ends.enter_context(journal.create(mesh.size))
                far = [ends.enter_context(end) for end in (end_of_line, *(far for _, far in pairs))]
                self.journal = journal.Journal(file.fileno())
                ZYGOTE.fork(self.folder, [far[0].fileno(), file.fileno(), *(end.fileno() for end in far[1:])])
            for rank in range(mesh.size):
                self.send(rank, START_SECONDS, "hello", _hello(rank, mesh, placed, groups, longest))
        except BaseException:
            self.kill()
            raise

    @property
    def known(self) -> bool:
        """Whether the zygote has sent the pids of the ranks; that is its first message."""
        return bool(self.pids)

    def send(self, rank: int, seconds: float, kind: str, tree=None, buffers=(), run=0):
        """Send one frame to a rank; if the rank has ended, or does not read, the next `poll` notices it."""
        sock = self._socks[rank]
        sock.settimeout(seconds)
        with contextlib.suppress(ConnectionError, TimeoutError):
            frames.send(sock, kind, tree, buffers, run)
        sock.setblocking(False)

    def whole(self) -> bool:
        """Whether all ranks and the zygote are still running, and this process is not a fork of their owner."""
        if self.closed:
            return False
        hang_ups = select.poll()
        for sock in (self._line, *self._socks):
            hang_ups.register(sock, 0)  # no events requested: a hang-up is always reported
        return not hang_ups.poll(0)

    def poll(self, seconds: float):
        """Yield (rank, frame) for each arrival within this time; the end of a rank is a frame of kind "exit"."""
        for key, _ in self._events.select(seconds):
            if key.fileobj is self._line:
                yield from self._read_line()
                continue
            rank, inbox = key.data
            try:
                frame = _sound(inbox.poll())
            except EOFError:
                self._events.unregister(key.fileobj)  # its exit follows on the line
                continue
            except frames.Garbled as error:
                self._events.unregister(key.fileobj)
                frame = frames.Frame("fault", ["Garbled", str(error), [], time.monotonic()], [])
            if frame:
                yield rank, frame

    def _read_line(self):
        heard = self._hear()
        if heard:
            rank, *ended = heard
            yield rank, frames.Frame("exit", ended, [])
        elif heard is None:
            self._events.unregister(self._line)
            if not self._all_ended:
                message = "the parent process of the ranks has ended, and the ranks with it"
                raise RankError(f"{message}; {FRESH}", rank=None, kind="zygote", message=message)

    def _hear(self) -> list | None:
        """One packet from the line: an exit as [rank, code, bytes], [] for the pids of the ranks, None at its end."""
        packet, handles, *_ = socket.recv_fds(self._line, 4096, frames.MOST_RANKS)
        told = json.loads(packet) if packet else None
        if packet and not self.known:
            refused, pids = told
            if refused:
                self.folder = ""  # a folder of this name belongs to another process
                raise RuntimeError(refused)
            self.pids, self._handles = dict(enumerate(pids)), handles
            return []
        if packet:
            self._ended.add(told[0])
        return told

    @property
    def _all_ended(self) -> bool:
        return len(self._ended) == len(self._socks)

    def kill(self):
        """End every rank and its children, and wait until they are gone."""
        if self.closed:  # by a fork: these are the ranks of its parent
            return
        try:
            with contextlib.suppress(OSError):
                self._line.shutdown(socket.SHUT_WR)  # for the zygote, this is the order to kill
            for handle in self._handles:  # the zygote may be importing torch at this moment, or be dead
                _kill(handle)
            self._await_hang_ups()
            with contextlib.suppress(OSError):
                self._line.settimeout(REAP_SECONDS)
                while self._hear() is not None:
                    pass
        finally:
            self.let_go()
            if self.folder and not self._all_ended:
                _end_marked(self.folder)
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)  # if the zygote could not do it

    def _await_hang_ups(self):
        """Wait until every rank's end of its socket is closed."""
        end, waiting = time.monotonic() + END_SECONDS, select.poll()
        for sock in self._socks:
            waiting.register(sock, 0)  # no events requested: a hang-up is always reported
        left = len(self._socks)
        while left and time.monotonic() < end:
            for fd, _ in waiting.poll(END_SECONDS * 1000):
                waiting.unregister(fd)
                left -= 1

    def let_go(self):
        """Close this process's side; processes that still hold another side decide about the ranks."""
        self.closed = True
        self._events.close()
        for sock in (self._line, *self._socks):
            sock.close()
        for handle in self._handles:
            os.close(handle)
        if self.journal:
            self.journal.close()


def _is(tree, *kinds) -> bool:
    return type(tree) is list and [*map(type, tree)] == [*kinds]


SAID = {  # whether a rank can have sent this tree, by the kind of its frame
    "fault": lambda tree: _is(tree, str, str, list, float) and all(_is(line, str, int, str) for line in tree[2]),
    "output": lambda tree: _is(tree, str, str),
    "exit": lambda _: False,  # the zygote sends it
}


def _sound(frame: frames.Frame | None) -> frames.Frame | None:
    """A frame of a rank.

    raises  Garbled if its tree is not one that a rank sends with this kind
    """
    if frame and frame.kind in SAID and not SAID[frame.kind](frame.tree):
        raise frames.Garbled(f"a message of kind {frame.kind} that arrived has a wrong content")
    return frame


def _kill(handle: int):
    """End a process and its group; the handle is safe even if its pid has been reused."""
    for flags in (WHOLE_GROUP, 0):
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL, None, flags)
        except OSError as error:  # it has ended, or this Linux does not support groups here
            if error.errno not in (errno.ESRCH, errno.EINVAL):
                raise


def _end_marked(folder: str):
    """End the children of ranks of this pool, if the zygote was killed and cannot do it."""
    mark = os.fsencode(f"{MARK}={folder}")
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            handle = os.pidfd_open(int(pid))
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                _kill(handle)
            os.close(handle)


ZYGOTE = Handle()
GANGS: weakref.WeakSet[Gang] = weakref.WeakSet()


def _after_fork():
    """A forked child starts a separate zygote, and closes the parent's sockets, which would keep its ranks alive."""
    ZYGOTE.forget()
    for gang in list(GANGS):
        gang.let_go()


atexit.register(tidy_up)
atexit.register(ZYGOTE.close)
os.register_at_fork(after_in_child=_after_fork)


def _hello(rank, mesh, placed, groups, longest) -> dict:
    """The data that a rank needs to connect to the others; kernel → rank, plain values."""
    return {
        "rank": rank,
        "axes": list(mesh.axes.items()),
        "placed": asdict(placed),
        "groups": [list(axes) for axes in groups],
        "longest": longest,
        "path": [str(place) for place in sys.path],
        "cwd": os.getcwd(),
        "environ": dict(os.environ),
    }
