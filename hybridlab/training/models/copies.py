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
from itertools import chain

import torch
from torch import nn

from hybridlab.training.models.carried import carried
from hybridlab.training.models.draws import buffers_of, tensors_of
from hybridlab.training.models.trees import flat


def in_dtype(module: nn.Module, dtype: torch.dtype, wide: bool = False) -> nn.Module:
    """The same module in a dtype. Complex buffers keep both parts, although torch's `to` would drop one; a buffer of
    several layers stays one, although `to` would make several.

    wide  whether buffers that are in no checkpoint keep their dtype if the new one is narrower

    raises  ValueError for a weight that keeps its dtype

    >>> layer = nn.Module()
    >>> layer.register_buffer("turns", torch.ones(1, dtype=torch.complex64))
    >>> in_dtype(layer, torch.float64).turns.dtype
    torch.complex128
    """
    kept = {id(x): x.to(dtype.to_complex()) for x in module.buffers() if x.is_complex()}
    if wide and dtype.itemsize < torch.float32.itemsize:
        held = buffers_of(module)
        kept |= {id(x): x for name, x in module.named_buffers() if name not in held and id(x) not in kept}
    places = [(layer, name, id(x)) for layer in module.modules() for name, x in layer._buffers.items()]
    aside = [(layer, name, x) for layer in module.modules() for name, x in layer._buffers.items() if id(x) in kept]
    for layer, name, _ in aside:
        layer._buffers[name] = None
    module.to(dtype)
    first = {}
    for layer, name, one in places:
        layer._buffers[name] = first.setdefault(one, layer._buffers[name])
    for layer, name, x in aside:
        layer._buffers[name] = kept[id(x)]
    for name, weight in module.named_parameters():
        if weight.is_floating_point() and weight.dtype != dtype:
            own, asked = (str(one).removeprefix("torch.") for one in (weight.dtype, dtype))
            raise ValueError(
                f"{name} stays in {own} when the model is computed in {asked}: remove the _apply() or to() that "
                "keeps it, and convert it in the forward, weight.float()"
            )
    return module


def fitted(loss):
    """A loss in the form that training uses: one with buffers or weights computes in the dtype of the output."""
    return Fitted(loss) if isinstance(loss, nn.Module) and next(_tensors(loss), None) is not None else loss


def _tensors(module: nn.Module):
    return chain(module.buffers(), module.parameters())


class Fitted(nn.Module):
    """A loss whose tensors, such as the weights of classes or of a frozen network, take the dtype and the device of the
    output."""

    def __init__(self, loss: nn.Module):
        super().__init__()
        self.loss, self._made = loss, {}

    def forward(self, output, target):
        return self.fitted_to(output)(output, target)

    def fitted_to(self, output) -> nn.Module:
        """The loss for an output of this dtype and device; the same object in every call."""
        like = next(x for x in flat(output) if x.is_floating_point())
        kind = like.device, like.dtype
        if kind not in self._made:
            self._made[kind] = in_dtype(copied(self.loss).to(like.device), like.dtype)
        return self._made[kind]

    def __getstate__(self):
        return vars(self) | {"_made": {}}


def apart(call):
    """The same function or object, whose further calls change nothing of it; modules and tensors of a function are
    shared. If it cannot be copied, itself.

    >>> counting = lambda calls: lambda: calls.append(0) or len(calls)
    >>> loss = counting([])
    >>> new = apart(loss)
    >>> new(), new(), loss()
    (1, 2, 1)
    """
    with suppress(Exception):
        if isinstance(call, nn.Module):
            return copied(call)
        shared = {id(one): one for _, one in carried(call)}
        if isinstance(call, types.MethodType):
            return types.MethodType(call.__func__, copy.deepcopy(call.__self__, shared))
        if not isinstance(call, types.FunctionType):
            return copy.deepcopy(call, shared)
        cells = (cell for cell in call.__closure__ or () if cell != types.CellType())
        return _function(call, {id(x): copy.deepcopy(x, shared) for x in (cell.cell_contents for cell in cells)})
    return call


def copied(module: nn.Module, heirs: dict | None = None) -> nn.Module:
    """A deep copy of a module whose functions use the copy.

    heirs  {id of a tensor: the tensor that takes its place}

    raises  ValueError for an attribute that cannot be copied, such as a lock or an open file; for a layer that
            defines how it is copied, and whose copy lacks an attribute

    >>> kept = nn.Linear(1, 1)
    >>> kept.read = lambda module=kept: module.weight
    >>> new = copied(kept)
    >>> new.read() is new.weight, copy.deepcopy(kept).read() is kept.weight
    (True, True)
    """
    heirs = {} if heirs is None else heirs
    try:
        made = copy.deepcopy(module, heirs)
        of_tensors = _attributes_of_tensors(module, made, heirs)
    except Exception as error:
        raise ValueError(
            f"{_uncopied(module)} cannot be copied to the ranks ({type(error).__name__}: {error}): create it where the "
            "forward needs it, and do not keep it in the model"
        ) from error
    _refuse_other_layers(module, made)
    for kept in (*of_tensors, *map(vars, made.modules())):
        _renew(kept, heirs)
    return made


def _refuse_other_layers(module: nn.Module, made: nn.Module):
    """Raise an error if a layer's own way of copying leaves out an attribute, or makes none."""
    given, known = dict(module.named_modules()), {id(layer) for layer in module.modules()}
    for name, layer in made.named_modules():
        its = {} if type(layer).__module__.startswith("torch.") else vars(given.get(name, layer))
        lost = next((attribute for attribute in its if attribute not in vars(layer)), "")
        what = "it returns the layer itself" if id(layer) in known else f"the copy has no {lost}" if lost else ""
        if what:
            raise ValueError(
                f"{name or 'the model'} ({type(layer).__name__}) defines how it is copied, and {what}, but every rank "
                "trains a copy: let its __deepcopy__, or __getstate__ and __setstate__, make a full one"
            )


def _attributes_of_tensors(module: nn.Module, made: nn.Module, heirs: dict) -> list[dict]:
    """The attributes of the tensors of a copy. A deep copy of a weight would have none, so they are copied here."""
    old, new = tensors_of(module), tensors_of(made)
    for name in old.keys() & new.keys():
        vars(new[name]).update(copy.deepcopy(vars(old[name]), heirs))
    return [vars(x) for x in new.values()]


def with_boxes(original: nn.Module, boxes: dict, device) -> nn.Module:
    """A copy with boxes instead of tensors. Each tensor is copied once for all its users: tied tensors stay tied."""
    heirs = {}
    for name, x in tensors_of(original).items():
        if name not in boxes:
            here = torch.empty_like(x, device="meta")
        elif x.is_meta:
            here = original.first(name, x, boxes[name], device)
        else:
            here = x.detach()[boxes[name]].to(device, copy=True)
        heirs[id(x)] = nn.Parameter(here, x.requires_grad) if isinstance(x, nn.Parameter) else here
    return copied(original, heirs)


def _renew(kept: dict | list, heirs: dict):
    for key, value in [*(kept.items() if isinstance(kept, dict) else enumerate(kept))]:
        if isinstance(value, dict | list):  # of hooks or functions
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
