"""The work of a stage: real compute. `emulated` waits for the time that compute would take.

A work object has the methods that `player.Player` calls: `bind` an action to its call, `room` for a receive buffer,
`arrived` after a message, the collectives `reduce`, `unshard` and `reshard`, and the copies to the host and back
(`swap`); also the maximum number `widest` of tensors on an edge, and their `device`. An edge carries a tuple of
tensors; a call takes one such tuple for every incoming edge and returns one for every outgoing edge.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

import torch

from hybridlab.runtime.halves import input_half, weight_half
from hybridlab.world.talk.message import Message
from hybridlab.world.talk.nans import UNWATCHED

CPU = torch.device("cpu")
DOES = {"F": "forward", "B": "backward", "I": "input_half", "W": "weight_half", "C": "pass_on", "R": "recompute",
        "OPT": "update"}  # fmt: skip


class Ends(NamedTuple):
    """The stages at the two ends of a model.

    reads   the stages that take the batch
    scored  {stage whose output enters the loss: a function from all targets of a microbatch to those of this output}
    """

    reads: Collection[int]
    scored: dict[int, Callable]


class ModelWork:
    """Real work: forward through a slice of the model, backward by autograd.

    weights  the weights of this rank's stages, and the way to call them: `replicated.Replicated`, `zero.Sharded`, or
             `versions.Versions`
    ends     the stages that read the batch, and those whose outputs enter the loss
    loss     loss(scores, targets) -> the summed loss of one microbatch
    rooms    rooms[edge]: for every tensor on the edge, an example of its shape and dtype
    draws    the model's `Draws`, set to the microbatch's place in the global batch before random draws
    rows     (the number b in one microbatch, the first of them on this rank)
    device   where the weights are
    step     the optimizer step of a schedule with its norm, see `training.validated`; None: the schedule has none
    exchanging  the function that exchanges tokens between stages, see `Mode.exchange`; None: none are exchanged

    `losses`, one for each microbatch if this rank has a stage at the end, stay on the device.

    A stage is called with the batch, if it reads it, and with all tensors of its incoming edges, first the chain, then
    the skips. It returns one tensor, or a tuple with one entry, a tensor or a tuple of tensors, for every outgoing
    edge. The last stage returns the output of the model, and any other stage whose output enters the loss has it as
    one more entry, the last.
    """

    nans = UNWATCHED  # the watch for the first tensor with a nan

    def __init__(self, weights, ends: Ends, loss, rooms: dict, draws, rows: tuple[int, int], device=CPU):
        self.weights, self.ends, self.loss, self.rooms, self.draws = weights, ends, loss, rooms, draws
        self.rows, self.device, self.peak_live = rows, device, 0
        self.widest, self.exchanging, self.step = max([1, *map(len, rooms.values())]), None, None

    def load(self, inputs: list, targets: list, tokens: int, first: int = 0):
        """Set the microbatches of the next step, the index `first` of the first one in the global batch, and the
        number of tokens in that batch.
        """
        self.inputs, self.targets, self.tokens, self.first = inputs, targets, tokens, first
        size = len(self.ends.scored), len(inputs)
        self.by_end = dict(zip(self.ends.scored, torch.zeros(size, dtype=torch.float64, device=self.device)))
        self.kept, self.passed, self.halved, self.peak_live = {}, {}, {}, 0

    @property
    def losses(self) -> torch.Tensor:
        """The loss of each microbatch, from the outputs on this rank."""
        return sum(self.by_end.values())

    def bind(self, action, part):
        """The call for one action, or for one part of a fused pair."""
        return partial(getattr(self, DOES[part.kind]), part.stage, part.microbatch, part.version)

    def room(self, edge: int, name: str) -> list:
        """Receive buffers for one message; every activation that can have a gradient gets one."""
        travels = [x for x in self.rooms[edge] if name == "activation" or x.is_floating_point()]
        return [torch.empty(x.shape, dtype=x.dtype, device=self.device) for x in travels]

    def arrived(self, tensors):
        """Nothing to do after a message has arrived."""

    def forward(self, stage, microbatch, version, arrived):
        """The output activations of the stage; of the last stage, the loss."""
        inputs = [self._leaves(one) for one in arrived]
        outputs = self._through(stage, microbatch, version, inputs)
        self.kept[stage, microbatch] = inputs, outputs
        self.peak_live = max(self.peak_live, len(self.kept) + len(self.halved))
        return [tuple(x.detach() for x in one) for one in outputs]

    def pass_on(self, stage, microbatch, version, arrived):
        """A forward that saves only the stage's input."""
        self.passed[stage, microbatch] = arrived
        with torch.no_grad():
            return self._through(stage, microbatch, version, arrived)

    def recompute(self, stage, microbatch, version, _):
        """Recompute the forward from the stage's input, now for a backward."""
        self.forward(stage, microbatch, version, self.passed.pop((stage, microbatch)))
        return []

    def backward(self, stage, microbatch, version, arrived):
        """The gradients with respect to the stage's input; weight gradients are added to the weights' `.grad`."""
        inputs, outputs = self.kept.pop((stage, microbatch))
        if pulled := _pulled(outputs, arrived):
            torch.autograd.backward(*pulled)
        self.weights.collect(stage, microbatch, version)
        return self._leaving(stage, microbatch, [[_gradient(x) for x in _floating(one)] for one in inputs])

    def input_half(self, stage, microbatch, version, arrived):
        """Only the gradients with respect to the stage's input."""
        inputs, outputs = self.kept.pop((stage, microbatch))
        leaves = [x for one in inputs for x in _floating(one)]
        pulled = _pulled(outputs, arrived)
        found, kept = input_half(*pulled, leaves) if pulled else ([None] * len(leaves), [])
        self.halved[stage, microbatch] = kept
        found = iter(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found))
        return self._leaving(stage, microbatch, [[next(found) for _ in _floating(one)] for one in inputs])

    def weight_half(self, stage, microbatch, version, _):
        """The weight gradients that the input half has postponed."""
        weight_half(self.halved.pop((stage, microbatch)))
        self.weights.collect(stage, microbatch, version)
        return []

    def update(self, stage, _, version, __):
        """One optimizer step for one stage, which creates its next version."""
        (self.step or self.weights).update(stage, version)
        return []

    @property
    def unsettled(self) -> bool:
        """Whether an optimizer step waits for its norm."""
        return self.step is not None and self.step.unsettled

    @property
    def summed(self) -> torch.Tensor:
        """The sum of squares of the gradients on this rank and the ranks before it."""
        return self.step.summed

    def squares(self, before: torch.Tensor | None) -> torch.Tensor:
        """Add the squares of this rank's gradients to the sum of the ranks before it."""
        return self.step.squares(before)

    def settled(self, total: torch.Tensor) -> bool:
        """Clip by the norm of all gradients. Returns whether forwards since the optimizer step used wrong weights."""
        return self.step.settled(total)

    def drop(self):
        """Drop all forwards of this step so far."""
        self.kept, self.passed, self.halved = {}, {}, {}
        self.step.drop()

    def exchange(self, comm, action, edge: int, value) -> list:
        """Start exchanging the output tokens of a stage, if any mode exchanges them."""
        return self.exchanging(action, value) if self.exchanging else [Message(lambda x=x: x) for x in value]

    def reduce(self, comm, action):
        """Start reducing this stage's gradients over its copies, and return handles to wait for."""
        return self.weights.reduce(comm, action)

    def unshard(self, comm, action):
        """Start gathering this stage's weights, and return handles to wait for."""
        return self.weights.unshard(action.stage)

    def reshard(self, action):
        """Free this stage's gathered weights."""
        self.weights.reshard(action.stage)

    def _leaving(self, stage, microbatch, gradients: list[list]) -> list[tuple]:
        """The gradients that leave a stage, for every edge."""
        what = f"the gradient that leaves stage {stage} in the backward of microbatch {microbatch}"
        for gradient in (one for edge in gradients for one in edge):
            self.nans.made(lambda: what, gradient)
        return [tuple(edge) for edge in gradients]

    def _leaves(self, tensors):
        return tuple(x.requires_grad_() if x.is_floating_point() else x for x in tensors)

    def _through(self, stage, microbatch, version, inputs) -> list[tuple]:
        """Run one stage: a tuple of tensors for every outgoing edge, or only the loss."""
        each, first = self.rows
        self.draws.row = (self.first + microbatch) * each + first
        batch = [self.inputs[microbatch]] if stage in self.ends.reads else []
        y = self.weights.call(stage, version)(*batch, *(x for one in inputs for x in one))
        if stage not in self.ends.scored:
            return self._edges(stage, microbatch, y if isinstance(y, tuple) else (y,))
        *passed, scores = y if stage < max(self.ends.scored) else (y,)
        loss = scaled(self.loss(scores, self.ends.scored[stage](self.targets[microbatch])), self.tokens)
        self.by_end[stage][microbatch] = loss.detach()
        self.nans.made(lambda: f"the loss of microbatch {microbatch}", loss)
        return [*self._edges(stage, microbatch, passed), (loss,)]

    def _edges(self, stage, microbatch, made) -> list[tuple]:
        """The outputs of a stage, a tuple of tensors for every outgoing edge."""
        edges = [one if isinstance(one, tuple) else (one,) for one in made]
        for x in (one for edge in edges for one in edge):
            self.nans.made(lambda: f"the output of stage {stage} in the forward of microbatch {microbatch}", x)
        return edges


def scaled(loss, tokens):
    """The loss for all ranks: a local *sum*, divided by the number of tokens in the global batch."""
    return loss / tokens


def _floating(tensors):
    return [x for x in tensors if x.is_floating_point()]


def _pulled(outputs, arrived):
    """(tensors, gradients) from which a backward starts; the loss, which is always last, needs no gradient from
    outside. Empty if the output of the stage depends on no weight.
    """
    tensors = [x for one in outputs for x in _floating(one)]
    gradients = [g for one in arrived for g in one]
    gradients += [torch.ones_like(x) for x in tensors[len(gradients) :]]
    return list(zip(*[(x, g) for x, g in zip(tensors, gradients) if x.requires_grad]))


def _gradient(x):
    return torch.zeros_like(x) if x.grad is None else x.grad
