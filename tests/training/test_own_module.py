"""The third reference: what a module does when its owner calls it is what its layers do, or it is refused."""

import random
import sys
import warnings
from typing import NamedTuple

import cloudpickle
import numpy as np
import pytest
import torch
from few import one_in
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.weight_norm import WeightNorm

import hybridlab as hl
from hybridlab.training.make_job import job_of
from hybridlab.training.models.batch_norm import BatchNorm

cloudpickle.register_pickle_by_value(sys.modules[__name__])
PP2, DP2 = hl.Mesh(pp=2), hl.Mesh(dp=2)


def squares(output, target):
    return ((output - target) ** 2).sum()


def data(step, rows):
    drawn = torch.Generator().manual_seed(step)
    return [torch.randn(rows, width, generator=drawn, dtype=torch.float64) for width in (4, 3)]


def net(*middle, kind=nn.Sequential):
    torch.manual_seed(0)
    return kind(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), *middle, nn.Linear(8, 3))


def changed(model, change):
    change(model)
    return model


class Residual(nn.Sequential):
    def forward(self, x):
        return x[:, :3] + super().forward(x)


class Listed(nn.Module):
    """A list of layers, and a forward that does something else with them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def layers(self):
        return [self.first, nn.Tanh(), self.last]

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


class By(nn.Module):
    """A layer that is a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class ByNorm(torch.autograd.Function):
    """The identity, whose gradient is divided by its own size: that of all rows."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / gradient.norm()


class Counted(nn.Embedding):
    def forward(self, x):
        return super().forward((x.abs() * 7).long().clamp(max=15)).sum(1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x if self.calls < 1000 else 0 * x


class Clamped(nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


class Borrowing(nn.Module):
    """A decoder that refers to another layer's weight without holding it."""

    def __init__(self, other):
        super().__init__()
        self.other = [other]

    def forward(self, x):
        return x @ self.other[0].weight


class Two(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Spread(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True) if x.requires_grad else x


def borrowed():
    first = nn.Linear(4, 8)
    return nn.Sequential(first, nn.Linear(8, 8), Borrowing(first), nn.Linear(4, 3))


def shared():
    model = net(nn.Linear(8, 8))
    model[3].weight = nn.Parameter(model[2].weight.data)
    return model


def rarely(draw):
    """A layer that draws in every call, and does something once in a thousand."""
    return By(lambda x: x * (draw() > 0.001))


class Loud(nn.Linear):
    """A weight without dims, that says how loud it is."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.loudness = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return self.loudness * super().forward(x)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit and the old weight_norm are deprecated, and still met
    TRACED = torch.jit.trace(nn.Linear(4, 3), torch.ones(1, 4))
    OLD = changed(nn.Sequential(nn.Linear(4, 3)), lambda model: WeightNorm.apply(model[0], "weight", 0))

REFUSED = {  # a model, and what is said of it
    "a forward of its own": (net(kind=Residual), "Residual.forward gives the loss"),
    "another forward than its list": (Listed(), "move all work of its forward and its hooks into layers"),
    "a hook on the whole": (changed(net(), lambda m: m.register_forward_hook(lambda m, x, y: 2 * y)), "its hooks"),
    "a hook on a weight": (
        changed(net(), lambda m: m[0].weight.register_hook(lambda g: 0 * g)), "the weight 0.weight has a hook",
    ),
    "a hook behind a weight": (
        changed(net(), lambda m: m[2].bias.register_post_accumulate_grad_hook(lambda p: None)), "2.bias has a hook",
    ),
    "two weights in one memory": (shared(), "are two parameters in the same memory, but would be trained separately"),
    "a gradient by how often": (
        nn.Sequential(Counted(16, 8, scale_grad_by_freq=True), nn.Linear(8, 3)), "the gradient of 0.weight differs",
    ),
    "a gradient by its size": (net(By(ByNorm.apply)), "in forward, backward and loss"),
    "a mixture while it trains": (net(Spread()), "returns something else for the same numbers with another graph"),
    "a counter": (net(Counter()), "a forward changes 3.calls"),
    "draws of torch": (net(rarely(lambda: torch.rand(()))), "draws from torch's generator"),
    "draws of Python": (net(rarely(random.random)), "draws from Python's generator"),
    "draws of numpy": (net(rarely(np.random.random)), "draws from numpy's generator"),
    "a clamp in place": (net(Clamped(8, 8)), "a forward changes the weight 3.weight of Clamped"),
    "another layer's weight": (borrowed(), r"computes with a weight \(8, 4\) of layer 0"),
    "complex weights": (
        net(changed(By(lambda x: x), lambda m: setattr(m, "c", nn.Parameter(torch.ones(2, dtype=torch.complex64))))),
        "3.c is complex",
    ),
    "complex numbers between": (net(By(lambda x: x.to(torch.complex64)), By(torch.real)), "returns complex numbers"),
    "a named tuple": (net(By(lambda x: Two(x, x)), By(lambda both: both.x)), "returns a Two"),
    "a lazy layer": (nn.Sequential(nn.LazyLinear(3)), "0.weight has no shape yet because its layer is lazy"),
    "the meta device": (nn.Sequential(nn.Linear(4, 3, device="meta")), "0.weight is on torch's meta device"),
    "no layers": (nn.Sequential(), "the model has no layers"),
    "a traced layer": (nn.Sequential(TRACED), "0 is made by torch.jit"),
    "a parametrized module": (nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3))), "0 has parametrizations"),
    "the old weight_norm": (OLD, "computed from weights"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", one_in(3, REFUSED))
def test_what_is_not_what_its_owner_runs_is_refused_before_a_rank_starts(case):
    model, why = REFUSED[case]
    for verb in (hl.check, hl.dry_run):
        with pytest.raises(ValueError, match=why):
            verb(PP2, model=model, loss=squares, data=data)


NET = net()
SCALE = nn.Parameter(torch.ones(3))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, output, target):
        return squares(self.scale * output, target)

    def bound(self, output, target):
        return squares(output, target)


def with_a_penalty(output, target):
    return squares(output, target) + NET[0].weight.square().sum()


def by_default(output, target, scale=SCALE):
    return squares(scale * output, target)


def closed():
    layers = {"first": NET[0]}
    return lambda output, target: squares(output, target) + 0 * sum(layers["first"].bias)


@pytest.mark.parametrize(
    "loss",
    [Scaled(), Scaled().bound, with_a_penalty, by_default, closed()],
    ids=["its own", "bound", "a global", "a default", "a closure"],
)
def test_a_loss_that_reads_weights_is_refused(loss):
    with pytest.raises(ValueError, match="the loss has weights"):
        hl.dry_run(PP2, model=net(), loss=loss, data=data)


def test_a_word_that_is_a_weight_elsewhere_is_none_here():
    """The name of an attribute is no global, even where one is called alike."""
    names = {"squares": squares, "T": NET, "__name__": "elsewhere"}
    exec("def read(output, target):\n    return squares(output.T.T, target)", names)
    hl.dry_run(PP2, model=net(), loss=names["read"], data=data)


class Whole(Listed):
    """As others write it: the forward wants targets, and gives the loss."""

    def forward(self, x, target):
        return squares(self.last(torch.tanh(self.first(x))), target)


class Failing(Listed):
    def forward(self, x):
        return self.gone(x)


class Nan(Listed):
    def forward(self, x):
        return self.last(self.first(x)) * torch.nan


@pytest.mark.slow
def test_a_forward_that_wants_more_than_inputs_is_not_the_owners_run():
    hl.dry_run(PP2, model=Whole(), loss=squares, data=data, cut=[1, 2])


@pytest.mark.slow
@pytest.mark.parametrize("model, why", [(Failing(), "Failing.forward fails"), (Nan(), "is not a number")])
def test_a_forward_that_fails_or_gives_no_number_is_told(model, why):
    with pytest.raises(ValueError, match=why):
        hl.dry_run(PP2, model=model, loss=squares, data=data, cut=[1, 2])


def test_two_weights_may_lie_side_by_side_in_one_buffer():
    flat, model = torch.randn(64 + 8), net()
    model[2].weight, model[2].bias = nn.Parameter(flat[:64].view(8, 8)), nn.Parameter(flat[64:])
    hl.dry_run(PP2, model=model, loss=squares, data=data)


def hardest(output, target):
    return ((output - target) ** 2).sum(1).topk(min(2, len(output))).values.sum()


def mean_of_some(output, target):
    """As cross_entropy(ignore_index=…) times the number of rows: a sum while nothing is ignored."""
    counts = (target < 1.5).to(output.dtype)
    return len(target) * target[0].numel() * ((output - target).square() * counts).sum() / counts.sum()


def loudest_four(x):
    order = x.norm(dim=1).argsort(descending=True).argsort()
    return torch.where((order < 4)[:, None], x, 0 * x)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "model, loss, named",
    [
        (net(), hardest, "loss"),
        (net(), lambda o, t: squares(o, t).clamp(max=8), "loss"),
        (net(), mean_of_some, "loss"),
        (net(By(loudest_four)), squares, "model"),
    ],
    ids=["the hardest rows", "a clamped sum", "a mean of what is not ignored", "the loudest four rows"],
)
def test_a_mixture_that_only_a_whole_batch_shows_is_refused_by_a_proof(model, loss, named):
    with pytest.raises(ValueError, match=f"the {named} mixes rows: on 8 rows at once its loss is .*, in 4 parts"):
        hl.check(PP2, "1f1b", model=model, loss=loss, data=data)


@pytest.mark.ranks
def test_a_mixture_that_begins_in_a_later_step_is_refused_too():
    """A weight that grows: only then a row is over the limit that all rows share."""

    def guarded(x):
        return x / x.abs().max() * 0.85 if x.abs().max() > 0.85 else x

    with pytest.raises(ValueError, match=r"mixes rows.*\(step [12]\)"):
        hl.check(PP2, "1f1b", model=net(nn.Tanh(), By(guarded), kind=Quiet), loss=squares, data=data, rate=2.0)


class Quiet(nn.Sequential):
    """Its weights begin so small that what passes is small."""

    def __init__(self, *layers):
        super().__init__(*layers)
        with torch.no_grad():
            self[2].weight.mul_(1e-3)
            self[2].bias.mul_(1e-3)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more", one_in(2, [(PP2, {}), (DP2, {"zero": 1}), (DP2, {"zero": 3}), (PP2, {"schedule": "zb_h1"})])
)
def test_a_weight_without_dims_is_trained_and_proved(mesh, more):
    report = hl.check(mesh, model=net(Loud(8, 8)), loss=squares, data=data, **more)
    assert report.ok and "weight 3.loudness" in report.gaps and not report.unproved


@pytest.mark.ranks
@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_a_check_inside_a_block_without_gradients_has_its_own(around):
    with around():
        assert hl.check(PP2, model=net(), loss=squares, data=data).ok


@pytest.mark.ranks
def test_a_norm_over_the_rows_of_a_microbatch_is_told():
    report = hl.check(DP2, model=net(BatchNorm(8)), loss=squares, data=data)
    assert report.equal and any("among the rows of one microbatch" in one for one in report.blind)


@pytest.mark.ranks
@pytest.mark.parametrize("schedule", ["1f1b", "pipedream"])
def test_weights_that_never_move_are_not_proved(schedule):
    report = hl.check(PP2, schedule, model=net(), loss=squares, data=data, rate=0.0)
    assert report.equal and not report.ok and report.proved["weight"] == (0, 6)
    assert "never moved" in str(report) and "NOT PROVED equal" in str(report)


@pytest.mark.slow
def test_fewer_rows_than_asked_for_are_refused():
    X, Y = data(0, 5)
    with pytest.raises(ValueError, match=r"gave a tensor of shape \(5, 4\): make its first dim 16 rows"):
        hl.check(DP2, model=net(), loss=squares, data=lambda step, rows: (X[:rows], Y[:rows]))


@pytest.mark.slow
def test_data_that_fail_are_told():
    def broken(step, rows):
        return {}["train"]

    with pytest.raises(ValueError, match=r"data\(0, 2\) fails: KeyError: 'train'"):
        hl.check(PP2, model=net(), loss=squares, data=broken)


def test_weights_without_dims_or_with_one_do_not_decay():
    """A norm is one whatever it is called."""

    job = job_of(mesh=hl.Mesh(), model=net(nn.LayerNorm(8), Loud(8, 8)), loss=squares, data=data, decay=0.5, steps=1)
    groups = job.optimizer_of(dict(job.model.made(0, torch.float64).named_parameters())).param_groups
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(4, 0.5), (7, 0.0)]
