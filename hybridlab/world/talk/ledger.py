"""The ledger: every operation of one rank, recorded as columns, and announced in the journal."""

import contextlib
import ctypes
import os
import sys
import threading
import time
from itertools import islice

import torch

from hybridlab.core.operations import RECEIVES, SENDS
from hybridlab.core.where.mesh import Mesh
from hybridlab.world import WORLD
from hybridlab.world.talk.groups import Group, axes_of, label_of
from hybridlab.world.talk.journal import Pen, mask_of
from hybridlab.world.talk.nans import UNWATCHED, Unwatched

THEIRS = "torch.distributed"  # the purpose of operations that bypassed the communicator: see `overheard`
READ_ONLY = (*SENDS, "all_gather")  # the given tensor is not changed
PLACES, PIECE = 4, 512  # places of a tensor in transit that are compared when it has arrived; bytes of each
LIBRARY = os.path.dirname(torch.__file__) + os.sep


class Ledger:
    """Every operation of one rank, in the order of posting, as columns of equal length.

    op, axis ("dp", "dp+tp"; for a message the axes on which the two ranks differ), group (number of ranks), bytes (of
    the full tensor: gathered for all_gather, unscattered for reduce_scatter), peer and tag (None for collectives),
    source ("file:line" of the caller), purpose (as given to `Comm.for_purpose`), begin_ns and end_ns (perf_counter;
    with a later `wait`, from posting to its return). An end of 0 means that it has not ended. Each run starts with an
    empty ledger.

    pen  writes the same into the journal, where the kernel reads it; None without a kernel
    """

    COLUMNS = ("op", "axis", "group", "bytes", "peer", "tag", "source", "purpose", "begin_ns", "end_ns")

    def __init__(self, mesh: Mesh, pen: Pen | None = None):
        self._mesh, self._pen = mesh, pen
        self._turn = threading.Lock()  # a backward may call from another thread
        self._preparing = 0  # the number of things in preparation
        self._speaker: str | None = None
        self._masks: dict[tuple[int, ...], int] = {}
        self.clear()

    def clear(self):
        """Start again, with no operation."""
        self._turns: dict[object, int] = {}  # numbers of operations, by group, or by pair, direction and tag
        self._numbers: list[int] = []  # each row's number in the journal
        self.forgotten = 0  # the number of removed rows before the first one
        self._open: dict[int, tuple[int, ...]] = {}  # by row: the ranks of operations that have begun and not ended
        self.failed = False  # whether the run has failed: then pending operations are not a mistake
        self._lent: dict[int, tuple] = {}  # by row: a tensor in transit, its version when it left, some of its numbers
        self._warned: set[str] = set()  # lines with dropped messages: a loop drops many
        self.nans: Unwatched = UNWATCHED  # the watch for the first nan, for the rest of this run
        for column in self.COLUMNS:
            setattr(self, column, [])

    def __len__(self):
        return len(self.op)

    def forget(self, before: int):
        """Remove the operations before this one of the run, counted from 0; not while any of them is in transit."""
        cut = before - self.forgotten
        if cut <= 0 or self._lent or 0 in self.end_ns:
            return
        for column in self.COLUMNS:  # new lists, as for a new run: earlier messages keep the old ones
            setattr(self, column, getattr(self, column)[cut:])
        self._numbers, self.forgotten = self._numbers[cut:], before

    def begin(
        self, op, group: Group, size: int, x=None, *, purpose="", how="", shape=None, lengths="", root=None, peer=None,
        tag=None, waits=True,
    ) -> int:  # fmt: skip
        """Record an operation that starts now, and return its row.

        size  bytes of the full tensor;  x  the tensor that is sent, or None if shapes may differ
        how  the reduction, or other text on which all ranks of the group must agree;  root  a global number
        shape  replaces that of x;  lengths  the lengths of the parts, see `lengths`
        waits  whether the rank waits here until the operation ends; if not, `waiting` announces the wait later
        """
        source, columns = (self._speaker, "") if self._speaker else called()
        with self._turn:
            row = len(self.op)
            if self._pen:
                about = "" if x is None else _dtype(x.dtype, x.device.type), how, lengths, columns
                shape = shape or ("" if x is None else str(tuple(x.shape)))
                self._announce(op, group, size, (shape, *about), root, peer, tag, waits and not _beside(), source)
            if x is not None and not waits and x.device.type == "cpu":  # on a GPU, gloo's own writes count too
                self._lent[row] = x, x._version, op in READ_ONLY and x.is_contiguous() and _some(x)
            self._open[row] = group.ranks if peer is None else (peer,)
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
        if x is not None and op not in RECEIVES and root is None:
            self.nans.made(lambda: self._told(row), x)
        return row

    def came(self, row: int, x):
        """Check the tensor that an operation has received, and return it."""
        self.nans.came(lambda: self._told(row), x)
        return x

    def waiting(self, row: int):
        """Announce that the rank now waits for this operation."""
        if self._pen and not _beside():
            self._pen.wait(self._numbers[row])

    @contextlib.contextmanager
    def preparing(self):
        """A context in which it is not a deadlock if others wait for this rank: it initializes its device, or connects
        to ranks that have arrived. Either can take seconds; several threads may do it at once.
        """
        self._prepare(+1)
        try:
            yield
        finally:
            self._prepare(-1)

    def _prepare(self, more: int):
        with self._turn:
            self._preparing += more
            if self._pen:
                self._pen.prepare(self._preparing)

    def end(self, row: int):
        """Record that the operation has ended now; warns on stderr if its tensor was changed in transit."""
        self.end_ns[row] = time.perf_counter_ns()
        self._open.pop(row, None)
        if self._pen and not _beside():
            self._pen.wait(0)
        if row in self._lent:
            x, version, before = self._lent.pop(row)
            # Parts of one storage share one version, and x.data has none: then only changed numbers count.
            if x._version != version and not _part_of_more(x) or before and before != _some(x):
                print(f"the tensor of {self._name(row)} was changed before wait(): wait first", file=sys.stderr)

    def when_over(self, row: int):
        """A function that records the end of an operation, even if its rank is in another run by then."""
        ends, lent, begun = self.end_ns, self._lent, self._open  # the columns of this run: `clear` makes new ones

        def note():
            ends[row] = time.perf_counter_ns()
            lent.pop(row, None)
            begun.pop(row, None)

        return note

    def dropped(self, row: int, run: list):
        """Warn on stderr, once for each line, that no code can wait for this operation any more: its message was
        dropped.

        run  `end_ns` when it was recorded: `close` has already warned about earlier runs, and the row now belongs to
             another one
        """
        if run is self.end_ns and not run[row] and not self.failed:
            self._lent.pop(row, None)
            run[row] = time.perf_counter_ns()
            name = self._name(row)
            if name not in self._warned:
                self._warned.add(name)
                print(
                    f"the handle of {name} is gone, and no rank waited for it, so the message may never arrive: keep "
                    "what it returns, and call wait() on it",
                    file=sys.stderr,
                    flush=True,
                )

    def unended(self) -> tuple[str, tuple[int, ...]]:
        """The latest operation that has not ended, and its ranks; ("", ()) if all have ended."""
        if not self._open:
            return "", ()
        row = max(self._open)
        return self._name(row), self._open[row]

    def close(self):
        """At the end of a run: warn on stderr about operations without a `wait`."""
        for row, ended in enumerate(self.end_ns):
            if not ended and self.purpose[row] != THEIRS:
                print(f"no rank waited for {self._name(row)}: call wait() on what it returned", file=sys.stderr)

    @contextlib.contextmanager
    def said_at(self, source: str):
        """A context in which operations are recorded with this "file:line": a backward uses the line of its forward."""
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

    def _announce(self, op, group, size, about, root, peer, tag, waits, source):
        ranks = group.ranks
        mask = self._masks.get(ranks)
        if mask is None:
            mask = self._masks[ranks] = mask_of(ranks)
        key = mask if peer is None else (op in SENDS, peer, tag)
        turn = self._turns[key] = self._turns.get(key, 0) + 1
        text = "\n".join((op, *about, _paths.get(source, source)))
        self._numbers.append(self._pen.post(mask, turn, size, root, peer, tag, text, waits))

    def _told(self, row: int) -> str:
        """An operation in words, for the report of the first nan."""
        axis = f" along {self.axis[row]}" if self.axis[row] and self.peer[row] is None else ""
        purpose = f", for {self.purpose[row]}" if self.purpose[row] else ""
        return f"the tensor of {self._name(row)}{axis}{purpose}"

    def _name(self, row: int) -> str:
        op, peer = self.op[row], self.peer[row]
        to = "" if peer is None else f" {'to' if op in SENDS else 'from'} rank {peer}"
        return f"{op}{to} ({self.source[row]})"


_sources: dict[tuple[str, int], str] = {}
_columns: dict[tuple[str, int, int], str] = {}  # the columns of a call in its line, by file, line and instruction
_paths: dict[str, str] = {}  # the same with the full path, by which the kernel finds a notebook's cell
_dtypes: dict[tuple, str] = {}


def _beside() -> bool:
    """Whether another thread of the program calls: while that thread waits, the rank continues. Autograd's threads do
    not count.
    """
    return type(threading.current_thread()) is threading.Thread


def caller(*passing: str) -> str:
    """The "file:line" of the first caller outside `world`, torch and some other files, which only pass calls on."""
    return called(*passing)[0]


def called(*passing: str) -> tuple[str, str]:
    """The caller's "file:line", and the columns of the call in its line: "4-21"."""
    frame, passing = sys._getframe(1), (WORLD, LIBRARY, *passing)
    while frame.f_code.co_filename.startswith(passing) and frame.f_back:
        frame = frame.f_back
    key = file, line = frame.f_code.co_filename, frame.f_lineno
    if key not in _sources:
        source = _sources[key] = f"{os.path.basename(file)}:{line}"
        _paths[source] = f"{file}:{line}"
    place = file, line, frame.f_lasti
    if place not in _columns:
        first, last, begin, end = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        _columns[place] = f"{begin}-{end if first == last else ''}" if begin is not None else ""
    return _sources[key], _columns[place]


def _part_of_more(x) -> bool:
    return x.numel() * x.element_size() < x.untyped_storage().nbytes()


def _some(x) -> bytes:
    """Some of a contiguous tensor's bytes: all bytes of a small one, those of some places of a large one."""
    if x.untyped_storage().nbytes() < x.storage_offset() * x.element_size() + x.nbytes:
        return b""  # its memory has been freed
    if x.nbytes <= PLACES * PIECE:
        return ctypes.string_at(x.data_ptr(), x.nbytes)
    between = (x.nbytes - PIECE) // (PLACES - 1)
    return b"".join(ctypes.string_at(x.data_ptr() + place * between, PIECE) for place in range(PLACES))


def _dtype(dtype, device: str) -> str:
    """A dtype as a word, with its device if that is not the CPU: ranks must agree on both."""
    if (dtype, device) not in _dtypes:
        where = "" if device == "cpu" else f" on {device}"
        _dtypes[dtype, device] = str(dtype).removeprefix("torch.") + where
    return _dtypes[dtype, device]
