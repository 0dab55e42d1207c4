"""State of somebody's own layers: what one call leaves for the next, or one layer for another, is refused.

The cases are from public reports about other libraries: Megatron-LM #752 and torchtitan #1723 (masks beside the
stream), fairseq's layer drop (a generator of its own), torch #72580 (modules in a list), llm.c #601 and marin #7659
(backwards that draw, or that keep maxima), TransformerLens #1455 (buffers of a forward).
"""

import random
import sys
from functools import partial
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
import torch
from owned import PP2, data, squares
from torch import nn

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])
OUTSIDE, CALLS, RNG = SimpleNamespace(), [0], random.Random(0)


def around(*middle):
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), *middle, nn.Linear(6, 3))


class Keeping(nn.Module):
    """A layer with something of its own, which `use` turns into a factor."""

    def __init__(self, kept, use):
        super().__init__()
        self.inner, self.kept, self.use = nn.Linear(6, 6), kept, use

    def forward(self, x):
        return x + self.use(self, x) * self.inner(x)


def rarely(draw):
    return lambda layer, x: float(draw(layer.kept) > 1e-4)


def count(layer, x):
    layer.kept["calls"] += 1
    return float(layer.kept["calls"] < 1000)


def count_in_a_tensor(layer, x):
    layer.kept = layer.kept + 1
    return (layer.kept < 1000).float()


def average(layer, x):
    layer.kept = 0.9 * layer.kept + 0.1 * x.detach().abs().mean()
    return 1.0


class Outside(Keeping):
    def forward(self, x):
        CALLS[0] += 1
        return x + self.inner(x)


class Drawn(Keeping):
    def forward(self, x):
        return x + self.inner(x) * (RNG.random() > 1e-4)


LEFT = {
    "a generator of Python": (Keeping(random.Random(0), rarely(lambda one: one.random())), "2.kept"),
    "a generator of numpy": (Keeping(np.random.default_rng(0), rarely(lambda one: one.random())), "2.kept"),
    "a generator of torch": (Keeping(torch.Generator(), rarely(lambda one: torch.rand((), generator=one))), "2.kept"),
    "a number in a dict": (Keeping({"calls": 0}, count), "2.kept"),
    "a number in a tensor": (Keeping(torch.zeros(()), count_in_a_tensor), "2.kept"),
    "an average": (Keeping(torch.zeros(()), average), "2.kept"),
    "an object": (Keeping(SimpleNamespace(n=np.zeros(1)), lambda layer, x: layer.kept.n.__iadd__(1).sum()), "2.kept"),
    "a list outside": (Outside(None, None), "CALLS"),
    "a generator outside": (Drawn(None, None), "RNG"),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_a_call_leaves_for_the_next_is_refused(case):
    layer, name = LEFT[case]
    with pytest.raises(ValueError, match=f"a forward changes {name}, but ranks call their layers different numbers"):
        hl.dry_run(PP2, model=around(layer), loss=squares, data=data)


class Through(torch.autograd.Function):
    """The identity, whose backward calls a function of the gradient."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


class Backward(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change, self.calls = change, 0
        self.register_buffer("most", torch.zeros(()))

    def forward(self, x):
        return Through.apply(x, lambda gradient: self.change(self, gradient))


def count_gradients(layer, gradient):
    layer.calls += 1
    return gradient if layer.calls < 1000 else gradient / 2


def keep_the_most(layer, gradient):
    layer.most.copy_(torch.maximum(layer.most, gradient.abs().max()))
    return gradient


BACKWARD = {
    "a rare draw": (lambda layer, gradient: gradient * (torch.rand(()) > 1e-4), "draws from torch's generator"),
    "a draw of Python": (lambda layer, gradient: gradient * (random.random() > 1e-4), "draws from Python's generator"),
    "a counter": (count_gradients, "changes 2.calls"),
    "a buffer": (keep_the_most, "changes the buffer 2.most of Backward"),
}


@pytest.mark.parametrize("case", BACKWARD)
def test_what_a_backward_leaves_for_the_next_is_refused(case):
    """Only the forward was looked at: these were trained, or refused with another reason."""
    change, why = BACKWARD[case]
    with pytest.raises(ValueError, match=f"a backward {why}"):
        hl.dry_run(PP2, model=around(Backward(change)), loss=squares, data=data)


def test_the_last_gradient_of_a_layer_is_no_state():
    layer = Backward(lambda layer, gradient: vars(layer).update(last=gradient) or gradient)
    assert hl.dry_run(PP2, model=around(layer), loss=squares, data=data)


def registers_a_buffer(layer, x):
    if not hasattr(layer, "turns"):
        layer.register_buffer("turns", torch.ones(6, dtype=x.dtype), persistent=False)
    return layer.turns


def makes_a_weight(layer, x):
    if layer.kept is None:
        layer.kept = nn.LayerNorm(6, dtype=x.dtype)
    return layer.kept(x)


def removes_a_weight(layer, x):
    layer.inner.bias = None
    return 1.0


def freezes(layer, x):
    layer.inner.bias.requires_grad_(False)
    return 1.0


def thaws(layer, x):
    layer.kept.requires_grad_(True)
    return layer.kept(x)


REGISTERED = {
    "a buffer": (Keeping(None, registers_a_buffer), "registers 2.turns of Keeping, .*register it in __init__"),
    "a weight": (Keeping(None, makes_a_weight), "registers 2.kept.weight of LayerNorm, .*register it in __init__"),
    "no weight": (Keeping(None, removes_a_weight), "removes 2.inner.bias of Linear"),
    "a frozen weight": (Keeping(None, freezes), "changes requires_grad of the weight 2.inner.bias of Linear"),
    "a trained weight": (
        Keeping(nn.Linear(6, 6).requires_grad_(False), thaws),
        "changes requires_grad of the weight 2.kept.weight of Linear.*call requires_grad_.. once, where",
    ),
}


@pytest.mark.parametrize("case", REGISTERED)
def test_other_weights_and_buffers_than_at_the_beginning_are_refused(case):
    """A thawed weight was not trained, and the proof said equal; for the others there was a KeyError."""
    layer, why = REGISTERED[case]
    with pytest.raises(ValueError, match=f"a forward {why}"):
        hl.dry_run(PP2, model=around(layer), loss=squares, data=data)


class Switched(nn.Module):
    def forward(self, x):
        return x * (2 if torch.is_grad_enabled() else 1)


def test_a_layer_that_asks_whether_gradients_are_on_is_told():
    """It was told that another layer stores something for it."""
    with pytest.raises(ValueError, match="layer 2 .Switched. returns something else when gradients are on"):
        hl.dry_run(PP2, model=around(Switched()), loss=squares, data=data)


class Noting(nn.Module):
    """Stores a mask for a later layer, as many encoders do."""

    def __init__(self, where):
        super().__init__()
        self.inner, self.where = nn.Linear(6, 6), where

    def forward(self, x):
        self.where.mask = (x > 0).to(x.dtype)
        return self.inner(x)


class Reading(Noting):
    def forward(self, x):
        return self.inner(x) * self.where.mask


class Trusting(Noting):
    """Without a mask of this shape it does without."""

    def forward(self, x):
        mask = getattr(self.where, "mask", torch.ones(1))
        return self.inner(x) * (mask if mask.shape == x.shape else 1)


class NotingOutside(Noting):
    def forward(self, x):
        OUTSIDE.mask = (x > 0).to(x.dtype)
        return self.inner(x)


class ReadingOutside(Noting):
    def forward(self, x):
        return self.inner(x) * OUTSIDE.mask


class Again(nn.Module):
    """Reads what another layer has stored in itself."""

    def __init__(self, other):
        super().__init__()
        self.inner, self.other = nn.Linear(6, 6), [other]

    def forward(self, x):
        return self.inner(x) + self.other[0].where.mask


def noted(first, later):
    where = SimpleNamespace()
    return around(first(where), nn.Tanh(), later(where))


def by_the_layer():
    first = Noting(SimpleNamespace())
    return around(first, nn.Tanh(), Again(first))


PASSED = {
    "in an object": partial(noted, Noting, Reading),
    "in an object, if there": partial(noted, Noting, Trusting),
    "outside": partial(noted, NotingOutside, ReadingOutside),
    "in the layer": by_the_layer,
}


@pytest.mark.parametrize("case", PASSED)
def test_what_a_layer_stores_for_another_is_refused(case):
    """Under ZeRO 3 the layers in between run for other microbatches: it trained with their masks, without a word."""
    torch.manual_seed(0)  # one of 400 models has a mask of ones for both rows that are examined, which changes nothing
    model = PASSED[case]()
    with pytest.raises(ValueError, match=r"layer 4 .* needs something that the call of another layer stores"):
        hl.dry_run(PP2, model=model, loss=squares, data=data)


class Cached(nn.Module):
    """What is made once, or for logs only, is no state."""

    def __init__(self):
        super().__init__()
        self.inner, self.mask, self.last, self.settings = nn.Linear(6, 6), None, 0.0, {"width": 6}

    def forward(self, x):
        self.mask = torch.ones(6) if self.mask is None else self.mask
        self.last = float(x.detach().abs().sum())
        return x + self.inner(x) * self.mask.to(x.dtype)


def test_caches_and_last_values_are_no_state():
    hl.dry_run(PP2, model=around(Cached()), loss=squares, data=data)


class Forgotten(nn.Module):
    def __init__(self):
        super().__init__()
        self.some = [nn.Linear(6, 6)]

    def forward(self, x):
        return self.some[0](x)


def test_modules_in_a_list_are_told():
    with pytest.raises(ValueError, match=r"\(Forgotten\) fails .*; some is not registered: use nn\.ModuleList"):
        hl.dry_run(PP2, model=around(Forgotten()), loss=squares, data=data, dtype="float64")
    with pytest.raises(ValueError, match="computes with a weight .* that no layer holds.* nn.ModuleList"):
        hl.dry_run(PP2, model=around(Forgotten()), loss=squares, data=data, dtype="float32")
