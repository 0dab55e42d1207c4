"""A static examination of a module: whether its parts on ranks train in the same way as the module itself.

Relatives: `training.models.examination`, which runs it; `training.models.plain`, which compares it with itself.
"""

import weakref

import torch
from torch import nn
from torch.nn.parameter import UninitializedTensorMixin
from torch.nn.utils import parametrize


def readable(module: nn.Module, given: bool) -> nn.Module:
    """The same module, if ranks can have parts of it.

    given  whether the module itself was given, and not a function that makes one

    raises  ValueError in one sentence for scripted or computed parts, and for weights that are lazy, on torch's meta
            device, complex, overlap in memory, or have hooks
    """
    for name, layer in module.named_modules():
        name = name or "the model"
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
                    "does: use torch.nn.utils.parametrizations, or compute it in the forward"
                )
    for name, weight in module.named_parameters():
        _refuse_weight(name, weight)
    refuse_shared_memory(module)
    return module


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
    if weight._backward_hooks or weight._post_accumulate_grad_hooks:
        raise ValueError(
            f"the weight {name} has a hook on its gradient, which would be lost where weights are sharded: compute "
            "the same in the layer's forward, such as weight * mask"
        )


def refuse_shared_memory(module: nn.Module):
    """Raise an error if two weights overlap in memory without being the same weight."""
    every = [(name, weight) for name, weight in module.named_parameters() if weight.numel()]
    in_memory = sorted((*_addresses(weight), name) for name, weight in every)
    for (_, end, other), (begin, _, name) in zip(in_memory, in_memory[1:]):
        if begin < end:
            raise ValueError(
                f"{name} and {other} are two parameters in the same memory, but would be trained separately: "
                f"tie them with {name} = {other}, or copy one"
            )


def _addresses(x) -> tuple[int, int]:
    """The first and last address of a tensor in memory."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride()))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()
