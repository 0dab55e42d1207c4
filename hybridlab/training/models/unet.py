"""A small U-Net that removes noise from digits, with skips from its first half to its second.

  8×8    0  1 ┄┄┄┄┄┄┄┄┄┄┄┄┄ 8  9
             ↘             ↗
  4×4          2  3 ┄┄┄ 6  7
                   ↘   ↗
  2×2               4 5

On the way down, pixels are lost, and they are needed on the way up. So a layer on the way up has two inputs and joins
their channels: the output of the layer below, and the skip from the same height. If the net is cut into stages, the
skip from layer 1 to layer 8 passes all stages between them: torchgpipe has portals for this case.

Shape suffixes
    B batch · C channels · Y rows of pixels, X columns

Source: Ronneberger et al. 2015, arXiv:1505.04597; its skips in a pipeline, Kim et al. 2020, arXiv:2004.09910.
Relatives: `conv`, which has the same layers; `training.data.images.Digits.noisy`; `training.stages.Links` (the tensors
between stages).
"""

import torch
from torch import nn

from hybridlab.training.models.conv import Convolution
from hybridlab.training.models.layered import Layered


class Rise(nn.Module):
    """Upsampling to this size: each pixel becomes 2×2, the skip's channels are concatenated, and a convolution follows.

    below, skipped, leave  the number of channels from below, from the skip, and in the output
    """

    def __init__(self, below: int, skipped: int, leave: int):
        super().__init__()
        self.rise, self.convolution = nn.Upsample(scale_factor=2), Convolution(below + skipped, leave)

    def forward(self, below_BCYX, skipped_BCYX):
        return self.convolution(torch.cat([self.rise(below_BCYX), skipped_BCYX], 1))


class UNet(Layered):
    """Ten layers at three image sizes, with two skips; the input has 8×8 noisy pixels, the output 8×8 clean pixels.

    >>> UNet()(torch.zeros(3, 1, 8, 8)).shape
    torch.Size([3, 1, 8, 8])
    """

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32, width: int = 8):
        high, middle, low = width, 2 * width, 4 * width
        down = [Convolution(1, high), Convolution(high, high), Convolution(high, middle, 2)]
        down += [Convolution(middle, middle), Convolution(middle, low, 2), Convolution(low, low)]
        up = [Rise(low, middle, middle), Convolution(middle, middle), Rise(middle, high, high), nn.Conv2d(high, 1, 1)]
        super().__init__([*down, *up], skips={6: 3, 8: 1}, seed=seed, dtype=dtype)


def image_loss(image_BCYX, clean_BCYX):
    """The *sum* of the squared differences of all pixels; divide by the pixels of the global batch."""
    return (image_BCYX - clean_BCYX).square().sum()
