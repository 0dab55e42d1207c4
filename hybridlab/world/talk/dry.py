"""The communicator of a dry run: one rank of a mesh without the other ranks. It writes the ledger as in a real run.

Tensors live on torch's meta device: they have a shape and a dtype, and no numbers. So it does not matter what arrives.

Relatives: `comm`, whose buffers, checks and ledger these are; `training.dry.one_rank`, who stands behind this door.
"""

from functools import cached_property

import torch

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.placement import Placement
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.message import Message

META = torch.device("meta")


class Nobody:
    """A network without others: nothing moves. Where the ranks compare what they say on the host, all are taken to have
    said the same."""

    @staticmethod
    def all_reduce(*_, **__):
        """The result of every operation."""

    all_to_all_single = barrier = broadcast = irecv = isend = new_group = reduce_scatter = all_reduce

    @staticmethod
    def all_gather(room, mine, *_, **__):
        """The value of this rank, as if from all ranks."""
        if not room.is_meta:
            room.view(-1, len(mine)).copy_(mine)


class DryComm(Comm):
    """The door of one rank of a mesh of any size, in one process and without a process group.

    >>> door = DryComm(Mesh(dp=384, tp=8), rank=17)
    >>> door.all_gather(torch.empty(5, device="meta"), "tp").shape, door.ledger.total("all_gather")
    (torch.Size([40]), (1, 160))
    """

    net = Nobody

    def __init__(self, mesh: Mesh, rank: int):
        super().__init__(mesh, rank, placed=Placement("gloo", ("meta",) * mesh.size, False, "a dry run: no device"))

    @cached_property
    def device(self) -> torch.device:
        """Where nothing is computed."""
        return META

    def _via_host(self, x) -> bool:
        return False

    def _started(self, work, row, travelling, deliver) -> Message:
        """A message that is over; what travels is kept until somebody waits for it, as in a real run."""
        self.ledger.end(row)
        return Message(deliver, None, travelling)
