"""The zygote, the one warm parent of all ranks of a kernel: first the kernel's hold on it, then the process itself.

Started as `python -m hybridlab.world.processes.zygote FD`, it imports torch once and forks ranks from that state, so
four ranks are ready in a fraction of a second. It keeps no thread and never touches CUDA: both would be broken in its
children. Only a parent can wait for a process, so the zygote also tells how each rank ended.

Two kinds of socket lead here, both SOCK_SEQPACKET:
  control   the kernel asks for a pool: one packet holding the pool's folder, with the pool's line and one end per rank
  line      one per pool, which lives as long as the kernel keeps its side open; exits go back on it as
            [rank, code, bytes of memory held]
When the control socket closes, however the kernel ended, every rank is killed and the zygote leaves.
"""

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from hybridlab.world.processes.frames import MOST_RANKS

RETIRE = b"retire"  # on the control: leave as soon as the last pool is gone
IDLE_SECONDS = 0.1  # without any request, before the zygote uses the time
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes
OFTEN_NEEDED = ("torch._dynamo", "hybridlab.train.check")  # by a first optimizer; by checks, runs and trainings
END_SECONDS = 5.0  # for the zygote to leave; it can be importing torch when it is told to


class Handle:
    """The kernel's hold on its zygote: started when first needed, and again when it has died or the package changed.

    A zygote that is out of date lives on with the ranks it has, and forks no more.
    """

    def __init__(self):
        self._turn = threading.Lock()
        self._process = self._control = self._edition = None
        self._retired: list[tuple] = []

    def fork(self, folder: str, ends: list[socket.socket]):
        """Ask for a pool: its private folder, and its line and one socket per rank, each the far end of a pair."""
        with self._turn:
            if self._process is not None and self._edition != edition():
                with contextlib.suppress(OSError):  # it may have died
                    self._control.send(RETIRE)
                self._retired.append((self._process, self._control))
                self._process = None
            if self._process is None:
                self._start()
            request = [os.fsencode(folder)], [end.fileno() for end in ends]
            try:
                socket.send_fds(self._control, *request)
            except ConnectionError:  # it has died since
                self._start()
                socket.send_fds(self._control, *request)

    def close(self):
        """End the zygote, and with it every rank."""
        for process, control in self._all():
            control.close()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self._process, self._retired = None, []

    def forget(self):
        """In a forked child: this zygote belongs to the parent, and the next request starts another."""
        for _, control in self._all():
            control.close()
        self.__init__()

    def _all(self) -> list[tuple]:
        return self._retired + ([(self._process, self._control)] if self._process else [])

    def _start(self):
        if not importlib.util.find_spec("torch"):
            raise RuntimeError("ranks compute with torch, which is not installed here: pip install torch")
        if self._process is not None:
            self._control.close()
            self._process.wait()
        self._edition = edition()
        self._control, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "utf8", "-m", "hybridlab.world.processes.zygote", str(end.fileno())],
                cwd=Path(__file__).parents[3],  # where -m looks first; the driver's folder may hold a file torch.py
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[end.fileno()],
                start_new_session=True,  # out of reach of Ctrl-C
            )


def edition() -> int:
    """A number that changes whenever a file of this package does."""
    package = Path(__file__).parents[2]
    return hash(tuple((str(file), file.stat().st_mtime_ns) for file in package.rglob("*.py")))


@dataclass
class Pool:
    """Ranks that started together: their line to the kernel, their private folder, and the rank of each living pid."""

    line: socket.socket
    folder: str
    living: dict[int, int] = field(default_factory=dict)


class Zygote:
    """A loop over the three things that can happen: a pool is asked for, a pool is given up, a rank ends.

    `live(sock, parent)` is what a forked rank does with its life.
    """

    def __init__(self, control: socket.socket, live):
        self.control = control
        self.live = live
        self.warm = self.retired = False
        self.pools: list[Pool] = []
        self.bell, self.ringer = os.pipe()  # the ringer is written to when a child ends, which wakes the loop
        self.events = selectors.DefaultSelector()
        self.events.register(control, selectors.EVENT_READ, self.start_pool)
        self.events.register(self.bell, selectors.EVENT_READ, self.reap)

    def serve(self):
        """Answer until the kernel has gone."""
        os.set_blocking(self.ringer, False)
        signal.set_wakeup_fd(self.ringer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            happened = self.events.select(None if self.warm else IDLE_SECONDS)
            for key, _ in happened:
                key.data()
            if not happened:
                self.warm_up()

    def warm_up(self):
        """While nothing happens, import what ranks would otherwise import, each of them."""
        for name in OFTEN_NEEDED:
            importlib.import_module(name)
        gc.freeze()
        self.warm = True

    def start_pool(self):
        """Fork one rank for every end that came with the request."""
        folder, fds, *_ = socket.recv_fds(self.control, 4096, MOST_RANKS + 1)
        if folder in (b"", RETIRE):
            self.retired = True
            if not folder or not self.pools:
                self.leave()
            return
        line, *ends = fds
        pool = Pool(socket.socket(fileno=line), os.fsdecode(folder))
        parent = os.getpid()
        for r, end in enumerate(ends):
            pid = os.fork()
            if pid == 0:
                self.become_rank(end, fds, parent)
            pool.living[pid] = r
        for end in ends:
            os.close(end)
        self.pools.append(pool)
        self.events.register(pool.line, selectors.EVENT_READ, lambda: self.kill(pool))

    def become_rank(self, end: int, received: list[int], parent: int):
        """In the child: let go of all that is the zygote's, then live as a rank. Never returns."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.events.close()
            lines = [pool.line.fileno() for pool in self.pools]
            for fd in {self.control.fileno(), self.bell, self.ringer, *lines, *received} - {end}:
                os.close(fd)
            self.live(socket.socket(fileno=end), parent)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def kill(self, pool: Pool):
        """The kernel has closed its side of the line: end every rank of the pool."""
        if pool not in self.pools:  # its last rank ended in the same moment
            return
        self.events.unregister(pool.line)
        for pid in pool.living:
            _kill_group(pid)

    def reap(self):
        """Tell the exit of every rank that has ended; a pool without ranks goes."""
        os.read(self.bell, 4096)
        for pool in list(self.pools):
            for pid in list(pool.living):
                ended, status, used = os.wait4(pid, os.WNOHANG)
                if ended:
                    self.report(pool, pid, os.waitstatus_to_exitcode(status), used.ru_maxrss * MAXRSS_UNIT)
            if not pool.living:
                self.forget(pool)

    def report(self, pool: Pool, pid: int, code: int, held: int):
        """Send one exit and the memory it held home; end what the rank had started: its process group outlives it."""
        _kill_group(pid)
        with contextlib.suppress(OSError):  # the kernel may have gone before
            pool.line.send(json.dumps([pool.living.pop(pid), code, held]).encode())

    def forget(self, pool: Pool):
        """Close the line, which tells the kernel that nothing is left of the pool."""
        self.pools.remove(pool)
        if pool.line in self.events.get_map():
            self.events.unregister(pool.line)
        pool.line.close()
        shutil.rmtree(pool.folder, ignore_errors=True)
        if self.retired and not self.pools:
            self.leave()

    def leave(self):
        """End every rank and this process."""
        for pool in self.pools:
            for pid in pool.living:
                _kill_group(pid)
            shutil.rmtree(pool.folder, ignore_errors=True)
        os._exit(0)


def _kill_group(pid: int):
    """Kill a rank and its children; a rank just forked leads no group yet, a rank that has ended may leave none."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def main(fd: int):
    """Warm up, then serve the kernel on the other side of `fd`."""
    import torch

    from hybridlab.world.processes import rank  # brings torch.distributed, cloudpickle and numpy

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a rank that aborts should not write gigabytes to disk
    gc.freeze()  # the collector would touch, and so copy, every page that the ranks share
    Zygote(socket.socket(fileno=fd), rank.live).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
