"""The communicator of a dry run: one rank of a mesh without the other ranks. It writes the ledger as in a real run.

Tensors are on torch's meta device: they have a shape and a dtype, but no numbers. So the received values do not matter.

Relatives: `comm`, whose buffers, checks and ledger it uses; `training.dry.one_rank`, which uses this communicator.
"""

from functools import cached_property

import torch

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.placement import Placement
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.message import Message

META = torch.device("meta")


class Nobody:
    """A network without other ranks: nothing is sent. Announcements on the host are taken to be equal on all ranks."""

    @staticmethod
    def all_reduce(*_, **__):
        """The result of every operation."""

    all_to_all_single = barrier = broadcast = irecv = isend = new_group = reduce_scatter = all_reduce

    @staticmethod
    def all_gather(room, mine, *_, **__):
        """This rank's value, repeated as if every rank had sent it."""
        if not room.is_meta:
            room.view(-1, len(mine)).copy_(mine)


class DryComm(Comm):
    """The communicator of one rank of a mesh of any size, in one process and without a process group.

    >>> door = DryComm(Mesh(dp=384, tp=8), rank=17)
    >>> door.all_gather(torch.empty(5, device="meta"), "tp").shape, door.ledger.total("all_gather")
    (torch.Size([40]), (1, 160))
    """

    net = Nobody

    def __init__(self, mesh: Mesh, rank: int):
        super().__init__(mesh, rank, placed=Placement("gloo", ("meta",) * mesh.size, False, "a dry run: no device"))

    @cached_property
    def device(self) -> torch.device:
        """The meta device, on which nothing is computed."""
        return META

    def _via_host(self, x) -> bool:
        return False

    def _started(self, work, row, travelling, deliver) -> Message:
        """A message that is over; its tensors are kept until `wait`, as in a real run."""
        self.ledger.end(row)
        return Message(deliver, None, travelling)
