"""What an asynchronous pipeline must equal: one process that uses, for every microbatch, the same weight versions.

Nothing here knows ranks, messages or an order of stages. A microbatch goes through the whole model, each stage with
the version that the schedule states for it; after each window every weight makes its next version.
"""

import torch
from torch.func import functional_call

from hybridlab.train.model import GPT, token_loss
from hybridlab.train.stages import names_of, stages_of
from hybridlab.train.task import Task
from hybridlab.train.text import Text


def replay(task: Task) -> tuple[list[float], dict]:
    """(the losses, one for each update; the weights at the end, by name)."""
    text, model = Text.of(task.data), GPT(task.shape, task.seed, getattr(torch, task.dtype))
    weights = dict(model.named_parameters())
    optimizer = task.optimizer_of(weights)
    stage_of = {name: s for s, names in enumerate(names_of(model, stages_of(model, task.bounds))) for name in names}
    version, window, losses = _versions(task.schedule), task.schedule.window, []
    for step in range(task.steps):
        versions = [_copy(weights)]
        for m, (tokens_BT, targets_BT) in enumerate(zip(*task.batch(text, step))):
            used = {name: versions[version[stage_of[name], m]][name] for name in weights}
            loss = token_loss(functional_call(model, used, (tokens_BT,)), targets_BT) / task.tokens
            losses += [0.0] * (m % window == 0)
            losses[-1] += loss.item()
            for weight, gradient in zip(weights.values(), torch.autograd.grad(loss, list(used.values()))):
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
            if m % window == window - 1:
                optimizer.step()
                optimizer.zero_grad()
                versions.append(_copy(weights))
    return losses, weights


def replayed_on_rank(comm, task: Task) -> dict:
    """The replay, in the words of `alone.alone_on_rank`."""
    losses, weights = replay(task)
    weights = {name: weight.detach() for name, weight in weights.items()}
    return {"losses": torch.tensor(losses, dtype=torch.float64), "weight": weights}


def _versions(schedule) -> dict[tuple[int, int], int]:
    """The weight version that each (stage, microbatch) is computed with, as the schedule's forwards state it."""
    return {(a.stage, a.microbatch): a.version for program in schedule.program for a in program if a.kind == "F"}


def _copy(weights) -> dict:
    return {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
