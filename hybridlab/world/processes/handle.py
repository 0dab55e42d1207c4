"""The kernel's connection to its zygote, the warm parent of all ranks: starting it, requesting pools, ending it."""

import contextlib
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from hybridlab.lazily import how_to_install

RETIRE = b"retire"  # on the control socket: leave as soon as the last pool is gone
MARK = "HYBRIDLAB_RANKS"  # an environment variable of all processes that a rank starts: the folder of its pool
COMMAND = ("-m", "hybridlab.world.processes.zygote")
PACKAGE = __package__.partition(".")[0]
END_SECONDS = 5.0  # seconds for the zygote to leave; it may be importing torch at that time


class Handle:
    """The kernel's connection to its zygote, which starts when needed, and again after it died or the package changed.

    An outdated zygote lives on with its ranks, but forks no more.
    """

    def __init__(self):
        self._turn = threading.Lock()
        self._process = self._control = self._edition = None
        self._named: set[str] = set()
        self._retired: list[tuple] = []

    def fork(self, folder: str, fds: list[int]):
        """Request a pool: its folder, the far end of its line, its journal, the far ends of one socket per rank."""
        with self._turn:
            if self._process is not None and self._edition != edition():
                with contextlib.suppress(OSError):  # the zygote may have died
                    self._control.send(RETIRE)
                self._retired.append((self._process, self._control))
                self._process = None
            if self._process is None:
                self._start()
            request = [os.fsencode(folder)], fds
            try:
                socket.send_fds(self._control, *request)
            except ConnectionError:  # it has died since
                self._start()
                socket.send_fds(self._control, *request)

    def expect(self, module: str):
        """Name a module that ranks import. The zygote imports this package's modules once, and all that training needs.

        It does not import modules from outside this package: they may change between two runs, start threads, or use a
        GPU.
        """
        with self._turn, contextlib.suppress(OSError):  # the zygote may have died
            if module.partition(".")[0] == PACKAGE and module not in self._named:
                if self._process is None:
                    self._start()
                self._named.add(module)
                self._control.send(module.encode())

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
        """In a forked child: this zygote belongs to the parent, and the next request starts another one."""
        for _, control in self._all():
            control.close()
        self.__init__()

    def _all(self) -> list[tuple]:
        return self._retired + ([(self._process, self._control)] if self._process else [])

    def _start(self):
        if not importlib.util.find_spec("torch"):
            raise RuntimeError(f"ranks compute with torch, and {how_to_install(ModuleNotFoundError(name='torch'))}")
        if self._process is not None:
            self._control.close()
            self._process.wait()
        self._edition, self._named = edition(), set()
        self._control, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "utf8", *COMMAND, str(end.fileno())],
                cwd=Path(__file__).parents[3],  # -m looks here first; the driver's folder may contain a file torch.py
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                pass_fds=[end.fileno()],
                start_new_session=True,  # out of reach of Ctrl-C
            )


def edition() -> int:
    """A number that changes whenever a file of this package does."""
    package = Path(__file__).parents[2]
    return hash(tuple((str(file), file.stat().st_mtime_ns) for file in package.rglob("*.py")))


def unguessed() -> str:
    """An unpredictable name for the folder of a pool, as a full path, because ranks have other working directories.

    torch opens only files whose names are text (UTF-8).
    """
    place = os.path.abspath(tempfile.gettempdir())
    try:
        place.encode()
    except UnicodeEncodeError:
        place = "/tmp"
    return os.path.join(place, f"hybridlab-{secrets.token_hex(6)}")


def tidy_up():
    """Remove the folder that torch's optimizers make for compiled code, if nothing was compiled.

    If its name is not known, all such folders are tried, because a killed kernel may have left one.
    """
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    for folder in [named] if named else Path(tempfile.gettempdir()).glob("torchinductor_*"):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
