"""The things that a layer asks of its input besides its numbers, a mean that data keep of their first batch, and
functions that a program has wrapped: each is plain PyTorch, or refused in one sentence.

The cases are from kinds of public reports about other libraries: frozen layers before a checkpoint, functools.lru_cache
under pickle, once_differentiable in custom operations, and means of the first batch in tutorials.
"""

import functools
import sys

import cloudpickle
import pytest
import torch
from owned import DP2, PP2, data, plain, squares, trained
from torch import nn
from torch.autograd.function import once_differentiable

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Asking(nn.Module):
    def __init__(self, ask):
        super().__init__()
        self.inner, self.ask = nn.Linear(6, 6), ask

    def forward(self, x):
        return self.inner(x) * self.ask(x)


def after(layer, frozen=False):
    def make(seed):
        first, second = nn.Linear(6, 6), nn.Linear(6, 6)
        for one in (first, second):
            one.requires_grad_(not frozen)
        return nn.Sequential(first, second, layer(), nn.Linear(6, 3))

    return make


ASKED = {
    "whether weights before it are frozen": (lambda x: 2 if x.requires_grad else 1, True),
    "whether it is a leaf": (lambda x: 2 if x.is_leaf else 1, False),
    "its graph": (lambda x: 1 if x.grad_fn is None else 2, False),
    "for numpy, without a graph": (lambda x: float(x.numpy().max() > -9) if not x.grad_fn else 1.0, True),
}


@pytest.mark.parametrize("case", ASKED)
def test_a_layer_that_asks_where_its_input_comes_from_is_refused(case):
    """A stage receives a leaf that requires a gradient: `check` called what it computed equal to one device."""
    ask, frozen = ASKED[case]
    with pytest.raises(ValueError, match=r"layer 2 .Asking. returns something else.*leave out x.requires_grad"):
        hl.dry_run(PP2, model=after(lambda: Asking(ask), frozen), loss=squares, data=data, dtype="float32")


def test_a_first_layer_may_ask_since_only_the_batch_arrives_there():
    ask = lambda x: 2 if x.requires_grad else 1
    model = lambda seed: nn.Sequential(Asking(ask), nn.Linear(6, 3))
    hl.dry_run(PP2, model=model, loss=squares, data=data)


class Marking(nn.Linear):
    def forward(self, x):
        made = super().forward(x)
        made.gate = x.sigmoid()
        return made


def test_an_attribute_of_a_tensor_is_no_output():
    """It was told to leave out torch.is_grad_enabled(), which nobody had written."""
    gate = lambda x: getattr(x, "gate", 1.0)
    model = lambda seed: nn.Sequential(Marking(6, 6), Asking(gate), nn.Linear(6, 3))
    with pytest.raises(ValueError, match=r"layer 1 .Asking. reads an attribute that an earlier layer has set"):
        hl.dry_run(PP2, model=model, loss=squares, data=data)


KEPT = {}


def centred(step, rows):
    x, y = data(step, rows)
    return x - KEPT.setdefault("mean", x.mean(0).to(torch.float64)).to(x.dtype), y


@pytest.mark.ranks
@pytest.mark.parametrize("mesh", [PP2, DP2], ids=str)
def test_a_mean_that_data_keep_is_that_of_the_whole_first_batch(mesh):
    """It was the mean of the two rows with which the examination began, on both sides of a proof."""
    KEPT.clear()
    want = plain(after(nn.Tanh), data=centred)
    KEPT.clear()
    assert trained(hl.Model(after(nn.Tanh), squares, centred), mesh) == pytest.approx(want, rel=1e-9)


@functools.lru_cache(maxsize=2)
def ramp(width):
    return torch.linspace(0.5, 1.5, width, dtype=torch.float64)


@functools.singledispatch
def bent(x):
    return x


@bent.register
def _(x: torch.Tensor):
    return x.tanh()


@torch.compile(backend="eager")
def halved(x):
    return x / 2


class Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.T, x.T @ gradient


class Table:
    @functools.cached_property
    def signs(self):
        return torch.tensor([1.0, -1.0] * 3)

    @staticmethod
    @functools.cache
    def power(width):
        return torch.arange(width) / width


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.table = nn.Parameter(torch.randn(6, 6)), Table()

    def forward(self, x):
        made = bent(Multiplied.apply(halved(x), self.weight))
        return made * ramp(6).to(x.dtype) * self.table.signs.to(x.dtype) + self.table.power(6).to(x.dtype)


@pytest.mark.ranks
def test_functions_of_a_program_that_are_wrapped_travel_with_it():
    """Ranks knew no function of this name, or said that a Job cannot be pickled."""
    want = plain(after(Wrapped))
    assert trained(hl.Model(after(Wrapped), squares, data), PP2) == pytest.approx(want, rel=1e-9)
