"""Plain layers: the layers that a mode may shard, and hooks that change their input.

A mode that cuts a Linear, an Embedding or a norm does the layer's work itself, from its weights. It would skip a custom
forward or a hook, and so train another function: such a layer is refused.

Relatives: `tensor_parallel` and `grid_parallel`, which cut them; `cut_layers`, the same for pictures.
"""

from collections.abc import Callable

import torch
from torch import nn

PLAIN = (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)
HOOKS = {  # attributes in which torch keeps them
    "forward hook": "_forward_hooks",
    "forward pre-hook": "_forward_pre_hooks",
    "backward hook": "_backward_hooks",
    "backward pre-hook": "_backward_pre_hooks",
}


def refuse_more(module: nn.Module, layout, axis: str):
    """Raise an error unless each layer with a weight that is cut along this axis does only what torch's layer does.

    raises  ValueError with the layer's name and the part to remove
    """
    for name in dict.fromkeys(name.rpartition(".")[0] for name, param in layout.named.items() if axis in param.shard):
        if why := _more(module.get_submodule(name)):
            raise ValueError(
                f"{name} is sharded along {axis}, but {why}, which cannot be sharded: move its work into a separate "
                "layer, or leave the dimensions of its weights without names"
            )


def _more(layer: nn.Module) -> str:
    """The differences of a layer from torch's own, in words; "" if there are none."""
    if isinstance(layer, PLAIN) and has_own_forward(layer, PLAIN):
        return f"{type(layer).__name__} has its own forward"
    hooked = next((kind for kind, place in HOOKS.items() if vars(layer)[place]), "")
    return hooked and f"has a {hooked}"


def has_own_forward(layer: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Whether a layer of one of these kinds computes something other than torch's layer of this kind.

    >>> has_own_forward(nn.Conv2d(1, 1, 1), (nn.Conv2d,)), has_own_forward(nn.Linear(1, 1), (nn.Conv2d,))
    (False, True)
    """
    steps = ("forward", "_conv_forward")  # a convolution has two
    of_torch = [[getattr(kind, step, None) for step in steps] for kind in kinds]
    own = any(step in vars(layer) for step in steps)
    return own or [getattr(type(layer), step, None) for step in steps] not in of_torch


def before(module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]):
    """Change the first argument of a module, given by position or by name; the others stay as they are."""
    hook = lambda _, args, named: first_is(change(first(args, named)), args, named)
    module.register_forward_pre_hook(hook, with_kwargs=True)


def first(args: tuple, named: dict):
    """The first argument of a call.

    >>> first((), {"hidden_states": 3, "mask": 5})
    3
    """
    return args[0] if args else next(iter(named.values()))


def first_is(x, args: tuple, named: dict) -> tuple[tuple, dict]:
    """The arguments of a call, with the first one replaced.

    >>> first_is(4, (), {"hidden_states": 3, "mask": 5})
    ((), {'hidden_states': 4, 'mask': 5})
    """
    return ((x, *args[1:]), named) if args else (args, named | {next(iter(named)): x})
