"""Multi-token prediction: the modern transformer with one extra block, which predicts the token after the next.

    tokens ── embed ─┬─ block ── … ── block ─┬───────────── head ── scores of the next token
                     │                       └─ further ─┘          and of the one after it
                     └────────────────────────────┘

At each position, `further` has two inputs: the output of the blocks, and the embedding of the true next token. From
both it predicts the token after the next. So the embedding is needed at both ends of the model. If the model is cut
into stages, the embedding's output passes all stages between, as the skips of a U-Net do. Embedding and head are those
of the model, used twice. At the last position of a sequence the next token is unknown, and nothing is predicted there.

When the trained model is used, `further` is left out, or the model itself checks its prediction.

Shape suffixes
    B batch · T positions · D width of the stream · V vocabulary

Source: DeepSeek-AI 2024, arXiv:2412.19437, section 2.2, with one further token. Relatives: `modern`, which has the same
parts; `graph` (the inputs of each layer); `training.stages.Links` (the tensors between stages).
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from hybridlab.core.what.shape import Shape
from hybridlab.training.data.text import Spread, Text
from hybridlab.training.models.gpt import Head, token_loss
from hybridlab.training.models.model import Model
from hybridlab.training.models.modern import Modern, Norm

WEIGHT = 0.3  # the weight of the further token's loss, as for the paper's first ten trillion tokens
CUT = set("NKF")  # the letters of dims that tensor parallelism may cut inside a block


class Further(nn.Module):
    """A position's vector and the embedding of its next token, projected to one vector of this width; then a block."""

    def __init__(self, width: int, block: nn.Module):
        super().__init__()
        self.norm, self.next_norm = Norm(width), Norm(width)
        self.joined, self.block = nn.Linear(2 * width, width, bias=False), block

    def forward(self, x_BTD, token_BTD):
        both_BTE = torch.cat([self.norm(x_BTD[:, :-1]), self.next_norm(token_BTD[:, 1:])], 2)
        return self.block(self.joined(both_BTE))


class BothHeads(Head):
    """The scores of all positions, followed by those of `Further`: T for the next token, T - 1 for the one after it."""

    def forward(self, x_BTD, further_BTD):
        scores = super().forward
        return torch.cat([scores(x_BTD), scores(further_BTD)], 1)


class MultiToken(Modern):
    """The full model.

    >>> shape = Shape(layers=1, width=8, heads=2, context=4, style="llama", inner=12)
    >>> MultiToken(shape)(torch.zeros(3, 4, dtype=torch.long)).shape
    torch.Size([3, 7, 256])
    """

    def __init__(self, shape: Shape, seed: int = 0, dtype: torch.dtype = torch.float32):
        super().__init__(shape, seed, dtype)
        last = shape.layers
        self.takes = {last + 1: (last, 0), last + 2: (last, last + 1)}

    def parts(self, shape: Shape) -> tuple[nn.Module, nn.ModuleList, nn.Module]:
        """The modules of this model: embedding, blocks with the further one, head."""
        embed, blocks, _ = super().parts(replace(shape, layers=shape.layers + 1))
        blocks[-1] = Further(shape.width, blocks[-1])
        return embed, blocks, BothHeads(shape, Norm)


def both_loss(scores_BSV, targets_BT):
    """The *sum* of the cross-entropy of the next token, and WEIGHT times that of the one after it."""
    near = targets_BT.shape[1]
    return token_loss(scores_BSV[:, :near], targets_BT) + WEIGHT * token_loss(scores_BSV[:, near:], targets_BT[:, 1:])


class Windows(NamedTuple):
    """Sequences of a text, as a source of batches; those for a proof use the full vocabulary."""

    text: Text | Spread
    context: int
    vocabulary: int

    def batch(self, step: int, rows: int, seed: int = 0):
        return tuple(map(torch.from_numpy, self.text.batch(step, rows, self.context, seed)))

    @property
    def unseen(self) -> "Windows":
        return self._replace(text=self.text.unseen)

    @property
    def for_proof(self) -> "Windows":
        return self._replace(text=Spread(self.text, self.vocabulary))


def multi_token(shape: Shape) -> Model:
    """The model of a shape, on the bytes of a text; its blocks may be sharded along tp.

    raises  ValueError if the shape is not of style "llama", or has a feature that this model lacks
    """
    if shape.skips or shape.parallel or shape.documents or shape.experts > 1:
        raise ValueError(
            "multi-token prediction needs a plain chain of blocks and one document per sequence: leave out skips, "
            "parallel, documents and experts"
        )
    with torch.device("meta"):
        named = dict(MultiToken(shape).named_parameters())
    dims = {name: shape.dims(name) for name in named}
    dims = {name: one.replace("D", ".") for name, one in dims.items() if CUT & set(one)}
    sizes = {letter: length for letter, length in shape.sizes.items() if letter in CUT}
    source = Windows(Text.of(), shape.context, shape.vocabulary)
    return Model(partial(MultiToken, shape), both_loss, source, dims=dims, sizes=sizes, terms=shape.context)
