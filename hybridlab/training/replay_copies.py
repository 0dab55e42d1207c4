"""The reference for copies that train alone: one process that trains all of them in turn, and their outer optimizer.

This code has no ranks and no messages. Each copy is a `OneDevice` that reads its own microbatches. The outer optimizer
is torch's SGD with Nesterov momentum: one for each fragment, whose parameters are the weights of the last outer step.
"""

import math

import torch

from hybridlab.modes.local_steps import layer_of, rounds_of
from hybridlab.training.job import Job
from hybridlab.training.reference import OneDevice, ended, noise_at_end, nothing, shadows_of, spread, touch


class Copies:
    """All copies of a model in one process.

    moved    0, or the number of a shadow, see `training.reference`
    devices  the copies;  anchors  {name: the weight after the last outer step}
    """

    def __init__(self, job: Job, moved: int = 0):
        self.job, self.rounds = job, rounds_of(job)
        self.devices = [OneDevice(job, moved, copy) for copy in range(job.schedule.dp)]
        first = self.devices[0].first
        self.anchors = {name: torch.nn.Parameter(weight.clone()) for name, weight in first.items()}
        layers, fragments = job.once(layer_of), range(self.rounds.fragments)
        self.names = [[name for name in first if layers[name] % len(fragments) == number] for number in fragments]
        momentum = job["outer_momentum"]
        how = {"lr": job["outer_rate"], "momentum": momentum, "nesterov": momentum > 0}
        empty = torch.nn.Parameter(next(iter(first.values())).new_empty(0))  # a fragment may have no weights
        self.outer = [torch.optim.SGD([self.anchors[name] for name in its] or [empty], **how) for its in self.names]

    def gradients(self, step: int) -> float:
        """Forward and backward of one step of every copy. Returns the mean of their losses."""
        return math.fsum(device.gradients(step) for device in self.devices) / len(self.devices)

    def gradient(self) -> dict:
        """Every gradient, by name, of all copies."""
        return self._stacked([device.gradient() for device in self.devices])

    @torch.no_grad()
    def update(self, step: int):
        """The step of every copy, and the outer steps that are due."""
        for device in self.devices:
            device.update()
        for fragment in self.rounds.begun(step):
            for name in self.names[fragment]:
                moves = [self.anchors[name] - device.masters[name] for device in self.devices]
                self.anchors[name].grad = torch.stack(moves).mean(0)
        for fragment in self.rounds.used(step):
            self.outer[fragment].step()
            for device in self.devices:
                for name in self.names[fragment]:
                    device.masters[name].lerp_(self.anchors[name], 1 - self.job["mix"])
                    device.named[name].copy_(device.masters[name])

    def ended(self) -> dict:
        """The results of training, each tensor with the copies as its first dim."""
        each = [ended(one.module, one.masters, one.moves()) for one in self.devices]
        return {kind: self._stacked([one[kind] for one in each]) for kind in each[0]}

    @staticmethod
    def _stacked(tables: list[dict]) -> dict:
        return {name: torch.stack([table[name] for table in tables]) for name in tables[0]}


def copies_on_rank(comm, job: Job) -> dict:
    """The replay, in the form of `reference.alone_on_rank`, without a norm and without a bound for Adam.

    The copies are the first dim of each tensor, and a loss is their mean.
    """
    one, *shadows = every = [Copies(job, moved) for moved in range(1 + shadows_of(job))]
    losses, touched, home, noise = [], {}, {}, {"losses": 0.0}
    for step in range(job.steps):
        loss, *others = [copies.gradients(step) for copies in every]
        losses.append(loss)
        noise["losses"] = max([noise["losses"], *(abs(other - loss) for other in others)])
        touch(touched, one.gradient())
        if not step:
            home = {"gradient": one.gradient()}
            noise["gradient"] = spread(one.gradient(), [shadow.gradient() for shadow in shadows])
        for copies in every:
            copies.update(step)
    home |= {"touched": touched, "losses": losses} | one.ended()
    noise |= noise_at_end(home, [shadow.ended() for shadow in shadows])
    return home | {"noise": noise, "nothing": nothing(home, job)}
