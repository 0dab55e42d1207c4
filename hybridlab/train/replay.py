"""What an asynchronous pipeline must equal: one process that uses, for every microbatch, the same weight versions.

Nothing here knows ranks, messages or an order of stages. A microbatch goes through the whole model, each stage with
the version that the schedule states for it; after each window every weight makes its next version.
"""

import torch
from torch import nn
from torch.func import functional_call

from hybridlab.modes import tallies
from hybridlab.train.job import Job
from hybridlab.train.models.model import buffers_of


class _Whole(nn.Module):
    """A whole model as one module, to be called with other weights than its own."""

    def __init__(self, model, module):
        super().__init__()
        self.model, self.module = model, module

    def forward(self, inputs):
        return self.model.through(self.module, inputs)


def replay(job: Job) -> tuple[list[float], nn.Module]:
    """(the losses, one for each update; the module as it is at the end)."""
    module = job.model.made(job.seed, getattr(torch, job.dtype))
    whole, weights = _Whole(job.model, module), dict(module.named_parameters())
    optimizer = job.optimizer_of(weights)
    stage_of = {name: home[0] for name, home in job.homes.items()}
    version, window, losses = _versions(job.schedule), job.schedule.window, []
    for step in range(job.steps):
        versions = [_copy(weights)]
        module.draws.step = step
        for m, (inputs, targets) in enumerate(zip(*job.batch(step))):
            module.draws.row = m * job.rows
            used = {name: versions[version[stage_of[name], m]][name] for name in weights}
            made = functional_call(whole, {f"module.{name}": weight for name, weight in used.items()}, (inputs,))
            loss = job.model.loss(made, targets) / job.tokens
            losses += [0.0] * (m % window == 0)
            losses[-1] += loss.item()
            found = torch.autograd.grad(loss, list(used.values()), allow_unused=True, materialize_grads=True)
            for weight, gradient in zip(weights.values(), found):
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
            if m % window == window - 1:
                optimizer.step()
                optimizer.zero_grad()
                versions.append(_copy(weights))
        for layer in tallies.tallying(module).values():
            layer.settle()
    return losses, module


def replayed_on_rank(comm, job: Job) -> dict:
    """The replay, in the words of `alone.alone_on_rank`."""
    losses, module = replay(job)
    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    return {"losses": torch.tensor(losses, dtype=torch.float64), "weight": weights, "buffer": buffers_of(module)}


def _versions(schedule) -> dict[tuple[int, int], int]:
    """The weight version that each (stage, microbatch) is computed with, as the schedule's forwards state it."""
    return {(a.stage, a.microbatch): a.version for program in schedule.program for a in program if a.kind == "F"}


def _copy(weights) -> dict:
    return {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
