"""A student's Newton–Schulz on shards of columns, in notebook 22: run on real ranks, and compared with one device."""

from collections.abc import Iterator
from typing import NamedTuple

from hybridlab.labs.trials.against import SMALL, against_one_device, dense, gap
from hybridlab.modes.parts.newton_schulz import COEFFICIENTS, STEPS, newton_schulz


class Columns(NamedTuple):
    """A matrix whose columns are sharded over `ranks` ranks."""

    ranks: int
    rows: int
    columns: int

    def __str__(self) -> str:
        """
        >>> print(Columns(2, 4, 6))
        2 ranks with a 4 × 6 matrix
        """
        return f"{self.ranks} ranks with a {self.rows} × {self.columns} matrix"


CASES = (Columns(2, 4, 6), Columns(3, 6, 12), Columns(4, 5, 8))


@against_one_device
def try_columns(run, answer, case):
    """The student's function on this rank: answer(comm, x) with this rank's columns."""
    import torch

    rank = run.comm.rank
    matrix = dense((case.rows, case.columns), 0)
    blocks, right = matrix.chunk(case.ranks, 1), newton_schulz(matrix).chunk(case.ranks, 1)[rank]
    run.begin()
    comm = _Recorded(run.comm)
    y = answer(comm, blocks[rank].clone())
    gathered = _gathered(run, comm.sums, blocks)
    if not isinstance(y, torch.Tensor) or y.shape != right.shape:
        shape = tuple(y.shape) if isinstance(y, torch.Tensor) else repr(y)[:40]
        run.settle(f"returned {shape}; return its columns of the new matrix, a tensor of shape {tuple(right.shape)}.")
    run.settle(gathered if gap(y, right) < SMALL else _mistake(y, right, blocks, rank))


class _Recorded:
    """The `comm` itself, which also keeps in `sums` the sums that it has received."""

    def __init__(self, comm):
        self._comm, self.sums = comm, []

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def all_reduce(self, x, *about, **more):
        came = self._comm.all_reduce(x, *about, **more)
        self.sums.append(came.detach().clone())
        return came

    def iall_reduce(self, x, *about, **more):
        self.sums.append(x)  # in place: the sum is here after wait()
        return self._comm.iall_reduce(x, *about, **more)


def _gathered(run, sums, blocks) -> str:
    """The operation that brought the full matrix to this rank, in words; empty if there is none."""
    for op in run.comm.ledger.op[run.since :]:
        if op != "all_reduce":
            return f"has the right columns, but called {op}: use only all_reduce, and do not gather the matrix."
    others = [block for rank, block in enumerate(blocks) if rank != run.comm.rank]
    if any(all(_contain(sums, scale * block) for block in others) for scale in _scales(blocks)):
        return "has the right columns, but its sums contain the columns of all other ranks: that gathers the matrix."
    return ""


def _contain(sums, block) -> bool:
    """Whether every number of a block is in one of the sums, because only zeros were added to it."""
    import torch

    came = torch.cat([one.flatten() for one in sums]) if sums else block.new_zeros(1)
    return bool(((came[:, None] - block.flatten()).abs().min(0).values < SMALL * block.abs().max()).all())


def _scales(blocks) -> list[float]:
    """The factors of a gathered matrix: it may be gathered as it is, or after the division by its norm."""
    return [1.0, float(1 / sum(block.square().sum() for block in blocks).sqrt())]


# --- known mistakes: each is Newton–Schulz with another norm of a block, or another polynomial of the Gram matrices ---


def _mistake(y, right, blocks, rank: int) -> str:
    for wrong, told in _known(blocks):
        if gap(y, wrong[rank]) < SMALL:
            return told
    if gap(y, right * len(blocks)) < SMALL:
        return f"returned columns that are {len(blocks)} times too large."
    return (
        "returned different columns from those of one device: are the norm and each Gram matrix those of the full "
        "matrix?"
    )


def _known(blocks) -> Iterator[tuple[list, str]]:
    """(the columns of all ranks with one mistake, the reply to it)."""
    ranks = len(blocks)
    each = [block.norm() for block in blocks]
    own = lambda grams: [_polynomial(gram, gram @ gram) for gram in grams]
    of_sum = lambda grams, squares: [_polynomial(sum(grams), square) for square in squares]
    squares = lambda grams: [gram @ gram for gram in grams]
    yield (
        _columns(blocks, each, own),
        "orthogonalized its own columns alone. Which two tensors of the function need the columns of all ranks?",
    )
    yield (
        _columns(blocks, each),
        "divided by the norm of only its columns. The Gram matrices are right, but the norm is not.",
    )
    yield (
        _columns(blocks, [sum(each)] * ranks),
        "divided by the sum of the ranks' norms. Which can be added, norms or their squares?",
    )
    yield (
        _columns(blocks, polynomials=own),
        "multiplied by the Gram matrix of only its columns. The norm is right, but the Gram matrices are not.",
    )
    yield (
        _columns(blocks, polynomials=lambda grams: of_sum(grams, [sum(squares(grams))] * ranks)),
        "added the squares of the ranks' Gram matrices: a sum of squares is not the square of the sum.",
    )
    yield (
        _columns(blocks, polynomials=lambda grams: of_sum(grams, squares(grams))),
        "squared the Gram matrix of only its columns: which Gram matrix is in gram @ gram on one device?",
    )
    yield (
        _columns(blocks, polynomials=lambda grams: of_sum(grams, [ranks * sum(grams) @ sum(grams)] * ranks)),
        f"all-reduced gram @ gram of a gram that was the sum already, so it is {ranks} times too large.",
    )


def _polynomial(gram, square):
    return COEFFICIENTS[1] * gram + COEFFICIENTS[2] * square


def _right(grams) -> list:
    total = sum(grams)
    return [_polynomial(total, total @ total)] * len(grams)


def _columns(blocks, norms=(), polynomials=_right) -> list:
    """The columns of all ranks, by default those of `newton_schulz` of the full matrix."""
    norms = norms or [sum(block.square().sum() for block in blocks).sqrt()] * len(blocks)
    blocks = [block / norm for block, norm in zip(blocks, norms)]
    for _ in range(STEPS):
        factors = polynomials([block @ block.mT for block in blocks])
        blocks = [COEFFICIENTS[0] * block + factor @ block for block, factor in zip(blocks, factors)]
    return blocks
