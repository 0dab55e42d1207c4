"""What one rank said: every operation that passed its door, written down as columns, and announced in the journal."""

import contextlib
import os
import sys
import threading
import time
import zlib

import torch

from hybridlab.core.mesh import Mesh
from hybridlab.core.operations import SENDS
from hybridlab.world import WORLD
from hybridlab.world.talk.groups import Group, axes_of, label_of
from hybridlab.world.talk.journal import Pen, mask_of

THEIRS = "torch.distributed"  # the purpose of what passed no door: see `overheard`
LIBRARY = os.path.dirname(torch.__file__) + os.sep


class Ledger:
    """Every operation of one rank, in the order of posting, as columns of equal length.

    op, axis ("dp", "dp+tp"; for a message the axes on which the two ranks differ), group (number of ranks), bytes (of
    the full tensor: gathered for all_gather, unscattered for reduce_scatter), peer and tag (None for collectives),
    source ("file:line" of the caller), purpose (what for, as the sender said: see `Comm.for_purpose`), begin_ns and
    end_ns (perf_counter; for what is waited for later, from posting to the return of wait). An end of 0 means that it
    has not ended. Each run starts with an empty ledger.

    pen  writes the same into the journal, where the kernel reads along; None where nobody does
    """

    COLUMNS = ("op", "axis", "group", "bytes", "peer", "tag", "source", "purpose", "begin_ns", "end_ns")

    def __init__(self, mesh: Mesh, pen: Pen | None = None):
        self._mesh, self._pen = mesh, pen
        self._turn = threading.Lock()  # backward may speak from another thread
        self._speaker: str | None = None
        self._masks: dict[tuple[int, ...], int] = {}
        self.clear()

    def clear(self):
        """Start again, with no operation."""
        self._turns: dict[object, int] = {}  # how often each group has met, and each pair in each direction and tag
        self._numbers: list[int] = []  # of each row in the journal
        self._lent: dict[int, tuple] = {}  # by row: a tensor on its way, and its version when it left
        for column in self.COLUMNS:
            setattr(self, column, [])

    def __len__(self):
        return len(self.op)

    def begin(
        self, op, group: Group, size: int, x=None, *, purpose="", how="", root=None, peer=None, tag=None, waits=True
    ) -> int:
        """Write down an operation that starts now; returns its row.

        size  bytes of the full tensor;  x  the tensor that is handed over, or None where shapes may differ
        how  the reduction, or what else all ranks of the group must agree on;  root  a global number
        waits  whether the rank waits here for its end; if not, `waiting` says when it does
        """
        source = self._speaker or caller()
        with self._turn:
            row = len(self.op)
            if self._pen:
                self._announce(op, group, size, x, how, root, peer, tag, waits and not _beside(), source)
            if x is not None and not waits and x.device.type == "cpu":  # gloo counts its own writes on a GPU as changes
                self._lent[row] = x, x._version, _part_of_more(x) and op in SENDS and _sum(x)
            self.op.append(op)
            self.axis.append(group.label)
            self.group.append(group.size)
            self.bytes.append(size)
            self.peer.append(peer)
            self.tag.append(tag)
            self.source.append(source)
            self.purpose.append(purpose)
            self.end_ns.append(0)
            self.begin_ns.append(time.perf_counter_ns())
        return row

    def waiting(self, row: int):
        """Say that the rank now waits for this operation."""
        if self._pen and not _beside():
            self._pen.wait(self._numbers[row])

    def end(self, row: int):
        """Write down that the operation has ended now; tells on stderr when its tensor was changed on the way."""
        self.end_ns[row] = time.perf_counter_ns()
        if self._pen and not _beside():
            self._pen.wait(0)
        if row in self._lent:
            x, version, before = self._lent.pop(row)
            # parts of one storage share one version: what counts is whether the numbers of this part are others
            if x._version != version and (not _part_of_more(x) or before and before != _sum(x)):
                print(f"the tensor of {self._name(row)} was changed before wait(): wait first", file=sys.stderr)

    def when_over(self, row: int):
        """A function that notes the end of an operation, whatever its rank does then, even in another run."""
        ends, lent = self.end_ns, self._lent  # of this run: `clear` makes new ones

        def note():
            ends[row] = time.perf_counter_ns()
            lent.pop(row, None)

        return note

    def dropped(self, row: int, run: list):
        """Tell on stderr that nobody can wait for this operation any more: what it returned is gone.

        run  `end_ns` when it was written down: an earlier run's has been told by `close`, and its row is another one's
        """
        if run is self.end_ns and not run[row]:
            self._lent.pop(row, None)
            run[row] = time.perf_counter_ns()
            print(
                f"what {self._name(row)} returned is gone, and nobody waited for it, so it may never arrive: keep it, "
                "and call wait() on it",
                file=sys.stderr,
                flush=True,
            )

    def close(self):
        """At the end of a run: tell on stderr what nobody waited for."""
        for row, ended in enumerate(self.end_ns):
            if not ended and self.purpose[row] != THEIRS:
                print(f"nobody waited for {self._name(row)}: call wait() on what it returned", file=sys.stderr)

    @contextlib.contextmanager
    def said_at(self, source: str):
        """While this lasts, operations are written down as said at this "file:line": backward speaks for forward."""
        before, self._speaker = self._speaker, source
        try:
            yield
        finally:
            self._speaker = before

    def total(self, op: str | None = None, axis: str | tuple[str, ...] | None = None) -> tuple[int, int]:
        """(count, bytes) of the operations with this name and along this axis; None takes all."""
        label = None if axis is None else label_of(axes_of(self._mesh, axis))
        sizes = [
            size
            for size, its_op, its_axis in zip(self.bytes, self.op, self.axis)
            if op in (None, its_op) and label in (None, its_axis)
        ]
        return len(sizes), sum(sizes)

    def rows(self) -> list[dict]:
        """One dict per operation, ready to return from a rank or to print."""
        columns = [getattr(self, column) for column in self.COLUMNS]
        return [dict(zip(self.COLUMNS, row)) for row in zip(*columns)]

    def _announce(self, op, group, size, x, how, root, peer, tag, waits, source):
        ranks = group.ranks
        mask = self._masks.get(ranks)
        if mask is None:
            mask = self._masks[ranks] = mask_of(ranks)
        key = mask if peer is None else (op in SENDS, peer, tag)
        turn = self._turns[key] = self._turns.get(key, 0) + 1
        shape, dtype = ("", "") if x is None else (str(tuple(x.shape)), _dtype(x.dtype, x.device.type))
        text = f"{op}\n{shape}\n{dtype}\n{how}\n{_paths.get(source, source)}"
        self._numbers.append(self._pen.post(mask, turn, size, root, peer, tag, text, waits))

    def _name(self, row: int) -> str:
        op, peer = self.op[row], self.peer[row]
        to = "" if peer is None else f" {'to' if op in SENDS else 'from'} rank {peer}"
        return f"{op}{to} ({self.source[row]})"


_sources: dict[tuple[str, int], str] = {}
_paths: dict[str, str] = {}  # the same with its whole path, by which the kernel knows a notebook's cell
_dtypes: dict[tuple, str] = {}


def _beside() -> bool:
    """Whether a thread of the program's own speaks: while it waits, the rank goes on. Autograd has none of those."""
    return type(threading.current_thread()) is threading.Thread


def caller() -> str:
    """The "file:line" of the first caller outside `world` and torch."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith((WORLD, LIBRARY)) and frame.f_back:
        frame = frame.f_back
    key = file, line = frame.f_code.co_filename, frame.f_lineno
    if key not in _sources:
        source = _sources[key] = f"{os.path.basename(file)}:{line}"
        _paths[source] = f"{file}:{line}"
    return _sources[key]


def _part_of_more(x) -> bool:
    return x.numel() * x.element_size() < x.untyped_storage().nbytes()


def _sum(x) -> str:
    """A checksum of a tensor's numbers."""
    flat = x.detach().contiguous().view(-1)
    return f"{zlib.crc32(flat.view(torch.uint8).numpy()):08x}" if x.numel() else ""


def _dtype(dtype, device: str) -> str:
    """A dtype in a word, and where it lies if that is not the CPU: what ranks must agree on."""
    if (dtype, device) not in _dtypes:
        where = "" if device == "cpu" else f" on {device}"
        _dtypes[dtype, device] = str(dtype).removeprefix("torch.") + where
    return _dtypes[dtype, device]
