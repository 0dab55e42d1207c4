"""What a stage does when its turn comes: compute for real, or wait as long as computing would take.

A work has the four things that a `pipeline.Player` asks for: forward, backward, reduce, and room for a message.
"""

import time

import torch

from hybridlab.modes.data_parallel import reduce_gradients


class ModelWork:
    """What a stage does for real: forward through a slice of the model, backward by autograd.

    stages    {stage: module}, those of this rank
    last      the number of the last stage, where the loss is taken
    loss      loss(scores, targets) -> the summed loss of one microbatch
    tokens    of the global batch: every microbatch's loss is divided by it
    example   a boundary tensor: its shape and dtype are those of every message
    """

    def __init__(self, stages: dict, last: int, loss, tokens: int, example):
        self.stages, self.last, self.loss, self.tokens, self.example = stages, last, loss, tokens, example

    def load(self, inputs: list, targets: list):
        """Take a global batch, cut into microbatches, and forget the gradients of the one before."""
        self.inputs, self.targets = inputs, targets
        self.kept, self.total_loss = {}, torch.zeros((), dtype=torch.float64)
        for stage in self.stages.values():
            stage.zero_grad()

    def boundary(self):
        """Room for one incoming message."""
        return torch.empty_like(self.example)

    def forward(self, stage, microbatch, x):
        """The activation that leaves the stage; behind the last one, the loss."""
        x = self.inputs[microbatch] if stage == 0 else x.requires_grad_()
        y = self.stages[stage](x)
        if stage == self.last:
            y = scaled(self.loss(y, self.targets[microbatch]), self.tokens)
            self.total_loss += y.detach()
        self.kept[stage, microbatch] = x, y
        return y.detach()

    def backward(self, stage, microbatch, gradient):
        """The gradient of the loss by what entered the stage; weight gradients are added where the weights are."""
        x, y = self.kept.pop((stage, microbatch))
        torch.autograd.backward(y, gradient)
        return x.grad

    def reduce(self, comm, stage):
        """Sum this stage's gradients over the replicas."""
        reduce_gradients(comm, self.stages[stage].parameters())


def scaled(loss, tokens):
    """The one loss rule: a local *sum*, divided by the tokens of the global batch."""
    return loss / tokens


class EmulatedWork:
    """Waiting in place of computing: real processes, real messages, durations as stated (in seconds per stage)."""

    def __init__(self, costs, elements: int = 256):
        self.costs, self.elements = costs, elements

    def boundary(self):
        """Room for one incoming message."""
        return torch.empty(self.elements)

    def forward(self, stage, microbatch, x):
        """Wait as long as a forward takes."""
        time.sleep(self.costs.of("F", stage))
        return torch.zeros(self.elements)

    def backward(self, stage, microbatch, gradient):
        """Wait as long as a backward takes."""
        time.sleep(self.costs.of("B", stage))
        return torch.zeros(self.elements)

    def reduce(self, comm, stage):
        """A real all-reduce of one boundary tensor."""
        comm.all_reduce(torch.zeros(self.elements), "dp")
