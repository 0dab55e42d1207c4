"""The base of `Comm`, without collectives: groups, point-to-point messages, and the start of operations.

Four facts shape a program. A send of any size may wait until its receive is posted (gloo). A program must wait for a
message before it touches its tensor. NCCL has no tags: messages from one rank to another must be received in the order
in which they were sent. And when ranks communicate through NCCL for the first time, it blocks the host of each until
all have arrived: see `connections`.

Relatives: `comm`, which adds the collectives; `groups`, `ledger`, `message`.
"""

import copy
import functools
import threading
import warnings
from collections import deque
from datetime import timedelta
from typing import Self

import torch
import torch.distributed as dist

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.meet import of_device, take_device
from hybridlab.world.devices.placement import Placement, placement
from hybridlab.world.talk import network
from hybridlab.world.talk.clock import clock_of
from hybridlab.world.talk.connections import Connections
from hybridlab.world.talk.groups import Group, axes_of, label_of
from hybridlab.world.talk.ledger import Ledger
from hybridlab.world.talk.message import Message, StreamMessage, incoming, outgoing, settle
from hybridlab.world.talk.parts import tensor_of


class Door:
    """A `Comm` without its collectives; documented there."""

    net = network  # the functions that send

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
        self.rank, self.size, self.purpose = rank, mesh.size, ""
        self._placed = placed or placement(mesh.size, gpus=0)
        self.ledger = Ledger(mesh)
        self.on_event = on_event
        self._timeout = timeout
        self._handles = {tuple(range(self.size)): dist.group.WORLD}  # by ranks of a group
        self._take_places(mesh, groups)
        # NCCL's messages between two ranks wait for each other unless each direction has a separate group.
        two = self._on_streams and self.size > 1  # one rank alone may open a mesh of one rank
        on_device = {"backend": of_device(self._placed), "timeout": timeout} if two else {}
        self._lanes = [self.net.new_group(**on_device) for _ in "↓↑"] if two else [None, None]
        self._connections, self._greeted = Connections(rank), set()
        self._streaming = deque()  # messages that are work for the device
        self._turn = threading.Lock()  # receivers post from separate threads: see `runtime.message_driven`

    def _take_places(self, mesh: Mesh, groups):
        """Take this rank's coordinates in a mesh, and its groups along each axis and along these sets of axes."""
        self.mesh, self.coordinates, self._groups = mesh, mesh.coordinates(self.rank), {}
        every = tuple(mesh.axes)
        self._open([(), *((axis,) for axis in every), every, *groups])
        self._pairs = [Group(self._path(peer), (self.rank, peer), None) for peer in range(mesh.size)]

    def __repr__(self):
        return f"{type(self).__name__}(rank {self.rank} of {self.mesh})"

    @functools.cached_property
    def device(self) -> torch.device:
        """The device of this rank; initialized at the first use, because on a GPU that costs time and memory."""
        with self.ledger.preparing():
            return take_device(self._placed, self.rank)

    @property
    def placed(self) -> Placement:
        """The backend for messages, and the device of each rank."""
        return self._placed

    # messages: from one rank to another, both by their global numbers

    def send(self, x, to, tag=0):
        """Send x to the rank `to`; may wait until that rank posts its receive."""
        self._send("send", x, to, tag).wait()

    def recv(self, x, source, tag=0):
        """Receive into x the tensor that rank `source` sends with this tag, and return x."""
        return self._recv("recv", x, source, tag).wait()

    def isend(self, x, to, tag=0) -> Message:
        """Start sending x to the rank `to`; x must not change until the message's `wait`."""
        return self._send("isend", x, to, tag)

    def irecv(self, x, source, tag=0) -> Message:
        """Start receiving into x the tensor that rank `source` sends with this tag; x holds it after the message's
        `wait`.
        """
        return self._recv("irecv", x, source, tag)

    def _send(self, op, x, to, tag):
        row = self._begin_message(op, x, to, tag)
        leaving, lane = outgoing(x, self._via_host(x)), self._lane(x, to > self.rank)
        work = self._posted(x, lane, (self.rank, to), lambda: self.net.isend(leaving, to, lane, tag))
        return self._started(work, row, leaving, lambda: x)

    def _recv(self, op, x, source, tag):
        row = self._begin_message(op, x, source, tag)
        arriving, lane = incoming(x, self._via_host(x)), self._lane(x, source < self.rank)
        work = self._posted(x, lane, (self.rank, source), lambda: self.net.irecv(arriving, source, lane, tag))
        return self._started(work, row, arriving, self._came(row, lambda: settle(arriving, x)))

    def greet(self, pairs, device: torch.device):
        """Connect pairs of ranks before they exchange tensors on this device; each rank connects its own pairs.

        Otherwise they connect at their first message, in the first step of a pipeline; NCCL takes about a second for
        that. If messages are not work for the device, nothing is sent.
        """
        if self._works_on(device):
            peers = {peer for pair in pairs if self.rank in pair for peer in pair} - {self.rank} - self._greeted
            door, token = self.for_purpose("report"), torch.zeros(1, device=device)
            for peer in sorted(peers):  # in the same order on all ranks
                self._greeted.add(peer)
                for message in (door.isend(token, peer), door.irecv(token.clone(), peer)):
                    message.over()

    def settle(self):
        """Wait, on the host, until the device has finished all messages that it waits for.

        Call it before numbers are read from the device: a rank in a deadlock has then announced its operation.
        """
        with self._turn:
            ended, going_on = [], []
            for message in self._streaming:
                (ended if message.waited else going_on).append(message)
            self._streaming.clear()  # the same one in every communicator of this rank
            self._streaming.extend(going_on)
        for message in ended:
            message.over()

    def clock(self, device: torch.device):
        """The clock for times on a device: this rank's device, or the CPU."""
        return clock_of(device, self._on_streams)

    def emit(self, **event):
        """Send a live event to the kernel, which calls `on_event(rank, event)`; it may hold any returnable values."""
        if self.on_event:
            self.on_event(event)

    def for_purpose(self, purpose: str) -> Self:
        """The same communicator with a purpose, which the ledger records with every operation.

        A typed collective keeps the communicator that it was given, so its backward sends with the same purpose.
        """
        door = copy.copy(self)
        door.purpose = purpose
        return door

    def on(self, mesh: Mesh) -> Self:
        """A communicator for the same ranks on another mesh of the same size. Groups of the same ranks stay open, and
        the ledger continues. All ranks call it together.
        """
        door = copy.copy(self)
        door._take_places(mesh, ())
        return door

    def _came(self, row, deliver):
        """A function that delivers an operation's tensor, and reports it to the watch for the first nan."""
        ledger = self.ledger
        return lambda: ledger.came(row, deliver())

    def _begin(self, *about, **more) -> int:
        return self.ledger.begin(*about, purpose=self.purpose, **more)

    # groups

    def open(self, *groups: tuple[int, ...]):
        """Open further groups, each the global numbers of its ranks in order; they can then be used as an axis.

        Every rank must call this with the same groups in the same order, also for groups that it is not in.
        """
        every = Group("", tuple(range(self.size)), None)
        for ranks in map(tuple, groups):
            if list(ranks) != (ordered := sorted(set(ranks))):
                raise ValueError(f"a group cannot be {ranks}: list its ranks in order and once each, {tuple(ordered)}")
            if len(ranks) > 1 and ranks not in self._handles:
                row = self._begin("open", every, 0, how=str(ranks))
                self._handles[ranks] = self.net.new_group(list(ranks), timeout=self._timeout)
                self.ledger.end(row)
            if self.rank in ranks:
                places = [self.mesh.coordinates(rank) for rank in ranks]
                differ = (axis for axis in self.mesh.axes if len({place[axis] for place in places}) > 1)
                self._groups[ranks] = Group(label_of(differ), ranks, self._handles.get(ranks))

    def _open(self, axes_to_open):
        """Open the groups along some sets of axes; sets with the same ranks share one handle."""
        for axes in dict.fromkeys(axes_of(self.mesh, axes) for axes in axes_to_open):
            self.open(*self.mesh.groups(axes))
            self._groups[axes] = next(self._groups[ranks] for ranks in self.mesh.groups(axes) if self.rank in ranks)

    def group(self, axis=None) -> Group:
        """The ranks that this rank meets along an axis, itself included."""
        axis = tuple(axis) if isinstance(axis, list) else axis
        if isinstance(axis, tuple) and axis and isinstance(axis[0], int):
            if axis not in self._groups:
                raise ValueError(f"no group of the ranks {axis} is open: call comm.open({axis}) on every rank first")
            return self._groups[axis]
        axes = axes_of(self.mesh, tuple(self.mesh.axes) if axis is None else axis)
        if isinstance(axis, str) and axis not in self.mesh.axes and not (self.purpose or self.rank):
            told = f"{self.mesh} has no axis {axis}: along it each rank is alone, and nothing is sent"
            warnings.warn(told, stacklevel=4)
        if axes not in self._groups:
            raise ValueError(
                f"no group is open along {axes}: open it at the start with hl.ranks(mesh, groups=[{axes}])"
            )
        return self._groups[axes]

    def _path(self, peer) -> str:
        """The axes along which this rank and `peer` differ: the label of a message between them."""
        return self.mesh.between(self.rank, peer)

    @property
    def _on_streams(self) -> bool:
        """Whether the backend's operations are work for the device, on its streams."""
        return self._placed.backend == "nccl"

    def _via_host(self, x) -> bool:
        """Whether a message must go through host memory: gloo would read an address on the GPU as an address on the
        host.
        """
        return x.device.type != "cpu" and not self._on_streams

    def _works_on(self, device: torch.device) -> bool:
        """Whether operations on its tensors are work for this device."""
        return self._on_streams and device.type not in ("cpu", "meta")

    def _lane(self, x, up: bool):
        """The group for messages to higher ranks, or to lower ones; None is the group of all ranks."""
        return self._lanes[up] if self._works_on(x.device) else None

    def _posted(self, x, handle, ranks, post):
        """The result of `post`, a function that passes an operation of these ranks on x to torch."""
        if not self._works_on(x.device):
            return post()
        return self._connections.post(self.ledger, handle, tuple(sorted(ranks)), x.device, post)

    def _started(self, work, row, travelling, deliver) -> Message:
        if not self._works_on(travelling.device):
            return Message(deliver, work, travelling, self.ledger, row)
        message, ended = StreamMessage(deliver, work, travelling, self.ledger, row), []
        with self._turn:
            while self._streaming and self._streaming[0].waited and self._streaming[0].done():
                ended.append(self._streaming.popleft())
            self._streaming.append(message)
        for one in ended:
            one.over()
        return message

    def _begin_message(self, op, x, peer, tag) -> int:
        tensor_of(x)
        if peer == self.rank:
            raise ValueError(f"{op}: rank {peer} cannot exchange messages with itself; copy the tensor instead")
        if not 0 <= peer < self.size:
            raise ValueError(f"{op}: there is no rank {peer}; choose from 0 to {self.size - 1}")
        return self._begin(op, self._pairs[peer], x.nbytes, x, peer=peer, tag=tag, waits=op in ("send", "recv"))
