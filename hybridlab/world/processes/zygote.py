"""The zygote, the one warm parent of all ranks of a kernel. Read before: `handle`, the kernel's hold on it.

Started as `python -m hybridlab.world.processes.zygote FD`, it imports torch once and forks ranks from that state, so
four ranks are ready in a fraction of a second. It keeps no thread and never touches CUDA: both would be broken in its
children. Only a parent can wait for a process, so the zygote also tells how each rank ended, whatever it is doing:
while it imports, it listens to its signals. And only a parent can be sure of a pid, so what a rank has started is ended
here: processes whose rank has died go to the zygote (`strays`).

Two kinds of socket lead here, both SOCK_SEQPACKET:
  control   the kernel asks for a pool: one packet that names the pool's folder, with the pool's line, its journal and
            one end per rank; or it names a module that ranks import: one packet, and nothing with it
  line      one per pool, which lives as long as the kernel keeps its side open; back on it come first why there is no
            folder, or the pids, with a handle for each process where the system has such, then exits: [rank, code,
            bytes of memory held], then its end
The folder is made and removed here, so that nothing is left of it when the kernel dies; the kernel has named it, so
that nothing is left when the zygote does, at whatever moment. When the control socket closes, however the kernel ended,
every rank is killed and the zygote leaves.
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

IDLE_SECONDS = 0.1  # without any request, before the zygote uses the time
FILES = 2**16  # that a rank may have open, if the system lets it
MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes


@dataclass
class Pool:
    """Ranks that started together: their line to the kernel, their private folder, and the rank of each living pid.

    wanted  whether the kernel keeps its side of the line open
    """

    line: socket.socket
    folder: str
    living: dict[int, int] = field(default_factory=dict)
    wanted: bool = True


class Zygote:
    """A loop over the three things that can happen: a pool is asked for, a pool is given up, a rank ends.

    `live(sock, journal, folder, parent)` is what a forked rank does with its life.
    """

    def __init__(self, control: socket.socket, live):
        self.control = control
        self.live = live
        self.warm = self.retired = self.importing = self.reaping = False
        self.pools: list[Pool] = []
        self.bell, self.ringer = os.pipe()  # the ringer is written to when a child ends, which wakes the loop
        self.events = selectors.DefaultSelector()
        self.events.register(control, selectors.EVENT_READ, self.answer)
        self.events.register(self.bell, selectors.EVENT_READ, self.reap)

    def serve(self):
        """Answer until the kernel has gone."""
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
        """Import what ranks would otherwise import, each of them, with their first optimizer."""
        with contextlib.suppress(OSError):  # its folder for what is compiled may lie where nobody may write
            self.bring_in("torch._dynamo")
        tidy_up()
        self.warm = True

    @contextlib.contextmanager
    def busy(self):
        """While something takes long: a rank's end is told at once, and at the kernel's end this process leaves."""
        self.importing = True
        try:
            self.collect()  # whoever ended just before
            with when_gone(self.control, lambda: self.reaping or self.leave()):
                yield
        finally:
            self.importing = False

    def bring_in(self, module: str):
        """Import a module for all ranks to come, who share its pages too."""
        with self.busy():
            importlib.import_module(module)
        gc.freeze()

    def answer(self):
        """Do what the kernel asks for: a pool, a module, or an end."""
        request, fds, *_ = socket.recv_fds(self.control, 4096, MOST_RANKS + 2)
        if fds:
            self.start_pool(request, fds)
        elif request not in (b"", RETIRE):
            if not self.warm:  # once here, not in each rank of the pool that is asked for next
                self.warm_up()
            with contextlib.suppress(Exception):  # the rank that needs it says what is wrong with it
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
        """Tell the kernel who its ranks are; a handle stays with its process when the pid has gone to another."""
        handles = [os.pidfd_open(pid) for pid in pool.living] if hasattr(os, "pidfd_open") else []
        with contextlib.suppress(OSError):  # the kernel may have gone before
            socket.send_fds(pool.line, [json.dumps(["", list(pool.living)]).encode()], handles)
        for handle in handles:
            os.close(handle)

    def become_rank(self, end: int, journal: int, folder: str, received: list[int], parent: int):
        """In the child: let go of all that is the zygote's, then live as a rank. Never returns."""
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
        """The kernel has closed its side of the line: end every rank of the pool."""
        self.events.unregister(pool.line)
        pool.wanted = False
        for pid in pool.living:
            _kill_group(pid)
        self.forget_the_unwanted()

    def reap(self):
        """The bell has rung: tell of the ranks that have ended, and end what they leave behind."""
        os.read(self.bell, 4096)
        self.collect()
        for pid in strays({pid for pool in self.pools for pid in pool.living}):
            _kill_group(pid)  # its own children come here in turn, and ring again
            os.waitpid(pid, 0)
        self.forget_the_unwanted()

    def collect(self):
        """Tell the exit of every rank that has ended, and end its process group, while the pid is still its own."""
        if self.reaping:  # in a signal, in the middle of this: the bell rings again
            return
        self.reaping = True
        for pool in self.pools:
            for pid, rank in list(pool.living.items()):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    _kill_group(pid)
                    _, status, used = os.wait4(pid, 0)
                    del pool.living[pid]
                    exit = [rank, os.waitstatus_to_exitcode(status), used.ru_maxrss * MAXRSS_UNIT]
                    with contextlib.suppress(OSError):  # the kernel may have gone before
                        pool.line.send(json.dumps(exit).encode())
                        if not pool.living:
                            pool.line.shutdown(socket.SHUT_WR)
        self.reaping = False

    def forget_the_unwanted(self):
        """Let go of pools of which nothing is left and nobody wants to know."""
        for pool in [pool for pool in self.pools if not (pool.living or pool.wanted)]:
            self.pools.remove(pool)
            pool.line.close()
            shutil.rmtree(pool.folder, ignore_errors=True)
        if self.retired and not self.pools:
            self.leave()

    def leave(self):
        """End every rank, what they have started, and this process."""
        self.importing = False  # whoever ends now is waited for here, and in no signal
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
    """Kill a rank and its children; a rank just forked leads no group yet, a rank that has ended may leave none."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def main(fd: int):
    """Warm up, then serve the kernel on the other side of `fd`."""
    own_network()  # before any thread is started
    control = socket.socket(fileno=fd)
    with when_gone(control, lambda: os._exit(tidy_up() or 0)):
        import torch

        from hybridlab.world.processes import rank  # brings torch.distributed, cloudpickle and numpy

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a rank that aborts should not write gigabytes to disk
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = FILES if most == resource.RLIM_INFINITY else min(most, FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (room, most))  # who connects to a rank and says nothing takes one
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # what a rank has started comes here when it is an orphan
    gc.freeze()  # the collector would touch, and so copy, every page that the ranks share
    Zygote(control, rank.live).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
