"""The run of a student's halves of a backward on a rank: one layer by hand, and a full pipeline of F, I, W and B."""

from typing import NamedTuple

import torch

from hybridlab.labs.engine import toy
from hybridlab.labs.engine.case import WIDTH, Case, lists
from hybridlab.labs.engine.rank import messages
from hybridlab.labs.trials.watched import Watched
from hybridlab.labs.zero_bubble.trial import NEAR
from hybridlab.labs.zero_bubble.without_autograd import Product, Products, one_device, products, weights


class Did(NamedTuple):
    """The result of a run on one rank."""

    problem: str  # the reason why the answer is not a list of gradients, in words
    gap: float  # the largest difference from one device, over the largest gradient
    ratio: float  # the norm of the gradients, over that of one device
    did: list[tuple]  # (kind, microbatch, messages sent before) of every matmul
    most: int  # microbatches held at once
    sent: int  # messages
    bytes: int
    left: int  # sends without a wait()


def play(comm, answer, case: Case) -> Did:
    """On each rank: the student's interpreter, watched while it multiplies."""
    stage, data = weights(comm.rank, case.stages), toy.microbatches(case.microbatches)
    talk, before = Watched(comm, []), len(comm.ledger)
    known, wanted = [*stage, *(x for x, _ in data)], products(comm.rank, case.stages, case.microbatches)
    with Products(wanted, known, lambda: messages(talk, before)[0]) as watch:
        found = answer(talk, stage, lists(*case), data)
    right = one_device(case.stages, case.microbatches)[comm.rank]
    problem, gap, ratio = compared(found, right)
    if not problem and gap > NEAR:
        problem = next((told for other, told in _slips(right, wanted) if compared(found, other)[1] <= NEAR), "")
    return Did(problem, gap, ratio, watch.did, watch.most, *messages(talk, before))


def _slips(right: list, wanted: list[Product]):
    """(the gradients that a mistake gives, the mistake)."""
    yield right[::-1], "returned the gradients of its layers in the wrong order: weights has the first layer first"
    times = lambda factor: [factor * one for one in right]
    yield times(0.5), "has gradients half as large as autograd's: the derivative of (y - target)**2 is 2 * (y - target)"
    told = "times too large: the loss of a microbatch is the mean over all y.numel() entries, not over the rows"
    yield times(WIDTH), f"has gradients {WIDTH} {told}"
    for k in {one.microbatch for one in wanted}:
        alone = [one.result for one in wanted if (one.kind, one.microbatch) == ("W", k)]
        yield alone[::-1], f"has the gradients of microbatch {k} alone: each W adds to those before it"


def compared(found, wanted) -> tuple[str, float, float]:
    """(the reason why the answer is not a list of gradients, the largest relative difference, the ratio of the norms).

    >>> compared([torch.ones(2)], [torch.ones(2)]), compared(None, [torch.ones(2)])[0]
    (('', 0.0, 1.0), 'returned NoneType, not a list of 1 gradients')
    """
    nothing = float("nan"), float("nan")
    if not isinstance(found, list | tuple) or len(found) != len(wanted):
        what = f"a list of {len(found)}" if isinstance(found, list | tuple) else type(found).__name__
        return f"returned {what}, not a list of {len(wanted)} gradients", *nothing
    for number, (one, right) in enumerate(zip(found, wanted)):
        shape = tuple(one.shape) if isinstance(one, torch.Tensor) else type(one).__name__
        if shape != tuple(right.shape):
            return f"has {shape} as gradient {number}, whose weights are {tuple(right.shape)}", *nothing
    gap = max((a - b).abs().max().item() for a, b in zip(found, wanted)) / max(b.abs().max().item() for b in wanted)
    norm = lambda tensors: torch.stack([one.norm() for one in tensors]).norm()
    return "", gap, (norm(found) / norm(wanted)).item()


def halve(comm, answer, case) -> str:
    """The mistake of two functions, I and W of one layer, compared with autograd: the mistake for the first wrong
    shape, or "".
    """
    return next(filter(None, (_halved(*answer, *shape) for shape in case.shapes)), "")


def _halved(input_half, weight_half, rows, inputs, outputs) -> str:
    draw = torch.Generator().manual_seed(rows)
    tensor = lambda *shape: torch.randn(*shape, generator=draw)
    x, w = tensor(rows, inputs).requires_grad_(), tensor(outputs, inputs).requires_grad_()
    y, gy = torch.tanh(x @ w.T), tensor(rows, outputs)
    y.backward(gy)
    where = f"With x of {rows}×{inputs} and w of {outputs}×{inputs}"
    made = input_half(gy.clone(), y.detach().clone(), w.detach().clone())
    if not isinstance(made, list | tuple) or len(made) != 2:
        return f"{where}, my_input_half returned {type(made).__name__}: return gx and gz."
    gx, gz = made
    gw = weight_half(gz, x.detach().clone())
    for name, found, wanted in (("gx", gx, x.grad), ("gw", gw, w.grad)):
        if told := _apart(name, found, wanted, gy, w.detach(), x.detach()):
            return f"{where}, {told}"
    return ""


def _apart(name, found, wanted, gy, w, x) -> str:
    if not isinstance(found, torch.Tensor):
        return f"{name} is {type(found).__name__}: return a tensor."
    if found.shape != wanted.shape:
        return f"{name} has the shape {tuple(found.shape)}; it must be {tuple(wanted.shape)}, as {name[1:]} is."
    if torch.allclose(found, wanted, rtol=1e-4, atol=1e-5):
        return ""
    if torch.allclose(found, gy @ w if name == "gx" else gy.T @ x, rtol=1e-4, atol=1e-5):
        return f"{name} is that of a layer without tanh: first take the gradient back through tanh."
    return f"{name} differs from autograd's by up to {(found - wanted).abs().max():.2g}."
