"""Ring attention: every rank has some positions of a sequence; keys and values pass through all ranks once.

A rank's queries attend to the keys and values of one rank after another. Each result is a softmax over a part of the
keys. Two such partial results are combined exactly with the logarithm of their sums of exponentials (lse):

    lse = log(exp(lse₁) + exp(lse₂))        out = out₁·exp(lse₁ - lse) + out₂·exp(lse₂ - lse)

While one part is computed, the next one is in transit. The backward goes round the ring once more. It recomputes a
part's probabilities from the lse of *all* keys, and the gradients of keys and values travel with them back to their
owner. So a rank never stores more than its own part of the sequence and two parts in transit.

Causal attention: a chunk after this rank's positions is passed on and not computed. With chunks in order, the last rank
computes all parts and the first one only its own, so all ranks wait for the last. In the zigzag order, every rank has
one chunk of each document from the front and one from the back, and all ranks compute the same number of pairs
(`Chunks.pairs`). A chunk that contains only other documents is not computed either.

Source: Liu et al. 2023, arXiv:2310.01889; the zigzag, Llama Team 2024, arXiv:2407.21783, section 3.3.2. Relatives:
`context_parallel`, the mode; `circle`, the hops; notebook 33.

Shape suffixes   B rows; K heads of keys and values; G query heads for each of them; Q, S positions of queries and of
keys; H width of a head
"""

import math

import torch

from hybridlab.core.where.chunks import Chunks
from hybridlab.modes.parts.circle import Circle
from hybridlab.runtime import masks


def ring_attention(q_BNQH, k_BKSH, v_BKSH, comm, axis: str, chunks: Chunks):
    """The attention outputs of this rank's positions over the full sequence.

    The number of query heads is a multiple of the number of KV heads.
    """
    q_BKGQH = q_BNQH.unflatten(1, (k_BKSH.shape[1], -1))
    out_BKGQH = Ring.apply(q_BKGQH, k_BKSH, v_BKSH, Round(comm, axis, chunks))
    return out_BKGQH.flatten(1, 2)


class Ring(torch.autograd.Function):
    """Ring attention as an autograd function, forward and backward.

    args, kwargs  those of `torch.autograd.Function`: call `Ring.apply`
    """

    @staticmethod
    def forward(ctx, q, k, v, ring):
        found, parts, widths = {}, torch.cat((k, v), -1), (k.shape[-1], v.shape[-1])
        for source, last in ring.sources():
            coming = None if last else ring.passed_on(parts, source)
            for mine, at, its, seen_QS in ring.meetings(source, q.device):
                met = part_of_attention(q[..., at, :], *parts[..., its, :].split(widths, -1), seen_QS)
                found[mine] = joined(*found[mine], *met) if mine in found else met
            parts = None if last else coming.wait()
        out, lse = (torch.cat(every, -2) for every in zip(*(found[chunk] for chunk, _ in ring.own)))
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.ring = ring
        return out

    @staticmethod
    def backward(ctx, by_out):
        q, k, v, out, lse = ctx.saved_tensors
        ring, spread = ctx.ring, (by_out * out).sum(-1, keepdim=True)
        by_q, parts, grown = torch.zeros_like(q), torch.cat((k, v), -1), None
        widths = k.shape[-1], v.shape[-1]
        for source, last in ring.sources():
            coming = None if last else ring.passed_on(parts, source)
            by_parts = torch.zeros_like(parts)
            for _, at, its, seen_QS in ring.meetings(source, q.device):
                of_queries = (x[..., at, :] for x in (q, by_out, lse, spread))
                found = part_of_backward(*of_queries, *parts[..., its, :].split(widths, -1), seen_QS)
                by_q[..., at, :] += found[0]
                by_parts[..., its, :] += torch.cat(found[1:], -1)
            if grown is not None:  # the sum of the others for this part came during its computation
                by_parts += grown.wait()
            grown = ring.passed_on(by_parts, source)  # after the last part, it is with its owner
            parts = None if last else coming.wait()
        return by_q, *grown.wait().split(widths, -1), None


class Round(Circle):
    """One rank's place on the ring, and the order in which other ranks' positions arrive."""

    def __init__(self, comm, axis, chunks: Chunks):
        lengths = [chunks.length(rank) for rank in range(comm.group(axis).size)]
        super().__init__(comm, axis, lengths, dim=-2)
        self.chunks, self.own = chunks, chunks.slices(self.here)

    def meetings(self, source: int, device: torch.device):
        """(a chunk of this rank, its place here, the place of a chunk of the source in its part, the mask of its keys).

        Pairs of chunks in which no query sees a key are not computed.
        """
        for mine, at in self.own:
            for other, its in self.chunks.slices(source):
                if self.chunks.meet(mine, other):
                    yield mine, at, its, masks.between(self.chunks, mine, other, device)


def part_of_attention(q_BKGQH, k_BKSH, v_BKSH, seen_QS=None):
    """(attention output over a part of the keys, the logarithm of the sum of its exponentials).

    seen_QS  a mask of the keys that each query sees, perhaps none; None: all
    """
    scores_BKGQS = _scores(q_BKGQH, k_BKSH, seen_QS)
    lse_BKGQ1 = scores_BKGQS.logsumexp(-1, keepdim=True)
    return (scores_BKGQS - lse_BKGQ1).exp().to(v_BKSH.dtype) @ v_BKSH[:, :, None], lse_BKGQ1


def joined(out, lse, other_out, other_lse):
    """Two partial results combined, in the dtype of lse: with many parts, rounding errors would accumulate.

    >>> q, k, v = torch.randn(3, 1, 1, 1, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> parts = [part_of_attention(q, k[:, :, 0, s], v[:, :, 0, s]) for s in (slice(0, 2), slice(2, 6))]
    >>> both, _ = joined(*parts[0], *parts[1])
    >>> torch.allclose(both, part_of_attention(q, k[:, :, 0], v[:, :, 0])[0])
    True
    """
    together = torch.logaddexp(lse, other_lse)
    weighted = out * (lse - together).exp() + other_out * (other_lse - together).exp()
    return weighted, together


def part_of_backward(q_BKGQH, by_out, lse, spread, k_BKSH, v_BKSH, seen_QS=None):
    """The gradients of queries, keys and values of one part; lse and spread = Σ out·dout come from all keys."""
    p_BKGQS = (_scores(q_BKGQH, k_BKSH, seen_QS) - lse).exp().to(q_BKGQH.dtype)
    by_p_BKGQS = by_out @ v_BKSH[:, :, None].transpose(-1, -2)
    by_scores_BKGQS = p_BKGQS * (by_p_BKGQS - spread) / math.sqrt(q_BKGQH.shape[-1])
    by_q = by_scores_BKGQS @ k_BKSH[:, :, None]
    by_k = (by_scores_BKGQS.transpose(-1, -2) @ q_BKGQH).sum(2)
    return by_q, by_k, (p_BKGQS.transpose(-1, -2) @ by_out).sum(2)


def _scores(q_BKGQH, k_BKSH, seen_QS):
    """Scores in float32 or wider. A hidden key gets the smallest finite number instead of -∞: a query that sees no key
    of this part still gets finite weights, which become 0 when parts are joined."""
    scores = q_BKGQH @ k_BKSH[:, :, None].transpose(-1, -2) / math.sqrt(q_BKGQH.shape[-1])
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores if seen_QS is None else scores.masked_fill(~seen_QS, torch.finfo(scores.dtype).min)
