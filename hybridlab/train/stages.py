"""Stages: the model cut into contiguous slices, one per pipeline stage."""

import numpy as np
from torch import nn

from hybridlab.core.catalog import Shape
from hybridlab.train.model import GPT


def cut(layers: int, stages: int) -> list[range]:
    """Which transformer blocks each stage gets: contiguous, as even as can be, earlier stages first.

    raises  ValueError when there are fewer blocks than stages

    >>> cut(layers=5, stages=2)
    [range(0, 3), range(3, 5)]
    """
    if stages > layers:
        raise ValueError(f"{stages} stages need at least {stages} layers, this model has {layers}: choose fewer ranks")
    bounds = np.cumsum([0] + [len(part) for part in np.array_split(np.arange(layers), stages)]).tolist()
    return [range(a, b) for a, b in zip(bounds, bounds[1:])]


class Stage(nn.Module):
    """Some layers of a model, done in sequence; its parameters keep the names they have in the whole model."""

    def __init__(self, model: GPT, number: int, blocks: range, last: bool):
        super().__init__()
        if number == 0:
            self.embed = model.embed
        self.blocks = nn.ModuleDict({str(i): model.blocks[i] for i in blocks})
        if last:
            self.head = model.head

    def forward(self, x):
        for layer in [*self._only("embed"), *self.blocks.values(), *self._only("head")]:
            x = layer(x)
        return x

    def _only(self, name):
        return [getattr(self, name)] if hasattr(self, name) else []


def stages_of(model: GPT, shape: Shape, count: int) -> list[Stage]:
    """The whole model as `count` stages: the embedding goes with the first, the head with the last."""
    return [Stage(model, s, blocks, last=s == count - 1) for s, blocks in enumerate(cut(shape.layers, count))]
