"""Notebook 02: a step predicted from the speed of this core, and the parts of the loop that may run in any order.

Relatives: `measuring.one_device`, `predict.plans.arithmetic`, `predict.bytes.saved`.
"""

import torch

import hybridlab as hl
from hybridlab.measuring.one_device import Parts
from hybridlab.predict.bytes import saved
from hybridlab.predict.plans.arithmetic import product
from hybridlab.training.data.text import Text
from hybridlab.training.models.gpt import GPT, token_loss

NUMBER, ID = saved.NUMBER, saved.ID
ADAMW = 21  # number of times that torch's eight operations for a weight read or write a number in memory


def products(shape: hl.Shape, batch: int) -> list[tuple[int, int, int, int]]:
    """Every matmul of a forward as (m, k, n, the number of such matmuls).

    >>> one = hl.Shape(layers=2, width=64, heads=4, context=32)
    >>> from hybridlab.predict.plans.arithmetic import flops
    >>> sum(2 * m * k * n * count for m, k, n, count in products(one, 3)) * 3 == flops(one, 3).total
    True
    """
    tokens, h, s = batch * shape.context, shape.width, shape.context
    each = [(tokens, h, shape.inside, 1), (tokens, shape.inside, h, 1)]
    if shape.heads:
        scores, mixed = (s, shape.head_width, s), (s, s, shape.head_width)
        each += [(tokens, h, h, 2), (tokens, h, shape.key_width, 2)]
        each += [(*scores, batch * shape.heads), (*mixed, batch * shape.heads)]
    return [(m, k, n, count * shape.layers) for m, k, n, count in each] + [(tokens, h, shape.vocabulary, 1)]


def foreseen(shape: hl.Shape, batch: int, peak: float, bandwidth: float) -> Parts:
    """Seconds of the parts of a step on a core with these FLOP/s and bytes/s, without any other cost.

    Matmuls follow the roofline; a backward has two for each one of the forward. Saved activations are written once and
    read once, and their gradients are written. The update is torch's AdamW on a CPU, operation by operation; a fused
    one would read four numbers and write three, a third of that.
    """
    tokens = batch * shape.context
    multiplied = sum(
        count * product(m, k, n, peak, bandwidth, NUMBER).seconds for m, k, n, count in products(shape, batch)
    )
    kept = sum(saved.layers(shape, batch)) / bandwidth
    read, scores = 2 * ID * tokens / bandwidth, NUMBER * tokens * shape.vocabulary / bandwidth
    update = ADAMW * NUMBER * shape.parameters / bandwidth
    return Parts(read, multiplied + kept, 2 * scores, 2 * multiplied + 2 * kept, update)


# --- what depends on what -----------------------------------------------------------------------------------------

SMALL = hl.Shape(layers=2, width=16, heads=2, context=16)
RATE = 0.1


def halves_apart() -> float:
    """The difference between the gradient of a batch and the sum of its halves' gradients, second half first, relative
    to the largest entry."""
    model, batch = _begun(), _batch(0)
    whole = _gradient(model, batch)
    later, earlier = (_gradient(model, [part[rows] for part in batch]) for rows in (slice(2, 4), slice(0, 2)))
    return _apart(later + earlier, whole)


def steps_apart() -> float:
    """The difference in the weights if two steps of SGD are done in reverse order, relative to the distance that the
    steps move them."""
    ends = []
    for order in ((0, 1), (1, 0)):
        model = _begun()
        for number in order:
            _update(model, _gradient(model, _batch(number)))
        ends.append(_flat(model))
    return _apart(ends[1] - _flat(_begun()), ends[0] - _flat(_begun()))


def _begun():
    return GPT(SMALL, dtype=torch.float64)


def _batch(step):
    return [torch.from_numpy(part) for part in Text.of().batch(step, 4, SMALL.context)]


def _gradient(model, batch):
    model.zero_grad()
    tokens_BT, targets_BT = batch
    (token_loss(model(tokens_BT), targets_BT) / (4 * SMALL.context)).backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


@torch.no_grad()
def _update(model, gradient):
    sizes = [weight.numel() for weight in model.parameters()]
    for weight, part in zip(model.parameters(), gradient.split(sizes)):
        weight -= RATE * part.view_as(weight)


def _flat(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def _apart(one, other):
    return float((one - other).abs().max() / other.abs().max())
