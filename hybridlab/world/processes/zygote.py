"""The zygote, the one warm parent of all ranks of a kernel. Read before: `handle`, the kernel's connection to it.

Started as `python -m hybridlab.world.processes.zygote FD`, it imports torch once and forks ranks from that state, so
four ranks are ready in a fraction of a second. It has no threads and never touches CUDA: neither would work in its
children. Only a parent can wait for a process. So the zygote also reports how each rank ended, even during an import,
when it handles signals. And only a parent can be sure that a pid is still that of its child. So the zygote ends the
children of ranks: processes whose rank has died become its children (`strays`).

It has two kinds of socket, both SOCK_SEQPACKET:
  control   the kernel requests a pool: one packet with the name of the pool's folder, together with the pool's line,
            its journal and one end per rank; or it names a module that ranks import: one packet alone
  line      one per pool, which lives as long as the kernel keeps its side open. The zygote first sends the reason why
            there is no folder, or the pids, with a handle for each process if the system has them; then exits: [rank,
            code, bytes of memory used]; then its end
The zygote makes and removes the folder, so that nothing remains when the kernel dies. The kernel chooses its name, so
that it can remove the folder if the zygote dies at any moment. When the control socket closes, however the kernel
ended, the zygote kills every rank and leaves.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import traceback
from dataclasses import dataclass, field

from hybridlab.world.processes.frames import MOST_RANKS
from hybridlab.world.processes.gone import when_gone
from hybridlab.world.processes.handle import RETIRE, tidy_up
from hybridlab.world.processes.namespaces import own_network
from hybridlab.world.processes.strays import PR_SET_CHILD_SUBREAPER, strays

IDLE_SECONDS = 0.1  # seconds without any request, before the zygote uses the time
FILES = 2**16  # limit of a rank's open files, if the system allows it
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes


@dataclass
class Pool:
    """Ranks that started together: their line to the kernel, their private folder, and the rank of each running pid.

    wanted  whether the kernel keeps its side of the line open
    """

    line: socket.socket
    folder: str
    living: dict[int, int] = field(default_factory=dict)
    wanted: bool = True


class Zygote:
    """A loop over three kinds of events: a pool is requested, a pool is given up, a rank ends.

    A forked rank calls `live(sock, journal, folder, parent)`.
    """

    def __init__(self, control: socket.socket, live):
        self.control = control
        self.live = live
        self.warm = self.retired = self.importing = self.reaping = False
        self.pools: list[Pool] = []
        self.bell, self.ringer = os.pipe()  # a child's end writes to the ringer, which wakes the loop
        self.events = selectors.DefaultSelector()
        self.events.register(control, selectors.EVENT_READ, self.answer)
        self.events.register(self.bell, selectors.EVENT_READ, self.reap)

    def serve(self):
        """Serve requests until the kernel has ended."""
        os.set_blocking(self.ringer, False)
        signal.set_wakeup_fd(self.ringer)
        signal.signal(signal.SIGCHLD, lambda *_: self.importing and self.collect())
        while True:
            happened = self.events.select(None if self.warm else IDLE_SECONDS)
            for key, _ in happened:
                key.data()
            if not happened:
                self.warm_up()

    def warm_up(self):
        """Import all modules that ranks need, and create a first optimizer, so that no rank has to."""
        with contextlib.suppress(OSError):  # its folder for compiled code may be in a place that is not writable
            self.bring_in("torch._dynamo")
        tidy_up()
        self.warm = True

    @contextlib.contextmanager
    def busy(self):
        """A context for long work, in which a rank's end is reported at once, and this process leaves when the kernel
        ends.
        """
        self.importing = True
        try:
            self.collect()  # ranks that ended just before
            with when_gone(self.control, lambda: self.reaping or self.leave()):
                yield
        finally:
            self.importing = False

    def bring_in(self, module: str):
        """Import a module for all later ranks, which share its memory pages too."""
        with self.busy():
            importlib.import_module(module)
        gc.freeze()

    def answer(self):
        """Serve a request of the kernel: a pool, a module, or an end."""
        request, fds, *_ = socket.recv_fds(self.control, 4096, MOST_RANKS + 2)
        if fds:
            self.start_pool(request, fds)
        elif request not in (b"", RETIRE):
            if not self.warm:  # once here, instead of in each rank of the next pool
                self.warm_up()
            with contextlib.suppress(Exception):  # the rank that needs it reports the error
                self.bring_in(request.decode())
        else:
            self.retired = True
            if not request or not self.pools:
                self.leave()

    def start_pool(self, named: bytes, fds: list[int]):
        """Make the pool's folder (mode 0700), and fork one rank for every end that came with the request."""
        line, journal, *ends = fds
        line, parent = socket.socket(fileno=line), os.getpid()
        try:
            os.mkdir(named, 0o700)
        except OSError as error:
            place = os.path.dirname(os.fsdecode(named))
            line.send(json.dumps([f"{place} takes no folder for the ranks: {error.strerror}", []]).encode())
            ends.append(line.detach())
        else:
            pool = Pool(line, os.fsdecode(named))
            for r, end in enumerate(ends):
                pid = os.fork()
                if pid == 0:
                    self.become_rank(end, journal, pool.folder, fds, parent)
                pool.living[pid] = r
            self.pools.append(pool)
            self.events.register(line, selectors.EVENT_READ, lambda: self.kill(pool))
            self.introduce(pool)
        for end in (journal, *ends):
            os.close(end)

    def introduce(self, pool: Pool):
        """Send the pids of a pool's ranks to the kernel; a handle stays valid when its pid has been reused."""
        handles = [os.pidfd_open(pid) for pid in pool.living] if hasattr(os, "pidfd_open") else []
        with contextlib.suppress(OSError):  # the kernel may have ended before
            socket.send_fds(pool.line, [json.dumps(["", list(pool.living)]).encode()], handles)
        for handle in handles:
            os.close(handle)

    def become_rank(self, end: int, journal: int, folder: str, received: list[int], parent: int):
        """In the child: close everything that belongs to the zygote, then live as a rank. Never returns."""
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGIO):
                signal.signal(number, signal.SIG_DFL)
            self.events.close()
            lines = [pool.line.fileno() for pool in self.pools]
            for fd in {self.control.fileno(), self.bell, self.ringer, *lines, *received} - {end, journal}:
                os.close(fd)
            self.live(socket.socket(fileno=end), journal, folder, parent)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def kill(self, pool: Pool):
        """End every rank of a pool, after the kernel has closed its side of the line."""
        self.events.unregister(pool.line)
        pool.wanted = False
        for pid in pool.living:
            _kill_group(pid)
        self.forget_the_unwanted()

    def reap(self):
        """After the bell: report the ranks that have ended, and end the processes that they leave running."""
        os.read(self.bell, 4096)
        self.collect()
        for pid in strays({pid for pool in self.pools for pid in pool.living}):
            _kill_group(pid)  # children of such a process then become children of this one, and ring again
            os.waitpid(pid, 0)
        self.forget_the_unwanted()

    def collect(self):
        """Report the exit of every rank that has ended, and end its process group, while the pid is still its own."""
        if self.reaping:  # in a signal handler, during this function: the bell rings again
            return
        self.reaping = True
        for pool in self.pools:
            for pid, rank in list(pool.living.items()):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    _kill_group(pid)
                    _, status, used = os.wait4(pid, 0)
                    del pool.living[pid]
                    exit = [rank, os.waitstatus_to_exitcode(status), used.ru_maxrss * MAXRSS_UNIT]
                    with contextlib.suppress(OSError):  # the kernel may have ended before
                        pool.line.send(json.dumps(exit).encode())
                        if not pool.living:
                            pool.line.shutdown(socket.SHUT_WR)
        self.reaping = False

    def forget_the_unwanted(self):
        """Remove pools without any process whose kernel has closed the line."""
        for pool in [pool for pool in self.pools if not (pool.living or pool.wanted)]:
            self.pools.remove(pool)
            pool.line.close()
            shutil.rmtree(pool.folder, ignore_errors=True)
        if self.retired and not self.pools:
            self.leave()

    def leave(self):
        """End every rank, its children, and this process."""
        self.importing = False  # from now on, ended ranks are waited for here, and not in a signal handler
        for pool in self.pools:
            for pid in pool.living:
                _kill_group(pid)
        while left := strays(set()):
            for pid in left:
                _kill_group(pid)
                os.waitpid(pid, 0)
        for pool in self.pools:
            shutil.rmtree(pool.folder, ignore_errors=True)
        tidy_up()
        os._exit(0)


def _kill_group(pid: int):
    """Kill a rank and its children; a rank just forked has no group yet, a rank that has ended may leave none."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def main(fd: int):
    """Warm up, then serve the kernel on the other side of `fd`."""
    own_network()  # before any thread is started
    control = socket.socket(fileno=fd)
    with when_gone(control, lambda: os._exit(tidy_up() or 0)):
        import torch

        from hybridlab.world.processes import rank  # imports torch.distributed, cloudpickle and numpy

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a rank that aborts should not write gigabytes to disk
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = FILES if most == resource.RLIM_INFINITY else min(most, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (room, most))  # a connection to a rank that sends nothing takes one file
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # this process adopts a rank's orphaned processes
    gc.freeze()  # the collector would touch, and so copy, every page that the ranks share
    Zygote(control, rank.live).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
