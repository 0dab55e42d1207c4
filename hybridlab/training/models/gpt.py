"""The reference model: a small GPT over bytes, written without any code for parallelism.

The modes rely on these seams: the layers form a sequence (`layers()`: embed, blocks, head) with optional skips
(`skips`); q, k and v are separate; attention is a separate module and computes the number of heads from the widths of
its inputs; random numbers depend only on seed, step and position (`draws`); the loss is outside.

Shape suffixes
    B batch · T positions · D width · N heads · K heads of keys and values · H width of a head (N·H = D) F hidden width
    of the MLP (4·D, unless the shape has another one) · V vocabulary
"""

import math
from functools import partial
from itertools import chain

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.what.seams import Attends, Branches, Draws, DrawsByPlace, Features, Positions, Recalls
from hybridlab.core.what.shape import Shape
from hybridlab.doors import FRACTION, guarded, span
from hybridlab.runtime import masks
from hybridlab.training.models.draws import ByPlace, drawn, stream
from hybridlab.training.models.experts import mlp_of
from hybridlab.training.models.graph import graph_of, through
from hybridlab.training.models.parallel import branching, in_branches

DEVIATION = 0.02  # of initial weights


@guarded(rate=FRACTION)
class Dropout(nn.Module, Positions, Features, DrawsByPlace):
    """A dropout that sets a fraction of elements to zero and rescales the others; an element's place determines
    whether it is dropped.

    An element's place is: seed, step, index of this site in the model, row in the global batch, position, feature. So
    the result is the same on one device, on any rank of any layout, and in a recomputed forward. In a tensor that is
    not (B, T, D) all elements of a row are features of one position.

    rate            the fraction, at least 0 and less than 1
    first, feature  the first position and feature of the input: not 0 if that dim is sharded; if positions are not
                    consecutive, one for each position
    """

    def __init__(self, rate: float):
        super().__init__()
        self.rate, self.site, self.first, self.feature, self.draws = rate, 0, 0, 0, Draws()

    def forward(self, x_BTD):
        if not self.rate or not self.draws.on:
            return x_BTD
        return x_BTD * self.kept(x_BTD.shape, x_BTD.device) / (1 - self.rate)

    def kept(self, shape, device=None):
        """The mask of the elements of a tensor of this shape, (B, T, D) or another one, that are kept."""
        flat = shape if len(shape) == 3 else (shape[0], 1, math.prod(shape[1:]))
        B, T, D = (torch.arange(length, device=device) for length in flat)
        key = stream(self.draws.seed, self.draws.step, self.site)
        key_BT1 = drawn(drawn(key, self.draws.row + B[:, None, None]), (self.first + T)[:, None])
        return (drawn(key_BT1, self.feature + D) >= round(self.rate * 2**64) - 2**63).view(shape)


class Embed(nn.Module, Positions):
    """Tokens and their positions as vectors. Positions start again in every document, as if it were alone.

    first  the position of the first vector: not 0 if the sequence is sharded

    >>> embed, tokens = Embed(Shape(width=4, context=3, heads=2)), torch.tensor([[7, 7, 5]])
    >>> bool((embed(tokens) == embed.token(tokens) + embed.position.weight).all())
    True
    """

    def __init__(self, shape: Shape):
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.dropout, self.first, self.documents = Dropout(shape.dropout), 0, shape.documents

    def forward(self, tokens_BT):
        x_BTD = self.token(tokens_BT)
        positions_T = self.first + torch.arange(x_BTD.shape[1], device=tokens_BT.device)
        return self.dropout(x_BTD + self.position(self._in_document(positions_T)))

    def _in_document(self, positions_T):
        if not self.documents:
            return positions_T
        return positions_T - masks.begins(tuple(self.documents), positions_T.device)[positions_T]


class Attention(nn.Module, Attends, Recalls):
    """Causal self-attention by heads of a fixed width; neighbouring query heads share one KV head.

    attend     from queries, keys and values by head to the output of each head; a mode may replace it
    documents  the lengths of the documents in a row
    """

    def __init__(self, shape: Shape, bias: bool = True):
        super().__init__()
        self.head_width, self.documents = shape.head_width, shape.documents
        self.attend = partial(attend, documents=shape.documents)
        self.q, self.k, self.v, self.out = (
            nn.Linear(entering, leaving, bias)
            for entering, leaving in (
                (shape.query_latent or shape.width, shape.query_width),
                *[(shape.latent or shape.width, shape.value_width)] * 2,
                (shape.found_width, shape.width),
            )
        )

    def forward(self, x_BTD):
        return self.out(self.attend(*self.by_head(x_BTD)).transpose(1, 2).flatten(2))

    def by_head(self, x_BTD):
        """Queries (B, N, T, H), keys and values (B, K, S, H): S positions, of these T and of those before them."""
        return self.queries(x_BTD), *self.keys_and_values(*self.recall(*self.kept(x_BTD)))

    def recall(self, *kept):
        """The keys and values of all positions so far; here, the given ones are all."""
        return kept

    def queries(self, x_BTD):
        """Queries by head."""
        return heads(self.q(x_BTD), self.head_width)

    def kept(self, x_BTD):
        """The keys and values by head that later positions need."""
        return tuple(heads(project(x_BTD), self.head_width) for project in (self.k, self.v))

    def keys_and_values(self, k_BKSH, v_BKSH):
        """Keys and values by head, from the kept tensors."""
        return k_BKSH, v_BKSH

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """The widths of a position's queries, keys, values and head outputs."""
        return self.q.out_features, self.k.out_features, self.v.out_features, self.out.in_features


def heads(x_BTF, width: int):
    """Features of a position, split into heads of this width: (B, N, T, H)."""
    return x_BTF.unflatten(2, (-1, width)).transpose(1, 2)


def attend(q_BNTH, k_BKSH, v_BKSH, documents=(), causal=True):
    """For every position, the weighted sum of the values of this and earlier positions in its document; the weights
    come from queries and keys. If it is not causal, later positions count too. If there are fewer queries than keys,
    they belong to the last positions.

    >>> q, k, v = torch.randn(3, 1, 2, 5, 4)
    >>> first, second = (attend(q[:, :, its], k[:, :, its], v[:, :, its]) for its in (slice(3), slice(3, 5)))
    >>> torch.allclose(attend(q, k, v, documents=(3, 2)), torch.cat([first, second], 2), atol=1e-6)
    True
    """
    queries, keys, hidden = q_BNTH.shape[2], k_BKSH.shape[2], {"is_causal": causal}
    if documents or queries < keys:
        row = masks.of_row(sum(documents) or keys, tuple(documents), causal, q_BNTH.device)
        hidden = {"attn_mask": row[keys - queries : keys, :keys]}
    return functional.scaled_dot_product_attention(q_BNTH, k_BKSH, v_BKSH, **hidden, enable_gqa=True)


class Mlp(nn.Module):
    """Two linear layers with a GELU between them.

    linear  makes a layer for given numbers of inputs and outputs; for experts, one layer for each (`experts.Many`),
            which
            is also called with the numbers of their tokens
    """

    def __init__(self, shape: Shape, linear=nn.Linear):
        super().__init__()
        self.up, self.down = linear(shape.width, shape.inside), linear(shape.inside, shape.width)

    def forward(self, x_BTD, *counts):
        return self.down(functional.gelu(self.up(x_BTD, *counts)), *counts)


class Block(nn.Module):
    """One transformer layer: attention and MLP, each after a norm and with a residual. Without heads, only the MLP.

    norm, attention, mlp  functions that make them: the norm from a width, the others from a shape
    """

    def __init__(self, shape: Shape, norm=nn.LayerNorm, attention=Attention, mlp=Mlp):
        super().__init__()
        if shape.heads:
            self.attention_norm, self.attention = norm(shape.width), attention(shape)
            self.attention_dropout = Dropout(shape.dropout)
        self.mlp_norm, self.mlp = norm(shape.width), mlp(shape)
        self.mlp_dropout = Dropout(shape.dropout)
        self.attends = shape.heads > 0

    def forward(self, x_BTD, skipped_BTD=None):
        if skipped_BTD is not None:
            x_BTD = x_BTD + skipped_BTD
        if self.attends:
            x_BTD = x_BTD + self.attention_dropout(self.attention(self.attention_norm(x_BTD)))
        return x_BTD + self.mlp_dropout(self.mlp(self.mlp_norm(x_BTD)))


class Head(nn.Module):
    """The head: maps vectors to a score for every token of the vocabulary."""

    def __init__(self, shape: Shape, norm=nn.LayerNorm):
        super().__init__()
        self.norm = norm(shape.width)
        self.scores = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, x_BTD):
        return self.scores(self.norm(x_BTD))


@guarded(seed=span(0, 2**63 - 1, "give 0 or more, and less than 2**63"))
class GPT(ByPlace, Branches):
    """The full model: embedding, blocks, head.

    shape  its sizes
    seed   of its initial weights
    dtype  of its weights
    skips  {layer: the earlier layer whose output it adds to its input}, layers numbered as in `layers()`

    raises  ValueError if this model cannot have the shape

    >>> GPT(Shape(layers=1, width=8, heads=2, context=4))(torch.zeros(3, 4, dtype=torch.long)).shape
    torch.Size([3, 4, 256])
    """

    style = "gpt"

    def __init__(self, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32):
        super().__init__()
        if shape.style != self.style:
            raise ValueError(f"style={shape.style!r} does not fit {type(self).__name__}: give style={self.style!r}")
        self.embed, self.blocks, self.head = self.parts(shape)
        if shape.tied:
            self.tie()
        self.shape, self.skips = shape, shape.skipping
        self.takes = {}
        if shape.parallel:
            self.blocks = nn.ModuleList(in_branches(block) for block in self.blocks)
            self.takes = branching(shape.layers)
        self.begin(seed, dtype)

    def parts(self, shape: Shape) -> tuple[nn.Module, nn.ModuleList, nn.Module]:
        """The modules of this model: embedding, blocks, head."""
        every = map(shape.at, range(shape.layers))
        blocks = nn.ModuleList(Block(one, mlp=mlp_of(one, Mlp)) for one in every)
        return Embed(shape), blocks, Head(shape)

    def tie(self):
        """Use one matrix for embedding and head."""
        self.head.scores.weight = self.embed.token.weight

    def deviation(self, shape) -> float:
        """The standard deviation of initial weights of any shape."""
        return DEVIATION

    def layers(self) -> list[nn.Module]:
        """The layers, in sequence."""
        inside = chain.from_iterable(self.blocks) if self.shape.parallel else self.blocks
        return [self.embed, *inside, self.head]

    @property
    def dropouts(self) -> list[Dropout]:
        """Every dropout, in model order: after the embedding, and on every branch."""
        return [module for module in self.modules() if isinstance(module, Dropout)]

    def forward(self, tokens_BT):
        layers = self.layers()
        return through(layers, graph_of(len(layers), self.skips, self.takes), tokens_BT)


def token_loss(scores_BTV, targets_BT):
    """The *sum* of the cross-entropy over all tokens, in nats; divide by the number of tokens in the global batch.

    scores_BTV  scores of every token of the vocabulary at each position, (B, T, V)
    targets_BT  the correct tokens, (B, T)
    """
    return functional.cross_entropy(scores_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum")
