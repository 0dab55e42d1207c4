"""The reference for an asynchronous pipeline: one process that uses the same weight version for every microbatch.

This code has no ranks, no messages and no order of stages. A microbatch goes through the full model, each stage with
the version that the schedule states for it; after each of its windows a stage computes its next version. The windows of
a stage with copies are longer than those of the loss, and its gradient is the mean over a window.
"""

import torch
from torch import nn
from torch.func import functional_call

from hybridlab.core.what.seams import draws_of
from hybridlab.runtime import tallies
from hybridlab.training.first_weights import whole_of
from hybridlab.training.job import Job
from hybridlab.training.rates import set_rate
from hybridlab.training.reference import ended, move, noise_at_end, nothing, shadows_of, touch


class _Whole(nn.Module):
    """A full model as one module, to be called with weights other than its own."""

    def __init__(self, model, module):
        super().__init__()
        self.model, self.module = model, module

    def forward(self, inputs):
        return self.model.through(self.module, inputs)


def replay(job: Job, moved: int = 0) -> tuple[list[float], nn.Module, dict]:
    """(the losses, one for each update; the module at the end; the elements that any update touched).

    moved  0, or the number of a shadow, see `training.reference`
    """
    module = _begun(job, moved)
    whole, weights = _Whole(job.model, module), dict(module.named_parameters())
    stage_of = {name: home[0] for name, home in job.homes.items()}
    its = {s: {name: weights[name] for name in weights if stage_of[name] == s} for s in range(len(job.bounds))}
    optimizers = {stage: job.optimizer_of(named) for stage, named in its.items()}
    version, window, windows, losses = _versions(job.schedule), job.schedule.window, job.schedule.windows, []
    touched, draws, missing = {}, draws_of(module), dict.fromkeys(its, 0)
    if job.predict_weights:  # updates between the version that a microbatch uses and its own update
        missing = {s: max(m // windows[s] - used for (at, m), used in version.items() if at == s) for s in its}
    for step in range(job.steps):
        versions = {stage: [_copy(named)] for stage, named in its.items()}
        draws.step = step
        set_rate(job, optimizers.values(), step)
        for m, (inputs, targets) in enumerate(zip(*job.batch(step))):
            draws.row = m * job.rows
            used = {name: versions[stage][version[stage, m]][name] for name, stage in stage_of.items()}
            made = functional_call(whole, {f"module.{name}": weight for name, weight in used.items()}, (inputs,))
            loss = job.model.loss(made, targets) / job.tokens
            losses += [0.0] * (m % window == 0)
            losses[-1] += loss.item()
            found = torch.autograd.grad(loss, list(used.values()), allow_unused=True, materialize_grads=True)
            for (name, stage), gradient in zip(stage_of.items(), found):
                share = gradient * (window / windows[stage])
                weights[name].grad = share if weights[name].grad is None else weights[name].grad + share
            for stage, optimizer in optimizers.items():
                if m % windows[stage] == windows[stage] - 1:
                    touch(touched, {name: weight.grad for name, weight in its[stage].items()})
                    before = _copy(its[stage])
                    optimizer.step()
                    optimizer.zero_grad()
                    versions[stage].append(_later(before, its[stage], missing[stage]))
        for layer in tallies.tallying(module).values():
            layer.settle()
    return losses, module, touched


def _begun(job: Job, moved: int) -> nn.Module:
    """The module before the first step."""
    module = whole_of(job)
    if moved:
        move(module, moved)
    return module


def replayed_on_rank(comm, job: Job) -> dict:
    """The replay, in the form of `reference.alone_on_rank`."""
    every = []
    for moved in range(1 + shadows_of(job)):
        first = dict(_begun(job, moved).named_parameters())
        losses, module, touched = replay(job, moved)
        weights = dict(module.named_parameters())
        moves = {name: weight.detach() - first[name].detach() for name, weight in weights.items()}
        every.append({"losses": losses, "touched": touched} | ended(module, weights, moves))
    home, *shadows = every
    noise = noise_at_end(home, shadows)
    noise["losses"] = max(abs(a - b) for one in shadows for a, b in zip(home["losses"], one["losses"]))
    return home | {"noise": noise, "nothing": nothing(home, job)}


def _versions(schedule) -> dict[tuple[int, int], int]:
    """The weight version of each (stage, microbatch), as stated in the schedule's forwards."""
    return {(a.stage, a.microbatch): a.version for program in schedule.program for a in program if a.kind == "F"}


def _later(before, weights, updates) -> dict:
    """The weights after this number of further updates, if each is equal to the last one."""
    change = {name: weight.detach() - before[name].detach() for name, weight in weights.items()}
    return _copy({name: weight + updates * change[name] if updates else weight for name, weight in weights.items()})


def _copy(weights) -> dict:
    return {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
