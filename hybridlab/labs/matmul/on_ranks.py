"""Notebook 31: parallel matmuls on real ranks, compared with one device; every word is counted, and so is memory.

A *word* is one element of a matrix. The words of a collective are counted as in a ring.
"""

import time
from typing import NamedTuple

from hybridlab.labs.trials.against import dense, gap, words_of
from hybridlab.labs.trials.table import Table
from hybridlab.predict.bytes.matmul_by_rank import sent


class Home(NamedTuple):
    """The result of one rank: the largest difference from one device over C, dA and dB; the words that it sent."""

    gap: float
    forward: int
    backward: int


def counted(pool, algorithm: str, sizes: tuple[int, int, int]) -> Table:
    """A matmul and its backward on the ranks of a pool, rank by rank: counted and predicted words.

    algorithm  a name in `modes.products.matmul.PRODUCTS`;  sizes  (m, k, n)
    """
    homes = [Home(*home) for home in pool.run(_multiplied, algorithm, tuple(sizes))]
    grid = tuple(pool.mesh[axis] for axis in "ijl")
    rows = []
    for rank, home in enumerate(homes):
        place = tuple(pool.mesh.coordinates(rank)[axis] for axis in "ijl")
        foreseen = sent(algorithm, sizes, grid, place)
        rows.append((f"{rank} at {place}", _both(home.forward, foreseen.forward),
                     _both(home.backward, foreseen.backward)))  # fmt: skip
    worst = max(home.gap for home in homes)
    equal = "C, dA and dB are those of one device" if worst < 1e-12 else f"C, dA or dB is off by {worst:.1e}"
    return Table(("rank", "forward: counted / predicted", "backward: counted / predicted"), tuple(rows), f"{equal}.")


def _both(counted, foreseen) -> str:
    return f"{counted:,} / {foreseen:,}"


def kept(pool, algorithm: str, sizes: tuple[int, int, int]) -> Table:
    """The numbers that rank 0 saves for the backward besides A and B, and those that it sends, with and without
    recomputation."""
    rows = []
    for name, again in (("as written", False), ("forward again in the backward", True)):
        numbers, forward, backward = pool.run(_kept, algorithm, tuple(sizes), again)[0]
        rows.append((name, f"{numbers:,}", f"{forward:,}", f"{backward:,}"))
    return Table(("product", "keeps", "sends forward", "sends backward"), tuple(rows))


def seconds(pool, algorithm: str, side: int, ahead: bool = False, times: int = 9) -> list[float]:
    """Seconds of a matmul of square matrices with its backward, several times, each on the slowest rank."""
    homes = pool.run(_timed, algorithm, (side,) * 3, ahead, times)
    return [max(one) for one in zip(*homes)]


# --- on a rank ----------------------------------------------------------------------------------------------------


def blocks(comm, algorithm: str, sizes):
    """(the full A, B and gradient of C; the beginning and the end of this rank's part of each)."""
    from hybridlab.modes.products import matmul

    m, k, n = sizes
    wholes = dense((m, k), 1), dense((k, n), 2), dense((m, n), 3)
    axes = matmul.HOMES[algorithm]
    return wholes, [matmul.home(comm.mesh, comm.coordinates, X.shape, axes[name]) for name, X in zip("ABC", wholes)]


def _multiplied(comm, algorithm, sizes):
    from hybridlab.modes.products import matmul

    (A, B, G), (a_home, b_home, c_home) = blocks(comm, algorithm, sizes)
    a, b = A[a_home].clone().requires_grad_(), B[b_home].clone().requires_grad_()
    start = len(comm.ledger)
    c = matmul.PRODUCTS[algorithm](comm, a, b, sizes)
    middle = len(comm.ledger)
    forward = words_of(comm.ledger, start)
    c.backward(G[c_home])
    gaps = gap(c.detach(), (A @ B)[c_home]), gap(a.grad, (G @ B.T)[a_home]), gap(b.grad, (A.T @ G)[b_home])
    return Home(max(gaps), forward, words_of(comm.ledger, middle))


def _kept(comm, algorithm, sizes, again):
    """(numbers kept for the backward besides A and B, words sent forward, words sent in the backward)."""
    import torch
    from torch.utils.checkpoint import checkpoint

    from hybridlab.modes.products import matmul

    (A, B, G), (a_home, b_home, c_home) = blocks(comm, algorithm, sizes)
    a, b = A[a_home].clone().requires_grad_(), B[b_home].clone().requires_grad_()
    product = lambda a, b: matmul.PRODUCTS[algorithm](comm, a, b, sizes)
    there, start = {}, len(comm.ledger)

    def keep(tensor):
        there[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        c = checkpoint(product, a, b, use_reentrant=False) if again else product(a, b)
    own = {one.untyped_storage().data_ptr() for one in (a, b)}
    numbers = sum(tensor.numel() for place, tensor in there.items() if place not in own)
    middle = len(comm.ledger)
    c.backward(G[c_home])
    return numbers, words_between(comm.ledger, start, middle), words_of(comm.ledger, middle)


def words_between(ledger, since: int, until: int) -> int:
    """The words that this rank has sent in the rows from `since` up to `until`."""
    return words_of(ledger, since) - words_of(ledger, until)


def _timed(comm, algorithm, sizes, ahead, times):
    from hybridlab.modes.products import matmul

    (A, B, G), (a_home, b_home, c_home) = blocks(comm, algorithm, sizes)
    a, b = A[a_home].clone().requires_grad_(), B[b_home].clone().requires_grad_()
    product = matmul.summa_ahead if ahead else matmul.PRODUCTS[algorithm]
    took = []
    for _ in range(times):
        comm.barrier()
        start = time.perf_counter()
        product(comm, a, b, sizes).backward(G[c_home])
        took.append(time.perf_counter() - start)
    return took
