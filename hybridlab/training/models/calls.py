"""The calls of layers in an examination: each is watched, and a problem is reported in one sentence.

Read next: `training.models.examination`, which calls the layers; `training.models.carried`, the things that they keep.
"""

from collections.abc import Collection

import torch
from torch import nn

from hybridlab.training.models.asking import alone
from hybridlab.training.models.carried import carried
from hybridlab.training.models.left_behind import OF_TORCH
from hybridlab.training.models.trees import flat, mapped, same
from hybridlab.training.models.words import said, shapes


def watched(layers: dict[int, nn.Module], takes: dict) -> dict:
    """The same layers, wrapped to report one that has changed its input, or whose output cannot be sent."""

    def watching(number, layer):
        def call(*arrived):
            kept = [mapped(torch.clone, x) for x in arrived]
            with alone(f"layer {number} ({type(layer).__name__})"):
                leaving = called(number, layer, arrived, takes[number])
            if not all(same(x, y) for x, y in zip(arrived, kept)):
                raise ValueError(
                    f"layer {number} ({type(layer).__name__}) changes its input in place, but other layers need that "
                    "input: leave out inplace=True, or write x = x + 1 instead of x += 1"
                )
            for x in flat(leaving):
                if not torch.is_tensor(x):
                    what = "tuple inside a tuple" if isinstance(x, tuple | list) else type(x).__name__
                    raise ValueError(
                        f"layer {number} ({type(layer).__name__}) returns a {what}, which stages cannot exchange: "
                        "return a tensor or a flat tuple of tensors, from a layer around it"
                    )
                if x.is_complex() and number < len(layers) - 1:
                    raise ValueError(
                        f"layer {number} ({type(layer).__name__}) returns complex numbers, but stages exchange real "
                        "ones: return torch.view_as_real of them, or make one layer of those that exchange them"
                    )
            if isinstance(leaving, tuple) and type(leaving) is not tuple:
                raise ValueError(
                    f"layer {number} ({type(layer).__name__}) returns a {type(leaving).__name__}, which the next "
                    "stage would receive as a plain tuple: return a plain tuple"
                )
            return leaving

        return call

    return {number: watching(number, layer) for number, layer in layers.items()}


def called(number: int, layer: nn.Module, arrived: tuple, sources: tuple):
    """The output of a layer for its inputs from these `sources`.

    raises  ValueError if it fails
    """
    try:
        return layer(*arrived)
    except Exception as error:
        whence = f" (from layers {', '.join(map(str, sources))})" if len(arrived) > 1 else ""
        raise ValueError(
            f"layer {number} ({type(layer).__name__}) fails on its input, {shapes(arrived)}{whence}: {said(error)}"
            f"{_unregistered(layer)}"
        ) from error


def _unregistered(layer) -> str:
    """The remedy for modules in a list: torch does not see them, so their dtype stays, and no optimizer trains them."""
    mine = {id(one) for one in (*layer.modules(), *layer.parameters(), *layer.buffers())}
    kept = [(name, value) for one in layer.modules() for name, value in vars(one).items() if name not in OF_TORCH]
    found = (name for name, value in kept for _, x in carried(value) if id(x) not in mine)
    return next((f"; {name} is not registered: use nn.ModuleList, or register_buffer" for name in found), "")


def _sizes(x) -> str:
    return ", ".join(str(tuple(one.shape)) for one in flat(x))


class Shapes:
    """The shapes of the outputs that stages exchange: a stage allocates tensors before they arrive, so those of all
    microbatches must have the same shapes.

    sent  the layers whose outputs cross from stage to stage;  layers  all of them, for their names
    """

    def __init__(self, sent: Collection[int], layers: dict[int, nn.Module]):
        self.sent, self.layers, self.seen = sent, layers, {}

    def compare(self, made: dict):
        """Compare a forward with the earlier ones whose inputs had the same shapes.

        made  {layer: its output}, and -1: the inputs

        raises  ValueError for an output of another shape
        """
        entered = _sizes(made[-1])
        for number in sorted(set(self.sent) & made.keys()):
            now = _sizes(made[number])
            if (first := self.seen.setdefault((number, entered), now)) != now:
                raise ValueError(
                    f"layer {number} ({type(self.layers[number]).__name__}) returns the shape {now} for some rows, "
                    f"but {first} for others, and stages exchange tensors of one shape: pad the output to one length, "
                    "or choose a cut=[…] after a later layer, whose output has one shape"
                )
