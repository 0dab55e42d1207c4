"""The arithmetic of operators, on full tensors or on a rank's parts.

Most operators work the same for both. An operator that looks beyond a position does not: its input ends with padding at
the border of the full tensor, and with fetched neighbours elsewhere. So the caller gives the padding, and no function
here adds any.

Relatives: `core.what.operators`, which defines operators; `layouts`, which fetches their operands; `measuring`, which
times them.

Shape suffixes   B sequences, T positions, S positions attended to, H heads, K features;   for convolutions B samples, C
channels, F filters, Y rows, X columns, K and L those of a kernel
"""

import math

import torch
from torch.nn import functional

from hybridlab.core.what.operators import Choice, Operator, ways_of
from hybridlab.core.where.layout import even
from hybridlab.core.where.spans import Span


def _attention(operator, q_BTHK, k_BSHK, v_BSHK):
    """Every position attends to all: no mask, no scale."""
    weights_BHTS = torch.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK).softmax(-1)
    return torch.einsum("bhts,bshk->bthk", weights_BHTS, v_BSHK)


def _convolution(operator, x_BCYX, w_FCKL):
    stride, dilation = zip(*((look.sight.stride, look.sight.dilation) for look in operator.looks))
    return functional.conv2d(x_BCYX, w_FCKL, stride=stride, dilation=dilation)


def _largest(operator, x_BCYX):
    kernel, stride, _, _, dilation = zip(*(look.sight for look in operator.looks))
    return functional.max_pool2d(x_BCYX, kernel, stride, dilation=dilation)


DOES = {  # the function of each operator; padding is added by `done`
    "einsum": lambda operator, *operands: torch.einsum(operator.signature, *operands),
    "add": lambda operator, x, *others: sum(others, x),
    "gelu": lambda operator, x: functional.gelu(x),
    "relu": lambda operator, x: functional.relu(x),
    "norm": lambda operator, x, *scale: functional.layer_norm(x, x.shape[-1:], *scale),
    "attention": _attention,
    "convolution": _convolution,
    "largest": _largest,
}
BEYOND = {"largest": -math.inf}  # the value of the padding, if it is not 0


def done(operator: Operator, operands: list, padding: dict[str, Span]):
    """The output of an operator from its operands; the first operand is padded along these dims.

    raises  ValueError for an operator without an implementation here
    """
    if operator.does not in DOES:
        raise ValueError(
            f"{operator.name} has does={operator.does!r}, which is not known: choose one of {', '.join(DOES)}"
        )
    x, *others = operands
    beside = [places for dim in reversed(operator.operands[0]) for places in padding.get(dim, (0, 0))]
    if any(beside):
        x = functional.pad(x, beside, value=BEYOND.get(operator.does, 0.0))
    return DOES[operator.does](operator, x, *others)


def beyond(operator: Operator, sizes: dict[str, int], choice: Choice, mesh, rank: int) -> dict[str, Span]:
    """{dim: positions of padding, before and after} that a rank's outputs see."""
    found = {}
    for of, made, sight in operator.looks:
        outputs = even(sizes[made], ways_of(choice, mesh, made))
        place = mesh.place(rank, "+".join(axis for axis, dim in zip(mesh.axes, choice) if dim == made))
        found[of] = sight.beyond(outputs[place], sizes[of])
    return found
