"""What the image nets have in common: layers in sequence, skips beside it, and weights that follow from a seed."""

import torch
from torch import nn

from hybridlab.train.models.batch_norm import BatchNorm
from hybridlab.train.models.gpt import Draws, in_sequence


class Layered(nn.Module):
    """A model that is a list of layers. A layer with a skip is called with what the skip brings as second argument.

    skips  {layer: the earlier layer whose output it takes too}
    draws  where in the training it stands: batch norm asks whether this is training

    Weights of two dims or more are drawn from the seed alone, normal with variance 2/(inputs of one output). This keeps
    the size of what passes through ReLUs (He et al. 2015, arXiv:1502.01852). Biases are 0, the weights of norms 1.

    >>> Layered([nn.Linear(4, 3), nn.Linear(3, 2)])(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    """

    def __init__(self, layers, skips=None, seed: int = 0, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.sequence, self.skips, self.draws = nn.ModuleList(layers), skips or {}, Draws(seed)
        for module in self.modules():
            if isinstance(module, BatchNorm):
                module.draws = self.draws
        self.to(dtype)
        self._initialise(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def _initialise(self, generator):
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weight.copy_((2 / weight[0].numel()) ** 0.5 * drawn)
            elif name.endswith("bias"):
                weight.zero_()

    def layers(self) -> list[nn.Module]:
        """What is done in sequence."""
        return list(self.sequence)

    def forward(self, x):
        return in_sequence(dict(enumerate(self.sequence)), self.skips, {-1: x})[len(self.sequence) - 1]
