"""The connection from a rank to the kernel: output becomes frames, and a request for user input raises an error.

What a rank has forked says nothing in its name: it prints on descriptor 1, as C code and other programs do, and the
rank passes that on (`Aside`).
Printing is limited, so that a loop that prints cannot drown a notebook: to `FLOOD` characters a second, where every
line counts for at least `LINE`, and a notice of what was cut.
"""

import builtins
import codecs
import contextlib
import fcntl
import io
import os
import socket
import sys
import threading
import time

from hybridlab.world.processes import frames

FLOOD = 1_000_000  # characters a second, and at once, of each stream of a rank
LINE = 250
PIPE = 2**20  # bytes that C code can print while it keeps Python's lock
GREETING = "[Gloo] Rank "  # a line of each rank and group, which older versions of torch print when ranks have met
NO_KEYBOARD = "a rank has no keyboard: ask in the notebook and hand the answer over, pool.run(function, answer)"
NO_DEBUGGER = "a debugger cannot reach a rank: print there, or call the function here with a stand-in for comm"


class Home:
    """The way home to the kernel: one frame at a time, whichever thread of the rank speaks."""

    def __init__(self, sock: socket.socket):
        self._sock = sock
        self._turn = threading.Lock()
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this process is not the rank but a child of it."""
        return os.getpid() != self._pid

    def send(self, kind, tree=None, buffers=(), run=0):
        """Write one frame."""
        if self.forked:
            raise RuntimeError("a process forked by a rank cannot use its connection: send from the rank itself")
        with self._turn:
            frames.send(self._sock, kind, tree, buffers, run)

    def event(self, event: dict):
        """Send a live event; its values are those that may be returned."""
        self.send("event", *frames.encode(event))


class Lines(io.TextIOBase):
    """A text stream that goes home line by line, as "output" frames [stream name, line].

    unheard  how lines begin that nobody asked for: they are dropped
    """

    def __init__(self, name: str, home: Home, unheard: tuple[str, ...] = ()):
        self._name, self._home, self._unheard, self._rest = name, home, unheard, []
        self._room, self._filled = float(FLOOD), time.monotonic()
        self._cut = 0

    def writable(self):
        return True

    def write(self, text):
        """Send every line that is complete now; the rest waits for its end. Output that comes too fast is truncated."""
        if self._home.forked:
            os.write(1, text.encode("utf-8", "replace"))
            return len(text)
        if self._flooded(max(len(text), LINE * text.count("\n"))):
            self._cut += len(text)
            self._rest.clear()
            return len(text)
        if self._cut:
            self._tell_of_the_cut()
        *ends, rest = text.split("\n")
        for end in ends:
            self._add(end)
            line = "".join(self._rest).rstrip("\r")
            if not line.startswith(self._unheard):
                self._home.send("output", [self._name, line])
            self._rest.clear()
        self._add(rest)
        return len(text)

    def _add(self, piece: str):
        """Go on with a line; what a carriage return has gone back over is not seen any more."""
        if not piece:
            return
        if self._rest and self._rest[-1].endswith("\r"):
            self._rest.clear()
        seen = piece.rstrip("\r")
        _, back, over = seen.rpartition("\r")
        if back:
            self._rest.clear()
        self._rest.append((over if back else seen) + piece[len(seen) :])

    def finish(self):
        """Send a last line that has no end, and what was cut."""
        if self._cut:
            self._tell_of_the_cut()
        if self._rest:
            self.write("\n")

    def _flooded(self, length: int) -> bool:
        now = time.monotonic()
        self._room = min(FLOOD, self._room + FLOOD * (now - self._filled))
        self._filled = now
        if length > self._room:
            self._room = 0.0
            return True
        if self._cut and self._room < FLOOD / 2:  # a notice now and then, not for every line
            return True
        self._room -= length
        return False

    def _tell_of_the_cut(self):
        notice = f"[cut: {self._cut} characters came faster than {FLOOD} a second]"
        self._home.send("output", [self._name, notice])
        self._cut = 0


class Aside:
    """What C code, other programs and forked children print on this process's descriptor 1: lines like the others.

    fd  readable when there is something to pass on
    """

    def __init__(self, home: Home):
        self.fd, self._open = os.pipe()
        os.set_blocking(self.fd, False)
        with contextlib.suppress(OSError, AttributeError):  # a user may have so many pipes only, macOS has no such call
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE)
        os.dup2(self._open, 1)
        self._lines, self._turn = Lines("stdout", home, unheard=(GREETING,)), threading.Lock()
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def pass_on(self, finish=False):
        """Send what is there; to finish, also a line without an end."""
        with self._turn, contextlib.suppress(BlockingIOError):
            while data := os.read(self.fd, PIPE):
                self._lines.write(self._text.decode(data))
        if finish:
            self._lines.finish()


def settle_in(home: Home) -> Aside:
    """Let everything that this process prints go home, and refuse what would wait for a person for ever."""
    sys.stdout, sys.stderr = Lines("stdout", home), Lines("stderr", home)
    builtins.input = _refusing(EOFError, NO_KEYBOARD)
    sys.breakpointhook = _refusing(RuntimeError, NO_DEBUGGER)
    return Aside(home)


def _refusing(kind: type[Exception], sentence: str):
    def refuse(*_, **__):
        raise kind(sentence)

    return refuse
