"""Notebook 13: a student's loss with a sharded output head, tested on real ranks and compared with one device."""

from typing import NamedTuple

from hybridlab.core.where.layout import even
from hybridlab.labs.trials.against import SMALL, against_one_device, dense, gap

UNTRACKED = "without its history: autograd must follow it back to the scores, so use neither no_grad() nor detach()."


class Vocabulary(NamedTuple):
    """A number of ranks, each with a piece of a vocabulary, and a number of positions; scores are multiplied by a
    factor.
    """

    ranks: int
    positions: int
    vocabulary: int
    factor: int = 1

    def __str__(self):
        """
        >>> print(Vocabulary(2, 3, 8))
        2 ranks with 3 positions and a vocabulary of 8 entries
        """
        large = f", with scores near {self.factor}" if self.factor > 1 else ""
        return (
            f"{self.ranks} ranks with {self.positions} positions and a vocabulary of {self.vocabulary} entries{large}"
        )


PIECES = (Vocabulary(2, 6, 10), Vocabulary(3, 7, 10), Vocabulary(4, 5, 12, 1000), Vocabulary(1, 3, 6))


@against_one_device
def try_pieces(run, answer, case):
    """The student's two functions on this rank; messages carry their numbers to the last rank, and gradients back."""
    import torch

    my_piece, my_join = answer
    comm, last = run.comm, case.ranks - 1
    scores_NV = case.factor * dense((case.positions, case.vocabulary), 0)
    targets_N = torch.arange(case.positions, device=scores_NV.device) * 3 % case.vocabulary
    first, end = even(case.vocabulary, case.ranks)[comm.rank]
    mine_NW = scores_NV[:, first:end].clone().requires_grad_()
    both = my_piece(mine_NW, targets_N, first)
    run.settle(_wrong_piece(both, mine_NW, targets_N, first))
    here = torch.stack(list(both))
    if comm.rank < last:
        sent, told = [comm.isend(here.detach(), last, tag=0)], ""
        gradient = comm.recv(torch.empty_like(here), last, tag=1)
    else:
        pieces = [comm.recv(torch.empty_like(here), rank, tag=0) for rank in range(last)]
        pieces_P2N = torch.stack([*pieces, here.detach()]).requires_grad_()
        loss_N = my_join(*pieces_P2N.unbind(1))
        told = _wrong_loss(loss_N, pieces_P2N.detach(), scores_NV, targets_N)
        if not told:
            loss_N.sum().backward()
        found = torch.zeros_like(pieces_P2N) if pieces_P2N.grad is None else pieces_P2N.grad
        sent = [comm.isend(found[rank].contiguous(), rank, tag=1) for rank in range(last)]
        gradient = found[last]
    for message in sent:
        message.wait()
    run.settle(told)
    here.backward(gradient)
    right_NV = scores_NV.softmax(1)
    right_NV[torch.arange(case.positions, device=scores_NV.device), targets_N] -= 1
    if gap(mine_NW.grad, right_NV[:, first:end]) > SMALL:
        told = "has the right loss, but the gradient of its scores is not that of one device: what did detach() omit?"
    run.settle(told)


def _wrong_piece(both, scores_NW, targets_N, first: int) -> str:
    """The mistake in the two numbers of a piece, in words; empty if there is none."""
    import torch

    shape = tuple(targets_N.shape)
    if not isinstance(both, tuple | list) or len(both) != 2 or not all(torch.is_tensor(one) for one in both):
        return "has not returned two tensors: return lse, target."
    if any(tuple(one.shape) != shape for one in both):
        return f"returned tensors of shape {' and '.join(str(tuple(one.shape)) for one in both)}; both have {shape}."
    scores_NW = scores_NW.detach()
    column_N = (targets_N - first).clamp(0, scores_NW.shape[1] - 1)
    some_N = scores_NW.gather(1, column_N[:, None])[:, 0]
    here_N = (targets_N >= first) & (targets_N < first + scores_NW.shape[1])
    lse, target = (one.detach() for one in both)
    if gap(lse, scores_NW.logsumexp(1)) > SMALL or not bool(lse.isfinite().all()):
        if not bool(lse.isfinite().all()):
            return (
                "has a sum that is too large for its data type: which function subtracts the largest score before it "
                "takes exp?"
            )
        if gap(lse, scores_NW.exp().sum(1)) < SMALL:
            return "returned the sum of exp(score): return its logarithm."
        return "returned a different lse from log Σ exp(score) over its own vocabulary entries."
    if float((target - some_N * here_N).abs().max()) > SMALL * float(some_N.abs().max()):
        if gap(target, some_N) < SMALL:
            return "returned a score also for targets that belong to other pieces: return 0 for these."
        return "returned another target score: its vocabulary entries are numbered from first on."
    for name, one, used in (("lse", both[0], True), ("target", both[1], bool(here_N.any()))):
        if used and not one.requires_grad:
            return f"returned {name} {UNTRACKED}"
    return ""


def _wrong_loss(loss_N, pieces_P2N, scores_NV, targets_N) -> str:
    """The mistake in the loss of all positions, in words; empty if there is none."""
    import torch
    from torch.nn import functional

    if not torch.is_tensor(loss_N) or loss_N.shape != targets_N.shape:
        return f"has not returned a loss for each of the {len(targets_N)} positions."
    lse_PN, target_PN = pieces_P2N.unbind(1)
    right = functional.cross_entropy(scores_NV, targets_N, reduction="none")
    mine, spread = loss_N.detach(), float((loss_N.detach() - right).abs().max())
    if not bool(mine.isfinite().all()):
        return "has a sum that is too large for its data type: combine logarithms as a piece combines scores."
    if spread <= SMALL * max(1.0, float(scores_NV.abs().max())):
        return "" if loss_N.requires_grad else f"returned the right loss, but {UNTRACKED}"
    if gap(mine, lse_PN.sum(0) - target_PN.sum(0)) < SMALL:
        return "added the logarithms, which multiplies the sums: what is log(e^a + e^b)?"
    if gap(mine, lse_PN.logsumexp(0)) < SMALL:
        return "has the logarithm of the full sum: what is still to be subtracted?"
    if gap(mine, -right) < SMALL:
        return "returned the loss with the wrong sign: a smaller loss must mean a more probable target."
    if gap(mine, lse_PN.logsumexp(0) - target_PN.amax(0)) < SMALL:
        return (
            "took the largest of the pieces' target scores, but a score may be negative: add them; only one is not 0."
        )
    if gap(mine, lse_PN.logsumexp(0) + target_PN.sum(0)) < SMALL:
        return "added the target's score to log Σ exp(score): which of the two does the loss subtract?"
    return "returned a different loss from that of one device."
