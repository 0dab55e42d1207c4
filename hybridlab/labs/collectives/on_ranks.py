"""Notebook 20: pictures of collectives that ran on ranks; the sums of a ring; measured times and the formula.

The pictures show the tensors that the ranks returned, never the expected result.
"""

import numpy as np

from hybridlab.predict.bytes.collectives import Link
from hybridlab.show.charts.scaling import Series, scaling
from hybridlab.show.layouts.ring_of_ranks import Ring
from hybridlab.show.layouts.tiles import tiles
from hybridlab.show.paper.still import Still
from hybridlab.world.talk.ring import route

SIDE = 12
OPERATIONS = {  # {name: (the call on a rank, the description of its result)}
    "all_reduce": (lambda comm, x: comm.all_reduce(x), "every rank holds the sum of all images"),
    "all_gather": (lambda comm, x: comm.all_gather(x, dim=1), "every rank holds all images, side by side"),
    "reduce_scatter": (lambda comm, x: comm.reduce_scatter(x, dim=1), "every rank holds its own part of the sum"),
    "broadcast": (lambda comm, x: comm.broadcast(x, source=0), "every rank holds the image of rank 0"),
    "all_to_all": (lambda comm, x: comm.all_to_all(x, cut=1, join=1), "rank r holds part r of every image"),
}


def images(count: int = 4, side: int = SIDE) -> list[np.ndarray]:
    """One image for each rank, with a different shape: disk, square, diamond, cross, and so on.

    >>> [int(image.sum()) for image in images(4)]
    [88, 64, 60, 80]
    """
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    far = np.maximum(abs(x), abs(y))
    shapes = (
        x**2 + y**2 <= (side * 0.45) ** 2,
        far <= side / 3,
        abs(x) + abs(y) <= side * 0.47,
        (np.minimum(abs(x), abs(y)) <= side / 6) & (far <= side / 2),
    )
    return [shapes[rank % 4].astype(np.float32) for rank in range(count)]


def pictured(pool, operation: str) -> Still:
    """An operation on the images of a pool's ranks: the image of every rank before and after.

    raises  ValueError when there is no such operation
    """
    if operation not in OPERATIONS:
        raise ValueError(f"there is no picture of {operation!r}: choose one of {', '.join(OPERATIONS)}")
    before = [2**rank * image for rank, image in enumerate(images(pool.size))]  # so that sums show which ranks added
    after = pool.run(_do, operation, before)
    told = f"{operation} on {pool.size} ranks: {OPERATIONS[operation][1]}"
    return tiles([before, after], [operation], ["before", "after"], told)


def _do(comm, operation, before):
    import torch

    return OPERATIONS[operation][0](comm, torch.tensor(before[comm.rank])).numpy()


def ring_sums(pool) -> list[tuple]:
    """Our ring all-reduce on a pool's ranks: for each step, (its number, the complete chunks that each rank holds,
    whether all sums are those of `hl.pictures.ring_all_reduce`).
    """
    homes = pool.run(watched_ring)
    held = np.stack([home["held"] for home in homes], axis=1)  # step, rank, chunk
    drawn = Ring([route(pool.size, rank) for rank in range(pool.size)]).sums
    names = [[[sum(2**rank for rank in chunk) for chunk in row] for row in state] for state in drawn]
    whole = (held == 2**pool.size - 1).sum(axis=2)
    said = ["as drawn" if one.tolist() == name else "other sums" for one, name in zip(held, names, strict=True)]
    return [(step, " ".join(map(str, row)), word) for step, (row, word) in enumerate(zip(whole, said))]


def watched_ring(comm) -> dict:
    """Our ring all-reduce of one number per chunk, 2ʳ from rank r, so that the bits of a sum name its ranks.

    returns "held" (step, chunk): the sums before the first and after every step; "sent" (step): the chunk that left;
    "bytes": the bytes that this rank has sent, by its ledger
    """
    import torch

    from hybridlab.world.talk.ring import all_reduce

    x = torch.full((comm.size,), 2.0**comm.rank)
    watched = _Watched(comm, x)
    all_reduce(watched, x)
    wire = sum(row["bytes"] for row in comm.ledger.rows() if row["op"] == "isend")
    held = torch.stack([*watched.held, x]).to(torch.int64)
    return {"held": held.numpy(), "sent": np.array(watched.sent), "bytes": wire}


class _Watched:
    """A comm that records, for each message sent, which chunk of x it is and the numbers in x."""

    def __init__(self, comm, x):
        self._comm, self._x = comm, x
        self.held, self.sent = [], []

    def __getattr__(self, name):
        return getattr(self._comm, name)

    def isend(self, chunk, to, tag=0):
        self.held.append(self._x.clone())
        self.sent.append((chunk.data_ptr() - self._x.data_ptr()) // self._x.element_size())
        return self._comm.isend(chunk, to, tag)


def fitted(pool, operation: str, sizes=None) -> tuple[Link, Series]:
    """The link that fits an operation's times on this machine, and a series of these times with the formula."""
    from hybridlab.measuring.links import SIZES, measured_link

    sizes = sizes or SIZES
    link, times = measured_link(pool, operation, sizes)
    ranks = 2 if operation == "send" else pool.size
    least = [min(runs) for runs in times]
    return link, Series(operation, sizes, least, lambda size: link.seconds(operation, ranks, size))


def chart(*series: Series):
    """A chart of times over bytes: measured points, and lines by the formula."""
    return scaling(*series)
