"""A static examination of a module: whether its parts on ranks train in the same way as the module itself.

Relatives: `training.models.examination`, which runs the module; `training.models.plain`, which compares its layers with
it.
"""

import weakref
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.nn.utils import parametrize

from hybridlab.training.models import plain
from hybridlab.training.models.carried import carried
from hybridlab.training.models.draws import tensors_of


def readable(module: nn.Module, given: bool, loss: Callable) -> nn.Module:
    """The same module, if ranks can have parts of it.

    given  whether the module itself was given, and not a function that makes one
    loss   of the model

    raises  ValueError if it is not a module; for scripted or computed parts; for sparse tensors; for weights that
            are lazy, on torch's meta device, complex, of another class, or have hooks; for layers that leave out some
            of their weights; and if another tensor has the memory of a weight
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"the function of the seed returned a {type(module).__name__}: return the nn.Module")
    for name, layer in module.named_modules():
        name = name or "the model"
        _refuse_hidden(name, layer)
        if isinstance(layer, torch.jit.ScriptModule):
            raise ValueError(f"{name} is made by torch.jit and cannot be copied to the ranks: give the original module")
        if given and parametrize.is_parametrized(layer):
            raise ValueError(
                f"{name} has parametrizations and cannot be copied to the ranks: give a function that takes the seed "
                "and returns the model"
            )
        for attribute, x in vars(layer).items():
            if given and isinstance(x, weakref.ref):
                raise ValueError(
                    f"{name} has a weak reference ({attribute}) and cannot be copied to the ranks: give a function "
                    "that takes the seed and returns the model"
                )
            if torch.is_tensor(x) and x.grad_fn:
                raise ValueError(
                    f"{attribute} of {name} is computed from weights and kept between calls, as the old weight_norm "
                    "and prune do: use torch.nn.utils.parametrize, or compute it in the forward"
                )
    for name, x in tensors_of(module).items():
        if x.layout is not torch.strided:
            raise ValueError(
                f"{name} is sparse, but ranks copy dense tensors: register its indices() and values() as buffers, and "
                "make torch.sparse_coo_tensor(indices, values, shape) in the forward"
            )
    for name, weight in module.named_parameters():
        _refuse_weight(name, weight)
    refuse_shared_memory(module, loss)
    return module


def _refuse_hidden(name: str, layer: nn.Module):
    held = {id(weight) for one in layer.modules() for weight in one._parameters.values() if weight is not None}
    for listed in (layer.parameters(), (weight for _, weight in layer.named_parameters())):
        if {id(weight) for weight in listed} != held:
            raise ValueError(
                f"{name} ({type(layer).__name__}) leaves some of its weights out of parameters(), but ranks share out "
                "all weights: remove its parameters() or named_parameters(), and freeze a weight with "
                "requires_grad_(False)"
            )


def _refuse_weight(name: str, weight):
    if isinstance(weight, UninitializedTensorMixin):
        raise ValueError(
            f"{name} has no shape yet because its layer is lazy: call the model once, or give the layer its sizes"
        )
    if weight.is_meta:
        raise ValueError(f"{name} is on torch's meta device and has no values: create the model on the CPU")
    if weight.is_complex():
        raise ValueError(
            f"{name} is complex, but ranks all-reduce real numbers: store a real weight with an extra dimension of 2, "
            "and read it with torch.view_as_complex"
        )
    if type(weight) is not nn.Parameter:
        raise ValueError(
            f"{name} is a {type(weight).__name__}, but ranks hold its numbers as an nn.Parameter: let the forward "
            "compute what this class does, and keep notes as attributes of an nn.Parameter"
        )
    if weight._backward_hooks or weight._post_accumulate_grad_hooks:
        raise ValueError(
            f"the weight {name} has a hook on its gradient, which would be lost where weights are sharded: compute "
            "the same in the layer's forward, such as weight * mask"
        )


def refuse_shared_memory(module: nn.Module, loss: Callable):
    """Raise an error if two weights overlap in memory without being the same weight, or if a buffer, an attribute, a
    function of a layer or the loss has a tensor in the memory of a trained weight: a rank's copy would not follow it.
    """
    weights = [(name, weight) for name, weight in module.named_parameters() if weight.numel()]
    for name, other in _overlapping(weights):
        raise ValueError(
            f"{name} and {other} are two parameters in the same memory, but would be trained separately: "
            f"tie them with {name} = {other}, or copy one"
        )
    trained = {name: weight for name, weight in weights if weight.requires_grad}
    known = {id(weight) for _, weight in weights}
    others = [(name, x) for name, x in _kept(module, loss) if id(x) not in known and _has_memory(x)]
    for pair in _overlapping([*trained.items(), *others]):
        for name, weight in zip(pair, reversed(pair)):
            if weight in trained and name not in trained:
                raise ValueError(
                    f"{name} is in the memory of the weight {weight}, but the copy of a rank would keep its first "
                    f"values: read {weight} itself in the forward of its layer, or keep a clone()"
                )


def _kept(module: nn.Module, loss: Callable) -> list[tuple[str, torch.Tensor]]:
    """(name, tensor) for all tensors besides weights that layers, their functions or the loss have."""
    found, known = [], {}
    for where, layer in module.named_modules():
        kept = {name: x for name, x in vars(layer).items() if name not in ("_parameters", "_modules")}
        kept |= kept.pop("_buffers")
        if plain.strange(layer):
            kept["forward"] = layer.forward
        for attribute, value in kept.items():
            found += [(f"{where}.{attribute}".lstrip("."), x) for _, x in carried(value, known)]
    for name, one in carried(loss, known):
        of_it = tensors_of(one).values() if isinstance(one, nn.Module) else [one]
        found += [(f"a tensor of the loss ({name})", x) for x in of_it]
    return [(name, x) for name, x in found if torch.is_tensor(x)]


def _has_memory(x) -> bool:
    return x.layout is torch.strided and not x.is_meta and x.numel() > 0


def _overlapping(tensors: list[tuple[str, torch.Tensor]]) -> list[tuple[str, str]]:
    """The names of tensors that overlap in memory, in pairs: each with an earlier one."""
    before, pairs = [], []
    for begin, end, name, x in sorted(((*_addresses(x), name, x) for name, x in tensors), key=lambda one: one[:3]):
        before = [one for one in before if one[0] > begin]
        pairs += [(name, other) for _, other, y in before if _meet(x, y)][-1:]
        before.append((end, name, x))
    return pairs


def _addresses(x) -> tuple[int, int]:
    """The first and last address of a tensor in memory."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride()))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()


def _meet(x, y) -> bool:
    """Whether two tensors have an element in common; columns of one matrix alternate in memory but share no element."""
    if x.is_contiguous() and y.is_contiguous() or x.element_size() != y.element_size():
        return True
    mine, its = (_elements(one) for one in (x, y))
    return bool(torch.isin(mine, its).any())


def _elements(x) -> torch.Tensor:
    """The address of every element."""
    found = torch.tensor([x.data_ptr()], device="cpu")
    for size, stride in zip(x.shape, x.stride()):
        found = (found[:, None] + torch.arange(size, device="cpu") * stride * x.element_size()).reshape(-1)
    return found
