"""Students' programs of notebook 30, run on a rank: two sharded layers, and a loss over a sharded vocabulary.

Each trial returns the mistake in a sentence, or "" if there is none.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hybridlab.labs.trials.held import numbers, tensors

WIDTH, ROWS = 16, 6
NEAR = 1e-10  # float64
DIVIDED = ": you divided the bias, so g adds it once, but its gradient is divided too."
LETTERS = {"0.weight": "A", "0.bias": "the bias of A", "2.weight": "B", "2.bias": "the bias of B"}


class Given(NamedTuple):
    """The inputs of every rank, which are the same on all: x, and the gradient of the output."""

    x: Tensor
    gradient: Tensor


def mlp() -> nn.Sequential:
    """Two linear layers with GELU between them, the same numbers on every rank.

    >>> mlp()[0].weight.shape, mlp()[2].weight.shape
    (torch.Size([64, 16]), torch.Size([16, 64]))
    """
    draw = torch.Generator().manual_seed(30)
    made = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)).double()
    for weight in made.parameters():
        weight.data = torch.randn(weight.shape, generator=draw, dtype=torch.float64) / WIDTH**0.5
    return made


def given() -> Given:
    """The input of the MLP, and the gradient that comes back to it."""
    draw = torch.Generator().manual_seed(31)
    return Given(*(torch.randn(ROWS, WIDTH, generator=draw, dtype=torch.float64) for _ in range(2)))


def one_process() -> tuple[nn.Sequential, Tensor, Tensor]:
    """(the MLP with its gradients, its output, the gradient of x)."""
    whole, (x, gradient) = mlp(), given()
    x.requires_grad_()
    z = whole(x)
    z.backward(gradient)
    return whole, z.detach(), x.grad


def shard(name: str, tensor: Tensor, rank: int, ranks: int) -> Tensor:
    """The part of a parameter that a rank holds: A and its bias by outputs, B by inputs, and the bias of B in full.

    >>> shard("2.weight", torch.zeros(16, 64), rank=0, ranks=4).shape
    torch.Size([16, 16])
    """
    dims = {"0.weight": 0, "0.bias": 0, "2.weight": 1}
    return tensor.chunk(ranks, dims[name])[rank] if name in dims else tensor


def try_layers(comm, answer, case) -> str:
    """Column and row as classes, made from nn.Linear and comm, instead of the two layers of an MLP."""
    (up, _, down), (x, gradient) = mlp(), given()
    its = nn.Sequential(answer[0](copy.deepcopy(up), comm), nn.GELU(), answer[1](copy.deepcopy(down), comm))
    if told := _held(its, mlp(), comm):
        return told
    x.requires_grad_()
    start = len(comm.ledger)
    made = its(x)
    middle = len(comm.ledger)
    whole, z, x_grad = one_process()
    if told := _output(made, z, whole[2].bias, comm.size):
        return told
    made.backward(gradient)
    rows = [(row["op"], row["bytes"]) for row in comm.ledger.rows()]
    if told := _gradients(its, whole, x.grad, x_grad, comm):
        return told
    return _sent("forward", rows[start:middle]) or _sent("backward", rows[middle:])


def _held(its, whole, comm) -> str:
    found = dict(its.named_parameters())
    right = dict(whole.named_parameters())
    if further := [name for name in found if name not in right]:
        of, name = "MyColumn" if further[0].startswith("0") else "MyRow", further[0][2:]
        return (
            f"has a parameter {name} in {of}: keep only weight and bias, which are its shards, and not the full layer."
        )
    for name, wanted in right.items():
        if name not in found:
            of = "MyColumn" if name.startswith("0") else "MyRow"
            return f"has no {name[2:]} in {of}: keep its shard there, as an nn.Parameter of this name."
        shape, its_own = tuple(found[name].shape), tuple(shard(name, wanted, comm.rank, comm.size).shape)
        if shape == tuple(wanted.shape) != its_own:
            return f"holds all of {LETTERS[name]}, {shape}: its shard is {its_own}."
        if shape != its_own:
            return f"holds {shape} of {LETTERS[name]}: its shard is {its_own}. nn.Linear keeps (outputs, inputs)."
        if name == "2.bias" and not near(found[name], wanted) and near(comm.size * found[name], wanted):
            return (
                f"holds the bias of B divided by {comm.size}; a step then moves it {comm.size} times too far: keep the "
                "full bias, and add it after g."
            )
    most = sum(shard(name, one, comm.rank, comm.size).numel() for name, one in right.items())
    if (kept := numbers(tensors(its))) > most:
        return (
            f"keeps {kept:,} numbers in memory; its shards have {most:,}. Does it keep the full layer? A part of a "
            "tensor is a view, which keeps the full tensor: clone() it."
        )
    return ""


def _output(made, z, bias, ranks) -> str:
    if made.shape != z.shape:
        return f"returned an output of {tuple(made.shape)}: all ranks need all of Z, {tuple(z.shape)}."
    if near(made, z):
        return ""
    if near(made, z + (ranks - 1) * bias):
        return f"has the bias of B {ranks} times in Z: every rank added it before the sum."
    if near(made, z - bias):
        return "has no bias of B in Z."
    return f"has a different Z from that of one process, by up to {(made - z).abs().max():.2g}. What does g do forward?"


def _gradients(its, whole, mine, wanted, comm) -> str:
    for name, weight in its.named_parameters():
        right = shard(name, whole.get_parameter(name).grad, comm.rank, comm.size)
        if weight.grad is None:
            return f"has no gradient for {LETTERS[name]}. Ranks that update it and ranks that do not drift apart."
        if near(weight.grad, comm.size * right):
            return f"has a gradient of {LETTERS[name]} that is {comm.size} times too large: g must not sum backward."
        if not near(weight.grad, right) and near(comm.size * weight.grad, right):
            told = f"has a gradient of {LETTERS[name]} that is {comm.size} times too small"
            return told + DIVIDED if name == "2.bias" else f"{told}."
        if not near(weight.grad, right):
            return f"has a different gradient of {LETTERS[name]} than one process."
    if mine is None or not near(mine, wanted):
        return "has a right Z, but only its partial sum of the gradient of x. What does f do backward?"
    return ""


def _sent(when, rows) -> str:
    if rows == [("all_reduce", ROWS * WIDTH * 8)]:
        return ""
    told = ", ".join(f"{op} of {size:,} bytes" for op, size in rows) or "nothing"
    return f"sent {told} in the {when}; one all-reduce of {ROWS * WIDTH * 8:,} bytes is enough."


def near(found: Tensor, wanted: Tensor, within: float = NEAR) -> bool:
    """Whether two tensors of one shape are equal, but for rounding."""
    return found.shape == wanted.shape and bool(torch.allclose(found, wanted, rtol=within, atol=within))
