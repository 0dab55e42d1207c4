"""A student's cache of keys and values on real ranks, compared with one device that never cuts a row, in double
precision.

The messages and their order are the package's; the student's two functions compute each slice. The verdict of a rank
is a sentence that continues "Rank 0"; it is empty if all is right.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from hybridlab.labs.slices.case import Rows
from hybridlab.labs.trials.against import SMALL, anywhere, dense, gap

WIDTH = 6
NO_GRADIENT = (
    "own has no gradient here: no later slice has read the keys of a row's last slice, so its leaf.grad is None. Go "
    "back from y alone there"
)


class Attending(nn.Module):
    """One layer: causal attention of a slice to itself and to the slices before it, then tanh."""

    def __init__(self, number: int):
        super().__init__()
        each = [dense((WIDTH, WIDTH), 10 * number + k) / math.sqrt(WIDTH) for k in range(4)]
        self.queries, self.keys, self.values, self.out = map(nn.Parameter, each)

    def forward(self, x: Tensor, past: list[Tensor]) -> tuple[Tensor, Tensor]:
        """(output, own keys and values) of a slice x; past: keys and values of each slice before it."""
        own = torch.stack((x @ self.keys, x @ self.values))
        k, v = torch.cat([*past, own], 1)
        scores = (x @ self.queries) @ k.T / math.sqrt(WIDTH)
        seen = torch.ones_like(scores, dtype=torch.bool).tril(len(k) - len(x))
        found = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v
        return torch.tanh(x + found @ self.out), own


# --- one device ---------------------------------------------------------------------------------------------------

RULES: dict[str, Callable[[int, int], bool]] = {  # whether the gradient goes from slice i back to the keys of slice j
    "none": lambda j, i: False,
    "next": lambda j, i: i == j + 1,
}
ALIKE = {
    "none": "has the right loss, but no gradient from later slices reached the keys of earlier ones: own has a "
    "gradient too.",
    "next": "has keys with a gradient from the next slice alone: every later slice has read them.",
}


def rows_of(case: Rows) -> tuple[list[Tensor], list[Tensor]]:
    """(inputs, targets) of all rows, unsliced."""
    draw = lambda seed: list(dense((case.count, case.tokens, WIDTH), seed))
    return draw(100), draw(101)


def loss_of(y: Tensor, target: Tensor, case: Rows) -> Tensor:
    """The part of the loss that some positions give; the loss is a mean over all rows and positions."""
    return ((y - target) ** 2).sum() / (case.count * case.tokens)


def one_device(case: Rows, rule: str = "") -> list[list[Tensor]]:
    """The gradients of all layers: with whole rows, or in slices with the mistake that `rule` names."""
    layers = [Attending(number) for number in range(case.stages)]
    for x, target in zip(*rows_of(case)):
        kept: list[list[Tensor]] = [[] for _ in layers]
        for i, span in enumerate(case.spans if rule else [slice(None)]):
            y = x[span]
            for layer, its in zip(layers, kept):
                past = [own if RULES[rule](j, i) else own.detach() for j, own in enumerate(its)]
                y, own = layer(y, past)
                its.append(own)
            loss_of(y, target[span], case).backward(retain_graph=True)
    return [[weight.grad for weight in layer.parameters()] for layer in layers]


# --- on a rank ----------------------------------------------------------------------------------------------------


def play(comm, answer, case: Rows) -> str:
    """On each rank: the student's forward and backward of a slice, called in the order of the schedule."""
    layer = Attending(comm.rank)
    try:
        told = _played(comm, *answer, layer, case)
    except RuntimeError as error:
        if "implicitly created only for scalar" in str(error):
            error.args = (NO_GRADIENT,)
        raise
    if anywhere(comm, told):
        return told
    found = [torch.zeros_like(w) if w.grad is None else w.grad for w in layer.parameters()]
    off = lambda rights: max(map(gap, found, rights[comm.rank]))
    if off(one_device(case)) < SMALL:
        return ""
    like = [rule for rule in RULES if off(one_device(case, rule)) < SMALL]
    unknown = "has different gradients from those of one device: which gradients does a slice add up?"
    return ALIKE[like[0]] if like else unknown


def _played(comm, forward, backward, layer, case: Rows) -> str:
    before, after = comm.rank - 1, comm.rank + 1
    last, n = after == comm.size, len(case.lengths)
    inputs, targets = rows_of(case)
    caches, read, gradients, sent, told = [[] for _ in inputs], [_Read(layer) for _ in inputs], {}, [], ""
    for kind, row, i in case.actions(comm.rank):
        span, tag = case.spans[i], row * n + i
        x = inputs[row][span].clone()
        if kind == "F":
            x = x if before < 0 else comm.recv(torch.empty_like(x), before, tag=tag)
            y = forward(read[row], x, caches[row])
            told = told or read[row].wrong(i) or _like("my_forward", "y, the output of the slice", y, x)
            y = (torch.zeros_like(x) if told else y).detach().requires_grad_()
            if last:
                gradients[row, i] = torch.autograd.grad(loss_of(y, targets[row][span], case), y)[0]
            else:
                sent.append(comm.isend(y.detach(), after, tag=tag))
        else:
            tag += case.count * n
            gradient = gradients.pop((row, i)) if last else comm.recv(torch.empty_like(x), after, tag=tag)
            gx = x if told else backward(gradient, caches[row])
            told = told or _like("my_backward", "the gradient of x", gx, x)
            if before >= 0:
                sent.append(comm.isend((torch.zeros_like(x) if told else gx).detach(), before, tag=tag))
    for message in sent:
        message.wait()
    return told


class _Read:
    """The layer that the forwards of one row call: it records the keys and values that each slice reads and makes."""

    def __init__(self, layer: Attending):
        self._layer, self._calls, self._made = layer, [], []

    def __call__(self, x: Tensor, past: list[Tensor]) -> tuple[Tensor, Tensor]:
        y, own = self._layer(x, past)
        self._calls.append((_joined(past, own), own.detach().clone()))
        return y, own

    def wrong(self, i: int) -> str:
        """The mistake in the list that the forward of slice i gave to the layer, in words; empty if there is none."""
        if not self._calls:
            return f"has not called stage in the forward of slice {i}."
        (found, own), made = self._calls[-1], [*self._made]  # earlier calls belong to a backward with recomputation
        self._calls.clear()
        self._made.append(own)
        same = lambda parts: torch.equal(found, _joined(parts, own))
        if same(made):
            return ""
        if same(made[::-1]):
            return f"gave slice {i} the earlier slices in reverse order: past begins with slice 0."
        if same(made[-1:]):
            return f"gave slice {i} only the keys of slice {i - 1}: past is the list of all earlier slices."
        read, wanted = found.shape[1], _joined(made, own).shape[1]
        if read != wanted:
            return f"gave slice {i} the keys of {read} earlier positions; there are {wanted}."
        return f"gave slice {i} keys and values other than those that stage has returned, in order, for earlier slices."


def _joined(parts: list[Tensor], like: Tensor) -> Tensor:
    return torch.cat([one.detach() for one in (*parts, like[:, :0])], 1)


def _like(name: str, what: str, found, x: Tensor) -> str:
    """The mistake in a result that must be a tensor like x."""
    if not isinstance(found, Tensor):
        return f"got {type(found).__name__} from {name}: return {what}."
    if found.shape != x.shape:
        return f"got a tensor of shape {tuple(found.shape)} from {name}; {what} has {tuple(x.shape)}."
    return ""
