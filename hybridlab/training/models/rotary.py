"""Rotary positions: queries and keys are rotated, in pairs of features, by an angle proportional to the position.

Source: Su et al. 2021, arXiv:2104.09864. Relatives: `modern` and `latent`, which use it.

Shape suffixes
    those of GPT, and P pairs of features in a head (P = H/2)
"""

import torch
from torch import nn

from hybridlab.core.what.seams import Positions

BASE = 10_000  # the first pair turns by 1 radian per position, the last by little more than 1/BASE


class Rotary(nn.Module, Positions):
    """Rotates each pair of features of a head by an angle proportional to the position; the speeds of pairs differ.

    A query and a key then match by their distance, not by their absolute positions. The pairs are (0, 1), (2, 3), ….

    first  the position of the first input: not 0 if the sequence is sharded

    Angles are computed in float64 and then converted to the dtype of the input: bfloat16 cannot represent 257.

    raises  ValueError if the width of a head is odd

    >>> quarter = Rotary(width=2)
    >>> quarter.first = torch.pi / 2
    >>> quarter(torch.tensor([[[[1.0, 0.0]]]])).round(decimals=6).abs()
    tensor([[[[0., 1.]]]])
    """

    def __init__(self, width: int):
        super().__init__()
        if width % 2:
            raise ValueError(
                f"a head of width {width} cannot be rotated in pairs: choose heads so that width/heads is even"
            )
        self.first = 0

    def forward(self, x_BNTH):
        a_BNTP, b_BNTP = x_BNTH.unflatten(3, (-1, 2)).unbind(4)
        angles_TP = self.angles(x_BNTH.shape[2], a_BNTP.shape[3], x_BNTH.device)
        cos_TP, sin_TP = angles_TP.cos().to(x_BNTH.dtype), angles_TP.sin().to(x_BNTH.dtype)
        turned = a_BNTP * cos_TP - b_BNTP * sin_TP, a_BNTP * sin_TP + b_BNTP * cos_TP
        return torch.stack(turned, 4).flatten(3)

    def angles(self, positions: int, pairs: int, device=None):
        """The angle of each pair at each position, in radians."""
        T, P = (torch.arange(length, dtype=torch.float64, device=device) for length in (positions, pairs))
        return torch.outer(self.first + T, BASE ** -(P / pairs))
