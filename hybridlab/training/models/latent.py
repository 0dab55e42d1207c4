"""Latent attention: keys and values of all heads are projected from a few numbers of each position, its latent.

A latent has L features, far fewer than the keys and values that are computed from it. A model that generates text
caches only the latent. Rotary positions cannot be applied to keys from latents: rotated keys would have to be cached
too. So each head has 2·P further features that are rotated. Its queries have their own; its keys share them with all
other heads. Queries may have a latent too, of R features.

  x ─┬─ q_latent ── q_norm ─────── q ──── queries by head: H features, and 2·P rotated ones
     ├─ latent ──── latent_norm ─┬─ k ─── keys by head: H features ──────────┐
     │                           └─ v ─── values by head: H features         ├─ joined
     └─ turned ────────────────────────── one key for all heads: 2·P features ┘

Tensor parallelism shards heads; every rank has the full latents, and its own heads read them. So the gradients of the
layers that compute latents are partial sums, one per rank (`modes.parts.tp_boundaries`).

Source: DeepSeek-AI 2024, arXiv:2405.04434, section 2.1. Relatives: `modern`, whose blocks contain it.

Shape suffixes
    those of `modern`, and L, R features of latents
"""

import torch
from torch import nn

from hybridlab.core.what.shape import Shape
from hybridlab.training.models.gpt import Attention, heads
from hybridlab.training.models.rotary import Rotary


class LatentAttention(Attention):
    """Attention whose keys and values, and optionally queries, are computed from latents.

    norm  makes the norm of a latent, from its width

    >>> shape = Shape(width=32, heads=4, context=8, style="llama", latent=12, rotary=4)
    >>> LatentAttention(shape)(torch.zeros(1, 8, 32)).shape
    torch.Size([1, 8, 32])
    """

    def __init__(self, shape: Shape, norm=nn.RMSNorm):
        super().__init__(shape, bias=False)
        self.q_latent, self.q_norm = _latent(shape.width, shape.query_latent, norm)
        self.latent, self.latent_norm = _latent(shape.width, shape.latent, norm)
        self.turned, self.rotary = nn.Linear(shape.width, shape.rotary, bias=False), Rotary(shape.rotary)

    def queries(self, x_BTD):
        """Queries (B, N, T, H + 2P), the last features rotated."""
        sizes = self.head_width, self.turned.out_features
        q_BNTH, turned_BNTP = heads(self.q(self.q_norm(self.q_latent(x_BTD))), sum(sizes)).split(sizes, 3)
        return torch.cat((q_BNTH, self.rotary(turned_BNTP)), 3)

    def kept(self, x_BTD):
        """The latent of each position, and the rotated features of its key, which all heads share."""
        return self.latent_norm(self.latent(x_BTD)), self.rotary(self.turned(x_BTD)[:, None])

    def keys_and_values(self, latent_BSL, turned_B1SP):
        """Keys (B, N, S, H + 2P) and values (B, N, S, H), from latents."""
        k_BNSH, v_BNSH = (heads(project(latent_BSL), self.head_width) for project in (self.k, self.v))
        return torch.cat((k_BNSH, turned_B1SP.expand(-1, k_BNSH.shape[1], -1, -1)), 3), v_BNSH

    @property
    def widths(self):
        queries, keys, values, found = super().widths
        return queries, keys + keys // self.head_width * self.turned.out_features, values, found


def _latent(width: int, features: int, norm) -> tuple[nn.Module, nn.Module]:
    """(the layer that computes a latent, its norm); without features, two identities."""
    if not features:
        return nn.Identity(), nn.Identity()
    return nn.Linear(width, features, bias=False), norm(features)
