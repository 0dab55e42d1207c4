"""The modern transformer: GPT's layers with the parts that LLaMA made common.

  GPT                                    here
  LayerNorm                              RMSNorm: divides by the root mean square, subtracts no mean
  learned positions, added to the input  rotary positions: queries and keys are turned by an angle
  MLP of two matrices, GELU              SwiGLU: a third matrix gates the inside of the MLP
  biases                                 none

Where `kv_heads` is less than `heads`, queries share keys and values, as in GPT. Names are GPT's; `mlp.gate` is new, and
biases and `embed.position` are gone. Nothing is added to what a layer passes on, so all seams of GPT hold.

Source: Touvron et al. 2023, arXiv:2302.13971, section 2.2. RMSNorm: Zhang and Sennrich 2019, arXiv:1910.07467. SwiGLU:
Shazeer 2020, arXiv:2002.05202. Rotary positions: Su et al. 2021, arXiv:2104.09864. Grouped queries: Ainslie et al.
2023, arXiv:2305.13245.

Shape suffixes
    those of GPT, and P pairs of features in a head (P = H/2)
"""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.shape import Shape
from hybridlab.train.models.experts import mlp_of
from hybridlab.train.models.gpt import GPT, Attention, Block, Dropout, Head

BASE = 10_000  # the first pair turns by 1 radian per position, the last by little more than 1/BASE
Norm = partial(nn.RMSNorm, eps=1e-5)  # said, because torch's default is another one in every dtype


class Embed(nn.Module):
    """Tokens as vectors, without their positions."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.dropout = Dropout(shape.dropout)

    def forward(self, tokens_BT):
        return self.dropout(self.token(tokens_BT))


class Rotary(nn.Module):
    """Turns each pair of features of a head by an angle that grows with the position, for each pair at another speed.

    A query and a key then match by how far they are apart, not by where they are. The pairs are (0, 1), (2, 3), ….

    first  the position at which what comes in begins: not 0 where the sequence is cut

    Angles are computed in float64 and then take the dtype of the input: bfloat16 has no 257.

    raises  ValueError when the width of a head is odd

    >>> quarter = Rotary(width=2)
    >>> quarter.first = torch.pi / 2
    >>> quarter(torch.tensor([[[[1.0, 0.0]]]])).round(decimals=6).abs()
    tensor([[[[0., 1.]]]])
    """

    def __init__(self, width: int):
        super().__init__()
        if width % 2:
            raise ValueError(f"a head of width {width} has no pairs to turn: choose heads so that width/heads is even")
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


class RotaryAttention(Attention):
    """Attention without biases, whose queries and keys are turned by their positions."""

    def __init__(self, shape: Shape):
        super().__init__(shape, bias=False)
        self.rotary = Rotary(shape.head_width)

    def by_head(self, x_BTD):
        """Queries and keys, turned; values as they are."""
        q_BNTH, k_BKTH, v_BKTH = super().by_head(x_BTD)
        return self.rotary(q_BNTH), self.rotary(k_BKTH), v_BKTH


class SwiGLU(nn.Module):
    """An MLP whose inside is multiplied, unit by unit, with a gate: SiLU of another product. See `Mlp`."""

    def __init__(self, shape: Shape, linear=nn.Linear):
        super().__init__()
        self.gate, self.up = (linear(shape.width, shape.inside, bias=False) for _ in range(2))
        self.down = linear(shape.inside, shape.width, bias=False)

    def forward(self, x_BTD, *counts):
        return self.down(functional.silu(self.gate(x_BTD, *counts)) * self.up(x_BTD, *counts), *counts)


class Modern(GPT):
    """The whole model, for a shape of style "llama": seams, seeds and skips are GPT's.

    >>> shape = Shape(layers=1, width=8, heads=2, context=4, style="llama", inner=12)
    >>> Modern(shape)(torch.zeros(3, 4, dtype=torch.long)).shape
    torch.Size([3, 4, 256])
    >>> sum(weight.numel() for weight in Modern(shape).parameters()) == shape.parameters
    True
    """

    style = "llama"

    def parts(self, shape: Shape) -> tuple[nn.Module, nn.ModuleList, nn.Module]:
        """What it is made of: embedding, blocks, head."""
        mlp = mlp_of(shape, SwiGLU)
        blocks = nn.ModuleList(Block(shape, Norm, RotaryAttention, mlp) for _ in range(shape.layers))
        return Embed(shape), blocks, Head(shape, Norm)
