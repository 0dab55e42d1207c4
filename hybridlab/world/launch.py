"""The kernel's side of the ranks: a pool of real processes that runs functions and explains every failure.

Works from scripts without a `__main__` guard, notebooks, threads and forked processes, and leaves no process behind.
The kernel itself never loads torch here. Read next: `gang`, the processes of a pool; `supervise`, the explanations.
"""

import sys
import threading
import time

from hybridlab.core.mesh import Mesh
from hybridlab.world import frames
from hybridlab.world.frames import MOST_RANKS
from hybridlab.world.gang import START_SECONDS, Gang
from hybridlab.world.supervise import RankError, failure, fault_of, patience, silence

__all__ = ["RankError", "Ranks", "ranks"]


def ranks(n_or_mesh: int | Mesh, *, timeout: float = 60.0, on_event=None, groups=()) -> "Ranks":
    """A pool of real ranks, for use in a `with`; a number n means Mesh(world=n).

    timeout  seconds in which at least one rank must give a sign (event, output, result); else the run is ended
    on_event  called as on_event(rank, event) for every `comm.emit(…)`, while the ranks run
    groups  tuples of axes, besides the single axes and all ranks, along which the ranks will talk
    raises  ValueError for less than 1 or more than 64 ranks
    """
    mesh = n_or_mesh if isinstance(n_or_mesh, Mesh) else Mesh(world=n_or_mesh)
    if mesh.size > MOST_RANKS:
        raise ValueError(f"{mesh.size} ranks are too many for one machine: ask for {MOST_RANKS} or fewer")
    return Ranks(mesh, timeout, on_event, groups)


class Ranks:
    """Ranks that stay between runs; any failure or interrupt ends them all, and the next run starts fresh ones."""

    def __init__(self, mesh, timeout, on_event, groups):
        self.mesh, self.size, self.timeout = mesh, mesh.size, timeout
        self._on_event, self._groups = on_event, groups
        self._gang: Gang | None = None
        self._turn = threading.Lock()

    def __enter__(self):
        self._started()
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        return f"ranks({self.mesh}), {'running' if self._gang else 'stopped'}"

    def run(self, function, *args, on_event=None, **kwargs) -> list:
        """Run `function(comm, *args, **kwargs)` on every rank; returns their results in rank order.

        raises  RankError when a rank fails or all are silent for the timeout; TypeError when the call cannot be sent;
        RuntimeError when another run is going on
        """
        call = _pickled(function, args, kwargs)
        if not self._turn.acquire(blocking=False):
            raise RuntimeError("these ranks are already running a function: wait for it, or open another hl.ranks(…)")
        try:
            gang = self._started()
            if not gang.pids:
                ready = self._await("ready", START_SECONDS, None, function)
                gang.pids = {rank: frame.tree for rank, frame in ready.items()}
            for rank in range(self.size):
                gang.send(rank, self.timeout, "call", None, [call])
            results = self._await("result", self.timeout, on_event or self._on_event, function)
            return [frames.decode(*results[rank][1:]) for rank in range(self.size)]
        except BaseException:  # KeyboardInterrupt too: a rank inside a message cannot be interrupted, only ended
            self.stop()
            raise
        finally:
            self._turn.release()

    def stop(self):
        """End the ranks now; the next run starts fresh ones."""
        gang, self._gang = self._gang, None
        if gang:
            gang.kill()

    def _started(self) -> "Gang":
        if self._gang and not self._gang.whole():
            self.stop()
        if self._gang is None:
            self._gang = Gang(self.mesh, self._groups, self.timeout)
        return self._gang

    def _await(self, wanted: str, seconds: float, on_event, function) -> dict[int, frames.Frame]:
        """One frame of the wanted kind from every rank; other frames are dealt with as they come."""
        gang, answers, faults = self._gang, {}, {}
        since = time.monotonic()
        while len(answers.keys() | faults.keys()) < self.size:
            left = since + patience(faults.values(), seconds) - time.monotonic()
            if left <= 0:
                break
            for rank, frame in gang.poll(left):
                since = since if faults else time.monotonic()
                if frame.kind == wanted:
                    answers[rank] = frame
                elif frame.kind in ("fault", "exit"):
                    faults.setdefault(rank, fault_of(rank, frame))
                elif frame.kind == "output":
                    _show(rank, *frame.tree)
                elif on_event:
                    on_event(rank, frames.decode(frame.tree, frame.buffers))
        if faults:
            raise failure(list(faults.values()), self.size, function)
        if len(answers) < self.size:
            raise silence(gang.pids, gang.folder, sorted(set(range(self.size)) - set(answers)), seconds)
        return answers


def _pickled(function, args, kwargs) -> bytes:
    import cloudpickle  # here, because importing hybridlab should stay quick

    try:
        return cloudpickle.dumps((function, args, kwargs))
    except Exception as error:
        name = getattr(function, "__name__", function)
        raise TypeError(f"{name} cannot be sent to the ranks with all that it uses: {error}") from error


def _show(rank: int, stream: str, line: str):
    print(f"[rank {rank}] {line}", file=sys.stderr if stream == "stderr" else sys.stdout, flush=True)
