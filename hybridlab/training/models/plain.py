"""The third reference: a user's module called directly, on the full batch, with plain autograd.

Both sides of a proof use a model in the same way: as a list of layers, copies of its weights, and microbatches.
If the owner's module does anything else, this would be missing on both sides, and they would still be equal. So its
loss and its gradients are compared, once, with those of its layers, on groups of rows. This finds a `forward` or a hook
of the full module, and a gradient or a loss that depends on the other rows of a batch.

Read next: `training.models.examination`, which uses it.
"""

import inspect
import math
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hybridlab.core.what.seams import Routes, Tallies, draws_of
from hybridlab.training.models.calls import Shapes
from hybridlab.training.models.copies import copied, in_dtype
from hybridlab.training.models.draws import shared_draws, tensors_of
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.left_behind import changed, kept_by, refuse_first_input
from hybridlab.training.models.losses import A_SUM
from hybridlab.training.models.trees import as_computed, flat, mapped, rows_of

SMALL = 1e-3  # a fraction of the largest of all gradients: a tensor that should be 0 is compared relative to this


def refuse_another(model, module: nn.Module, inputs, targets, rows: list[slice], one_shape: Shapes):
    """Raise an error unless a model's layers, applied to groups of rows, give the results of the owner's module; of its
    layers on all rows, if it cannot be called as a whole.

    module  the copy used in training, with the initial numbers, see `widest`
    rows    the groups with which layers are called: microbatches, or single rows
    one_shape  compares the outputs for these groups

    raises  ValueError with both losses, and the difference
    """
    if not strange(module):
        return
    owner = owners(model, module)
    has_forward = called_as_a_whole(model, owner, inputs)
    its = partial(_called, model, owner) if has_forward else by_layers(model, owner, one_shape)
    at_once, layers, arrivals = [slice(None)], by_layers(model, module, one_shape), []
    in_stages = by_layers(model, module, one_shape, arrivals)
    with Narrowest() as seen, torch.random.fork_rng(devices=[]), _without_autocast(model, owner):
        own = gradients_of(owner, its, model.loss, inputs, targets, at_once)
        pieces = at_once if mixes_by_design(module) else rows
        parts = gradients_of(module, in_stages, model.loss, inputs, targets, pieces, arrivals)
        near = math.sqrt(torch.finfo(seen.dtype).eps)
        if not _difference(own, parts, near):
            return
        whole = gradients_of(module, layers, model.loss, inputs, targets, at_once)
        staged = gradients_of(module, in_stages, model.loss, inputs, targets, at_once, arrivals)
        if _difference(own, whole, near):
            new = owners(model, module)
            first = gradients_of(new, by_layers(model, new, one_shape), model.loss, inputs, targets, at_once)
            if not _difference(own, first, near):
                refuse_first_input(f"{type(owner).__name__}", changed(kept_by(new), kept_by(module)))
    if (what := _difference(own, whole, near)) and model.call is not None:
        raise ValueError(
            f"torch's trace of {type(owner).__name__} gives the loss {whole[0]:.6g}, and its own run {own[0]:.6g} "
            f"({what}); a trace has no backward of a torch.autograd.Function, and no hook on a gradient: give the "
            "model a method layers() that lists its layers"
        )
    if what:
        raise ValueError(
            f"{type(owner).__name__}.forward gives the loss {own[0]:.6g}, but calling its layers in order gives "
            f"{whole[0]:.6g} ({what}): move all work of its forward and its hooks into layers"
        )
    if what := _difference(whole, staged, near):
        raise ValueError(
            f"the backward of the model differs where an output of a layer has no gradient ({what}): a stage then "
            "receives zeros for it, which must give the same as none; return only tensors that the loss depends on, or "
            "choose a cut=[…] that keeps such a layer in one stage with those that take its output"
        )
    what = _difference(whole, parts, near)
    which, remedy = "model", "compute each row independently in forward, backward and loss"
    with torch.no_grad():
        if _mixes(model.loss, layers(inputs), targets, pieces, near):
            which, remedy = "loss", A_SUM
    raise ValueError(
        f"the {which} mixes rows: on {len(flat(targets)[0])} rows at once its loss is {whole[0]:.6g}, in {len(rows)} "
        f"parts {parts[0]:.6g} ({what}), but microbatches and replicas group rows differently; {remedy}"
    )


def _mixes(loss: Callable, output, targets, groups: list[slice], near: float) -> bool:
    """Whether a loss of all rows of an output is other than the sum of its losses of groups of them."""
    if {len(x) for x in flat(output)} != {len(flat(targets)[0])}:  # rows are in another dim
        return False
    parts = sum(loss(rows_of(output, some), rows_of(targets, some)) for some in groups)
    return not torch.allclose(loss(output, targets), parts, rtol=near, equal_nan=True)


@contextmanager
def _without_autocast(model, owner):
    """A context that refuses an owner's forward if it calls its layers with autocast, which does not change float64."""

    on = []
    look = lambda layer, _: on.append(torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))
    hooks = [layer.register_forward_pre_hook(look) for layer in model.layers(owner)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if any(on):
        raise ValueError(
            f"{type(owner).__name__}.forward calls its layers with torch.autocast, but ranks call the layers without "
            'it: use torch.autocast inside the layers, or give dtype="bfloat16" instead'
        )


def widest(make: Callable, model, inputs, targets, dtype: torch.dtype) -> nn.Module:
    """A model's module in float64, which hides least by rounding; in `dtype` if a constant, such as x.float(), makes it
    fail in any other dtype.

    make  make(dtype) -> the module
    """
    if dtype != torch.float64:
        with suppress(Exception), torch.no_grad(), torch.random.fork_rng(devices=[]):
            module = make(torch.float64)
            x, y = as_computed((inputs, targets), torch.float64)
            model.loss(model.through(module, x), y)
            return module
    return make(dtype)


def width_of(module: nn.Module) -> torch.dtype:
    """The dtype in which a module computes."""
    return next((x.dtype for x in module.parameters() if x.is_floating_point()), torch.float64)


def owners(model, like: nn.Module) -> nn.Module:
    """A model's module in its owner's form, with the numbers of the copy used in training."""
    dtype = width_of(like)
    original = model.original(0, dtype)
    owner = in_dtype(copied(original) if original is model.whole else original, dtype)
    numbers = tensors_of(like)
    with torch.no_grad():
        for name, x in tensors_of(owner).items():
            x.copy_(numbers[name])
    where = draws_of(like)
    shared_draws(owner, where.seed).step = where.step
    return owner


def strange(module: nn.Module) -> bool:
    """Whether a module comes from outside this package (the package's own modules are covered by its tests)."""
    return not type(module).__module__.startswith("hybridlab.")


def called_as_a_whole(model, owner: nn.Module, inputs) -> bool:
    """Whether the owner can call the module on such inputs. A module that only lists its layers has no forward, and the
    forward of a list does not include skips that are given separately.
    """
    if model.call is not None:
        return True
    forward = type(owner).forward
    if forward is nn.Module.forward or (model.told and forward is nn.Sequential.forward):
        return False
    return bool(_arguments(owner, inputs))


def mixes_by_design(module: nn.Module) -> bool:
    """Whether layers declare that they count over rows, or give places to rows, so that groups of rows give different
    results.
    """
    return any(isinstance(one, Tallies | Routes) for one in module.modules())


class Narrowest(TorchDispatchMode):
    """A context that records the narrowest dtype of all computations in it: `dtype`."""

    def __init__(self):
        super().__init__()
        self.dtype = torch.float64

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else (made,):
            if torch.is_tensor(x) and x.is_floating_point() and torch.finfo(x.dtype).eps > torch.finfo(self.dtype).eps:
                self.dtype = x.dtype
        return made


def by_layers(model, module, one_shape: Shapes, arrivals: list | None = None) -> Callable:
    """The forward of a model as its layers in order.

    arrivals  takes what `sent` returns for every output that stages exchange; None: as on one device
    """
    layers, takes = dict(enumerate(model.layers(module))), model.takes(module)
    leaving = lambda layer: lambda *x: sent(layer(*x), arrivals)
    cut = {} if arrivals is None else {number: leaving(layers[number]) for number in one_shape.sent}

    def forward(x):
        made = in_sequence(layers | cut, takes, {-1: x})
        one_shape.compare(made)
        return made[len(layers) - 1]

    return forward


class Sent(torch.autograd.Function):
    """Tensors that a stage sends, after a number 0. If this number gets a gradient, the backward of the stage runs in
    any case, and torch fills in zeros for tensors without a gradient, as a stage does.
    """

    @staticmethod
    def forward(_, *tensors):
        return tensors[0].new_zeros(()), *(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(_, __, *gradients):
        return gradients


def sent(output, arrivals: list):
    """An output of a layer as another stage receives it; the number 0 of `Sent` is added to `arrivals`."""
    floats = [x for x in flat(output) if x.is_floating_point()]
    if not floats:
        return output
    zero, *floats = Sent.apply(*floats)
    arrivals.append(zero)
    there = iter(floats)
    return mapped(lambda x: next(there) if x.is_floating_point() else x, output)


def _arguments(owner, x) -> list[tuple]:
    """The inputs as arguments of a module's forward: as one argument, each separately, or either if it takes both;
    none if it requires others, such as the targets."""
    found = []
    for given in ((x,), x if isinstance(x, tuple) else ()):
        with suppress(TypeError):
            inspect.signature(owner.forward).bind(*given)
            found.append(given)
    return found


def _called(model, owner, x):
    """The output of a module that is called in the way its owner calls it. A forward(x, mask=None) is called with two
    inputs, if it fails with a tuple of both as x."""
    ways = [(owner, *given) for given in _arguments(owner, x)] if model.call is None else [(model.call, owner, x)]
    for way, (call, *given) in enumerate(ways, start=1):
        try:
            return call(*given)
        except Exception as error:
            if way == len(ways):
                told = f"{type(error).__name__}: {error}".splitlines()[0]
                raise ValueError(f"{type(owner).__name__}.forward fails, but its layers do not: {told}") from error


def gradients_of(
    module, forward, loss_of, inputs, targets, rows, arrivals: list | None = None
) -> tuple[float, dict[str, torch.Tensor]]:
    """(the loss, {weight: its gradient}) of a batch, computed in groups of rows.

    arrivals  the list to which the forward adds, see `sent`
    """
    losses, draws, arrivals = [], draws_of(module), [] if arrivals is None else arrivals
    module.zero_grad()
    with torch.enable_grad():
        for some in rows:
            draws.row = some.start or 0
            loss = loss_of(forward(rows_of(inputs, some)), rows_of(targets, some))
            losses.append(loss.item())
            starts = [x for x in (loss, *arrivals) if x.requires_grad]
            if starts:
                torch.autograd.backward(starts)
            del arrivals[:]
    draws.row = 0
    trained = {name: x for name, x in module.named_parameters() if x.requires_grad}
    found = {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in trained.items()}
    module.zero_grad()
    return math.fsum(losses), found


def _largest(x) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def _difference(one, other, near: float) -> str:
    """The difference in words; empty if both are nan, or equal except for rounding."""
    size, its = (max(map(_largest, each[1].values()), default=0.0) for each in (one, other))
    finite = [math.isfinite(each) for each in (one[0] + size, other[0] + its)]
    if not all(finite):
        return "one of them has a loss or a gradient that is not a number" if any(finite) else ""
    if abs(one[0] - other[0]) > near * (abs(one[0]) + SMALL * size):
        return f"they differ by {abs(one[0] - other[0]):.1e}"
    for name, x in one[1].items():
        off = _largest(x - other[1][name])
        if off > near * (_largest(x) + SMALL * size):
            return f"the gradient of {name} differs by {off:.1e}"
    return ""
