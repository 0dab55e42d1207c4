"""A residual net for digits, whose layers differ in time and in number of weights.

The first blocks have large pictures, so they take most of the time. The last ones have many channels, so they hold most
of the weights. Of four stages with equal numbers of layers, the slowest has 1.9× the multiplications of the slowest
stage of the best cut; with equal numbers of weights, 3.1×. All other stages wait for it. `cut="time"` is for such a
net. AmoebaNet-D, used in the measurements of GPipe and torchgpipe, is uneven too.

Shape suffixes
    B batch · C channels · Y rows of pixels, X columns

Source: He et al. 2016, arXiv:1512.03385; uneven layers in a pipeline, Kim et al. 2020, arXiv:2004.09910.
Relatives: `conv`, which has the same layers; `predict.plans.partition` (the best cut).
"""

import torch
from torch import nn
from torch.nn import functional

from hybridlab.training.models.conv import Convolution, Scores
from hybridlab.training.models.layered import Layered

BLOCKS = ((1, 1, 3), (1, 1, 3), (1, 1, 3), (2, 2, 1), (2, 1, 1), (4, 2, 1), (4, 1, 1))


class Residual(nn.Module):
    """Some convolutions and a shortcut, added before the last ReLU.

    The shortcut is the input; if the number of channels or pixels changes, a 1×1 convolution adapts it.
    """

    def __init__(self, enter: int, leave: int, stride: int, convolutions: int):
        super().__init__()
        first, later = Convolution(enter, leave, stride, relu=convolutions > 1), range(2, convolutions + 1)
        self.branch = nn.Sequential(first, *(Convolution(leave, leave, relu=one < convolutions) for one in later))
        fits = stride == 1 and enter == leave
        self.shortcut = nn.Identity() if fits else Convolution(enter, leave, stride, size=1, relu=False)

    def forward(self, x_BCYX):
        return functional.relu(self.branch(x_BCYX) + self.shortcut(x_BCYX))


class ResNet(Layered):
    """A convolution, then residual blocks, then scores: nine layers by default.

    blocks  for each block: (its channels in units of width, its stride, its number of convolutions)

    >>> ResNet()(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    >>> [sum(weight.numel() for weight in layer.parameters()) for layer in ResNet().layers()]
    [88, 1776, 1776, 1776, 1344, 2336, 5248, 9280, 330]
    """

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32, width: int = 8, blocks=BLOCKS):
        channels = [width, *(width * times for times, _, _ in blocks)]
        residuals = [Residual(*ends, *block[1:]) for *ends, block in zip(channels, channels[1:], blocks)]
        super().__init__([Convolution(1, width), *residuals, Scores(channels[-1])], seed=seed, dtype=dtype)
