"""A small convolutional net that reads digits: convolutions with batch norm, then a score for every digit.

As the picture shrinks, the number of channels grows, so layers differ in their weights and in the size of their
outputs.

Shape suffixes
    B batch · C channels · Y rows of pixels, X columns · V classes: ten digits

Relatives: `training.data.images` (the digits), `batch_norm`, `unet` and `resnet`, which consist of the same layers.
"""

import torch
from torch import nn
from torch.nn import functional

from hybridlab.training.models.batch_norm import BatchNorm
from hybridlab.training.models.layered import Layered

DIGITS = 10


class Convolution(nn.Module):
    """A convolution, batch norm and, by default, ReLU: from `enter` channels to `leave`.

    stride  2 halves the picture;  size  the size of the square of pixels that one output pixel sees
    """

    def __init__(self, enter: int, leave: int, stride: int = 1, size: int = 3, relu: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(enter, leave, size, stride, padding=size // 2, bias=False)  # batch norm adds the bias
        self.norm, self.relu = BatchNorm(leave), relu

    def forward(self, x_BCYX):
        y_BCYX = self.norm(self.conv(x_BCYX))
        return functional.relu(y_BCYX) if self.relu else y_BCYX


class Scores(nn.Module):
    """A score for every digit, from the mean of each channel; for pictures of any size."""

    def __init__(self, enter: int):
        super().__init__()
        self.mean, self.scores = nn.AdaptiveAvgPool2d(1), nn.Linear(enter, DIGITS)

    def forward(self, x_BCYX):
        return self.scores(self.mean(x_BCYX).flatten(1))


class ConvNet(Layered):
    """Eight layers: seven convolutions, from 1 channel to 4·width while 8×8 pixels become 2×2, and scores.

    >>> ConvNet()(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32, width: int = 8):
        channels = [1, width, width, 2 * width, 2 * width, 2 * width, 4 * width, 4 * width]
        strides = [1, 1, 2, 1, 1, 2, 1]
        convolutions = [Convolution(*sizes) for sizes in zip(channels, channels[1:], strides)]
        super().__init__([*convolutions, Scores(channels[-1])], seed=seed, dtype=dtype)


def label_loss(scores_BV, labels_B):
    """The *sum* of the cross-entropy over all images, in nats; divide by the images of the global batch."""
    return functional.cross_entropy(scores_BV, labels_B, reduction="sum")
