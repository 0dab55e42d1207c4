"""A student's parallel matmul, run on real ranks: C, both gradients and every word, compared with one device."""

from hybridlab.core.where.layout import even
from hybridlab.labs.trials.against import against_one_device

KEEPS = (
    " That is fewer, but this program keeps its home blocks and fetches from them in every step; in Cannon's "
    "algorithm a rank passes each block on and keeps none."
)
PARTIAL = "each rank has a partial sum of it."


@against_one_device
def try_product(run, answer, case):
    """The student's function on this rank: answer(comm, a, b, sizes) with this rank's parts of A and B."""
    from hybridlab.labs.matmul.on_ranks import blocks
    from hybridlab.predict.bytes.matmul_by_rank import sent

    comm = run.comm
    a, b = _home(comm, case)
    grid, place = zip(*((comm.mesh[axis], comm.coordinates[axis]) for axis in "ijl"))
    foreseen = sent(case.algorithm, case.sizes, grid, place)
    c = answer(comm, a, b, case.sizes)
    (A, B, G), (a_home, b_home, c_home) = blocks(comm, case.algorithm, case.sizes)
    rows, columns = A[a_home[0]], B[:, b_home[1]]
    run.result(
        c,
        rows @ columns,
        "C",
        _slips(rows, columns, comm.mesh["j"]),
        "were A's columns and B's rows in each matmul the same part of k?",
        foreseen.forward,
        KEEPS if case.algorithm == "cannon" else "",
    )
    leaves = {"A": (a, (G @ B.T)[a_home], (), PARTIAL), "B": (b, (A.T @ G)[b_home], (), PARTIAL)}
    run.backward(c, G[c_home], "C", leaves, foreseen.backward)


def _home(comm, case) -> list:
    """This rank's parts of A and B."""
    from hybridlab.labs.matmul.on_ranks import blocks

    wholes, homes = blocks(comm, case.algorithm, case.sizes)
    return [whole[home].clone().requires_grad_() for whole, home in zip(wholes[:2], homes)]


def _slips(A, B, parts):
    """Results with parts of k left out or counted twice, and the reply to each."""
    right, pieces = A @ B, [A[:, begin:end] @ B[begin:end] for begin, end in even(A.shape[1], parts)]
    told = "returned the matmul of one step; the sum over all steps is its part of C."
    yield from ((piece, told) for piece in pieces[: len(pieces) * (parts > 1)])
    for piece in pieces if parts > 1 else ():
        yield right - piece, "returned C without one part of k: count the matmuls that are added."
        yield right + piece, "added one part of k one time too many: count the matmuls that are added."
