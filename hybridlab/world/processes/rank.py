"""The life of one rank, from the fork to `os._exit`: it connects to the others, and then runs functions for the kernel.

Read `zygote` before and `comm` after. A rank sends frames to the kernel: "ready", "output", "event", and for each call
one "result" or one "fault".
"""

import ctypes
import faulthandler
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

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.meet import meet
from hybridlab.world.devices.placement import Placement
from hybridlab.world.processes import frames
from hybridlab.world.processes.handle import MARK
from hybridlab.world.processes.home import Aside, Home, settle_in
from hybridlab.world.processes.strays import PR_SET_CHILD_SUBREAPER
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.journal import Pen
from hybridlab.world.talk.ledger import Ledger
from hybridlab.world.talk.overheard import Overheard

PR_SET_PDEATHSIG = 1
BEAT_SECONDS = 0.2
LAST_WORDS = 1_000_000  # bytes of the stderr of C code
LONGEST_MESSAGE = 10_000  # characters of an exception


def live(sock: socket.socket, journal: int, folder: str, parent: int):
    """Be a rank until the kernel closes the other side of `sock`; `parent` is the zygote's pid.

    journal  its open file;  folder  the private folder of the pool
    """
    _detach(parent)
    home, inbox = Home(sock), frames.Inbox(sock)
    try:
        hello = inbox.poll().tree
        pen = Pen(journal, hello["rank"])
        os.close(journal)
        stack = open(os.path.join(folder, f"stack-{hello['rank']}"), "a")  # open as long as the process lives
        aside = settle_in(home)
        threading.Thread(target=_beat, args=(sock, pen, aside, stack.fileno()), daemon=True).start()
        comm = _join(hello, home, pen, stack, folder)
        home.send("ready")
        while True:
            _serve(inbox.poll(), comm, home, pen, aside)
    except (EOFError, ConnectionError):
        os._exit(0)
    except Exception as error:
        home.send("fault", _fault(error))
        signal.pause()  # the kernel ends the full pool; leaving now would only turn the others into victims


def _detach(parent: int):
    """Run independently, out of reach of Ctrl-C, but killed when the zygote dies; this process becomes the parent of
    orphaned descendants.
    """
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent:  # the zygote died before the line above
        os._exit(1)


def _beat(sock: socket.socket, pen: Pen, aside: Aside, stack: int):
    """Report that Python runs, until the kernel closes its side; then end this rank in any case.

    It also passes on the output of other programs, and limits the stderr of C code.
    """
    closed = select.poll()
    closed.register(sock, 0)  # no events requested: a hang-up is always reported
    closed.register(aside.fd, select.POLLIN)
    while sock.fileno() not in dict(closed.poll(BEAT_SECONDS * 1000)):
        pen.beat()
        aside.pass_on()
        if os.fstat(stack).st_size > LAST_WORDS:
            os.truncate(stack, 0)
    os._exit(0)


def _join(hello: dict, home: Home, pen: Pen, stack, folder: str) -> Comm:
    """Take over the driver's environment, then meet the other ranks and open the groups."""
    os.environ.clear()
    placed = Placement(**hello["placed"])
    os.environ.update(hello["environ"], **placed.environment(hello["rank"]), **{MARK: folder})
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "compiled"))  # else the folder would remain
    os.chdir(hello["cwd"])
    sys.path[:] = hello["path"]
    faulthandler.register(signal.SIGUSR1, stack)
    faulthandler.enable(stack)
    os.dup2(stack.fileno(), 2)  # the stderr of C code before it aborts is reported with the fault, but only then
    mesh = Mesh(**dict(hello["axes"]))
    timeout = timedelta(seconds=hello["longest"])
    store = dist.FileStore(os.path.join(folder, "store"), mesh.size)
    meet(placed, timeout, store=store, rank=hello["rank"], world_size=mesh.size)
    groups = [tuple(axes) for axes in hello["groups"]]
    comm = Comm(mesh, hello["rank"], placed=placed, groups=groups, timeout=timeout, on_event=home.event)
    comm.ledger = Ledger(mesh, pen)
    comm.overheard = Overheard(comm)
    return comm


def _serve(call: frames.Frame, comm: Comm, home: Home, pen: Pen, aside: Aside):
    """Run one function and send its result, or its failure, with the number of the run.

    A forked child of the rank may return here too. It is not a rank, so it ends.
    """
    try:
        function, args, kwargs = cloudpickle.loads(call.buffers[0])
        pen.begin_run(call.run)
        comm.ledger.clear()
        result = function(comm, *args, **kwargs)
        if home.forked:
            os._exit(0)
        comm.settle()
        answer = "result", *frames.encode(result)
        comm.ledger.close()
    except BaseException as error:  # sys.exit too: leaving before the result is a failure
        if home.forked:
            traceback.print_exc()
            os._exit(1)
        comm.ledger.failed = True  # its stack frames are freed now, with messages that it would have awaited
        answer = "fault", _fault(error), ()
    sys.stdout.finish()
    sys.stderr.finish()
    aside.pass_on(finish=True)
    home.send(*answer, run=call.run)


def _fault(error: BaseException) -> list:
    """The failure as plain values: type, message, every line of the traceback, and the time (seconds, monotonic)."""
    lines = [[line.filename, line.lineno, line.name] for line in traceback.extract_tb(error.__traceback__)]
    message = str(error)
    cut = f" … [cut: {len(message)} characters]" if len(message) > LONGEST_MESSAGE else ""
    return [type(error).__name__, message[:LONGEST_MESSAGE] + cut, lines, time.monotonic()]
