"""The life of one rank, from the fork to `os._exit`: join the others, then run function after function for the kernel.

Read `zygote` before and `comm` after. What goes home goes as frames: "ready", "output", "event", and for each call one
"result" or one "fault".
"""

import ctypes
import faulthandler
import io
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta

import cloudpickle
import torch.distributed as dist

from hybridlab.core.mesh import Mesh
from hybridlab.world import frames
from hybridlab.world.comm import Comm, Ledger

PR_SET_PDEATHSIG = 1
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
LONGEST = timedelta(days=30)


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

    def writable(self):
        return True

    def write(self, text):
        """Send every line that is complete now; the rest waits for its end."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._home.send("output", [self._name, line])
        return len(text)

    def finish(self):
        """Send a last line that has no end."""
        if self._rest:
            self.write("\n")


def live(sock: socket.socket, parent: int):
    """Be a rank until the kernel closes the other side of `sock`; `parent` is the zygote's pid."""
    _detach(parent)
    threading.Thread(target=_leave_with, args=(sock,), daemon=True).start()
    home, inbox = Home(sock), frames.Inbox(sock)
    try:
        hello = inbox.poll().tree
        sys.stdout, sys.stderr = Lines("stdout", home), Lines("stderr", home)
        comm = _join(hello, home)
        home.send("ready", os.getpid())
        while True:
            _serve(inbox.poll(), comm, home)
    except (EOFError, ConnectionError):
        os._exit(0)
    except Exception as error:
        home.send("fault", _fault(error))
        signal.pause()  # the kernel ends the whole pool; leaving now would only turn the others into victims


def _detach(parent: int):
    """Stand alone: out of reach of Ctrl-C, but killed when the zygote dies."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _leave_with(sock: socket.socket):
    """Wait for the kernel to close its side, then end this rank, whatever it is doing."""
    closed = select.poll()
    closed.register(sock, 0)  # no events asked for: a hang-up is always told
    closed.poll()
    os._exit(0)


def _join(hello: dict, home: Home) -> Comm:
    """Take over the driver's surroundings, then meet the other ranks and open the groups."""
    os.environ.clear()
    os.environ.update(hello["environ"], GLOO_SOCKET_IFNAME=LOOPBACK)
    os.chdir(hello["cwd"])
    sys.path[:] = hello["path"]
    stack = open(os.path.join(hello["folder"], f"stack-{hello['rank']}"), "w")  # open for life
    faulthandler.register(signal.SIGUSR1, stack)
    mesh = Mesh(**dict(hello["axes"]))
    # The kernel ends a silent pool after `timeout` with a better sentence than gloo's, so gloo waits longer.
    timeout = min(3 * timedelta(seconds=hello["timeout"]), LONGEST)
    store = dist.FileStore(os.path.join(hello["folder"], "store"), mesh.size)
    dist.init_process_group("gloo", store=store, rank=hello["rank"], world_size=mesh.size, timeout=timeout)
    groups = [tuple(axes) for axes in hello["groups"]]
    return Comm(mesh, hello["rank"], groups=groups, timeout=timeout, on_event=home.event)


def _serve(call: frames.Frame, comm: Comm, home: Home):
    """Run one function and send home its result, or how it failed."""
    try:
        function, args, kwargs = cloudpickle.loads(call.buffers[0])
        comm.ledger = Ledger(comm.mesh)
        answer = "result", *frames.encode(function(comm, *args, **kwargs))
    except BaseException as error:  # sys.exit too: leaving before the result is a failure
        answer = "fault", _fault(error)
    sys.stdout.finish()
    sys.stderr.finish()
    home.send(*answer)


def _fault(error: BaseException) -> list:
    """What went wrong, in plain values: type, message, every line of the traceback, and when (seconds, monotonic)."""
    lines = [[line.filename, line.lineno, line.name] for line in traceback.extract_tb(error.__traceback__)]
    return [type(error).__name__, str(error), lines, time.monotonic()]
