"""What the image nets have in common: layers in sequence, skips beside it, and weights that follow from a seed."""

import math

import torch
from torch import nn

from hybridlab.train.models.draws import ByPlace
from hybridlab.train.models.gpt import in_sequence


class Layered(ByPlace):
    """A model that is a list of layers. A layer with a skip is called with what the skip brings as second argument.

    skips  {layer: the earlier layer whose output it takes too}

    Weights are drawn with variance 2/(inputs of one output). This keeps the size of what passes through ReLUs (He et
    al. 2015, arXiv:1502.01852).

    >>> Layered([nn.Linear(4, 3), nn.Linear(3, 2)])(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    """

    def __init__(self, layers, skips=None, seed: int = 0, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.sequence, self.skips = nn.ModuleList(layers), skips or {}
        self.begin(seed, dtype)

    def deviation(self, shape) -> float:
        """The standard deviation of the first weights of a shape, (outputs, inputs, …)."""
        return math.sqrt(2 / math.prod(shape[1:]))

    def layers(self) -> list[nn.Module]:
        """What is done in sequence."""
        return list(self.sequence)

    def forward(self, x):
        return in_sequence(dict(enumerate(self.sequence)), self.skips, {-1: x})[len(self.sequence) - 1]
