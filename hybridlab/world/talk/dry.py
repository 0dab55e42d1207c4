"""The door of a dry run: one rank of a mesh whose other ranks are not there. The ledger is written as in a real run.

Tensors live on torch's meta device: they have a shape and a dtype, and no numbers. So it does not matter what arrives.

Relatives: `comm`, whose buffers, checks and ledger these are; `train.dry.one_rank`, which plays a rank behind this door.
"""

from functools import cached_property

import torch

from hybridlab.core.mesh import Mesh
from hybridlab.world.processes.placement import Placement
from hybridlab.world.talk.comm import Comm

META = torch.device("meta")


class Over:
    """An operation that is over as soon as it has begun."""

    def wait(self):
        """Nothing travels."""

    def is_completed(self) -> bool:
        """It is over."""
        return True


def over(*_, **__) -> Over:
    """What every operation comes to where nobody else is there."""
    return Over()


class Nobody:
    """A network without others."""

    all_gather = all_reduce = all_to_all_single = barrier = broadcast = staticmethod(over)
    irecv = isend = new_group = reduce_scatter = staticmethod(over)


class DryComm(Comm):
    """The door of one rank of a mesh of any size, in one process and without a process group.

    >>> door = DryComm(Mesh(dp=384, tp=8), rank=17)
    >>> door.all_gather(torch.empty(5, device="meta"), "tp").shape, door.ledger.bytes
    (torch.Size([40]), [160])
    """

    net = Nobody

    def __init__(self, mesh: Mesh, rank: int):
        super().__init__(mesh, rank, placed=Placement("nccl", ("meta",) * mesh.size, False, "a dry run: no device"))
        self.ledger.clear()

    @cached_property
    def device(self) -> torch.device:
        """Where nothing is computed."""
        return META
