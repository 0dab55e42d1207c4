"""The way home: what a rank says reaches the kernel as frames; what would ask a person is refused.

Printing is limited, so that a loop that prints cannot drown a notebook: to `FLOOD` characters a second, where
every line counts for at least `LINE`, and a notice of what was cut.
"""

import builtins
import io
import socket
import sys
import threading
import time

from hybridlab.world.processes import frames

FLOOD = 1_000_000  # characters a second, and at once, of each stream of a rank
LINE = 250
NO_KEYBOARD = "a rank has no keyboard: ask in the notebook and hand the answer over, pool.run(function, answer)"
NO_DEBUGGER = "a debugger cannot reach a rank: print there, or call the function here with a stand-in for comm"


class Home:
    """The way home to the kernel: one frame at a time, whichever thread of the rank speaks."""

    def __init__(self, sock: socket.socket):
        self._sock = sock
        self._turn = threading.Lock()

    def send(self, kind, tree=None, buffers=()):
        """Write one frame."""
        with self._turn:
            frames.send(self._sock, kind, tree, buffers)

    def event(self, event: dict):
        """Send a live event; its values are those that may be returned."""
        self.send("event", *frames.encode(event))


class Lines(io.TextIOBase):
    """A text stream that goes home line by line, as "output" frames [stream name, line]."""

    def __init__(self, name: str, home: Home):
        self._name, self._home, self._rest = name, home, ""
        self._room, self._filled = float(FLOOD), time.monotonic()
        self._cut = 0

    def writable(self):
        return True

    def write(self, text):
        """Send every line that is complete now; the rest waits for its end. What comes too fast is cut."""
        if self._flooded(max(len(text), LINE * text.count("\n"))):
            self._cut += len(text)
            self._rest = ""
            return len(text)
        if self._cut:
            self._tell_of_the_cut()
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._home.send("output", [self._name, line])
        return len(text)

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


def settle_in(home: Home):
    """Let everything that this process prints go home, and refuse what would wait for a person for ever."""
    sys.stdout, sys.stderr = Lines("stdout", home), Lines("stderr", home)
    builtins.input = _refusing(EOFError, NO_KEYBOARD)
    sys.breakpointhook = _refusing(RuntimeError, NO_DEBUGGER)


def _refusing(kind: type[Exception], sentence: str):
    def refuse(*_, **__):
        raise kind(sentence)

    return refuse
