"""The modern transformer: GPT's layers with the parts made common by LLaMA.

  GPT                                    here
  LayerNorm                              RMSNorm: divides by the root mean square, subtracts no mean
  learned positions, added to the input  rotary positions: queries and keys are turned by an angle
  MLP of two matrices, GELU              SwiGLU: a third matrix gates the inside of the MLP
  biases                                 none

If `kv_heads` is less than `heads`, queries share keys and values, as in GPT. Names are those of GPT; `mlp.gate` is new,
and biases and `embed.position` are gone. Layers return the same tensors as in GPT, so all its seams hold.

Source: Touvron et al. 2023, arXiv:2302.13971, section 2.2. RMSNorm: Zhang and Sennrich 2019, arXiv:1910.07467. SwiGLU:
Shazeer 2020, arXiv:2002.05202. Rotary positions: Su et al. 2021, arXiv:2104.09864. Grouped queries: Ainslie et al.
2023, arXiv:2305.13245.

Relatives: `rotary`; `latent`, another attention in the same blocks.
"""

from functools import partial

from torch import nn
from torch.nn import functional

from hybridlab.core.what.shape import Shape
from hybridlab.training.models.experts import mlp_of
from hybridlab.training.models.gpt import GPT, Attention, Block, Dropout, Head
from hybridlab.training.models.latent import LatentAttention
from hybridlab.training.models.rotary import Rotary

Norm = partial(nn.RMSNorm, eps=1e-5)  # stated, because torch's default depends on the dtype


class Embed(nn.Module):
    """Tokens as vectors, without their positions."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.dropout = Dropout(shape.dropout)

    def forward(self, tokens_BT):
        return self.dropout(self.token(tokens_BT))


class RotaryAttention(Attention):
    """Attention without biases, whose queries and keys are rotated by their positions."""

    def __init__(self, shape: Shape):
        super().__init__(shape, bias=False)
        self.rotary = Rotary(shape.head_width)

    def queries(self, x_BTD):
        """Queries by head, rotated."""
        return self.rotary(super().queries(x_BTD))

    def kept(self, x_BTD):
        """Keys by head, rotated, and values."""
        k_BKTH, v_BKTH = super().kept(x_BTD)
        return self.rotary(k_BKTH), v_BKTH


class SwiGLU(nn.Module):
    """An MLP whose hidden units are multiplied by a gate: SiLU of another matmul. See `Mlp`."""

    def __init__(self, shape: Shape, linear=nn.Linear):
        super().__init__()
        self.gate, self.up = (linear(shape.width, shape.inside, bias=False) for _ in range(2))
        self.down = linear(shape.inside, shape.width, bias=False)

    def forward(self, x_BTD, *counts):
        return self.down(functional.silu(self.gate(x_BTD, *counts)) * self.up(x_BTD, *counts), *counts)


class Modern(GPT):
    """The full model, for a shape of style "llama": seams, seeds and skips are those of GPT.

    >>> import torch
    >>> shape = Shape(layers=1, width=8, heads=2, context=4, style="llama", inner=12)
    >>> Modern(shape)(torch.zeros(3, 4, dtype=torch.long)).shape
    torch.Size([3, 4, 256])
    >>> sum(weight.numel() for weight in Modern(shape).parameters()) == shape.parameters
    True
    """

    style = "llama"

    def parts(self, shape: Shape) -> tuple[nn.Module, nn.ModuleList, nn.Module]:
        """The modules of this model: embedding, blocks, head."""
        attention = partial(LatentAttention, norm=Norm) if shape.latent else RotaryAttention
        every = map(shape.at, range(shape.layers))
        blocks = nn.ModuleList(Block(one, Norm, attention, mlp_of(one, SwiGLU)) for one in every)
        return Embed(shape), blocks, Head(shape, Norm)
