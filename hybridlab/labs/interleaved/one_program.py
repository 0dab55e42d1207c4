"""A pipeline as one program for all ranks (SPMD), as compilers for JAX make it: a loop of turns, and a shift in each.

In each turn every rank computes, and then sends its result to the next rank, the last rank to the first:

    turn        0      1      2      3      4
    rank 0      mb 0   mb 1   mb 2   …      garbage       v·m turns are useful, p-1 are not
    rank 1      garb.  mb 0   mb 1   mb 2   …

A rank has no list of actions and cannot be idle. In the turns in which a rank with a list would wait, it computes with
the tensor that it has, and a mask keeps the result out of the loss. All microbatches pass chunk 0, then chunk 1, as in
`looped_bfs`; the first rank stores microbatches that have gone round until their turn comes, so m ≥ p.

Source: MaxText, `layers/pipeline.py`, whose bubble is (p-1)/(v·m+p-1); praxis, `layers/pipeline.py`. Relatives:
`scheduling.looped_bfs`, a list for each rank (MPMD); notebook 13.
"""

from typing import NamedTuple

import torch

import hybridlab as hl

WIDTH, ROWS = 6, 2
GARBAGE = 0.5  # finite, because the gradient of a nan is a nan even after a mask


class Did(NamedTuple):
    """The result of one rank: its gradient (chunk by chunk), the number of turns and of those with garbage, the bytes
    sent.
    """

    gradient: torch.Tensor
    turns: int
    garbage: int
    bytes: int


class Shift(torch.autograd.Function):
    """Send a tensor to the next rank of a ring, and return the one from the previous rank; gradients go the other
    way."""

    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        return _around(comm, x, 1)

    @staticmethod
    def backward(ctx, gradient):
        return _around(ctx.comm, gradient, -1), None


def _around(comm, x, way):
    if comm.size == 1:
        return x.clone()
    sent = comm.isend(x.contiguous(), (comm.rank + way) % comm.size)
    came = comm.irecv(torch.empty_like(x), (comm.rank - way) % comm.size).wait()
    sent.wait()
    return came


def data(microbatches: int) -> torch.Tensor:
    """The microbatches, the same on all ranks."""
    return torch.randn(microbatches, ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def weights(stages: int) -> torch.Tensor:
    """A matrix for every stage."""
    return torch.randn(stages, WIDTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) / 2


def step(comm, chunks: int, microbatches: int, masked: bool = True) -> Did:
    """Forward and backward of a batch, the same program on every rank; masked=False: garbage counts in the loss
    (with one chunk; with more, the last rank's garbage is in chunk 0, and no output of the model)."""
    p, r, v, m, x_m = comm.size, comm.rank, chunks, microbatches, data(microbatches)
    w_v = weights(v * p)[r::p].clone().requires_grad_()  # stage k·p + r is chunk k of rank r
    came, stored, loss, garbage = torch.full((ROWS, WIDTH), GARBAGE, dtype=torch.float64), [], 0, 0
    for turn in range(v * m + p - 1):
        work = turn - r  # the pass that a list would have here; there is none below 0, or for v·m and more
        useful = torch.tensor(0 <= work < v * m)
        chunk, microbatch = min(max(work, 0), v * m - 1) // m, work % m
        stored.append(came)
        again = stored[turn - m + p] if turn >= m else came  # has gone round: from the last rank, m - p turns before
        enters = torch.where(torch.tensor(turn < m), x_m[turn % m], again)
        y = torch.tanh(torch.where(torch.tensor(r == 0), enters, came) @ w_v[chunk].T)
        ends = torch.tensor(r == p - 1 and chunk == v - 1)
        loss = loss + torch.where(ends & (useful | (not masked)), ((y - x_m[microbatch]) ** 2).mean() / m, 0.0)
        came, garbage = Shift.apply(y, comm), garbage + int(not useful)
    (loss + 0 * came.sum()).backward()  # on every rank the same operations, also in the backward
    sent = sum(row["bytes"] for row in comm.ledger.rows() if row["op"] == "isend")
    return Did(w_v.grad, turn + 1, garbage, sent)


def one_device(ranks: int, chunks: int, microbatches: int) -> torch.Tensor:
    """The gradient of every stage, without a pipeline."""
    w_s, loss = weights(ranks * chunks).requires_grad_(), 0
    for x in data(microbatches):
        y = x
        for w in w_s:
            y = torch.tanh(y @ w.T)
        loss = loss + ((y - x) ** 2).mean() / microbatches
    loss.backward()
    return w_s.grad


def spmd(ranks: int, chunks: int, microbatches: int, masked: bool = True) -> tuple[float, list[Did]]:
    """(the largest relative difference of a gradient from one device, the result of each rank), on real ranks.

    raises  ValueError if there are fewer microbatches than ranks
    """
    if microbatches < ranks:
        raise ValueError(
            f"with {microbatches} microbatches on {ranks} ranks, the first microbatch returns to rank 0 before rank 0 "
            f"is ready for it: give {ranks} microbatches or more"
        )
    with hl.ranks(ranks) as pool:
        home = [Did(*one) for one in pool.run(step, chunks, microbatches, masked)]
    right = one_device(ranks, chunks, microbatches)
    gap = max(float((did.gradient - right[r::ranks]).abs().max()) for r, did in enumerate(home))
    return gap / float(right.abs().max()), home
