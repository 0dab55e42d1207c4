"""One process, without any of the machinery: the loop that everything else must equal."""

import math

import torch

from hybridlab.train.model import GPT, token_loss
from hybridlab.train.task import Task
from hybridlab.train.text import Text

NOISE = 1e3  # how many last bits of the largest gradient any gradient may be off by


def alone_on_rank(comm, task: Task) -> dict:
    """Train a task on one process.

    returns "losses", each in nats per token of its global batch, taken before the update; "gradient" (by name) and
    "norm" of the first step; "weight", by name, at the end; and after Adam "bound", by name, see `adam_bound`
    """
    text, model = Text.of(task.data), GPT(task.shape, task.seed, getattr(torch, task.dtype))
    named = dict(model.named_parameters())
    optimizer = task.optimizer_of(named)
    losses, home = [], {}
    for step in range(task.steps):
        losses.append(gradients(model, text, task, step))
        if not home:
            home["gradient"] = {name: weight.grad.clone() for name, weight in named.items()}
            home["norm"] = torch.tensor(norm(model))
        update(model, optimizer, task)
    if task.optimizer == "adamw":
        home["bound"] = {name: adam_bound(optimizer, weight, home["gradient"]) for name, weight in named.items()}
    home["weight"] = {name: weight.detach() for name, weight in named.items()}
    return home | {"losses": torch.tensor(losses, dtype=torch.float64)}


def gradients(model, text, task, step) -> float:
    """Forward and backward of one global batch on one process, microbatch after microbatch; returns its loss."""
    model.zero_grad()
    model.draws.step, losses = step, []
    for number, (tokens_BT, targets_BT) in enumerate(zip(*task.batch(text, step))):
        model.draws.row = number * task.sequences
        loss = token_loss(model(tokens_BT), targets_BT) / task.tokens
        loss.backward()
        losses.append(loss.item())
    return math.fsum(losses)


def norm(model) -> float:
    """The norm of the gradient, summed as `Trainer.gradient_norm` does."""
    return math.sqrt(math.fsum(float(weight.grad.double().square().sum()) for weight in model.parameters()))


def update(model, optimizer, task):
    """One optimizer step on one process, clipped if the task says so."""
    task.clipped([weight.grad for weight in model.parameters()], lambda: norm(model))
    optimizer.step()


def adam_bound(optimizer, weight, gradients: dict) -> torch.Tensor:
    """How far rounding noise may have moved each element of a weight, after all steps of Adam or AdamW."""
    state, group = optimizer.state[weight], optimizer.param_groups[0]
    steps = float(state["step"])
    size = (state["exp_avg_sq"] / (1 - group["betas"][1] ** steps)).sqrt()
    moved = (4 * noise(gradients) / (size + group["eps"])).clamp(max=2)
    return group["lr"] * steps * moved + torch.finfo(weight.dtype).eps


def noise(gradients: dict) -> float:
    """The rounding noise that gradients may have, all alike."""
    largest = max(gradients.values(), key=lambda gradient: gradient.abs().max())
    return NOISE * torch.finfo(largest.dtype).eps * float(largest.abs().max())
