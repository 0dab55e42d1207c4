"""The base of the image nets: layers in sequence, skips and branches, and weights from a seed."""

import math

import torch
from torch import nn

from hybridlab.core.what.seams import Branches
from hybridlab.training.models.draws import ByPlace
from hybridlab.training.models.graph import graph_of, through


class Layered(ByPlace, Branches):
    """A model that is a list of layers, each called with the outputs of the layers that it takes.

    skips  {layer: the earlier layer whose output is its second argument}
    takes  {layer: all layers whose outputs it takes}, see `graph`

    Weights are drawn with variance 2/fan-in, which preserves the size of activations through ReLUs (He et al. 2015,
    arXiv:1502.01852).

    >>> Layered([nn.Linear(4, 3), nn.Linear(3, 2)])(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    """

    def __init__(self, layers, skips=None, takes=None, seed: int = 0, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.sequence, self.skips, self.takes = nn.ModuleList(layers), skips or {}, takes or {}
        self.begin(seed, dtype)

    def deviation(self, shape) -> float:
        """The standard deviation of the initial weights of a shape, (outputs, inputs, …)."""
        return math.sqrt(2 / math.prod(shape[1:]))

    def layers(self) -> list[nn.Module]:
        """The layers, in sequence."""
        return list(self.sequence)

    def forward(self, x):
        return through(self.layers(), graph_of(len(self.sequence), self.skips, self.takes), x)
