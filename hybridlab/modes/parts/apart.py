"""The weights of a rank whose copies train alone: the mean of the copies' moves is the gradient of an outer step.

Each copy keeps the weights of the last outer step (`anchors`). The move of a copy is the difference, old minus new, so
it has the direction of a gradient. The outer step is SGD with Nesterov momentum, as torch writes it: v ← μv + Δ, then θ
← θ_old - rate·(Δ + μv). All copies compute it from the same mean, so their anchors and momenta stay equal; the state of
the inner optimizer is never exchanged.

Relatives: `modes.local_steps`, which determines the steps; `predict.bytes.local_steps`; `training.replay_copies`, the
test.
"""

from typing import NamedTuple

import torch

from hybridlab.modes.parts.replicated import Replicated
from hybridlab.predict.bytes.local_steps import Rounds
from hybridlab.world.talk.message import Message

ANCHOR, MOMENTUM, COMING = "anchor", "outer_momentum", "coming"  # kinds of tensors in a checkpoint


class OuterStep(NamedTuple):
    """The settings of an outer step: when fragments are exchanged, and how their mean is used.

    rounds    the steps;  fragment_of  {name: number};  last  the last step: every exchange ends by then
    rate, momentum  of the outer step;  mix  the part of a copy's own weights that it keeps
    """

    rounds: Rounds
    fragment_of: dict[str, int]
    last: int
    rate: float
    momentum: float
    mix: float


class Apart(Replicated):
    """The weights of a rank's stages, which only the ranks of one copy share; the other arguments are those of
    `Replicated`.

    comm, layout, stages, named, program, early, policy  as in `Replicated`
    outer    the outer step
    anchors  {name: the weight after its last outer step};  momenta  {name: v}
    coming   {fragment: the all-reduce of its updates, or {name: the mean}}
    """

    def __init__(self, comm, layout, stages: dict, named: dict, program, early, policy, outer: OuterStep):
        super().__init__(comm, layout, stages, named, program, early, policy)
        comm.open(*layout.mesh.groups("dp"))
        self.outer, self.copies = outer, layout.mesh.group(comm.rank, "dp")
        self.anchors = {name: share.detach().clone() for name, share in self.shares.items()}
        self.momenta = {name: torch.zeros_like(anchor) for name, anchor in self.anchors.items()}
        self.coming: dict[int, Message | dict] = {}

    def stepped(self, step: int):
        """Begin the exchanges that start after this step, and use the results of those that end after it."""
        for fragment in self.outer.rounds.begun(step):
            self.coming[fragment] = self._sent(fragment)
        for fragment in self.outer.rounds.used(step):
            self._take_step(self._mean(fragment))
            del self.coming[fragment]
        if step == self.outer.last:
            self._settle()

    @property
    def hides(self) -> bool:
        return self.outer.rounds.delay > 0

    def begun_before(self, step: int):
        for earlier in range(step - self.outer.rounds.delay, step):
            for fragment in self.outer.rounds.begun(earlier % self.outer.rounds.every):
                self.coming[fragment] = self._sent(fragment)

    def _settle(self):
        """Wait for the exchanges that are under way."""
        self.coming = {fragment: self._mean(fragment) for fragment in self.coming}

    def states(self, name: str) -> dict[str, torch.Tensor]:
        self._settle()
        coming = self.coming.get(self.outer.fragment_of[name], {})
        found = {ANCHOR: self.anchors[name], MOMENTUM: self.momenta[name]}
        return found | ({COMING: coming[name]} if coming else {})

    def restore(self, name: str, kinds: dict):
        self.anchors[name].copy_(kinds.pop(ANCHOR))
        self.momenta[name].copy_(kinds.pop(MOMENTUM))
        if COMING in kinds:
            self.coming.setdefault(self.outer.fragment_of[name], {})[name] = kinds.pop(COMING)

    @property
    def besides(self) -> list[torch.Tensor]:
        return [*self.anchors.values(), *self.momenta.values()]

    def _names(self, fragment: int) -> list[str]:
        return [name for name in self.shares if self.outer.fragment_of[name] == fragment]

    def _sent(self, fragment: int) -> Message | dict:
        """Start the all-reduce of this copy's moves; {} if this rank has no layer of the fragment."""
        moves = [self._move(name).reshape(-1) for name in self._names(fragment)]
        return self.comm.iall_reduce(torch.cat(moves), self.copies) if moves else {}

    def _move(self, name: str) -> torch.Tensor:
        """The move of a weight since its last outer step, in the dtype of reductions."""
        move = self.anchors[name] - self.shares[name].detach()
        return move.to(self.policy.sums or self.by_name[name].dtype)

    def _mean(self, fragment: int) -> dict[str, torch.Tensor]:
        """{name: the mean of all copies' moves}."""
        coming = self.coming[fragment]
        if isinstance(coming, dict):
            return coming
        names = self._names(fragment)
        mean = coming.wait() / len(self.copies)
        pieces = mean.split([self.anchors[name].numel() for name in names])
        return {name: piece.view_as(self.anchors[name]) for name, piece in zip(names, pieces)}

    @torch.no_grad()
    def _take_step(self, mean: dict[str, torch.Tensor]):
        """The outer step of some weights, mixed with the copy's own weights."""
        rate, momentum, mix = self.outer.rate, self.outer.momentum, self.outer.mix
        for name, move in mean.items():
            anchor, share = self.anchors[name], self.shares[name]
            move = move.to(anchor.dtype)
            speed = self.momenta[name].mul_(momentum).add_(move)
            anchor.sub_(rate * (move + momentum * speed))
            share.copy_(mix * share + (1 - mix) * anchor)
