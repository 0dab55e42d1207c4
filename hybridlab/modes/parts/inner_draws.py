"""Random layers between the two matrices of a pair, such as a dropout of hidden units or of attention's weights.

A random number depends on its place in the full tensor (`Features`). Inside a pair a rank has a shard of it, so its
features do not begin at 0. Only a run shows which tensors are shards: a dropout after the second matrix gets the full
tensor.

Relatives: `tensor_parallel`, which uses it; `sequence_parallel`, the same for positions.
"""

import math

import torch

from hybridlab.core.what.seams import Features
from hybridlab.core.where.layout import even
from hybridlab.modes.parts.tp_boundaries import Crossing


def place(module, comm, found: list[Crossing], job):
    """Tell the random layers inside the pairs of a rank's module which heads or hidden units are here.

    found  where the pairs begin and end;  job  its `sizes` and `passed` describe the full model
    """
    for one in found:
        if one.kind == "leave" and one.within:
            pair, length = one.name.rpartition(".")[0], job.sizes[one.letter]
            here = even(length, comm.mesh["tp"])[comm.coordinates["tp"]]
            for name, layer in module.get_submodule(pair).named_modules(prefix=pair):
                if isinstance(layer, Features) and name in job.passed:
                    _follow(layer, job.passed[name].entered, length, here)


def _follow(layer: Features, whole: torch.Size, length: int, here: tuple[int, int]):
    """Set the first feature of a layer in each call that gets its shard: `here`, of this length."""
    each, rest = divmod(_features(whole), length)

    def begin(layer, arrived):
        if not rest and _features(arrived[0].shape) == each * (here[1] - here[0]) < each * length:
            layer.feature = each * here[0]

    layer.register_forward_pre_hook(begin)


def _features(shape: torch.Size) -> int:
    """The number of features of a position; for a tensor that is not (B, T, D), all numbers of a row."""
    return shape[2] if len(shape) == 3 else math.prod(shape[1:])
