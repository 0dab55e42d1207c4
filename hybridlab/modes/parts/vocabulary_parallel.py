"""The vocabulary, sharded over tp: embedding, head and loss, without logits of the full vocabulary on any rank.

Each rank has some rows of the embedding and computes their logits for the same tokens. The embedding of a token is a
sum over ranks with only one nonzero term. The loss of a position is log Σ exp(logit) - logit of the target: two
numbers, each a sum over ranks. Both are scaled by the largest logit, a maximum over all ranks. So three numbers are
sent for a position, instead of one for every token of the vocabulary.

Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3. Relatives: `tensor_parallel`,
`training.models.gpt.token_loss`.
"""

import torch
from torch import nn
from torch.nn import functional

from hybridlab.core.where.layout import even


class VocabularyEmbedding(nn.Module):
    """An embedding with sharded rows.

    embedding  the torch embedding whose parameter it takes over;  stream  the stream that all-reduces its output
    """

    def __init__(self, embedding: nn.Embedding, comm, vocabulary: int, stream):
        super().__init__()
        self.weight, self.stream = embedding.weight, stream
        self.tokens = first, last = _span(vocabulary, comm)
        padding = embedding.padding_idx  # this token's row has no gradient
        self.padding = None if padding is None or not first <= padding < last else padding - first

    def forward(self, tokens_BT):
        here_BT, row_BT = _rows(tokens_BT, *self.tokens)
        return self.stream.leave(functional.embedding(row_BT, self.weight, self.padding) * here_BT[..., None])


def token_loss(comm, vocabulary: int):
    """The loss for logits sharded along the vocabulary: loss(scores_BTV, targets_BT), the same number on all ranks."""
    first, last = _span(vocabulary, comm)
    return lambda scores_BTV, targets_BT: _CrossEntropy.apply(scores_BTV, targets_BT, comm, first, last)


class _CrossEntropy(torch.autograd.Function):
    """The summed cross-entropy; its gradient with respect to a rank's logits is probability minus target, and
    needs no message.
    """

    @staticmethod
    def forward(ctx, scores_BTV, targets_BT, comm, first, last):
        here_BT, row_BT = _rows(targets_BT, first, last)
        largest_BT = comm.all_reduce(scores_BTV.amax(2), "tp", op="max")
        scores_BTV = scores_BTV - largest_BT[..., None]
        target_BT = scores_BTV.gather(2, row_BT[..., None])[..., 0] * here_BT
        power_BTV = scores_BTV.exp()
        total_BT, target_BT = comm.all_reduce(torch.stack([power_BTV.sum(2), target_BT]), "tp")
        ctx.save_for_backward(power_BTV / total_BT[..., None], row_BT, here_BT)
        return (total_BT.log() - target_BT).sum()

    @staticmethod
    def backward(ctx, gradient):
        probability_BTV, row_BT, here_BT = ctx.saved_tensors
        target_BT1 = here_BT[..., None].to(probability_BTV.dtype)
        return gradient * probability_BTV.scatter_add(2, row_BT[..., None], -target_BT1), None, None, None, None


def _span(vocabulary: int, comm) -> tuple[int, int]:
    """The tokens of this rank: first, and last + 1."""
    return even(vocabulary, comm.mesh["tp"])[comm.coordinates["tp"]]


def _rows(tokens_BT, first: int, last: int):
    """(whether each token belongs to this rank, its row here); for all others, the row of some token that it has."""
    here_BT = (tokens_BT >= first) & (tokens_BT < last)
    return here_BT, (tokens_BT - first).clamp(0, last - first - 1)
