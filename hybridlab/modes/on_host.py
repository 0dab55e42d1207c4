"""On the host: the full weights stay in the host's memory; the device holds only those of the stages in use.

This is data parallelism out of core. A stage's weights are copied to the device before use (UNSHARD), during compute,
and freed after it (RESHARD). After the stage's last backward (REDUCE_GRAD), its gradients are copied to the host, and
the hosts all-reduce them, pack by pack, while the device computes. The optimizer runs on the host, which holds its
state. Ranks do not shard weights among themselves: this is ZeRO's stage 3 with one owner, but weights are stored on
this rank's host instead of on another rank.

Source: Wahib et al. 2020, arXiv:2008.11421 (KARMA), section on multi-node training. Relatives: `modes.zero`,
`scheduling.sharded`, `runtime.copies`.
"""

import torch

from hybridlab.modes.parts.sharded import Sharded
from hybridlab.modes.zero import Zero, rests_on_hosts
from hybridlab.runtime.copies import IN, engines
from hybridlab.runtime.pending import Sum


class OnHost(Sharded):
    """The weights of a rank's stages, stored on its host; the arguments are those of `Replicated`."""

    def __init__(self, comm, *about):
        self.engines = engines(comm.device)
        super().__init__(comm, *about)

    def _gather(self, pack):
        """Copy a pack to the device, into the memory of its parameters."""
        piece, values = self.pieces[pack], self.values[pack]
        self.moved["up"] += values.nbytes
        return self.engines.start(IN, _Weights(piece, values))

    def arrive(self, pack):
        if pack in self.gathering:
            self.gathering.pop(pack).wait()

    def _started(self, pack, names, flat):
        for name in names:
            self.by_name[name].grad = None
            self.summed.pop(name, None)
        there, self.moved["down"] = self._brought(flat, flat.dtype), self.moved["down"] + flat.nbytes
        if flat.device.type not in ("cpu", "meta"):
            torch.accelerator.current_stream(flat.device).synchronize()  # the hosts reduce the copies
        message = self.comm.iall_reduce(there, self.layout.summed(names[0], self.comm.rank))
        return Sum(message, lambda piece: self._take(names, piece))

    def _take(self, names, piece, whole=None):
        for name in names:
            share = self.shares[name]
            share.grad = self._shaped(name, piece[slice(*self._inside(name))]).to(share.dtype)


class _Weights:
    """The weights of a pack on their way to the device."""

    def __init__(self, piece, values):
        self.piece, self.values = piece, values

    def room(self):
        """Allocate the memory of the parameters."""
        self.values.untyped_storage().resize_(self.values.nbytes)

    def carry(self):
        """Copy the weights."""
        self.values.copy_(self.piece, non_blocking=True)

    def over(self):
        """Nothing to do: the weights stay on the host."""


class OnHosts(Zero):
    """The runtime part of this mode: its differences from ZeRO's stage 3."""

    name, purpose = "data parallelism on the hosts", "hosts"
    options, factors = {}, {}

    def takes_part(self, mesh, chosen):
        return rests_on_hosts(chosen)

    def completed(self, mesh, chosen, dtype):
        return {}

    def title(self, job):
        return "all-reduces of gradients by the hosts"

    def said(self, job):
        return "weights at rest on the hosts"

    def refuse(self, job):
        """Accept every job: a single rank can keep its weights on its host too."""

    def keeper(self, job):
        return OnHost


MODE = OnHosts()
