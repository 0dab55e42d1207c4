"""The reference model: a small GPT over bytes. It does not know that it may be run in parallel.

Its seams, on which the modes rely: the layers stand in sequence (`layers()`: embed, blocks, head) and skips beside it
(`skips`); q, k and v are separate; attention is a module of its own, and takes the number of heads from the width of
what it is given; the loss is outside.

Shape suffixes
    B batch · T positions · D width · N heads · H width of a head (N·H = D) · F hidden width (4·D) · V vocabulary
"""

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.catalog import Shape


class Embed(nn.Module):
    """Tokens and their positions as vectors."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)

    def forward(self, tokens_BT):
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        return self.token(tokens_BT) + self.position(positions_T)


class Attention(nn.Module):
    """Causal self-attention by heads of a fixed width."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.head_width = width // heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x_BTD):
        q_BNTH, k_BNTH, v_BNTH = (self._by_head(project(x_BTD)) for project in (self.q, self.k, self.v))
        y_BNTH = functional.scaled_dot_product_attention(q_BNTH, k_BNTH, v_BNTH, is_causal=True)
        return self.out(y_BNTH.transpose(1, 2).flatten(2))

    def _by_head(self, x_BTD):
        return x_BTD.unflatten(2, (-1, self.head_width)).transpose(1, 2)


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BTD):
        return self.down(functional.gelu(self.up(x_BTD)))


class Block(nn.Module):
    """One transformer layer: attention and MLP, each behind a norm, beside a residual. Without heads, only the MLP."""

    def __init__(self, shape: Shape):
        super().__init__()
        if shape.heads:
            self.attention_norm, self.attention = nn.LayerNorm(shape.width), Attention(shape.width, shape.heads)
        self.mlp_norm, self.mlp = nn.LayerNorm(shape.width), Mlp(shape.width)
        self.attends = shape.heads > 0

    def forward(self, x_BTD):
        if self.attends:
            x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.mlp(self.mlp_norm(x_BTD))


class Head(nn.Module):
    """From vectors back to a score for every token."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.scores = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x_BTD):
        return self.scores(self.norm(x_BTD))


class GPT(nn.Module):
    """The whole model: embed, then the blocks, then the head.

    Built twice from one seed it is the same, on any rank: every mode starts from the full model and slices it.

    skips  {layer: the earlier layer whose output is added to what enters it}, layers numbered as in `layers()`

    >>> GPT(Shape(layers=1, width=8, heads=2, context=4))(torch.zeros(3, 4, dtype=torch.long)).shape
    torch.Size([3, 4, 256])
    """

    def __init__(self, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.embed = Embed(shape)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.head = Head(shape)
        if shape.tied:
            self.head.scores.weight = self.embed.token.weight
        self.skips = shape.skipping
        self.to(dtype)
        self._initialise(torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def _initialise(self, generator):
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                weight.copy_(0.02 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
            elif name.endswith("bias"):
                weight.zero_()

    def layers(self) -> list[nn.Module]:
        """What is done in sequence."""
        return [self.embed, *self.blocks, self.head]

    def forward(self, tokens_BT):
        return in_sequence(dict(enumerate(self.layers())), self.skips, {-1: tokens_BT})[len(self.blocks) + 1]


def in_sequence(layers: dict, skips: dict, made: dict) -> dict:
    """Do some layers of a model, one after the other: {layer: what leaves it}, begun with `made`, what came before."""
    for number, layer in layers.items():
        x = made[number - 1]
        made[number] = layer(x + made[skips[number]] if number in skips else x)
    return made


def token_loss(scores_BTV, targets_BT):
    """The *sum* of the cross-entropy over all tokens, in nats; divide by the tokens of the global batch."""
    return functional.cross_entropy(scores_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum")
