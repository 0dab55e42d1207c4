"""The connection from a rank to the kernel: output becomes frames, and a request for user input raises an error.

A child that a rank has forked does not send frames: it prints on file descriptor 1, as C code and other programs
do, and the rank passes its output on (`Aside`).

Output is limited, so that a loop that prints cannot flood a notebook: to `FLOOD` characters per second; every line
counts as at least `LINE` characters. A notice reports how much was cut.
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

FLOOD = 1_000_000  # characters per second, and at once, for each stream of a rank
LINE = 250
PIPE = 2**20  # bytes that C code can print while it holds Python's lock
GREETING = "[Gloo] Rank "  # a line that older versions of torch print for each rank and group when ranks have met
NO_KEYBOARD = "a rank has no keyboard: ask in the notebook and hand the answer over, pool.run(function, answer)"
NO_DEBUGGER = "a debugger cannot reach a rank: print there, or call the function here with a stand-in for comm"


class Home:
    """The connection to the kernel: one frame at a time, from any thread of the rank."""

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
        """Send a live event; its values are those that a rank may return."""
        self.send("event", *frames.encode(event))


class Lines(io.TextIOBase):
    """A text stream that is sent to the kernel line by line, as "output" frames [stream name, line].

    unheard  beginnings of unwanted lines, which are dropped
    """

    def __init__(self, name: str, home: Home, unheard: tuple[str, ...] = ()):
        self._name, self._home, self._unheard, self._rest = name, home, unheard, []
        self._room, self._filled = float(FLOOD), time.monotonic()
        self._cut = 0

    def writable(self):
        return True

    def write(self, text):
        """Send every complete line; the rest waits for its end. Output that comes too fast is truncated."""
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
        """Append to the current line; a carriage return overwrites earlier text."""
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
        """Send the last, unfinished line, and the notice about truncated text."""
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
    """Output of C code, other programs and forked children on file descriptor 1 (stdout), as lines like all others.

    fd  readable when there is output to pass on
    """

    def __init__(self, home: Home):
        self.fd, self._open = os.pipe()
        os.set_blocking(self.fd, False)
        with contextlib.suppress(OSError, AttributeError):  # a user's pipes are limited, and macOS has no such call
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE)
        os.dup2(self._open, 1)
        self._lines, self._turn = Lines("stdout", home, unheard=(GREETING,)), threading.Lock()
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def pass_on(self, finish=False):
        """Send the available output; with `finish`, also an unfinished line."""
        with self._turn, contextlib.suppress(BlockingIOError):
            while data := os.read(self.fd, PIPE):
                self._lines.write(self._text.decode(data))
        if finish:
            self._lines.finish()


def settle_in(home: Home) -> Aside:
    """Send all output of this process to the kernel, and raise an error for calls that wait for user input."""
    sys.stdout, sys.stderr = Lines("stdout", home), Lines("stderr", home)
    builtins.input = _refusing(EOFError, NO_KEYBOARD)
    sys.breakpointhook = _refusing(RuntimeError, NO_DEBUGGER)
    return Aside(home)


def _refusing(kind: type[Exception], sentence: str):
    def refuse(*_, **__):
        raise kind(sentence)

    return refuse
