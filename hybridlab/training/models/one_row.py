"""One row goes through a model, to find the inputs of each module, or to see whether a changed module still works.

Relatives: `examination`, which runs a user's model with numbers; `training.job`, which calls this.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from hybridlab.training.models.trees import as_computed, flat, mapped


class Passed(NamedTuple):
    """The inputs and outputs of a module when one row goes through the model.

    layers  the layers that contain the module: one, or several that share it
    wanted  whether its input gets a gradient
    entered, left  the shapes of its first input tensor, and of its first output tensor
    """

    layers: tuple[int, ...]
    wanted: bool
    entered: torch.Size
    left: torch.Size


def one_row(model, seed: int, dtype: torch.dtype, prepare: Callable):
    """Pass one row through a model, after `prepare` has changed it in place.

    It runs on torch's meta device, without computing, unless a layer reads numbers, as a user's layer may.
    """
    module = model.made(seed, dtype, {} if model.by_place else None)
    device = "meta" if model.by_place else "cpu"
    prepare(module)
    inputs, _ = model.batch(0, 1)
    model.through(module, mapped(lambda x: x.to(device), as_computed(inputs, dtype)))


def passed(model, seed: int, dtype: torch.dtype) -> dict[str, Passed]:
    """The inputs and outputs of every module of a model, by module name, for one row."""
    found, layers_of = {}, {}

    def note(name):
        def hook(one, arrived, named, leaving):
            x = arrived[0] if arrived else next(iter(named.values()))
            found[name] = Passed(layers_of[id(one)], x.requires_grad, x.shape, flat(leaving)[0].shape)

        return hook

    def listen(module):
        for number, layer in enumerate(model.layers(module)):
            for one in layer.modules():
                layers_of[id(one)] = (*layers_of.get(id(one), ()), number)
        for name, one in module.named_modules():
            if id(one) in layers_of:
                one.register_forward_hook(note(name), with_kwargs=True)

    one_row(model, seed, dtype, listen)
    return found
