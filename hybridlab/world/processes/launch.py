"""The pool of ranks in the calling process: real processes that run functions, with an explanation of every failure.

It works from scripts without a `__main__` guard, notebooks, threads and forked processes, and leaves no process
running. The calling process does not load torch here. Read next: `gang`, the processes of a pool; `supervise`, the
explanations.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable

from hybridlab.core.where.mesh import Mesh
from hybridlab.signatures import typed
from hybridlab.world.devices.placement import Placement
from hybridlab.world.devices.placement import placement as usual
from hybridlab.world.explain.faults import FRESH, RankError, failure, fault_of, patience
from hybridlab.world.explain.supervise import LOOK_SECONDS, Meeting, Watch, silence
from hybridlab.world.processes import frames, torchrun
from hybridlab.world.processes.frames import MOST_RANKS
from hybridlab.world.processes.gang import START_SECONDS, ZYGOTE, Gang
from hybridlab.world.processes.handle import MARK
from hybridlab.world.processes.parcel import module_of, pack

__all__ = ["RankError", "Ranks", "ranks"]

HANG_S = 10.0
SILENCE = 60.0  # a run ends after this number of seconds without a report from any rank
MANY_LAYERS = 10  # a process that computes a full batch alone may be silent for this many times as long
PREPARING = 10.0  # additional seconds for each device being initialized and each connection that NCCL makes
CROWD = 4  # ranks per core
GONE = "the former ranks have ended: what earlier runs left in them is gone"


@typed
def ranks(
    n_or_mesh: int | Mesh,
    *,
    timeout: float = SILENCE,
    hang_s: float | None = None,
    on_event: Callable | None = None,
    groups: Iterable[str | tuple[str, ...]] = (),
    start: str = "kept",
    placement: Placement | None = None,
) -> "Ranks":
    """A pool of real ranks, for use in a `with` statement.

    n_or_mesh  a mesh, or a number n, which means Mesh(world=n)
    timeout    seconds in which at least one rank must report something (operation, event, output, result); otherwise
               the run ends. It is ten seconds longer for each GPU that is initialized and each NCCL connection
    hang_s     seconds that a rank may wait in one operation for a rank that has not reached it; None: 10, and more if
               more than 4 ranks share a core; under torchrun the timeout
    on_event   called as on_event(rank, event) for every `comm.emit(…)`, while the ranks run
    groups     axes, or tuples of axes, along which the ranks will communicate, in addition to single axes and all ranks
    start      "kept": the ranks stay for the next run; "fresh": every run starts new ranks
    placement  backend and device of each rank; None: chosen by `hl.placement`

    raises  ValueError for fewer than 1 or more than 128 ranks, for an unknown start, for an impossible time, and for a
            placement of a different number of ranks; and if this process is already a rank, of this package or of a
            launcher other than torchrun

    >>> import hybridlab as hl
    >>> with hl.ranks(2) as pool:  # starts ranks
    ...     pool.run(lambda comm: comm.rank)
    [0, 1]
    """
    mesh = n_or_mesh if isinstance(n_or_mesh, Mesh) else Mesh(world=n_or_mesh)
    for name, seconds in {"hang_s": hang_s, "timeout": timeout}.items():
        if seconds is not None and not 0 < seconds <= torchrun.LONGEST:
            raise ValueError(f"{name}={seconds:g} is not possible: give seconds above 0, at most {torchrun.LONGEST:g}")
    groups = [(axes,) if isinstance(axes, str) else tuple(axes) for axes in groups]
    if torchrun.present():
        return torchrun.TorchrunRanks(mesh, timeout if hang_s is None else hang_s, on_event, groups)
    refuse_alone()
    _refuse_on_a_rank()
    refuse_crowd(mesh)
    if start not in ("kept", "fresh"):
        raise ValueError(f"start={start!r} is not known: give 'kept' or 'fresh'")
    placed = placement or usual(mesh.size)
    if len(placed.devices) != mesh.size:
        raise ValueError(f"this placement has {len(placed.devices)} ranks, but {mesh} has {mesh.size}: make them equal")
    hang_s = usual_patience(mesh.size) if hang_s is None else hang_s
    return Ranks(mesh, placed, timeout, hang_s, on_event, groups, start == "fresh")


def usual_patience(size: int) -> float:
    """The usual `hang_s` for this number of ranks."""
    return HANG_S * max(1.0, size / (CROWD * (os.cpu_count() or 1)))


def training_ranks(mesh: Mesh, hang_s: float | None = None) -> "Ranks":
    """A pool of ranks that train a model. Their order of operations was proved before, so a rank that keeps others
    waiting is computing: one layer of a large model may take longer than `HANG_S`.

    hang_s  seconds that one operation or one layer may take; None: a minute, and more if many ranks share a core
    """
    patience = max(SILENCE, usual_patience(mesh.size)) if hang_s is None else hang_s
    return ranks(mesh, timeout=patience, hang_s=patience)


def lone_rank(hang_s: float | None = None) -> "Ranks":
    """One process that computes a whole batch alone. It waits for no other rank, so a long silence means many layers.

    hang_s  seconds that one layer may take; None: a minute
    """
    patience = min(MANY_LAYERS * (SILENCE if hang_s is None else hang_s), torchrun.LONGEST)
    return ranks(1, timeout=patience, hang_s=patience)


def foresee(module: str):
    """Announce that the next ranks will run functions of this module, so that their parent imports it before they
    start.

    Otherwise each rank would import it: that takes seconds if there are more ranks than cores.
    """
    if not torchrun.present():
        ZYGOTE.expect(module)


def refuse_alone():
    """Raise ValueError if this process is one of several, but torchrun has not started them.

    Each would start all ranks for itself, and save into the same folder.
    """
    rank, started = os.environ.get("RANK"), os.environ.get("WORLD_SIZE") or "1"
    if rank is not None and started != "1":
        raise ValueError(
            f"RANK={rank} and WORLD_SIZE={started} are set, but torchrun has not started this process, so each of "
            f"{started} processes would train alone: start them with torchrun, or unset RANK and WORLD_SIZE"
        )


def _refuse_on_a_rank():
    """Raise ValueError if this process is a rank: a module that starts ranks was imported there, and would start more
    without end."""
    if MARK in os.environ:
        raise ValueError(
            "a rank tried to start ranks: ranks import the modules of a model, and one of these starts ranks on "
            "import; put the call under if __name__ == '__main__':, or into another script"
        )


def refuse_crowd(mesh: Mesh):
    """Raise ValueError for more ranks than one machine can run."""
    if mesh.size > MOST_RANKS:
        raise ValueError(f"{mesh.size} ranks are too many for one machine: ask for {MOST_RANKS} or fewer")


class Ranks:
    """Ranks that stay between runs; any failure or interrupt ends them all, and the next run starts fresh ones."""

    rank = 0  # terminal of this program, which acts for the first rank; under torchrun, each process has its own

    def __init__(self, mesh, placed, timeout, hang_s, on_event, groups, once):
        self.mesh, self.size, self.timeout, self.hang_s = mesh, mesh.size, timeout, hang_s
        self._on_event, self._groups, self._once, self._placed = on_event, groups, once, placed
        self._gang: Gang | None = None
        self._turn = threading.Lock()

    def __enter__(self):
        self._started()
        return self

    def __exit__(self, *_):
        self.stop()

    def __reduce__(self):
        raise TypeError("ranks belong to the process that started them: open another hl.ranks(…) in the other process")

    def __repr__(self):
        return f"ranks({self.mesh}), {'running' if self._gang else 'stopped'}"

    def run(self, function, *args, on_event=None, **kwargs) -> list:
        """Run `function(comm, *args, **kwargs)` on every rank, and return their results in rank order.

        raises  RankError if a rank fails, if the ranks' operations do not match or deadlock, or if all are silent for
                the timeout; TypeError if the call cannot be sent; RuntimeError if another run is in progress
        """
        if not callable(function):
            raise TypeError(f"run takes a function, not {function!r}: give one, as in run(lambda comm: comm.rank)")
        call, gang = pack(function, args, kwargs, self.size), None
        if not self._turn.acquire(blocking=False):
            raise RuntimeError("these ranks are already running a function: wait for it, or open another hl.ranks(…)")
        try:
            gang = self._started()
            if not gang.runs:
                self._await("ready", START_SECONDS, None, function, Meeting(self.hang_s, self._placed.contexts))
            gang.runs += 1
            for rank in range(self.size):
                gang.send(rank, self.timeout, "call", None, [call], gang.runs)
            ZYGOTE.expect(module_of(function))
            watch = Watch(gang.journal, gang.runs, self.size, self.hang_s)
            results = self._await("result", self.timeout, on_event or self._on_event, function, watch)
            values = [_value(rank, results[rank]) for rank in range(self.size)]
            if self._once:
                self.stop()
            return values
        except BaseException as error:  # for an interrupt too: a rank that is inside a message can only be ended
            if isinstance(error, KeyboardInterrupt) and self._gang and self._gang.runs > 1:
                print(GONE, file=sys.stderr)
            stopped = gang is not None and self._gang is not gang  # by another thread: ranks are killed, sockets closed
            self.stop()
            if stopped and isinstance(error, Exception):
                message = "these ranks were stopped while they ran a function: call stop() after the run"
                raise RankError(f"{message}; {FRESH}", rank=None, kind="stopped", message=message) from None
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
            if self._gang.runs and not self._gang.closed:
                print(GONE, file=sys.stderr)
            self.stop()
        if self._gang is None:
            self._gang = Gang(
                self.mesh, self._placed, self._groups, min(3 * max(self.timeout, self.hang_s), torchrun.LONGEST)
            )
        return self._gang

    def _await(self, wanted, seconds, on_event, function, watch: Watch | Meeting) -> dict[int, frames.Frame]:
        """One frame of the wanted kind from every rank; other frames are processed as they come."""
        gang, answers, faults = self._gang, {}, {}
        since = time.monotonic()
        while len(answers.keys() | faults.keys()) < self.size:
            limit = patience(faults.values()) if faults else seconds + PREPARING * watch.preparing
            left = since + limit - time.monotonic()
            if left <= 0:
                break
            for rank, frame in gang.poll(min(left, LOOK_SECONDS)):
                since = since if faults else time.monotonic()
                if frame.run not in (0, gang.runs):  # from a process that a rank forked in an earlier run
                    continue
                if frame.kind == wanted:
                    answers[rank] = frame
                elif frame.kind in ("exit", "fault"):
                    faults.setdefault(rank, fault_of(rank, frame.kind, frame.tree, gang.memory_killings))
                elif frame.kind == "output":
                    _show(rank, *frame.tree)
                elif frame.kind == "event" and on_event:
                    on_event(rank, _value(rank, frame))
            if not faults:
                if error := watch.look(answers.keys(), gang):
                    raise error
                since = time.monotonic() if watch.moved else since
        missing = sorted(set(range(self.size)) - set(answers))
        if error := watch.conclude(not missing):
            raise error
        if faults:
            raise failure(list(faults.values()), self.size, function, watch.last(gang.folder))
        if missing:
            raise silence(gang.pids, gang.folder, missing, limit)
        return answers


def _value(rank: int, frame: frames.Frame):
    """The value in a frame.

    raises  RankError if a rank cannot have sent it
    """
    try:
        return frames.decode(frame.tree, frame.buffers)
    except frames.Garbled as error:
        message = f"rank {rank} returned something that is not a value: {error}"
        raise RankError(f"{message}; {FRESH}", rank=rank, kind="Garbled", message=message) from None


def _show(rank: int, stream: str, line: str):
    print(f"[rank {rank}] {line}", file=sys.stderr if stream == "stderr" else sys.stdout, flush=True)
