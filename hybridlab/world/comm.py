"""The one door to the network: every message between ranks goes through a `Comm`, and its ledger writes down each.

Operations are raw: they move numbers and know nothing of gradients. An axis is a name of the mesh ("dp"), a tuple of
names, or None for all ranks. Along an axis of one rank there is nobody to talk to: the call returns at once and is not
counted. Two facts of gloo shape a program: a send may wait until its receive is posted, whatever its size, and a
message must be waited for before its tensor is touched.
"""

import os
import sys
import threading
import time
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from hybridlab.core.mesh import Mesh

COURSE_AXES = ("dp", "pp", "tp", "cp", "ep")  # may be named on any mesh: one that lacks them has one rank there
REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}
HERE = os.path.dirname(__file__) + os.sep


class Ledger:
    """Every operation of one rank, in the order of posting, as columns of equal length.

    op, axis ("dp", "dp+tp"; for a message the axes on which the two ranks differ), group (number of ranks), bytes (of
    the full tensor: gathered for all_gather, unscattered for reduce_scatter), peer and tag (None for collectives),
    source ("file:line" of the caller), begin_ns and end_ns (perf_counter; for isend and irecv from posting to the
    return of wait). An end of 0 means that it has not ended. Each run starts with an empty ledger.
    """

    COLUMNS = ("op", "axis", "group", "bytes", "peer", "tag", "source", "begin_ns", "end_ns")

    def __init__(self, mesh: Mesh):
        self._mesh = mesh
        self._turn = threading.Lock()  # backward may speak from another thread
        for column in self.COLUMNS:
            setattr(self, column, [])

    def __len__(self):
        return len(self.op)

    def begin(self, op, axis, group, size, peer=None, tag=None) -> int:
        """Write down an operation that starts now; returns its row."""
        source = _source()
        with self._turn:
            row = len(self.op)
            self.op.append(op)
            self.axis.append(axis)
            self.group.append(group)
            self.bytes.append(size)
            self.peer.append(peer)
            self.tag.append(tag)
            self.source.append(source)
            self.end_ns.append(0)
            self.begin_ns.append(time.perf_counter_ns())
        return row

    def end(self, row: int):
        """Write down that the operation has ended now."""
        self.end_ns[row] = time.perf_counter_ns()

    def total(self, op: str | None = None, axis: str | tuple[str, ...] | None = None) -> tuple[int, int]:
        """(count, bytes) of the operations with this name and along this axis; None takes all."""
        label = None if axis is None else _label(_axes(self._mesh, axis))
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


class Message:
    """A tensor on its way; leave the tensor alone until `wait` has returned."""

    def __init__(self, work, x, staged, ledger, row):
        self._work, self._x, self._staged, self._ledger, self._row = work, x, staged, ledger, row

    def wait(self):
        """Wait until it has left (isend) or arrived (irecv), and return the tensor; a second wait returns at once."""
        if self._work is not None:
            self._work.wait()
            self._ledger.end(self._row)
            self._work = None
            _copy_back(self._staged, self._x)
        return self._x


class Group(NamedTuple):
    """The ranks that this rank meets along some axes: their label, global numbers, and torch's handle on them."""

    label: str
    ranks: tuple[int, ...]
    handle: object

    @property
    def size(self) -> int:
        return len(self.ranks)


class Comm:
    """This rank's door to the others: `rank`, `size`, `mesh`, `coordinates` (a dict), `ledger`, and the operations.

    Every rank opens the same groups in the same order when the Comm is made: each axis alone, all ranks, and the
    further tuples of axes in `groups`. The default process group must exist. Tensors are on the CPU; those that are
    not contiguous are copied on the way. Impossible operations raise ValueError before anything is sent.
    """

    def __init__(self, mesh: Mesh, rank: int, *, groups=(), timeout: timedelta | None = None, on_event=None):
        self.mesh, self.rank, self.size = mesh, rank, mesh.size
        self.coordinates = mesh.coordinates(rank)
        self.ledger = Ledger(mesh)
        self._on_event = on_event
        self._groups = self._open(groups, timeout)
        self._paths = [self._path(peer) for peer in range(mesh.size)]

    def __repr__(self):
        return f"Comm(rank {self.rank} of {self.mesh})"

    # collectives: every rank of the group calls the same one with the same shape

    def all_reduce(self, x, axis=None, op="sum"):
        """Combine x over the group, in place; returns x. `op` is sum, max, min or product."""
        if op not in REDUCE:
            raise ValueError(f"all_reduce cannot do op={op!r}: use one of {', '.join(REDUCE)}")
        group = self._group(axis)
        if group.size == 1:
            return x
        flat = _flat(x)
        row = self.ledger.begin("all_reduce", group.label, group.size, x.nbytes)
        dist.all_reduce(flat, REDUCE[op], group.handle)
        self.ledger.end(row)
        return _copy_back(flat, x)

    def all_gather(self, x, axis=None, dim=0):
        """A new tensor: the x of every rank of the group, in group order, joined along `dim`."""
        dim = _dim("all_gather", x, dim)
        group = self._group(axis)
        if group.size == 1:
            return x.detach().clone()
        parts = x.new_empty((group.size, *x.shape))
        flat = _flat(x)
        row = self.ledger.begin("all_gather", group.label, group.size, parts.nbytes)
        dist.all_gather_into_tensor(parts.view(-1), flat.view(-1), group.handle)
        self.ledger.end(row)
        return parts.flatten(0, 1) if dim == 0 else torch.cat(parts.unbind(), dim)

    def reduce_scatter(self, x, axis=None, dim=0):
        """A new tensor: this rank's part along `dim` of the sum of x over the group."""
        dim = _dim("reduce_scatter", x, dim)
        group = self._group(axis)
        if x.shape[dim] % group.size:
            raise ValueError(
                f"reduce_scatter cannot cut dim {dim} of length {x.shape[dim]} into {group.size} equal parts: "
                f"pad it to a multiple of {group.size}"
            )
        if group.size == 1:
            return x.detach().clone()
        parts = torch.stack(x.detach().chunk(group.size, dim)) if dim else _flat(x)
        mine = x.new_empty((*x.shape[:dim], x.shape[dim] // group.size, *x.shape[dim + 1 :]))
        row = self.ledger.begin("reduce_scatter", group.label, group.size, x.nbytes)
        dist.reduce_scatter_tensor(mine.view(-1), parts.view(-1), group=group.handle)
        self.ledger.end(row)
        return mine

    def broadcast(self, x, source=0, axis=None):
        """Fill x everywhere with the x of the group's rank number `source` (0 is the group's first); returns x."""
        group = self._group(axis)
        if not 0 <= source < group.size:
            raise ValueError(f"broadcast from {source} is not possible: the group has ranks 0 to {group.size - 1}")
        if group.size == 1:
            return x
        flat = _flat(x)
        row = self.ledger.begin("broadcast", group.label, group.size, x.nbytes)
        dist.broadcast(flat, group.ranks[source], group.handle)
        self.ledger.end(row)
        return _copy_back(flat, x)

    def barrier(self, axis=None):
        """Wait until every rank of the group is here."""
        group = self._group(axis)
        if group.size > 1:
            row = self.ledger.begin("barrier", group.label, group.size, 0)
            dist.barrier(group.handle)
            self.ledger.end(row)

    # messages: from one rank to another, both by their global numbers

    def send(self, x, to, tag=0):
        """Send x to the rank `to`; may wait until that rank posts its receive."""
        row = self._begin_message("send", x, to, tag)
        dist.send(_flat(x), to, tag=tag)
        self.ledger.end(row)

    def recv(self, x, source, tag=0):
        """Fill x with what the rank `source` sends with this tag; returns x."""
        row = self._begin_message("recv", x, source, tag)
        staged = _flat(x)
        dist.recv(staged, source, tag=tag)
        self.ledger.end(row)
        return _copy_back(staged, x)

    def isend(self, x, to, tag=0) -> Message:
        """Start to send x to the rank `to`; x must stay as it is until the message's `wait`."""
        row = self._begin_message("isend", x, to, tag)
        staged = _flat(x)
        return Message(dist.isend(staged, to, tag=tag), staged, staged, self.ledger, row)

    def irecv(self, x, source, tag=0) -> Message:
        """Start to fill x with what the rank `source` sends with this tag; x holds it after the message's `wait`."""
        row = self._begin_message("irecv", x, source, tag)
        staged = _flat(x)
        return Message(dist.irecv(staged, source, tag=tag), x, staged, self.ledger, row)

    def emit(self, **event):
        """Send a live event home, where it reaches `on_event(rank, event)`; values are those that may be returned."""
        if self._on_event:
            self._on_event(event)

    # who meets whom

    def _open(self, further, timeout) -> dict[tuple[str, ...], Group]:
        """One group per set of axes; sets with the same ranks share one handle."""
        every = tuple(self.mesh.axes)
        mine, handles = {}, {tuple(range(self.size)): dist.group.WORLD}
        for axes in dict.fromkeys([(), *((axis,) for axis in every), every, *further]):
            axes = _axes(self.mesh, axes)
            for ranks in self.mesh.groups(axes):
                if len(ranks) > 1 and ranks not in handles:
                    handles[ranks] = dist.new_group(list(ranks), timeout=timeout)
                if self.rank in ranks:
                    mine[axes] = Group(_label(axes), ranks, handles.get(ranks))
        return mine

    def _group(self, axis) -> Group:
        axes = _axes(self.mesh, tuple(self.mesh.axes) if axis is None else axis)
        if axes not in self._groups:
            raise ValueError(f"no group is open along {axes}: name it at the start, hl.ranks(mesh, groups=[{axes}])")
        return self._groups[axes]

    def _path(self, peer) -> str:
        """The axes along which this rank and `peer` differ: the label of a message between them."""
        there = self.mesh.coordinates(peer)
        return _label(axis for axis, place in self.coordinates.items() if there[axis] != place)

    def _begin_message(self, op, x, peer, tag) -> int:
        if peer == self.rank:
            raise ValueError(f"{op}: rank {peer} cannot exchange messages with itself; copy the tensor instead")
        if not 0 <= peer < self.size:
            raise ValueError(f"{op}: there is no rank {peer}; ranks are 0 to {self.size - 1}")
        return self.ledger.begin(op, self._paths[peer], 2, x.nbytes, peer, tag)


def _axes(mesh: Mesh, axis) -> tuple[str, ...]:
    """The axes named, without those of one rank, in mesh order: the same group has the same name."""
    names = (axis,) if isinstance(axis, str) else tuple(axis)
    for name in names:
        if name not in mesh.axes and name not in COURSE_AXES:
            raise ValueError(f"{mesh} has no axis {name!r}: its axes are {', '.join(mesh.axes)}")
    return tuple(name for name, length in mesh.axes.items() if name in names and length > 1)


def _label(axes) -> str:
    return "+".join(axes)


def _dim(op: str, x, dim: int) -> int:
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"{op} along dim {dim} needs a tensor that has it: this one has shape {tuple(x.shape)}")
    return dim % x.dim()


def _flat(x):
    """x as gloo can read it: outside autograd, in one piece; the tensor's own memory where possible."""
    return x.detach().contiguous()


def _copy_back(staged, x):
    """Bring what arrived in `staged` to x, unless both are the same memory; returns x."""
    if staged.data_ptr() != x.data_ptr():
        x.detach().copy_(staged)
    return x


_places: dict[tuple[str, int], str] = {}


def _source() -> str:
    """The "file:line" of the first caller outside this folder."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(HERE) and frame.f_back:
        frame = frame.f_back
    key = frame.f_code.co_filename, frame.f_lineno
    if key not in _places:
        _places[key] = f"{os.path.basename(key[0])}:{key[1]}"
    return _places[key]
