"""Copies of a user's module that compute with themselves.

A deep copy keeps every function as it is. A lambda that reads `self`, or a `forward` that someone has wrapped, would
compute with the weights of the original, which no rank trains. So a copy gets new functions, with the copies in
their closures.

Relatives: `training.models.model` makes the copy of a rank, `training.models.plain` that of the owner.
"""

import copy
import types
import weakref
from contextlib import suppress
from functools import partial

import torch
from torch import nn

from hybridlab.training.models.trees import flat


def in_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The same module in a dtype; complex buffers keep both parts, although torch's `to` would drop one.

    >>> layer = nn.Module()
    >>> layer.register_buffer("turns", torch.ones(1, dtype=torch.complex64))
    >>> in_dtype(layer, torch.float64).turns.dtype
    torch.complex128
    """
    wide = {id(x): x.to(dtype.to_complex()) for x in module.buffers() if x.is_complex()}
    turned = [(layer, name, x) for layer in module.modules() for name, x in layer._buffers.items() if id(x) in wide]
    for layer, name, _ in turned:
        layer._buffers[name] = None
    module.to(dtype)
    for layer, name, x in turned:
        layer._buffers[name] = wide[id(x)]
    return module


def fitted(loss):
    """A loss in the form that training uses: one with buffers computes in the dtype of the output."""
    return Fitted(loss) if isinstance(loss, nn.Module) and next(loss.buffers(), None) is not None else loss


class Fitted(nn.Module):
    """A loss whose buffers, such as the weights of classes, take the dtype and the device of the output."""

    def __init__(self, loss: nn.Module):
        super().__init__()
        self.loss = loss

    def forward(self, output, target):
        like = next(x for x in flat(output) if x.is_floating_point())
        return in_dtype(copied(self.loss).to(like.device), like.dtype)(output, target)


def copied(module: nn.Module, heirs: dict | None = None) -> nn.Module:
    """A deep copy of a module whose functions use the copy.

    heirs  {id of a tensor: the tensor that takes its place}

    raises  ValueError for an attribute that cannot be copied, such as a lock or an open file

    >>> kept = nn.Linear(1, 1)
    >>> kept.read = lambda module=kept: module.weight
    >>> new = copied(kept)
    >>> new.read() is new.weight, copy.deepcopy(kept).read() is kept.weight
    (True, True)
    """
    heirs = {} if heirs is None else heirs
    try:
        made = copy.deepcopy(module, heirs)
    except Exception as error:
        raise ValueError(
            f"{_uncopied(module)} cannot be copied to the ranks ({type(error).__name__}: {error}): create it where the "
            "forward needs it, and do not keep it in the model"
        ) from error
    for layer in made.modules():
        _renew(vars(layer), heirs)
    return made


def _renew(kept: dict | list, heirs: dict):
    for key, value in [*(kept.items() if isinstance(kept, dict) else enumerate(kept))]:
        if isinstance(value, dict | list):  # of hooks, or of functions
            _renew(value, heirs)
        elif (new := _anew(value, heirs)) is not value:
            kept[key] = new


def _anew(x, heirs: dict):
    """The counterpart of `x` in the copy; `x` itself, if it refers to nothing that was copied."""
    if id(x) in heirs:
        return heirs[id(x)]
    if isinstance(x, types.MethodType):
        return types.MethodType(x.__func__, _anew(x.__self__, heirs))
    if isinstance(x, weakref.ref):
        return weakref.ref(heirs[id(x())]) if id(x()) in heirs else x
    if isinstance(x, partial):
        some = {name: _anew(one, heirs) for name, one in x.keywords.items()}
        new = partial(_anew(x.func, heirs), *(_anew(one, heirs) for one in x.args), **some)
        vars(new).update(vars(x))
        return new
    if isinstance(x, types.FunctionType) and (x.__closure__ or x.__defaults__):
        return _function(x, heirs)
    return x


def _function(x: types.FunctionType, heirs: dict) -> types.FunctionType:
    """The same function with another closure and other defaults."""
    cells = tuple(types.CellType() for _ in x.__closure__ or ())
    new = types.FunctionType(x.__code__, x.__globals__, x.__name__, None, cells or None)
    heirs[id(x)] = new  # before its closure, which may hold the function itself
    for cell, old in zip(cells, x.__closure__ or ()):
        with suppress(ValueError):  # an empty cell
            cell.cell_contents = _anew(old.cell_contents, heirs)
    new.__defaults__ = tuple(_anew(one, heirs) for one in x.__defaults__) if x.__defaults__ else None
    new.__kwdefaults__ = {name: _anew(one, heirs) for name, one in (x.__kwdefaults__ or {}).items()} or None
    new.__qualname__, new.__module__ = x.__qualname__, x.__module__
    vars(new).update(vars(x))
    return new


def _uncopied(module) -> str:
    """The first attribute of a module that cannot be copied."""
    for name, layer in module.named_modules():
        for attribute, value in vars(layer).items():
            if attribute not in ("_parameters", "_buffers", "_modules"):
                try:
                    copy.deepcopy(value, {id(one): one for one in module.modules()})
                except Exception:
                    return f"{name}.{attribute}".lstrip(".")
    return "the model"
