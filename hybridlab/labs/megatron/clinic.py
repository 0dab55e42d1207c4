"""The bug clinic of notebook 30: an MLP trained on two ranks, whose gradients are clipped by a norm.

`symptoms` shows the effect of the broken clipping; `try_clip` runs a fixed one and returns its mistake, or "".
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from hybridlab.labs.megatron.layers import given, mlp, near, one_process, shard

STEPS, RATE, MOST = 3, 0.1, 1.0
COPIES = ("2.bias",)  # the same on every rank; all other parameters are sharded


def clip(shards: list[Tensor], copies: list[Tensor], comm, most: float):
    """Scale gradients in place so that their norm is at most `most`."""
    gradients = [*shards, *copies]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    for gradient in gradients:
        gradient *= min(1.0, most / norm)


def symptoms(comm, clip=None) -> tuple[list[float], list[list[float]]]:
    """On a rank: (the loss before each step, the first numbers of the bias of B after each step).

    clip  clip(shards, copies, comm, most), or None: gradients stay as they are
    """
    from hybridlab.world.talk import typed

    (x, target), weights = given(), dict(mlp().named_parameters())
    mine = {name: shard(name, weight.detach(), comm.rank, comm.size).clone() for name, weight in weights.items()}
    losses, biases = [], []
    for _ in range(STEPS):
        its = {name: weight.requires_grad_() for name, weight in mine.items()}
        hidden = functional.gelu(functional.linear(typed.enter(comm, x, None), its["0.weight"], its["0.bias"]))
        z = typed.all_reduce(comm, hidden @ its["2.weight"].T, None, to="I") + its["2.bias"]
        loss = functional.mse_loss(z, target, reduction="sum") / len(x)
        gradients = dict(zip(its, torch.autograd.grad(loss, list(its.values()))))
        if clip:
            clip([g for name, g in gradients.items() if name not in COPIES], [gradients["2.bias"]], comm, MOST)
        mine = {name: (weight - RATE * gradients[name]).detach() for name, weight in its.items()}
        losses.append(loss.item())
        biases.append(mine["2.bias"][:2].tolist())
    return losses, biases


def alone(most: float | None = MOST) -> list[float]:
    """The losses of one process that clips by the norm of all its gradients; None: it does not clip.

    >>> len(alone())
    3
    """
    (x, target), whole = given(), mlp()
    losses = []
    for _ in range(STEPS):
        loss = functional.mse_loss(whole(x), target, reduction="sum") / len(x)
        whole.zero_grad()
        loss.backward()
        if most:
            nn.utils.clip_grad_norm_(whole.parameters(), most)
        with torch.no_grad():
            for weight in whole.parameters():
                weight -= RATE * weight.grad
        losses.append(loss.item())
    return losses


def try_clip(comm, answer, case) -> str:
    """A way to clip, compared with one process: gradients are scaled by the same factor, and small ones not at all."""
    mine, most = {name: shard(name, one, comm.rank, comm.size).clone() for name, one in _whole().items()}, _most(case)
    start = len(comm.ledger)
    answer([g for name, g in mine.items() if name not in COPIES], [mine[name] for name in COPIES], comm, most)
    sent = sum(row["bytes"] for row in comm.ledger.rows()[start:])
    wanted = _whole()
    factor = {name: _factor(g, shard(name, wanted[name], comm.rank, comm.size)) for name, g in mine.items()}
    return _factors(factor, min(1.0, case.part), _guesses(wanted, comm, most)) or _bytes(sent)


def _whole() -> dict:
    """The gradients of one process."""
    return {name: weight.grad for name, weight in one_process()[0].named_parameters()}


def _most(case) -> float:
    """The largest norm that is allowed."""
    return case.part * torch.stack([gradient.norm() for gradient in _whole().values()]).norm().item()


def _factor(found, before) -> float:
    """The factor by which a gradient was multiplied; nan if its entries do not agree."""
    factor = (found.norm() / before.norm()).item()
    return factor if near(found, factor * before) else float("nan")


def _guesses(wanted, comm, most) -> dict[str, float]:
    """{a mistake: the factor that results from it}."""
    squares = lambda name, rank: shard(name, wanted[name], rank, comm.size).square().sum().item()
    own = sum(squares(name, comm.rank) for name in wanted)
    every = sum(squares(name, rank) for name in wanted for rank in range(comm.size))
    norms = sum(sum(squares(name, rank) for name in wanted) ** 0.5 for rank in range(comm.size))
    return {
        "that is the norm of this rank's gradients, which differs from rank to rank": most / own**0.5,
        f"the bias of B is the same on all ranks, and its square was counted {comm.size} times": most / every**0.5,
        "norms were added; add their squares, and take the root of the sum": most / norms,
    }


def _factors(factor, wanted, guesses) -> str:
    off = {name: one for name, one in factor.items() if not abs(one - wanted) < 1e-6}
    if not off:
        return ""
    name, one = next(iter(off.items()))
    if all(abs(one - 1) < 1e-9 for one in factor.values()):
        return f"left its gradients as they are; one process multiplies by {wanted:.3f}, in place: gradient *= factor."
    if len(off) < len(factor):
        return f"multiplied the gradient {name} by {one:.3f}, others by {wanted:.3f}: one factor for all."
    told = f"multiplied its gradients by {one:.3f}; one process by {wanted:.3f}"
    why = next((why for why, guess in guesses.items() if abs(one - min(1.0, guess)) < 1e-6 and guess < 1), "")
    if not why and wanted == 1 and one > 1:
        why = "gradients that are small enough stay as they are"
    return f"{told}: {why}." if why else f"{told}."


def _bytes(sent) -> str:
    return "" if sent <= 64 else f"sent {sent:,} bytes: gradients need not be sent: a sum of squares is one number."
