"""One process, without any of the machinery: the loop that everything else must equal."""

import math

import torch

from hybridlab.core.what.seams import draws_of
from hybridlab.runtime import tallies
from hybridlab.training.job import Job
from hybridlab.training.models.model import buffers_of

NOISE = 1e3  # how many last bits of the largest gradient any gradient may be off by


def alone_on_rank(comm, job: Job) -> dict:
    """Train a job on one process.

    returns "losses", each per summand of its global batch, taken before the update; "gradient" (by name) and "norm" of
    the first step; "weight" and "buffer", by name, at the end; "touched", by name: which elements any step gave a
    gradient; and after Adam "bound", by name: what rounding noise may have moved, in all steps, see `adam_moves`
    """
    module = job.model.made(job.seed, getattr(torch, job.dtype))
    named = dict(module.named_parameters())
    optimizer = job.optimizer_of(named)
    losses, home, bound = [], {"touched": {}}, {}
    for step in range(job.steps):
        losses.append(gradients(module, job, step))
        touch(home["touched"], {name: weight.grad for name, weight in named.items()})
        if not step:
            home["gradient"] = {name: weight.grad.clone() for name, weight in named.items()}
            home["norm"] = torch.tensor(norm(module))
        update(module, optimizer, job)
        if job.optimizer == "adamw":
            least = noise(home["gradient"])
            for name, weight in named.items():
                if name not in job.frozen:
                    bound[name] = bound.get(name, torch.finfo(weight.dtype).eps) + adam_moves(optimizer, weight, least)
    home |= {"bound": bound} if bound else {}
    home["weight"] = {name: weight.detach() for name, weight in named.items()}
    home["buffer"] = buffers_of(module)
    return home | {"losses": torch.tensor(losses, dtype=torch.float64)}


def touch(touched: dict, gradients: dict):
    """Note which elements these gradients touch."""
    for name, gradient in gradients.items():
        touched[name] = touched.get(name, False) | (gradient != 0)


def gradients(module, job, step) -> float:
    """Forward and backward of one global batch on one process, microbatch after microbatch; returns its loss.

    A weight without a gradient has the gradient 0, as where gradients are summed.
    """
    module.zero_grad()
    draws, losses = draws_of(module), []
    draws.step = step
    for number, (inputs, targets) in enumerate(zip(*job.batch(step))):
        draws.row = number * job.rows
        loss = job.model.loss(job.model.through(module, inputs), targets) / job.tokens
        loss.backward()
        losses.append(loss.item())
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
    for layer in tallies.tallying(module).values():
        layer.settle()
    return math.fsum(losses)


def norm(module) -> float:
    """The norm of the gradient, summed as `Trainer.gradient_norm` does."""
    return math.sqrt(math.fsum(float(weight.grad.double().square().sum()) for weight in module.parameters()))


def update(module, optimizer, job):
    """One optimizer step on one process, clipped if the job says so."""
    job.clipped([weight.grad for weight in module.parameters()], lambda: norm(module))
    optimizer.step()


def adam_moves(optimizer, weight, noise: float) -> torch.Tensor:
    """How far this noise in gradients may have moved each element of a weight, in the last step of Adam or AdamW."""
    state, group = optimizer.state[weight], optimizer.param_groups[0]
    size = (state["exp_avg_sq"] / (1 - group["betas"][1] ** float(state["step"]))).sqrt()
    return group["lr"] * (4 * noise / (size + group["eps"])).clamp(max=2)


def noise(gradients: dict) -> float:
    """The rounding noise that gradients may have, all alike."""
    largest = max(gradients.values(), key=lambda gradient: gradient.abs().max())
    return NOISE * torch.finfo(largest.dtype).eps * float(largest.abs().max())
