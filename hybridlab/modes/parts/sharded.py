"""The weights of a rank that keeps only a shard of them between steps: gradients are reduce-scattered, weights are
gathered.

Relatives: `modes.zero`, the mode; `modes.parts.replicated`, the same without shards; `modes.parts.two_levels`, shards
of shards.
"""

import torch

from hybridlab.modes.parts.replicated import Replicated
from hybridlab.runtime.pending import Arrival, Sum


class Sharded(Replicated):
    """The weights of a rank's stages, of which it owns a shard between steps; the arguments are those of `Replicated`.

    comm, layout, stages, named, program, early, policy  as in `Replicated`
    """

    def _shares(self) -> dict:
        layout = self.layout
        packs = sorted({layout[name].pack for name in self.by_name})
        self.rest = max((layout[name].rest for name in self.by_name), default=0)
        self.values = {pack: self._moved(pack) for pack in packs}
        self.pieces = {pack: self._kept(pack) for pack in packs}
        self.in_use, self.gathering = dict.fromkeys(packs, 0), {}
        for pack in packs if self.rest == 3 else ():
            self._let_go(pack)
        inside = {name: self.pieces[layout[name].pack][slice(*self._inside(name))] for name in self.by_name}
        return {name: torch.nn.Parameter(self._shaped(name, share)) for name, share in inside.items()}

    def _shaped(self, name, share):
        """A shard as other code sees it: flat, or with the parameter's shape if it is the full parameter."""
        return share.view_as(self.by_name[name]) if self.layout[name].owners == 1 else share

    # one buffer for each pack

    def _own(self, pack, flat):
        """This rank's piece of a buffer."""
        piece = self.layout.piece(pack, self.comm.rank)
        start = piece * self.layout.share_number(self.layout.packs[pack][0], self.comm.rank)
        return flat[start : start + piece]

    def _kept(self, pack):
        """This rank's piece of the weights, kept between steps: a view of the full buffer, if there is one."""
        own = self._kept_as(self._own(pack, self.values[pack]))
        return own.clone() if self.rest == 3 and not self.policy.host else own

    def _inside(self, name) -> tuple[int, int]:
        """The range of this rank's shard of a parameter within its piece."""
        layout, rank = self.layout, self.comm.rank
        share, start = layout.share(name, rank), layout.offset(name, rank)
        piece = layout.share_number(name, rank) * layout.piece(layout[name].pack, rank)
        return (start + share.start - piece, start + share.stop - piece) if share.stop > share.start else (0, 0)

    def _moved(self, pack):
        """The buffer that now stores the weights of a pack."""
        weights = {name: self.by_name[name] for name in self.layout.packs[pack]}
        flat = self._flat(pack, {name: weight.detach() for name, weight in weights.items()})
        for name, weight in weights.items():
            start = self.layout.offset(name, self.comm.rank)
            weight.data = flat[start : start + weight.numel()].view_as(weight)
        return flat

    # gradients: a reduce-scatter, and an all-reduce of the shard between groups of owners

    def reduce(self, comm, action):
        """Reduce this stage's gradients; the buffers of reductions that have started are freed before the next are
        packed.
        """
        for one in self.sent.values():
            one.arrive()
        return super().reduce(comm, action)

    def _started(self, pack, names, flat):
        for name in names:
            self.by_name[name].grad = None
            self.summed.pop(name, None)
        whole = [] if self.rest >= 2 else [flat]  # the tensors that a rank keeps in addition to its own shards
        message = self.comm.ireduce_scatter(flat, self.layout.sharers(names[0], self.comm.rank))
        return Sum(message, lambda piece: self._take(names, self._added(names[0], piece), *whole))

    def _added(self, name, piece):
        """A piece of gradients, summed over the other ranks with the same share."""
        return self.comm.all_reduce(piece, self.layout.twins(name, self.comm.rank))

    def _take(self, names, piece, whole=None):
        if whole is not None:
            piece = self._own(self.layout[names[0]].pack, whole).copy_(piece)
        for name in names:
            self._give(self.shares[name], self._shaped(name, piece[slice(*self._inside(name))]))

    def _meets(self, name) -> bool:
        return True  # a shard is cut out of every gradient, even if no other rank adds to it

    # weights: gathered after the update, or before every use

    @torch.no_grad()
    def publish(self):
        if self.rest < 3:
            for pack in self.pieces:
                self.values[pack].copy_(self._gather(pack).wait())

    def _gather(self, pack):
        first, piece = self.layout.packs[pack][0], self.pieces[pack]
        return self.comm.iall_gather(
            self._used_as(piece, self.values[pack]), self.layout.sharers(first, self.comm.rank)
        )

    def call(self, stage, version):
        """The module of a stage. What it returns outlives its gathered weights: a view of a weight is copied."""
        module = super().call(stage, version)
        return (lambda *arrived: self._outliving(module(*arrived))) if self.rest == 3 else module

    def _outliving(self, made):
        if isinstance(made, tuple):
            return tuple(map(self._outliving, made))
        gathered = {values.untyped_storage().data_ptr() for values in self.values.values()}
        return made.clone() if made.untyped_storage().data_ptr() in gathered else made

    def unshard(self, stage) -> Arrival:
        """Start gathering the weights of a stage, except those that another stage has already gathered."""
        for pack in self._packs(stage):
            if not self.in_use[pack]:
                self.gathering[pack] = self._gather(pack)
            self.in_use[pack] += 1
        return Arrival(self, [pack for pack in self._packs(stage) if pack in self.gathering])

    def arrive(self, pack):
        """Wait for the weights of a pack, and point its parameters to them."""
        if pack in self.gathering:
            whole, values = self.gathering.pop(pack).wait(), self.values[pack]
            values.untyped_storage().resize_(values.nbytes)
            values.copy_(whole)

    def reshard(self, stage):
        """Free the weights of a stage, except this rank's shard."""
        for pack in self._packs(stage):
            self.in_use[pack] -= 1
            if not self.in_use[pack]:
                self._let_go(pack)

    def _let_go(self, pack):
        self.values[pack].untyped_storage().resize_(0)

    def _packs(self, stage):
        return sorted({self.layout[name].pack for name in self.named[stage]})
