"""The third reference: a user's module called directly, on the full batch, with plain autograd.

Both sides of a proof use a model in the same way: as a list of layers, copies of its weights, and microbatches.
Anything else that the owner's module does would be missing on both sides, and they would be equal. So its loss and its
gradients are compared, once, with those of its layers, on groups of rows. This finds a `forward` or a hook of the full
module, and a gradient or a loss that depends on the other rows of a batch.

Read next: `training.models.examination`, which uses it.
"""

import dis
import functools
import inspect
import math
import types
from collections.abc import Callable
from contextlib import contextmanager, suppress

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hybridlab.core.what.seams import Routes, Tallies, draws_of
from hybridlab.training.models.copies import copied, in_dtype
from hybridlab.training.models.draws import shared_draws, tensors_of
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.trees import flat, rows_of

SMALL = 1e-3  # of the largest of all gradients: a tensor that should be 0 is compared relative to this


def refuse_another(model, module: nn.Module, inputs, targets, rows: list[slice]):
    """Raise an error unless a model's layers, applied to groups of rows, give the results of the owner's module.

    module  the copy used in training, with the initial numbers, in float64
    rows    the groups with which layers are called: microbatches, or single rows

    raises  ValueError with both losses, and the difference
    """
    if not strange(module):
        return
    owner = owners(model, module)
    if not called_as_a_whole(model, owner, inputs):
        return
    at_once, by_layers = [slice(None)], _by_layers(model, module)
    with Narrowest() as seen, torch.random.fork_rng(devices=[]), _without_autocast(model, owner):
        own = _gradients(owner, lambda x: _called(model, owner, x), model.loss, inputs, targets, at_once)
        pieces = at_once if mixes_by_design(module) else rows
        parts = _gradients(module, by_layers, model.loss, inputs, targets, pieces)
        near = math.sqrt(torch.finfo(seen.dtype).eps)
        if not _difference(own, parts, near):
            return
        whole = _gradients(module, by_layers, model.loss, inputs, targets, at_once)
    if what := _difference(own, whole, near):
        raise ValueError(
            f"{type(owner).__name__}.forward has the loss {own[0]:.6g}, but its layers called in order have "
            f"{whole[0]:.6g} ({what}): move all work of its forward and its hooks into layers"
        )
    what = _difference(whole, parts, near)
    raise ValueError(
        f"the model mixes rows: on {len(flat(targets)[0])} rows at once its loss is {whole[0]:.6g}, in {len(rows)} "
        f"parts {parts[0]:.6g} ({what}), but microbatches and replicas group rows differently; compute each row "
        "independently in forward, backward and loss"
    )


@contextmanager
def _without_autocast(model, owner):
    """A context in which an owner's forward is refused if it calls its layers with autocast, in which float64 stays."""

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


def owners(model, like: nn.Module) -> nn.Module:
    """A model's module in its owner's form, with the numbers of the copy used in training."""
    original = model.original(0, torch.float64)
    owner = in_dtype(copied(original) if original is model.whole else original, torch.float64)
    numbers = tensors_of(like)
    with torch.no_grad():
        for name, x in tensors_of(owner).items():
            x.copy_(numbers[name])
    where = draws_of(like)
    shared_draws(owner, where.seed).step = where.step
    return owner


def strange(module: nn.Module) -> bool:
    """Whether a module comes from outside this package (the package's own modules are proved by its tests)."""
    return not type(module).__module__.startswith("hybridlab.")


def called_as_a_whole(model, owner: nn.Module, inputs) -> bool:
    """Whether the owner can call the module on such inputs. A module that only lists its layers has no forward, and
    that of a list does not include skips given separately."""
    if model.call is not None:
        return True
    forward = type(owner).forward
    if forward is nn.Module.forward or (model.told and forward is nn.Sequential.forward):
        return False
    return bool(_arguments(owner, inputs))


def mixes_by_design(module: nn.Module) -> bool:
    """Whether layers declare that they count over rows, or give places to rows, so that groups give other results."""
    return any(isinstance(one, Tallies | Routes) for one in module.modules())


def refuse_weights_of(loss: Callable):
    """Raise an error if a loss has weights: each rank has a copy of the loss, so their gradients would be lost."""
    for name, one in carried(loss):
        if any(x.requires_grad for x in (one.parameters() if isinstance(one, nn.Module) else flat(one))):
            raise ValueError(
                f"the loss has weights ({name}), which would get no gradient: move them into the last layer"
            )


def carried(function: object, known: dict | None = None) -> list[tuple[str, object]]:
    """(name, a module or a tensor) for all that a function refers to: its attributes, its closure, the globals and
    defaults that it names, and the object that it is bound to.

    known  all that was met before, by id, and is left out now
    """
    found, waiting, known = [], [("itself", function)], {} if known is None else known
    while waiting:
        name, one = waiting.pop()
        if id(one) in known:
            continue
        known[id(one)] = one  # so that nothing else gets its id
        if isinstance(one, nn.Module) or torch.is_tensor(one):
            found.append((name, one))
        elif isinstance(one, functools.partial):
            waiting += [(name, one.func), *((name, each) for each in (*one.args, *one.keywords.values()))]
        elif isinstance(one, types.MethodType):
            waiting += [(name, one.__self__), (name, one.__func__), *_attributes(one.__self__)]
        elif isinstance(one, types.FunctionType) and not str(one.__module__).startswith("torch."):
            waiting += named_in(one)
        elif isinstance(one, list | tuple):
            waiting += [(name, each) for each in one]
        elif isinstance(one, dict):
            waiting += [(name, each) for each in one.values()]
        elif callable(one):
            waiting += _attributes(one)
    return found


def _attributes(one) -> list[tuple[str, object]]:
    """(name, value) of the attributes of an object that is called; those of a module are found with it."""
    return [] if isinstance(one, nn.Module | type | types.FunctionType) else [*getattr(one, "__dict__", {}).items()]


def named_in(function: types.FunctionType) -> list[tuple[str, object]]:
    """(name, value) of the closure, the defaults and the globals of a function."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    closed = [(name, cell.cell_contents) for name, cell in cells if cell != types.CellType()]
    names = (one.argval for one in dis.get_instructions(function) if one.opname == "LOAD_GLOBAL")
    reads = [(name, function.__globals__[name]) for name in names if name in function.__globals__]
    return [*closed, *reads, *(("a default", one) for one in function.__defaults__ or ())]


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


def _by_layers(model, module):
    layers, takes = dict(enumerate(model.layers(module))), model.takes(module)
    return lambda x: in_sequence(dict(layers), takes, {-1: x})[len(layers) - 1]


def _arguments(owner, x) -> tuple:
    """The inputs as arguments of a module's forward: as one argument, or each separately; none if it requires others,
    such as the targets."""
    for given in ((x,), x if isinstance(x, tuple) else ()):
        with suppress(TypeError):
            inspect.signature(owner.forward).bind(*given)
            return given
    return ()


def _called(model, owner, x):
    """The output of a module that is called as by its owner."""
    try:
        return owner(*_arguments(owner, x)) if model.call is None else model.call(owner, x)
    except Exception as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"{type(owner).__name__}.forward fails, but its layers do not: {told}") from error


def _gradients(module, forward, loss_of, inputs, targets, rows) -> tuple[float, dict[str, torch.Tensor]]:
    """(the loss, {weight: its gradient}) of a batch, computed in groups of rows."""
    losses, draws = [], draws_of(module)
    module.zero_grad()
    with torch.enable_grad():
        for some in rows:
            draws.row = some.start or 0
            loss = loss_of(forward(rows_of(inputs, some)), rows_of(targets, some))
            losses.append(loss.item())
            if loss.requires_grad:
                loss.backward()
    draws.row = 0
    found = {name: torch.zeros_like(x) if x.grad is None else x.grad for name, x in module.named_parameters()}
    module.zero_grad()
    return math.fsum(losses), found


def _largest(x) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def _difference(one, other, near: float) -> str:
    """The difference in words; empty if both are equal except for rounding, or both are nan."""
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
