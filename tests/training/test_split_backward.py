"""A backward in two halves runs some of a user's code twice: equal to plain PyTorch, or refused in a sentence.

The cases are from public reports about other libraries: torch #166577 and #174017 (a Function in a split backward),
#144530 (hooks that it skips), #69027 (checkpoints), RevTorch #7 (a backward that uses up what it has saved).
"""

import sys

import cloudpickle
import pytest
import torch
from few import one_in
from owned import PP2, data, plain, squares
from torch import nn
from torch.utils.checkpoint import checkpoint

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Times(torch.autograd.Function):
    """Rows times a matrix, with gradients for what is asked."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t() if ctx.needs_input_grad[0] else None, x.t() @ gradient


class Freeing(Times):
    """It frees its memory by itself."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.kept = x, weight
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.kept
        del ctx.kept
        return gradient @ weight.t(), x.t() @ gradient


class UsingUp(Times):
    """It computes in the memory that it has saved, as reversible layers do."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.kept = x.clone(), weight
        return x.tanh() @ weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.kept
        y = x.tanh_()
        return gradient @ weight.t() * (1 - y * y), y.t() @ gradient


class By(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.randn(6, 6) / 3)

    def forward(self, x):
        return self.function(x, self.weight).tanh()


class Hooked(nn.Module):
    """A hook on a tensor that is on the way to a weight."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        y = self.inner(x)
        if y.requires_grad:
            y.register_hook(lambda gradient: gradient / 2)
        return y.tanh()


class Prompted(nn.Module):
    """A hook on a tensor that reaches the output in two ways, and does not depend on the input."""

    def __init__(self):
        super().__init__()
        self.prompt = nn.Parameter(torch.randn(4, 6))
        self.p, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        p = self.p(self.prompt)
        if p.requires_grad:
            p.register_hook(lambda gradient: gradient / 2)
        return x + (x @ self.k(p).t()).softmax(-1) @ self.v(p)


class Saved(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.inner = reentrant, nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


def around(middle):
    return lambda seed: nn.Sequential(nn.Linear(6, 6), nn.Tanh(), middle(), nn.Linear(6, 3))


CASES = {  # a layer, and what is said of it
    "a Function": (lambda: By(Times.apply), ""),
    "a hook": (Hooked, ""),
    "a checkpoint": (lambda: Saved(False), ""),
    "a hook that runs twice": (Prompted, r"in layer 2 \(Prompted\) the gradient of 2\.p\S* differs by"),
    "a Function that frees": (
        lambda: By(Freeing.apply),
        r"in layer 2 \(By\) the second half fails \(AttributeError: 'FreeingBackward' object has no attribute 'kept'\)",
    ),
    "a Function that computes in place": (lambda: By(UsingUp.apply), "the gradient of 2.weight differs by"),
    "a checkpoint with a backward of its own": (lambda: Saved(True), "the second half fails .*use_reentrant=True"),
}


@pytest.mark.ranks
@pytest.mark.parametrize("case", one_in(2, CASES))
@pytest.mark.parametrize("schedule", ["zb_h1", "1f1b"])
def test_gradients_are_those_of_plain_pytorch_or_refused(case, schedule):
    """Two of these were trained with other gradients, without a word."""
    middle, why = CASES[case]
    ask = {"steps": 3, "batch": 8, "optimizer": "sgd", "rate": 0.1, "dtype": "float64", "progress": False}
    train = lambda: hl.train(PP2, schedule, model=hl.Model(around(middle), squares, data), microbatches=4, **ask)
    if why and schedule == "zb_h1":
        with pytest.raises(ValueError, match=f"zb_h1 splits the backward in two, and .*{why}.*choose 1f1b"):
            train()
    else:
        assert train()["losses"] == pytest.approx(plain(around(middle)), rel=1e-10)


class Masked(nn.Module):
    """A layer that hands a mask on, which has no gradient."""

    def __init__(self, wide=6):
        super().__init__()
        self.inner = nn.Linear(6, wide)

    def forward(self, pair):
        x, mask = pair
        return self.inner(x) * mask[..., :1], mask


class First(nn.Module):
    def forward(self, x):
        return x, (x > -9).to(x.dtype)


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.none = nn.Linear(6, 3), nn.Parameter(torch.zeros(0, 3))

    def forward(self, pair):
        return self.inner(pair[0]) + self.none.sum()


def test_outputs_without_a_gradient_and_weights_without_numbers_are_no_difference():
    model = hl.Model(lambda seed: nn.Sequential(First(), Masked(), Masked(), Last()), squares, data)
    assert hl.dry_run(PP2, "zb_h1", model=model, microbatches=4, batch=8)
