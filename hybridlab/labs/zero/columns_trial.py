"""A student's Newton–Schulz on shards of columns, in notebook 22: run on real ranks, and compared with one device."""

from typing import NamedTuple

from hybridlab.labs.trials.against import SMALL, against_one_device, dense, gap


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

    from hybridlab.modes.parts.newton_schulz import newton_schulz

    matrix, rank = dense((case.rows, case.columns), 0), run.comm.rank
    mine = matrix.chunk(case.ranks, 1)[rank]
    y, right = answer(run.comm, mine.clone()), newton_schulz(matrix).chunk(case.ranks, 1)[rank]
    if not isinstance(y, torch.Tensor) or y.shape != right.shape:
        shape = tuple(y.shape) if isinstance(y, torch.Tensor) else repr(y)[:40]
        run.settle(f"returned {shape}; return its columns of the new matrix, a tensor of shape {tuple(right.shape)}.")
    run.settle(_mistake(y, right, mine, newton_schulz, case) if not gap(y, right) < SMALL else "")


def _mistake(y, right, mine, newton_schulz, case) -> str:
    if gap(y, newton_schulz(mine)) < SMALL:
        return "orthogonalized its own columns alone. Which two tensors of the loop need the columns of all ranks?"
    if gap(y, right * case.ranks) < SMALL:
        return f"returned columns that are {case.ranks} times too large."
    return "returned other columns than one device: are the norm and each Gram matrix those of the full matrix?"
