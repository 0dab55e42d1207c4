"""Attention from latents, cut between heads, as students build it in notebook 30; tested on a rank.

Features that are rotated by position are left out: `training.models.latent` has them.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hybridlab.labs.megatron.layers import near

WIDTH, HEADS, HEAD, LATENT, POSITIONS = 16, 4, 4, 6, 5
CUT = {"q": 0, "k": 0, "v": 0, "out": 1}  # weights cut between heads; every rank has the others in full
CALLED = {
    "latent": "the matrix that makes the latent",
    "scale": "the scale of its norm",
    "q": "the matrix of the queries",
    "k": "the matrix of the keys",
    "v": "the matrix of the values",
    "out": "the output matrix",
    "x": "x",
}


class Weights(NamedTuple):
    """Matrices as PyTorch keeps them, (outputs, inputs), and the scale of the latent's norm."""

    latent: Tensor
    scale: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor


def norm(latent: Tensor, scale: Tensor) -> Tensor:
    """Each position's latent with a mean square of 1, times a scale for each feature."""
    return functional.rms_norm(latent, latent.shape[-1:], scale, eps=1e-6)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The outputs of the heads, joined: (positions, heads · 4) in and out. A position sees itself and earlier ones.

    >>> attend(*(torch.ones(3, 8) for _ in range(3))).shape
    torch.Size([3, 8])
    """
    apart = (one.unflatten(-1, (-1, HEAD)).transpose(0, 1) for one in (q, k, v))
    return functional.scaled_dot_product_attention(*apart, is_causal=True).transpose(0, 1).flatten(1)


def weights() -> Weights:
    """The weights: the same numbers on every rank."""
    draw, inside = torch.Generator().manual_seed(32), HEADS * HEAD
    sizes = (LATENT, WIDTH), (LATENT,), (inside, WIDTH), (inside, LATENT), (inside, LATENT), (WIDTH, inside)
    return Weights(*(torch.randn(size, generator=draw, dtype=torch.float64) for size in sizes))


def given() -> tuple[Tensor, Tensor]:
    """x, and the gradient of the output."""
    draw = torch.Generator().manual_seed(33)
    x, gradient = (torch.randn(POSITIONS, WIDTH, generator=draw, dtype=torch.float64) for _ in range(2))
    return x, gradient


def own(whole: Weights, rank: int, ranks: int) -> Weights:
    """A rank's part: its heads of the cut weights, and the other weights in full.

    >>> [tuple(one.shape) for one in own(weights(), rank=1, ranks=2)]
    [(6, 16), (6,), (8, 16), (8, 6), (8, 6), (16, 8)]
    """
    part = {name: getattr(whole, name).chunk(ranks, dim)[rank].clone() for name, dim in CUT.items()}
    return whole._replace(**part)


def one_process() -> tuple[Tensor, Weights, Tensor, Tensor]:
    """(the output, the gradients of all weights, the part of x's gradient that comes through the queries, the part
    through the latent).
    """
    its, (x, gradient) = weights(), given()
    for_queries, for_latent = x.clone(), x.clone()
    for one in (for_queries, for_latent, *its):
        one.requires_grad_()
    c = norm(for_latent @ its.latent.T, its.scale)
    z = attend(for_queries @ its.q.T, c @ its.k.T, c @ its.v.T) @ its.out.T
    z.backward(gradient)
    return z.detach(), Weights(*(one.grad for one in its)), for_queries.grad, for_latent.grad


def try_latent(comm, answer, case) -> str:
    """my_attention(x, own, f, g) on this rank: its output and all gradients, against one process."""
    from hybridlab.world.talk import typed

    (x, gradient), mine = given(), own(weights(), comm.rank, comm.size)
    for one in (x, *mine):
        one.requires_grad_()
    start = len(comm.ledger)
    f, g = (lambda one: typed.enter(comm, one, None)), (lambda one: typed.all_reduce(comm, one, None, to="I"))
    made = answer(x, mine, f, g)
    sent = [(row["op"], row["bytes"]) for row in comm.ledger.rows()][start:]
    z, gradients, by_queries, by_latent = one_process()
    right = own(gradients, comm.rank, comm.size)
    if not isinstance(made, Tensor) or made.shape != z.shape:
        return f"returned {_shape(made)}: all ranks need all of Z, {tuple(z.shape)}."
    if not near(made, z):
        gap = (made - z).abs().max()
        return f"has a different Z from that of one process, by up to {gap:.2g}: the heads of all ranks count."
    if sent != [("all_reduce", z.numel() * z.element_size())]:
        return f"sent {', '.join(op for op, _ in sent)} in the forward: one all-reduce of Z is enough."
    made.backward(gradient)
    told = [_of(comm, name, *both) for name, *both in zip(Weights._fields, [one.grad for one in mine], right)]
    return next(filter(None, [*told, _of_x(comm, x.grad, by_queries, by_latent)]), "")


def _shape(made) -> str:
    return f"a tensor of {tuple(made.shape)}" if isinstance(made, Tensor) else f"a {type(made).__name__}"


def _of_x(comm, mine: Tensor | None, by_queries: Tensor, by_latent: Tensor) -> str:
    """The mistake in the gradient of x; every rank must call it, since it adds over the ranks."""
    told = _of(comm, "x", mine, by_queries + by_latent)
    own_queries = by_latent - by_latent if mine is None else mine - by_latent
    if told and near(comm.all_reduce(own_queries.clone()), by_queries):
        return (
            "has a different gradient of x from that of one process: the part of the queries is only a partial sum. "
            "The queries read x on every rank, for other heads."
        )
    return told


def _of(comm, name: str, mine: Tensor | None, right: Tensor) -> str:
    """The mistake in a gradient; every rank must call it for each gradient, since it adds over the ranks."""
    there = torch.zeros_like(right) if mine is None else mine
    summed = there if name in CUT else comm.all_reduce(there.clone())
    if near(there, right):
        return ""
    if mine is None:
        return f"has no gradient of {CALLED[name]}."
    if near(summed, right):
        return f"has a right Z, but only its partial sum of the gradient of {CALLED[name]}, from its own heads."
    if near(there, comm.size * right):
        return f"has a gradient of {CALLED[name]} that is {comm.size} times too large: full gradients were added."
    differs = f"has a different gradient of {CALLED[name]} from that of one process"
    return f"{differs}: was a gradient added that was already full?"
