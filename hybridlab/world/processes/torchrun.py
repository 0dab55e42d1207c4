"""Under torchrun this process is already a rank, possibly on one of several machines, so it starts no processes.

`torchrun --nnodes=2 --nproc-per-node=4 … -m hybridlab check --dp 2 --pp 4` runs the same command in every process. When
the command opens ranks, each process gets `TorchrunRanks` instead of `Ranks`. `run` calls the function in this process,
and then all processes exchange their results, so that each continues with the same list. Only rank 0 prints the
command's output; output of the function itself is printed by every rank, with its number.

Before they connect, the processes tell each other through torchrun's store which GPUs they see (`seen`).

torchrun ends all processes when one fails. The journal and the explanations of faults work only within one machine, so
they are not available here. torchrun's own store listens on all interfaces of the first machine.
"""

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.placement import Placement
from hybridlab.world.devices.surroundings import Seen, everywhere, seen
from hybridlab.world.explain.faults import Fault, RankError, failure
from hybridlab.world.processes import frames

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LONGEST = 30 * 24 * 3600.0  # seconds; torch accepts no timeout beyond some limit
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
MEETING, SILENT = 120.0, 10.0  # seconds to wait for the other processes; seconds of these without a message
UNSET = f"if torchrun has not started this process, unset {', '.join(VARIABLES)}"


def present() -> bool:
    """Whether torchrun has started this process."""
    return all(name in os.environ for name in VARIABLES)


class TorchrunRanks:
    """The ranks that torchrun started, seen from one of them; the same interface as `launch.Ranks`.

    A mesh of one rank runs only on rank 0, which sends its result to the others.

    raises  ValueError if torchrun has started another number of processes than the mesh has ranks, or RANK and
            WORLD_SIZE are not numbers that torchrun gives
    """

    def __init__(self, mesh: Mesh, timeout: float = 60.0, on_event=None, groups=()):
        self.rank, self.started = _numbered()
        if mesh.size not in (1, self.started):
            raise ValueError(
                f"torchrun has started {self.started} processes, but {mesh} has {mesh.size} ranks: choose --nnodes "
                f"and --nproc-per-node whose product is {mesh.size}"
            )
        self.mesh, self.size, self.timeout = mesh, mesh.size, timeout
        self._on_event, self._groups = on_event, tuple(map(tuple, groups))
        if self.rank > 0:
            sys.stdout = open(os.devnull, "w")

    def __enter__(self):
        self._meet()
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        return f"ranks({self.mesh}), of which torchrun started this one, rank {self.rank}"

    def run(self, function, *args, on_event=None, **kwargs) -> list:
        """Run `function(comm, *args, **kwargs)` on every rank, and return their results in rank order, on every rank.

        on_event receives the events of this process's own rank.

        raises  RankError if the function fails here, or another process has ended; torchrun then ends the remaining
                ones
        """
        self._meet()
        mine = None
        if self.rank < self.size:
            comm = _comm(self.mesh, self.rank, _placed(), self._groups, self.timeout)
            mine = self._call(comm, on_event or self._on_event, function, args, kwargs)
        try:
            return [_told(mine if self.rank == source else None, source) for source in range(self.size)]
        except RuntimeError as error:  # from gloo, if a process has ended
            raise self._failure(error, function, ("the exchange of results", tuple(range(self.started)))) from error

    def stop(self):
        """Nothing to do: these ranks live as long as their program."""

    def _call(self, comm, handler, function, args, kwargs):
        """The result in the form in which it is sent: a tree and its buffers."""
        comm.ledger.clear()
        comm.on_event = handler and _heard_by(handler, self.rank, sys.stdout)
        try:
            with contextlib.redirect_stdout(Tagged(f"[rank {self.rank}] ")) as lines:
                result = function(comm, *args, **kwargs)
                comm.settle()
                lines.finish()
            return frames.encode(result)
        except Exception as error:
            comm.ledger.failed = True  # pending operations are then not a mistake
            raise self._failure(error, function, comm.ledger.unended()) from error

    def _failure(self, error, function, unended=("", ())) -> RankError:
        lines = [(line.filename, line.lineno, line.name) for line in traceback.extract_tb(error.__traceback__)]
        fault = Fault(self.rank, type(error).__name__, str(error), tuple(lines), time.monotonic(), died=False)
        told = failure([fault], self.size, function, {})
        what = f"{fault} ({told.where}); torchrun now ends the others"
        lost = lost_sentence(self.rank, *unended, [one.host for one in _seen_by_all()])
        sentence = lost if fault.victim else f"rank {self.rank} {what}"
        return RankError(
            sentence,
            rank=self.rank,
            kind=fault.kind,
            message=fault.message,
            where=told.where,
            traceback_text=told.traceback_text,
        )

    def _meet(self):
        """Connect all processes, for any mesh; done at the first use."""
        import torch.distributed as dist

        from hybridlab.world.devices.meet import meet

        if not dist.is_initialized():
            os.environ.update(interfaces(os.environ, _placed().environment(self.rank)))
            where = {"store": _store(), "rank": self.rank, "world_size": self.started}
            meet(_placed(), timedelta(seconds=self.timeout), **where)
            _results()
            atexit.register(_leave)


def _numbered() -> tuple[int, int]:
    """(the number of this process, the number of processes that torchrun has started).

    raises  ValueError if the environment has numbers that torchrun does not give
    """
    rank, started = (os.environ[name] for name in ("RANK", "WORLD_SIZE"))
    if not (rank.isdecimal() and started.isdecimal() and int(rank) < int(started)):
        raise ValueError(
            f"RANK={rank!r} with WORLD_SIZE={started!r} is invalid: torchrun counts its processes from 0. Start with "
            f"torchrun; {UNSET}"
        )
    return int(rank), int(started)


def lost_sentence(rank: int, operation: str, ranks: tuple[int, ...], hosts: list[str]) -> str:
    """The sentence for a rank that waits in an operation with another rank that has ended or cannot be reached.

    >>> lost_sentence(0, "all_reduce (loop.py:183)", (0, 2), ["a", "a", "b", "b"])
    'rank 0 on a lost a rank that it was talking to: rank 2 on b, in all_reduce (loop.py:183)'
    >>> lost_sentence(0, "barrier (loop.py:9)", (0, 1, 2, 3), ["a", "a", "b", "b"])
    'rank 0 on a lost a rank that it was talking to: rank 1 on a or rank 2, 3 on b, in barrier (loop.py:9)'
    >>> lost_sentence(1, "", (), ["a", "a"])
    'rank 1 on a lost a rank that it was talking to'
    """
    on = {host: [other for other in ranks if hosts[other] == host and other != rank] for host in hosts}
    others = " or ".join(f"rank {', '.join(map(str, some))} on {host}" for host, some in on.items() if some)
    told = f"rank {rank} on {hosts[rank]} lost a rank that it was talking to"
    return f"{told}: {others}, in {operation}" if others else told


def _leave():
    """End the groups while the interpreter lives: gloo's threads would outlive it, and abort the process.

    A group ends when nothing refers to it: torch and the Comms release it together.
    """
    import torch.distributed as dist

    _comm.cache_clear()
    _results.cache_clear()
    dist.destroy_process_group()
    gc.collect()


def _heard_by(handler, rank: int, stdout):
    """The function that receives a rank's events: the handler, whose output is printed where the program prints."""

    def hear(event):
        with contextlib.redirect_stdout(stdout):
            handler(rank, event)

    return hear


class Tagged(io.TextIOBase):
    """A text stream that puts a tag before every line."""

    def __init__(self, tag: str):
        self._tag, self._rest = tag, ""

    def write(self, text):
        """Print every complete line; the rest waits for its end."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            # In one call: torchrun starts Python unbuffered, and other ranks could print between a line and its end.
            sys.__stdout__.write(f"{self._tag}{line}\n")
            sys.__stdout__.flush()
        return len(text)

    def finish(self):
        """Print the last, unfinished line."""
        if self._rest:
            self.write("\n")


def interfaces(environment, on_one_machine: dict) -> dict[str, str]:
    """The variables with the network interface of the ranks: the loopback on one machine, otherwise the user's choice.

    raises  ValueError if the user has not chosen one
    """
    if environment["LOCAL_WORLD_SIZE"] == environment["WORLD_SIZE"] or environment["MASTER_ADDR"] in THIS_MACHINE:
        return on_one_machine
    name = environment.get("GLOO_SOCKET_IFNAME")
    if not name:
        raise ValueError(
            "ranks on several machines need the name of a network interface: export GLOO_SOCKET_IFNAME=eth0 (`ip -br "
            "address` lists them)"
        )
    named = {key: name for key in on_one_machine if key.endswith("SOCKET_IFNAME")}
    return on_one_machine | named | {key: environment[key] for key in named if key in environment}


@functools.cache
def _store():
    """The store that torchrun has opened for its processes.

    raises  ValueError if the others do not come: variables of an earlier torchrun may be left in a shell
    """
    import torch.distributed as dist

    rank, started = os.environ["RANK"], os.environ["WORLD_SIZE"]
    where = f"at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    word = threading.Timer(SILENT, print, [f"rank {rank} waits for {started} processes of torchrun {where}"],
                           {"file": sys.stderr, "flush": True})  # fmt: skip
    word.daemon = True
    word.start()
    try:
        if rank != "0":
            _await_store()
        return next(dist.rendezvous("env://", timeout=timedelta(seconds=MEETING)))[0]
    except (dist.DistError, TimeoutError) as error:
        raise ValueError(
            f"rank {rank} could not connect to all {started} processes of torchrun {where} within {MEETING:g} s: start "
            f"all of them with torchrun; {UNSET}"
        ) from error
    finally:
        word.cancel()


def _await_store():
    """Return when the store's port answers; torch's own client would try for several times `MEETING`."""
    last = time.monotonic() + MEETING
    while time.monotonic() < last:
        with contextlib.suppress(OSError):
            socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=5).close()
            return
        time.sleep(0.1)
    raise TimeoutError(f"nothing answers within {MEETING:g} s")


@functools.cache
def _placed() -> Placement:
    """The placement of all ranks."""
    return everywhere(_seen_by_all())


@functools.cache
def _seen_by_all() -> list[Seen]:
    """The devices that each process sees: this process publishes its own and reads those of the others."""
    rank, started = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    _store().set(f"seen by {rank}", json.dumps(seen()))
    return [Seen(*json.loads(one)) for one in _store().multi_get([f"seen by {each}" for each in range(started)])]


@functools.cache
def _results():
    """The group for the exchange of results. It has no timeout, since others may compute for long; torchrun sees
    failures."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=timedelta(seconds=LONGEST))


@functools.cache
def _comm(mesh, rank, placed, groups, timeout):
    """One communicator for each mesh: its groups stay open, and all processes open them in the same order."""
    from hybridlab.world.talk.comm import Comm

    return Comm(mesh, rank, placed=placed, groups=groups, timeout=timedelta(seconds=timeout))


def _told(mine, source: int):
    """The value of the process `source`, on all of them; sent as JSON and raw bytes, without executable content."""
    import torch
    import torch.distributed as dist

    sizes, packet = torch.zeros(2, dtype=torch.int64), b""
    if mine:
        tree, buffers = mine
        head = json.dumps([tree, [len(buffer) for buffer in buffers]]).encode()
        packet = b"".join([head, *buffers])
        sizes = torch.tensor([len(head), len(packet)])
    dist.broadcast(sizes, source, _results())
    head, length = sizes.tolist()
    data = torch.frombuffer(bytearray(packet or length), dtype=torch.uint8)
    dist.broadcast(data, source, _results())
    data = memoryview(data.numpy())
    tree, sizes = json.loads(bytes(data[:head]))
    ends = [head + sum(sizes[:number]) for number in range(len(sizes) + 1)]
    return frames.decode(tree, [bytearray(data[begin:end]) for begin, end in zip(ends, ends[1:])])
