"""Shards on two levels: inside a group of neighbours, which fast links join, and over all groups.

`TwoLevels`: each group has the full weights, a part of them on each of its ranks; the optimizer's state of a part is
sharded once more, over the ranks with this part in all groups. Once a step, gradients are reduce-scattered inside the
groups and then over them, and the updated shares are gathered over the groups. All other gathers stay inside.

`Secondary`: weights are sharded over all owners. The first gather of a step leaves a second copy of them in each group
of neighbours, with a part on each rank. All other gathers of the step read that copy.

Source: `TwoLevels` is Megatron-FSDP's hybrid FSDP with a sharded optimizer (outer_dp_sharding_strategy="optim");
`Secondary` is hpZ of ZeRO++, Wang et al. 2023, arXiv:2306.10209, section 3.2. Relatives: `modes.parts.sharded`, one
level; `predict.bytes.sharing`, the bytes; `core.where.peers`, the ranks.
"""

import torch

from hybridlab.modes.parts.sharded import Sharded


class TwoLevels(Sharded):
    """The weights of a rank's stages: the rank keeps a part of them, and its optimizer a share of this part; the
    arguments are those of `Replicated`.

    parts  {pack: this rank's part of the weights}, with stage 3
    """

    def _shares(self):
        self.parts = {}
        return super()._shares()

    def _kept(self, pack):
        if self.rest < 3 or self._groups(pack) == 1:
            return super()._kept(pack)
        piece, groups = self.layout.piece(pack, self.comm.rank), self._groups(pack)
        number = self.layout.share_number(self.layout.packs[pack][0], self.comm.rank)
        part, share = number // groups, number % groups
        self.parts[pack] = self.values[pack][part * groups * piece : (part + 1) * groups * piece].clone()
        return self._kept_as(self.parts[pack][share * piece : (share + 1) * piece])  # a view, in the same dtype

    def _groups(self, pack) -> int:
        return self.layout[self.layout.packs[pack][0]].groups

    def _added(self, name, part):
        return super()._added(name, self.comm.reduce_scatter(part, self.layout.across(name, self.comm.rank)))

    @torch.no_grad()
    def publish(self):
        """Gather the updated shares over the groups; with stages 1 and 2, then inside them."""
        super().publish()
        arriving = {pack: self._gather_part(pack) for pack in self.parts}
        for pack, message in arriving.items():
            self.parts[pack].copy_(message.wait())

    def _gather_part(self, pack):
        first, piece = self.layout.packs[pack][0], self.pieces[pack]
        return self.comm.iall_gather(self._used_as(piece, self.values[pack]), self.layout.across(first, self.comm.rank))

    def _gather(self, pack):
        if self._groups(pack) == 1:
            return super()._gather(pack)
        part = self.parts[pack] if pack in self.parts else self._gather_part(pack).wait()
        return self.comm.iall_gather(part, self.layout.sharers(self.layout.packs[pack][0], self.comm.rank))


class Secondary(Sharded):
    """The weights of a rank's stages, sharded over all owners, with second copies among neighbours; the arguments are
    those of `Replicated`.

    parts  {pack: this rank's part of the second copy};  current  the packs whose second copy is of this step
    """

    def _shares(self):
        self.parts, self.current = {}, set()
        return super()._shares()

    def _gather(self, pack):
        if pack not in self.current:
            return super()._gather(pack)
        near = self.layout.near(self.layout.packs[pack][0], self.comm.rank)
        return self.comm.iall_gather(self.parts[pack], near)

    def arrive(self, pack):
        """Wait for the weights of a pack; if they come from all owners, copy this rank's part of the second copy."""
        first = pack in self.gathering and pack not in self.current
        super().arrive(pack)
        name = self.layout.packs[pack][0]
        if first and self.layout[name].secondary:
            near = self.layout.near(name, self.comm.rank)
            self.parts[pack] = self.values[pack].chunk(len(near))[near.index(self.comm.rank)].clone()
            self.current.add(pack)

    def publish(self):
        """The weights have changed: the next gathers read the owners' shares."""
        super().publish()
        self.current.clear()
