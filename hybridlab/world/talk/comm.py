"""The one door to the network: every message between ranks goes through a `Comm`, and its ledger writes down each.

Operations are raw: they move numbers and know nothing of gradients (`typed` does). An axis is a name of the mesh
("dp"), a tuple of names, a tuple of ranks that `open` was told, or None for all ranks. Along an axis of one rank there
is nobody to talk to: the call returns at once and is not counted. An operation whose name begins with i only starts:
it returns a `Message`, whose `wait` gives what the operation without i would have returned.

Four facts shape a program. A send may wait until its receive is posted, whatever its size (gloo). A message must be
waited for before its tensor is touched. NCCL knows no tags: what one rank sends another must be received in that order.
And two ranks that NCCL lets talk for the first time hold up each other's hosts until both are there: see `greet`.
"""

import copy
import functools
import itertools
import math
from collections import deque
from datetime import timedelta

import torch
import torch.distributed as dist

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.meet import take_device
from hybridlab.world.devices.placement import Placement, placement
from hybridlab.world.talk import lengths as said_lengths
from hybridlab.world.talk import network
from hybridlab.world.talk.clock import clock_of
from hybridlab.world.talk.groups import Group, axes_of, label_of
from hybridlab.world.talk.ledger import Ledger
from hybridlab.world.talk.message import Message, StreamMessage, incoming, outgoing, settle
from hybridlab.world.talk.nans import floats, ordered
from hybridlab.world.talk.parts import dimension, filled, joined, lengths, resized, stacked

REDUCE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}
COMPARING = ("max", "min")  # gloo loses a nan
FEW = 8  # ranks that all greet each other when they meet: anybody may then talk to anybody, in any order


class Comm:
    """This rank's door to the others: `rank`, `size`, `mesh`, `coordinates` (a dict), `ledger`, and the operations.

    purpose  what this door's operations are for, in the ledger's words; "" where nobody has said: see `for_purpose`

    Every rank opens the same groups in the same order when the Comm is made: each axis alone, all ranks, and the
    further tuples of axes in `groups`. The default process group must exist (see `meet`). Tensors may be on the CPU or
    on `device`, the one that the placement gives this rank; those that are not contiguous are copied on the way.
    Impossible operations raise ValueError before anything is sent.
    """

    net = network  # who carries it

    def __init__(
        self,
        mesh: Mesh,
        rank: int,
        *,
        placed: Placement | None = None,
        groups=(),
        timeout: timedelta | None = None,
        on_event=None,
    ):
        self.mesh, self.rank, self.size, self.purpose = mesh, rank, mesh.size, ""
        self._placed = placed or placement(mesh.size, gpus=0)
        self.coordinates = mesh.coordinates(rank)
        self.ledger = Ledger(mesh)
        self.on_event = on_event
        self._timeout, self._groups = timeout, {}
        self._handles = {tuple(range(self.size)): dist.group.WORLD}  # by the ranks that meet
        every = tuple(self.mesh.axes)
        if self.size > 1:
            self._assemble(tuple(range(self.size)))
        self._open([(), *((axis,) for axis in every), every, *groups])
        # NCCL's messages between two ranks wait for one another unless each direction has a group of its own.
        two = self._on_streams and self.size > 1  # a mesh of one rank may be opened by that rank alone
        self._lanes = [self.net.new_group(timeout=timeout) for _ in "↓↑"] if two else [None, None]
        self._pairs = [Group(self._path(peer), (rank, peer), None) for peer in range(mesh.size)]
        self._met, self._streaming = set(), deque()  # pairs that have greeted; messages that are work for the device
        if self.size <= FEW:
            self.greet()

    def __repr__(self):
        return f"Comm(rank {self.rank} of {self.mesh})"

    @functools.cached_property
    def device(self) -> torch.device:
        """Where this rank computes; taken when first asked for, because on a GPU that costs time and memory."""
        return take_device(self._placed, self.rank)

    @property
    def placed(self) -> Placement:
        """Which backend carries messages, and the device of each rank."""
        return self._placed

    # collectives: every rank of the group calls the same one with the same shape

    def all_reduce(self, x, axis=None, op="sum"):
        """Combine x over the group, in place; returns x. `op` is sum, max, min or product."""
        return self.iall_reduce(x, axis, op).wait()

    def iall_reduce(self, x, axis=None, op="sum") -> Message:
        """Start an all_reduce."""
        if op not in REDUCE:
            raise ValueError(f"all_reduce cannot do op={op!r}: use one of {', '.join(REDUCE)}")
        group = self.group(axis)
        if group.size == 1:
            return Message(lambda: x)
        flat = _flat(x)
        row = self._begin("all_reduce", group, x.nbytes, flat, how=op, waits=False)
        if op in COMPARING and x.is_floating_point() and not (self._on_streams or x.is_meta):
            bits = ordered(flat, op)
            work = self.net.all_reduce(bits, REDUCE[op], group.handle, async_op=True)
            return self._started(work, row, bits, self._came(row, lambda: settle(floats(bits, x.dtype), x)))
        work = self.net.all_reduce(flat, REDUCE[op], group.handle, async_op=True)
        return self._started(work, row, flat, self._came(row, lambda: settle(flat, x)))

    def all_gather(self, x, axis=None, dim=0, sizes=None):
        """A new tensor: the x of every rank of the group, in group order, joined along `dim`.

        sizes  the length of every rank's x along `dim`, where they differ; all then travel as long as the longest
        """
        return self.iall_gather(x, axis, dim, sizes).wait()

    def iall_gather(self, x, axis=None, dim=0, sizes=None) -> Message:
        """Start an all_gather."""
        group, dim = self.group(axis), dimension("all_gather", x, dim)
        place = group.ranks.index(self.rank)
        sizes = [x.shape[dim]] * group.size if sizes is None else list(sizes)
        if len(sizes) != group.size or sizes[place] != x.shape[dim]:
            raise ValueError(
                f"all_gather over {group.size} ranks cannot have sizes={tuple(sizes)}: x has length {x.shape[dim]} "
                f"along dim {dim} here, so give {group.size} lengths, of which number {place} is {x.shape[dim]}"
            )
        if group.size == 1:
            return Message(lambda: x.detach().clone())
        flat = _flat(filled(x.detach(), dim, max(sizes)))
        room = flat.new_empty((group.size, *flat.shape))
        row = self._begin("all_gather", group, room.nbytes, flat, how=_along(dim), lengths=_uneven(sizes), waits=False)
        work = self.net.all_gather(room.view(-1), flat.view(-1), group.handle, async_op=True)
        return self._started(work, row, flat, self._came(row, lambda: joined(room, dim, sizes)))

    def reduce_scatter(self, x, axis=None, dim=0, sizes=None):
        """A new tensor: this rank's part along `dim` of the sum of x over the group.

        sizes  the length of every rank's part, where they differ; all then travel as long as the longest
        """
        return self.ireduce_scatter(x, axis, dim, sizes).wait()

    def ireduce_scatter(self, x, axis=None, dim=0, sizes=None) -> Message:
        """Start a reduce_scatter."""
        group, dim = self.group(axis), dimension("reduce_scatter", x, dim)
        sizes = lengths("reduce_scatter", x.shape[dim], dim, group.size, sizes)
        if group.size == 1:
            return Message(lambda: x.detach().clone())
        parts = stacked(x.detach(), dim, sizes)
        mine = torch.empty_like(parts[0])
        how = "sum" + _along(dim, ", ")
        row = self._begin("reduce_scatter", group, parts.nbytes, x, how=how, lengths=_uneven(sizes), waits=False)
        work = self.net.reduce_scatter(mine.view(-1), parts.view(-1), group=group.handle, async_op=True)
        length = sizes[group.ranks.index(self.rank)]
        return self._started(work, row, parts, self._came(row, lambda: mine.narrow(dim, 0, length).contiguous()))

    def all_to_all(self, x, axis=None, cut=0, join=0, sent=None, received=None):
        """A new tensor: x is cut along the dim `cut`, part k goes to the k-th rank, what comes is joined along `join`.

        sent      the length along `cut` of the part for each rank, where they differ
        received  the length along `join` of the part from each rank, where they differ
        """
        return self.iall_to_all(x, axis, cut, join, sent, received).wait()

    def iall_to_all(self, x, axis=None, cut=0, join=0, sent=None, received=None) -> Message:
        """Start an all_to_all."""
        group = self.group(axis)
        cut, join = dimension("all_to_all", x, cut), dimension("all_to_all", x, join)
        if cut == join and (sent is None) != (received is None):
            raise ValueError("all_to_all cannot know the other lengths: give both sent= and received=, or neither")
        here = group.ranks.index(self.rank)
        sent = lengths("all_to_all", x.shape[cut], cut, group.size, sent)
        each = sent[here] if cut == join else x.shape[join]
        received = [each] * group.size if received is None else list(received)
        if len(received) != group.size:
            raise ValueError(f"all_to_all cannot join {tuple(received)}: give {group.size} lengths, one from each rank")
        if group.size == 1:
            return Message(lambda: x.detach().clone())
        parts = x.detach().split(sent, cut)
        shapes = [resized(resized(x.shape, cut, sent[here]), join, length) for length in received]
        room = x.new_empty(sum(map(math.prod, shapes)))
        flat = torch.cat([part.reshape(-1) for part in parts])
        leaving, coming = [part.numel() for part in parts], [math.prod(shape) for shape in shapes]
        about = said_lengths.exchanged(sent, received, None if cut == join else x.shape[join], here, leaving, coming)
        free = {dim: "*" for dim in (cut, join)}  # may differ from rank to rank
        how, shape = f"cut {cut}, join {join}", _shape(free.get(dim, n) for dim, n in enumerate(x.shape))
        row = self._begin("all_to_all", group, x.nbytes, x, how=how, shape=shape, lengths=about, waits=False)
        work = self.net.all_to_all_single(room, flat, coming, leaving, group.handle, async_op=True)
        together = lambda: torch.cat([part.view(shape) for part, shape in zip(room.split(coming), shapes)], join)
        return self._started(work, row, flat, self._came(row, together))

    def broadcast(self, x, source=0, axis=None):
        """Fill x everywhere with the x of the group's rank number `source` (0 is the group's first); returns x."""
        group = self.group(axis)
        if not 0 <= source < group.size:
            raise ValueError(f"broadcast from {source} is not possible: the group has ranks 0 to {group.size - 1}")
        if group.size == 1:
            return x
        flat = _flat(x)
        row = self._begin("broadcast", group, x.nbytes, flat, root=group.ranks[source])
        self.net.broadcast(flat, group.ranks[source], group.handle)
        self.ledger.end(row)
        return settle(flat, x)

    def barrier(self, axis=None):
        """Wait until every rank of the group is here."""
        group = self.group(axis)
        if group.size > 1:
            row = self._begin("barrier", group, 0)
            self.net.barrier(group.handle)
            self.ledger.end(row)

    # messages: from one rank to another, both by their global numbers

    def send(self, x, to, tag=0):
        """Send x to the rank `to`; may wait until that rank posts its receive."""
        self._send("send", x, to, tag).wait()

    def recv(self, x, source, tag=0):
        """Fill x with what the rank `source` sends with this tag; returns x."""
        return self._recv("recv", x, source, tag).wait()

    def isend(self, x, to, tag=0) -> Message:
        """Start to send x to the rank `to`; x must stay as it is until the message's `wait`."""
        return self._send("isend", x, to, tag)

    def irecv(self, x, source, tag=0) -> Message:
        """Start to fill x with what the rank `source` sends with this tag; x holds it after the message's `wait`."""
        return self._recv("irecv", x, source, tag)

    def _send(self, op, x, to, tag):
        row = self._begin_message(op, x, to, tag)
        leaving = outgoing(x, self._via_host(x))
        work = self.net.isend(leaving, to, self._lane(to > self.rank), tag)
        return self._started(work, row, leaving, lambda: x)

    def _recv(self, op, x, source, tag):
        row = self._begin_message(op, x, source, tag)
        arriving = incoming(x, self._via_host(x))
        work = self.net.irecv(arriving, source, self._lane(source < self.rank), tag)
        return self._started(work, row, arriving, self._came(row, lambda: settle(arriving, x)))

    def greet(self, pairs=None):
        """Let pairs of ranks meet before they talk; by default all pairs. Every rank calls this with the same pairs.

        When two ranks first talk along a lane, NCCL connects them, and both hosts stand still until both have come. In
        a program that posts its receives early, two such stops can wait for each other. So pairs meet beforehand, in
        one order for all. Where the backend does not stop hosts, nothing is sent.
        """
        pairs = itertools.combinations(range(self.size), 2) if pairs is None else pairs
        for pair in sorted({tuple(sorted(pair)) for pair in pairs} - self._met) if self._lanes[0] else ():
            self._met.add(pair)
            if self.rank in pair:
                self._greet(*pair)

    def _greet(self, low, high):
        door, token = self.for_purpose("report"), torch.zeros(1, device=self.device)
        for source, to in ((low, high), (high, low)):
            (door.isend(token, to) if self.rank == source else door.irecv(token, source)).over()

    def settle(self):
        """Wait, on the host, until the device has done all messages that it was told to wait for.

        For use before numbers are read from the device: a rank that waits in vain has then said what for.
        """
        while self._streaming:
            message = self._streaming.popleft()
            if message.waited:
                message.over()

    def clock(self, device: torch.device):
        """The clock by which to note what happens on a device: this rank's, or the CPU."""
        return clock_of(device, self._on_streams)

    def emit(self, **event):
        """Send a live event home, where it reaches `on_event(rank, event)`; values are those that may be returned."""
        if self.on_event:
            self.on_event(event)

    def for_purpose(self, purpose: str) -> "Comm":
        """The same door, which says what it is used for: the ledger writes it beside every operation.

        A typed move keeps the door it was given, so what its backward sends has the same purpose.
        """
        door = copy.copy(self)
        door.purpose = purpose
        return door

    def _came(self, row, deliver):
        """What delivers an operation's tensor, and shows it to whoever looks for the first nan."""
        ledger = self.ledger
        return lambda: ledger.came(row, deliver())

    def _begin(self, *about, **more) -> int:
        return self.ledger.begin(*about, purpose=self.purpose, **more)

    # who meets whom

    def open(self, *groups: tuple[int, ...]):
        """Open further groups, each the global numbers of its ranks in order, which may then be named as an axis.

        Every rank calls this with the same groups in the same order, also those it is not in.
        """
        every = Group("", tuple(range(self.size)), None)
        for ranks in groups:
            if list(ranks) != (ordered := sorted(set(ranks))):
                raise ValueError(f"a group lists its ranks in order, each once: {tuple(ordered)}, not {ranks}")
            if len(ranks) > 1 and ranks not in self._handles:
                row = self._begin("open", every, 0, how=str(ranks))
                self._handles[ranks] = self.net.new_group(list(ranks), timeout=self._timeout)
                self._assemble(ranks)
                self.ledger.end(row)
            if self.rank in ranks:
                places = [self.mesh.coordinates(rank) for rank in ranks]
                differ = (axis for axis in self.mesh.axes if len({place[axis] for place in places}) > 1)
                self._groups[ranks] = Group(label_of(differ), ranks, self._handles.get(ranks))

    def _assemble(self, ranks):
        """Let a group come together before it is needed: as two ranks at their first message (see `greet`), so all
        hosts of a group stand still at its first collective, and some of them could be needed elsewhere."""
        if self._on_streams and self.rank in ranks:
            self.net.all_reduce(torch.zeros(1, device=self.device), group=self._handles[ranks])

    def _open(self, axes_to_open):
        """Open the groups along some sets of axes; sets with the same ranks share one handle."""
        for axes in dict.fromkeys(axes_of(self.mesh, axes) for axes in axes_to_open):
            self.open(*self.mesh.groups(axes))
            self._groups[axes] = next(self._groups[ranks] for ranks in self.mesh.groups(axes) if self.rank in ranks)

    def group(self, axis=None) -> Group:
        """The ranks that this rank meets along an axis, itself included."""
        if isinstance(axis, tuple) and axis and isinstance(axis[0], int):
            if axis not in self._groups:
                raise ValueError(f"no group of the ranks {axis} is open: comm.open({axis}) on every rank first")
            return self._groups[axis]
        axes = axes_of(self.mesh, tuple(self.mesh.axes) if axis is None else axis)
        if axes not in self._groups:
            raise ValueError(f"no group is open along {axes}: name it at the start, hl.ranks(mesh, groups=[{axes}])")
        return self._groups[axes]

    def _path(self, peer) -> str:
        """The axes along which this rank and `peer` differ: the label of a message between them."""
        return self.mesh.between(self.rank, peer)

    @property
    def _on_streams(self) -> bool:
        """Whether the backend's operations are work for the device, on its streams."""
        return self._placed.backend == "nccl"

    def _via_host(self, x) -> bool:
        """Whether a message must go through host memory: gloo would take an address on the GPU for one on the host."""
        return x.device.type != "cpu" and not self._on_streams

    def _lane(self, up: bool):
        """The group that carries messages to higher ranks, or to lower ones; None is the one of all ranks."""
        return self._lanes[up]

    def _started(self, work, row, travelling, deliver) -> Message:
        if travelling.device.type == "cpu" or not self._on_streams:
            return Message(deliver, work, travelling, self.ledger, row)
        while self._streaming and self._streaming[0].waited and self._streaming[0].done():
            self._streaming.popleft().over()
        self._streaming.append(StreamMessage(deliver, work, travelling, self.ledger, row))
        return self._streaming[-1]

    def _begin_message(self, op, x, peer, tag) -> int:
        _tensor(x)
        if peer == self.rank:
            raise ValueError(f"{op}: rank {peer} cannot exchange messages with itself; copy the tensor instead")
        if not 0 <= peer < self.size:
            raise ValueError(f"{op}: there is no rank {peer}; ranks are 0 to {self.size - 1}")
        return self._begin(op, self._pairs[peer], x.nbytes, x, peer=peer, tag=tag, waits=op in ("send", "recv"))


def _along(dim: int, before: str = "") -> str:
    """A dim, where it is not the usual one: what all ranks of a group must agree on."""
    return f"{before}dim {dim}" if dim else ""


def _uneven(sizes) -> str:
    """The lengths of all parts, where they differ: what all ranks of a group must agree on."""
    return said_lengths.told(sizes) if len(set(sizes)) > 1 else ""


def _shape(lengths) -> str:
    return f"({', '.join(map(str, lengths))})"


def _flat(x):
    """x as a collective can read it: outside autograd, in one piece; the tensor's own memory where possible."""
    return _tensor(x).detach().contiguous()


def _tensor(x) -> torch.Tensor:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"ranks exchange tensors, and this is {'None' if x is None else f'a {type(x).__name__}'}")
    return x
