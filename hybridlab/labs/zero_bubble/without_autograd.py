"""The engine of notebook 14: a chain of y = tanh(x @ w.T), whose forwards and backwards are matmuls.

`Products` watches a rank that computes without autograd. It recognizes each matmul by its result: the forward of a
layer, or the gradient with respect to its input (I) or its weights (W), and the microbatch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from hybridlab.labs.engine import toy

MULTIPLY = {"mm", "bmm"}  # the operators that torch runs for every matmul
ADD_A_PRODUCT = {"addmm", "addmm_", "baddbmm", "baddbmm_"}
ALIKE = 1 - 1e-5  # two results with a larger cosine are equal up to a factor: the division by m may be anywhere


class Product(NamedTuple):
    """One matmul of one device: "F", "I" or "W", its microbatch, and its result."""

    kind: str
    microbatch: int
    result: Tensor


def weights(number: int, stages: int) -> list[Tensor]:
    """The weight matrices of one stage, in order; layer by layer y = tanh(x @ w.T)."""
    return [layer.weight.detach().clone() for layer in toy.stage(number, stages)[::2]]


def one_device(stages: int, count: int) -> list[list[Tensor]]:
    """The right gradients of the weights, stage by stage: by autograd, in one process.

    >>> len(one_device(stages=3, count=2)), one_device(3, 2)[0][0].shape
    (3, torch.Size([16, 16]))
    """
    chain = [[w.requires_grad_() for w in weights(number, stages)] for number in range(stages)]
    for x, target in toy.microbatches(count):
        for w in sum(chain, []):
            x = torch.tanh(x @ w.T)
        (toy.loss(x, target) / count).backward()
    return [[w.grad for w in stage] for stage in chain]


def products(number: int, stages: int, count: int) -> list[Product]:
    """Every matmul that a stage has to compute, with its result.

    >>> [(one.kind, one.microbatch) for one in products(0, stages=2, count=1)]
    [('F', 0), ('F', 0), ('I', 0), ('W', 0), ('I', 0), ('W', 0)]
    """
    chain = [w for one in range(stages) for w in weights(one, stages)]
    layers = len(chain) // stages
    mine = range(number * layers, (number + 1) * layers)
    found = []
    for k, (x, target) in enumerate(toy.microbatches(count)):
        xs = [x]
        for place, w in enumerate(chain):
            found += [Product("F", k, xs[-1] @ w.T)] * (place in mine)
            xs.append(torch.tanh(xs[-1] @ w.T))
        g = 2 * (xs[-1] - target) / target.numel() / count
        for place in reversed(range(len(chain))):
            gz = g * (1 - xs[place + 1] ** 2)
            g = gz @ chain[place]
            found += [Product("I", k, g), Product("W", k, gz.T @ xs[place])] * (place in mine)
    return found


class Products(TorchDispatchMode):
    """The notes on a rank that multiplies: `did`, [(kind, microbatch, messages sent before)], and `most` held at once.

    right  the expected matmuls;  known  tensors that are always there: weights, data
    sent   () -> the number of messages that were sent

    A microbatch is held while a tensor that was computed for it exists.
    """

    def __init__(self, right: list[Product], known: list[Tensor], sent):
        super().__init__()
        self.did, self.most = [], 0
        self._right, self._sent, self._held = right, sent, {}
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made, name = function(*args, **(kwargs or {})), function.overloadpacket.__name__
        if name in MULTIPLY:
            self._note(made, args[:2])
        elif name in ADD_A_PRODUCT:
            self._note(args[1] @ args[2], args[1:3])
        return made

    def _note(self, result, factors):
        one = next((one for one in self._right if alike(one.result, result)), None)
        if one is None:
            return
        self.did.append((one.kind, one.microbatch, self._sent()))
        storages = [factor.untyped_storage() for factor in factors]
        held = self._held.setdefault(one.microbatch, [])
        held += [StorageWeakRef(storage) for storage in storages if storage.data_ptr() not in self._known]
        alive = [any(not storage.expired() for storage in its) for its in self._held.values()]
        self.most = max(self.most, sum(alive))


def alike(wanted: Tensor, found: Tensor) -> bool:
    """Whether a result is the wanted one, or its transpose, up to a factor.

    >>> a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> alike(a, 5 * a.T), alike(a, a + 1)
    (True, False)
    """
    found = found.squeeze(0) if found.dim() == 3 else found
    return any(
        shape.shape == wanted.shape and torch.cosine_similarity(shape.flatten(), wanted.flatten(), dim=0) > ALIKE
        for shape in (found, found.T)
    )
