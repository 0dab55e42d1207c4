"""A transformer with its head in pieces of the vocabulary: each gives two numbers per token, and a join combines them.

The loss of a token is log Σ exp(score) - score of the target, over the full vocabulary. Each piece has the scores of
its own tokens. It gives the log Σ exp of these, and the target's score, or 0 if the target belongs to another piece:

    embedding, blocks ── norm ─┬─ piece 0 ─┬─ join    loss = log Σ exp(lse of the pieces) - Σ target scores
                               └─ piece 1 ─┘

So the layers are those of the usual model, but the norm of its head replaces the head, and the pieces and their join
follow. The inputs of this model are (tokens, targets): a rank has the batch anyway, so no targets are sent. Initial
weights are those of the usual model, and a tied embedding is made of the same pieces.

Source: Yeung et al. 2024, arXiv:2411.05288. There the embedding is sharded too; here it stays in the first stage.
Relatives: `scheduling.vocabulary`, the schedule; `models.slices` and `models.parts`, other cuts;
`modes.parts.vocabulary_parallel`, the same loss along tp.

Shape suffixes
    those of GPT, and V the tokens of one piece
"""

from collections.abc import Iterable
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.what.shape import Shape
from hybridlab.core.where.layout import even
from hybridlab.training.models.gpt import GPT
from hybridlab.training.models.graph import in_sequence
from hybridlab.training.models.model import Model
from hybridlab.training.models.modern import Modern
from hybridlab.training.models.transformer import Transformer


class Embedded(nn.Module):
    """The embedding, for inputs (tokens, targets)."""

    def __init__(self, embed: nn.Module):
        super().__init__()
        self.embed = embed

    def forward(self, both):
        return self.embed(both[0])


class Piece(nn.Module):
    """The scores of some tokens of the vocabulary, as two numbers for each position: (B, T, 2).

    span  the tokens

    Both are in single precision or better.
    """

    def __init__(self, width: int, span: range):
        super().__init__()
        self.scores, self.span = nn.Linear(width, len(span), bias=False), span

    def forward(self, both, x_BTD):
        scores_BTV, targets_BT = in_single(self.scores(x_BTD)), both[1]
        here_BT = (targets_BT >= self.span.start) & (targets_BT < self.span.stop)
        row_BT = (targets_BT - self.span.start).clamp(0, len(self.span) - 1)
        target_BT = scores_BTV.gather(2, row_BT[..., None])[..., 0] * here_BT
        return torch.stack([scores_BTV.logsumexp(2), target_BT], 2)


class Join(nn.Module):
    """The loss of every token, (B, T), from the numbers of all pieces."""

    def forward(self, *pieces_BT2):
        sums_BTP, targets_BTP = torch.stack(pieces_BT2, 3).unbind(2)
        return sums_BTP.logsumexp(2) - targets_BTP.sum(2)


class HeadInPieces(nn.Module):
    """The head as a norm, pieces and a join."""

    def __init__(self, norm: nn.Module, width: int, spans: list[range]):
        super().__init__()
        self.norm, self.pieces, self.join = norm, nn.ModuleList(Piece(width, span) for span in spans), Join()


class Tokens(nn.Module):
    """A table of embeddings that is made of the weights of pieces."""

    def __init__(self, pieces: list[nn.Parameter]):
        super().__init__()
        self.pieces = nn.ParameterList(pieces)

    def forward(self, tokens_BT):
        return functional.embedding(tokens_BT, torch.cat(list(self.pieces)))


class InPieces:
    """A mixin that replaces a GPT's head by one in pieces.

    number  of pieces
    """

    def __init__(self, shape: Shape, number: int, *more, **named):
        self.spans = spans_of(shape, number)
        super().__init__(shape, *more, **named)

    def parts(self, shape: Shape):
        embed, blocks, head = super().parts(shape)
        return embed, blocks, HeadInPieces(head.norm, shape.width, self.spans)

    def tie(self):
        self.embed.token = Tokens([piece.scores.weight for piece in self.head.pieces])

    def layers(self):
        *body, head = super().layers()
        return [Embedded(body[0]), *body[1:], head.norm, *head.pieces, head.join]

    def first(self, name, like, box, device):
        """The initial numbers that the full matrix has in these rows."""
        *_, last = name.split(".")
        number = last if name.startswith("embed.token.pieces.") else name.removeprefix("head.pieces.").split(".")[0]
        if not number.isdigit():
            return super().first(name, like, box, device)
        span, whole = self.spans[int(number)], "embed.token.weight" if self.shape.tied else "head.scores.weight"
        full = nn.Parameter(like.new_empty((self.shape.vocabulary, like.shape[1]), device="meta"))
        low, high, _ = (box[0] if box else slice(None)).indices(len(span))
        return super().first(whole, full, (slice(span.start + low, span.start + high), *box[1:]), device)


class GPTInPieces(InPieces, GPT):
    """A GPT with its head in pieces."""


class ModernInPieces(InPieces, Modern):
    """The modern transformer with its head in pieces."""


STYLES = {"gpt": GPTInPieces, "llama": ModernInPieces}


class Pieced(Transformer):
    """The reference model of a shape with its head in pieces, for `scheduling.vocabulary`.

    of      the usual model number  of pieces
    spans   the tokens of each
    body    the number of layers before them

    >>> model = Pieced(Transformer(Shape(layers=1, width=8, heads=2, context=4)), 3)
    >>> [type(layer).__name__ for layer in model.layers(model.made(0, torch.float32, {}))]
    ['Embedded', 'Block', 'LayerNorm', 'Piece', 'Piece', 'Piece', 'Join']
    """

    scores = ""  # no rank has the scores of all tokens

    def __init__(self, of: Transformer, number: int):
        super().__init__(of.shape, of.file, proving=of.proving)
        self.of, self.number = of, number
        self.whole, self.loss = partial(STYLES[of.shape.style], of.shape, number), summed
        self.spans = spans_of(of.shape, number)
        self.body = len(of.layers(of.made(0, torch.float32, {})))

    def __reduce__(self):
        return Pieced, (self.of, self.number)

    def for_proof(self):
        return Pieced(self.of.for_proof(), self.number)

    def takes(self, module):
        pieces = range(self.body, self.body + self.number)
        ends = {piece: (-1, self.body - 1) for piece in pieces} | {pieces.stop: tuple(pieces)}
        return super().takes(module) | ends

    def through(self, module, inputs):
        """The losses of all tokens by the full head, on one device."""
        layers, takes = self.layers(module)[: self.body], self.takes(module)
        x_BTD = in_sequence(dict(enumerate(layers)), takes, {-1: inputs})[self.body - 1]
        scores_BTV = in_single(torch.cat([piece.scores(x_BTD) for piece in module.head.pieces], 2))
        return functional.cross_entropy(scores_BTV.transpose(1, 2), inputs[1], reduction="none")

    def batch(self, step, rows, seed=0, unseen=False):
        both = super().batch(step, rows, seed, unseen)
        return both, both[1]

    def dims_of(self, parameters):
        """The names in the usual model, but the tokens of a piece have no name, so no other mode shards them."""
        return {name: ". D" if ".pieces." in name else self.shape.dims(name) for name in parameters}

    def repeated(self, layers):
        return self.of.repeated(self.body)

    def between(self, rows, dtype, batch=None, sent=()):
        """x_BTD after every layer before the pieces, two numbers for each token after them, and the losses."""
        *body, scores_BTV = self.of.between(rows, dtype)
        x_BTD, losses_BT = body[-1], in_single(scores_BTV[..., 0])
        return [*body, x_BTD, *[torch.stack([losses_BT] * 2, 2)] * self.number, losses_BT]


def spans_of(shape: Shape, number: int) -> list[range]:
    """The tokens of each of this number of pieces.

    >>> spans_of(Shape(vocabulary=259), 2)
    [range(0, 130), range(130, 259)]
    """
    return [range(*one) for one in even(shape.vocabulary, number)]


def pieces_in(names: Iterable[str]) -> int:
    """The number of pieces of a head, counted from the names of parameters; 0 if the head is one matrix.

    >>> pieces_in(["head.norm.weight", "head.pieces.0.scores.weight", "head.pieces.1.scores.weight"])
    2
    """
    return len({name.split(".pieces.")[1].split(".")[0] for name in names if ".pieces." in name})


def summed(losses_BT, _):
    """The *sum* of the losses of all tokens."""
    return losses_BT.sum()


def in_single(x):
    """A tensor in single precision, or in its own dtype if that is more precise."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def refuse_no_pieces(model: Model, name: str):
    """Raise an error unless the head of a model can be cut in pieces.

    name  of the schedule

    raises  ValueError for any model other than a reference transformer
    """
    if type(model) is not Transformer or model.parts or model.shape.style not in STYLES:
        raise ValueError(
            f"{name} shards the head of a reference transformer, but this model has a different last layer: give "
            "shape=hl.Shape(…), or choose 1f1b"
        )
