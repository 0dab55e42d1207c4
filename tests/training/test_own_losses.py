"""Losses of somebody's own: equal to plain PyTorch, or refused in one sentence before a rank starts.

The cases are from public reports about other libraries: DeepSpeed #7464 (weights in a loss), lightly-train #968 (a
center in a loss), PerceptualSimilarity #82 (dropout in a loss), stylish-tts #79 (a frozen network in float32),
CRNN_Chinese_Characters_Rec #304 (rows in the second dim).
"""

import sys
import weakref
from types import SimpleNamespace

import cloudpickle
import pytest
import torch
from owned import PP2, data, plain, squares
from torch import nn
from torch.nn import functional

import hybridlab as hl

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def net(seed=0):
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))


NET, CALLS = net(), [0]
EVERY = {id(x): x for x in NET.parameters()}.values
HELD, WEAK = SimpleNamespace(net=NET), weakref.ref(NET)


class Trainer:
    """A plain object that has the model, as most training scripts have one."""

    net = NET

    def __init__(self):
        self.here, self.weight = NET, 0.1

    def penalty(self):
        return self.weight * self.here[0].weight.square().sum()

    def loss(self, output, target):
        return squares(output, target) + self.penalty()

    def loss_without(self, output, target):
        return self.weight * squares(output, target)

    def closed(self):
        return lambda output, target: squares(output, target) + self.penalty()


TRAINER = Trainer()


def by_a_comprehension(output, target):
    return squares(output, target) + sum(0.1 * NET[number].weight.square().sum() for number in (0, 2))


def by_a_function_inside(output, target):
    def penalty():
        return NET[0].weight.square().sum()

    return squares(output, target) + penalty()


def by_a_default_keyword(output, target, *, of=NET):
    return squares(output, target) + of[0].weight.square().sum()


def by_an_attribute(output, target):
    return squares(output, target) + HELD.net[0].weight.square().sum()


def by_a_class(output, target):
    return squares(output, target) + Trainer.net[0].weight.square().sum()


def by_a_text(output, target):
    return squares(output, target) + vars(TRAINER)["here"][0].weight.square().sum()


def by_a_weak_reference(output, target):
    return squares(output, target) + WEAK()[0].weight.square().sum()


def by_what_no_code_names(output, target):
    return squares(output, target) + sum(x.square().sum() for x in EVERY())


READING = [
    TRAINER.loss, TRAINER.closed(), by_a_comprehension, by_a_function_inside, by_a_default_keyword, by_an_attribute,
    by_a_class, by_a_text, by_a_weak_reference, by_what_no_code_names,
]  # fmt: skip


@pytest.mark.parametrize("loss", READING, ids=lambda loss: loss.__qualname__)
def test_a_penalty_on_weights_is_refused_however_a_loss_finds_them(loss):
    """It was trained without its gradient, on every layout and on one device alike: the check said equal."""
    with pytest.raises(ValueError, match=r"the loss (has weights|computes with a weight).*would get no gradient"):
        hl.dry_run(PP2, model=NET, loss=loss, data=data)


def test_an_object_that_has_the_model_may_have_a_loss_that_does_not_read_it():
    hl.dry_run(PP2, model=NET, loss=TRAINER.loss_without, data=data)


class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(3))

    def forward(self, output, target):
        loss = squares(output - self.center, target)
        self.center.mul_(0.9).add_(0.1 * output.detach().mean(0))
        return loss


class Counting:
    """A weight that grows with the number of calls: after the first ones, two calls give one number."""

    def __init__(self):
        self.calls = 100

    def __call__(self, output, target):
        self.calls += 1
        return squares(output, target) * min(1.0, self.calls / 10)


class Averaged(nn.Module):
    """Its state depends on the outputs only: two calls with one output leave it as it is."""

    def __init__(self):
        super().__init__()
        self.average = None

    def forward(self, output, target):
        now = (output - target).abs().detach().mean()
        self.average = now if self.average is None else 0.9 * self.average + 0.1 * now
        return squares(output, target) / self.average


def counted_outside(output, target):
    CALLS[0] += 1
    return squares(output, target)


class Perceptual(nn.Module):
    def __init__(self, drop=0.0):
        super().__init__()
        torch.manual_seed(5)
        self.seen = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(drop), nn.Linear(8, 2)).requires_grad_(False)

    def forward(self, output, target):
        return squares(self.seen(output), self.seen(target))


FROZEN = Perceptual()


def shifted(output, target):
    target -= 1
    return squares(output, target)


def clamped(output, target):
    return squares(output.clamp_(-0.2, 0.2), target)


def by_a_frozen_network(output, target):
    return FROZEN(output, target)


REFUSED = {
    "a center": (Centered(), "the loss changes center, but each rank calls the loss a different number of times"),
    "calls": (Counting(), "the loss changes calls"),
    "an average": (Averaged(), "the loss changes average"),
    "calls, outside": (counted_outside, "the loss changes CALLS"),
    "dropout": (Perceptual(0.001), r"the loss draws random numbers.*or set a network inside the loss to eval\(\)"),
    "noise": (lambda y, t: squares(y, t) * (torch.rand(()) > 0.01), "the loss draws random numbers"),
    "targets in place": (shifted, "the loss changes its arguments in place"),
    "outputs in place": (clamped, "the loss changes its arguments in place"),
    "a network in another dtype": (
        by_a_frozen_network,
        "it reads FROZEN, which stays in float32: make the loss an nn.Module that holds FROZEN",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_loss_that_depends_on_more_than_its_arguments_is_refused(case):
    loss, why = REFUSED[case]
    with pytest.raises(ValueError, match=why):
        hl.dry_run(PP2, model=net(), loss=loss, data=data, dtype="float64")


class TimeFirst(nn.Module):
    """Scores as many a recurrent net gives them: (time, rows, letters)."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(1, 5)

    def forward(self, x):
        return self.scores(x[..., None]).transpose(0, 1).log_softmax(-1)


def speech(seed):
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), TimeFirst())


def words(step, rows):
    drawn = torch.Generator().manual_seed(step)
    return torch.randn(rows, 6, generator=drawn), torch.randint(1, 5, (rows, 2), generator=drawn)


def ctc(output, target, reduction="sum"):
    lengths = torch.full((len(target),), len(output)), torch.full((len(target),), 2)
    return functional.ctc_loss(output, target, *lengths, reduction=reduction)


def ctc_mean(output, target):
    return ctc(output, target, "mean")


@pytest.mark.ranks
@pytest.mark.parametrize("microbatches", [4, 1])
@pytest.mark.parametrize("make, loss, data", [(speech, ctc, words), (net, Perceptual(), data)], ids=["ctc", "frozen"])
def test_rows_in_another_dim_and_frozen_networks_train_as_in_plain_pytorch(make, loss, data, microbatches):
    ask = {"steps": 3, "batch": 8, "optimizer": "sgd", "rate": 0.1, "dtype": "float64", "progress": False}
    found = hl.train(PP2, model=hl.Model(make, loss, data), microbatches=microbatches, **ask)["losses"]
    assert found == pytest.approx(plain(make, Perceptual().double() if make is net else loss, data), rel=1e-10)


def test_a_mean_over_rows_in_another_dim_is_refused():
    with pytest.raises(ValueError, match='make it a sum over rows, reduction="sum"'):
        hl.dry_run(PP2, model=speech, loss=ctc_mean, data=words, dtype="float64")
