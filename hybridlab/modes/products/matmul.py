"""Parallel matmuls, executed: C = A·B on a grid of i rows × j columns × l layers of ranks, each with its blocks.

    rows     i         B is gathered: one dimension (Megatron's row and column layers are others)
    cannon   i = j     blocks of A shift within rows, those of B within columns, until all pairs are multiplied
    summa    i × j     panels of A's columns and B's rows are broadcast
    layers   i = j, l  2.5 dimensions: each of l layers has copies, and runs 1/l of Cannon's steps
    cube     i × j × l three dimensions (Agarwal): A, B and C are each replicated along one axis during the matmul

Each function is one forward. The collectives are typed, so autograd derives the other two matmuls of training, dA =
dC·Bᵀ and dB = Aᵀ·dC, with the layouts of A and B.

`HOMES` gives the layouts of A, B and C before and after. Sizes need not divide evenly.

Source: Cannon 1969; van de Geijn and Watts 1997 (SUMMA); Solomonik and Demmel 2011 (2.5D); Agarwal et al. 1995 (3D).
Relatives: `steps`, the panels and shifts; `world.talk.windows`, which sends them; `predict.bytes.matmul`, which counts
the same algorithms; notebook 31.

Shape suffixes   M, K, N  this rank's part of m, k, n;   P  one panel of k
"""

from hybridlab.core.where.layout import even
from hybridlab.modes.products.steps import panel_steps, shift_steps
from hybridlab.world.talk import ahead
from hybridlab.world.talk.typed import all_gather, reduce_scatter, window


def rows(comm, a_MK, b_KN, sizes):
    """One dimension: A and B are sharded by rows, and B is gathered.

    comm        the communicator of this rank
    a_MK, b_KN  this rank's blocks of A and B
    sizes       (m, k, n) of the matmul
    """
    b_KN = all_gather(comm, b_KN, "i", 0, to="R", sizes=_lengths(sizes[1], comm.mesh["i"]))
    return a_MK @ b_KN


def cannon(comm, a_MK, b_KN, sizes):
    """Cannon's algorithm on a square grid: each rank multiplies a pair of blocks, then A's shift left and B's up by
    one.

    comm        the communicator of this rank
    a_MK, b_KN  this rank's blocks of A and B
    sizes       (m, k, n) of the matmul
    """
    return _walk(comm, a_MK, b_KN, sizes[1], range(comm.mesh["j"]))


def summa(comm, a_MK, b_KN, sizes, panels: int | None = None):
    """SUMMA on any grid: for each panel of k, A's columns are broadcast along the row, B's rows along the column.

    comm        the communicator of this rank
    a_MK, b_KN  this rank's blocks of A and B
    sizes       (m, k, n) of the matmul
    panels      of k; None: the number of ranks on the longer side of the grid
    """
    total_MN = 0
    for step in panel_steps(sizes[1], (comm.mesh["i"], comm.mesh["j"]), panels):
        a_MP = window(comm, a_MK, "j", 1, have=step.a.have, want=step.a.want)
        b_PN = window(comm, b_KN, "i", 0, have=step.b.have, want=step.b.want)
        total_MN = total_MN + a_MP @ b_PN
    return total_MN


def summa_ahead(comm, a_MK, b_KN, sizes, panels: int | None = None):
    """`summa` with the next panel in transit during a matmul; its backward then defers its reductions.

    comm        the communicator of this rank
    a_MK, b_KN  this rank's blocks of A and B
    sizes       (m, k, n) of the matmul
    panels      of k; None: the number of ranks on the longer side of the grid
    """

    def begin(step):
        a_coming = ahead.window(comm, a_MK, "j", 1, have=step.a.have, want=step.a.want)
        return a_coming, ahead.window(comm, b_KN, "i", 0, have=step.b.have, want=step.b.want)

    every = panel_steps(sizes[1], (comm.mesh["i"], comm.mesh["j"]), panels)
    total_MN, coming = 0, begin(every[0])
    for after in (*every[1:], None):
        a_MP, b_PN = coming[0].wait(), coming[1].wait()
        coming = after and begin(after)
        total_MN = total_MN + a_MP @ b_PN
    return total_MN


def layers(comm, a_MK, b_KN, sizes):
    """2.5 dimensions: A and B are gathered along the depth, each layer runs its part of Cannon's steps, and the partial
    sums are reduce-scattered.

    comm        the communicator of this rank
    a_MK, b_KN  this rank's blocks of A and B
    sizes       (m, k, n) of the matmul
    """
    (m, k, _), q, depth = sizes, comm.mesh["i"], comm.mesh["l"]
    i, layer = comm.coordinates["i"], comm.coordinates["l"]
    a_MK = all_gather(comm, a_MK, "l", 0, to="R", sizes=_lengths(_length(m, q, i), depth))
    b_KN = all_gather(comm, b_KN, "l", 0, to="R", sizes=_lengths(_length(k, q, i), depth))
    c_MN = _walk(comm, a_MK, b_KN, k, range(layer * q // depth, (layer + 1) * q // depth))
    return reduce_scatter(comm, c_MN, "l", 0, sizes=_lengths(c_MN.shape[0], depth))


def cube(comm, a_MK, b_KN, sizes):
    """Three dimensions: A is gathered within rows, B within columns, and the partial sums are reduce-scattered along
    the depth.

    comm        the communicator of this rank
    a_MK, b_KN  this rank's blocks of A and B
    sizes       (m, k, n) of the matmul
    """
    m, k, _ = sizes
    here, mesh = comm.coordinates, comm.mesh
    a_rows, b_rows = _length(m, mesh["i"], here["i"]), _length(k, mesh["l"], here["l"])
    a_MK = all_gather(comm, a_MK, "j", 0, to="R", sizes=_lengths(a_rows, mesh["j"]))
    b_KN = all_gather(comm, b_KN, "i", 0, to="R", sizes=_lengths(b_rows, mesh["i"]))
    return reduce_scatter(comm, a_MK @ b_KN, "l", 0, sizes=_lengths(a_MK.shape[0], mesh["l"]))


def _walk(comm, a_MK, b_KN, k, numbers):
    """The steps of Cannon's algorithm with these numbers."""
    total_MN = 0
    for step in shift_steps(k, comm.mesh["j"], (comm.coordinates["i"], comm.coordinates["j"]), numbers):
        a_MK = window(comm, a_MK, "j", 1, have=step.a.have, want=step.a.want)
        b_KN = window(comm, b_KN, "i", 0, have=step.b.have, want=step.b.want)
        total_MN = total_MN + a_MK @ b_KN
    return total_MN


def _length(length, parts, part) -> int:
    begin, end = even(length, parts)[part]
    return end - begin


def _lengths(length, parts) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in even(length, parts))


# --- layouts: for each dim of a matrix the axes that cut it, in their order -------------------------------------------

FLAT = {"A": (("i",), ("j",)), "B": (("i",), ("j",)), "C": (("i",), ("j",))}
HOMES = {
    "1d": {"A": (("i",), ()), "B": (("i",), ()), "C": (("i",), ())},
    "cannon": FLAT,
    "summa": FLAT,
    "2.5d": {"A": (("i", "l"), ("j",)), "B": (("i", "l"), ("j",)), "C": (("i", "l"), ("j",))},
    "3d": {"A": (("i", "j"), ("l",)), "B": (("l", "i"), ("j",)), "C": (("i", "l"), ("j",))},
}
PRODUCTS = {"1d": rows, "cannon": cannon, "summa": summa, "2.5d": layers, "3d": cube}


def home(mesh, coordinates: dict[str, int], shape, axes) -> tuple[slice, ...]:
    """The slice of each dim that one rank holds before and after the matmul.

    mesh         of the grid
    coordinates  of the rank
    shape        of the full matrix
    axes         as in `HOMES`

    >>> from hybridlab.core.where.mesh import Mesh
    >>> home(Mesh(i=2, j=2, l=2), {"i": 1, "j": 0, "l": 1}, (8, 6), HOMES["2.5d"]["A"])
    (slice(6, 8, None), slice(0, 3, None))
    """
    slices = []
    for length, names in zip(shape, axes):
        begin, end = 0, length
        for name in names:
            part = even(end - begin, mesh[name])[coordinates.get(name, 0)]
            begin, end = begin + part[0], begin + part[1]
        slices.append(slice(begin, end))
    return tuple(slices)
