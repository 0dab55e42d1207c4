"""The ring: an all-reduce made of messages only, as in the lectures.

The tensor is cut into p chunks, one for each rank. First round (reduce-scatter): in every step each rank sends one
chunk to its right neighbour and adds the one from its left neighbour; after p-1 steps each rank has the full sum of one
chunk. Second round (all-gather): the finished chunks are passed on, and each rank keeps a copy. A rank has then sent
2(p-1) chunks, 2n(p-1)/p of n bytes: nearly 2n for any number of ranks.

`route` is the list of these steps. The ranks run it and the picture in notebook 20 shows it.
"""

from typing import NamedTuple


class Step(NamedTuple):
    """One step of one rank: the chunk sent to the right, the chunk received from the left, and whether the received
    chunk is added.
    """

    sends: int
    gets: int
    adds: bool


def route(ranks: int, here: int) -> list[Step]:
    """The steps of rank `here` on a ring.

    ranks  on the ring
    here   the index of the rank

    >>> for step in route(3, 0): print(*step)
    0 2 True
    2 1 True
    1 0 False
    0 2 False
    """
    steps = []
    for sent in range(2 * (ranks - 1)):  # in each step every chunk moves to the next rank
        chunk = (here - sent) % ranks
        steps.append(Step(sends=chunk, gets=(chunk - 1) % ranks, adds=sent < ranks - 1))
    return steps


def all_reduce(comm, x, axis=None):
    """Sum x over the group, in place, by messages between neighbours on a ring, and return x.

    comm  the communicator of this rank
    x     this rank's partial sum; it holds the sum afterwards
    axis  the mesh axis along which the ranks communicate; None: all ranks

    x may have any shape. If its length is not a multiple of the number of ranks, some chunks are longer by one; a rank
    then sends 2n bytes minus two of the chunks, and all ranks together exactly 2n(p-1).
    """
    group = comm.group(axis)
    here = group.ranks.index(comm.rank)
    right, left = group.ranks[(here + 1) % group.size], group.ranks[here - 1]
    flat = x.detach().reshape(-1)
    chunks = flat.tensor_split(group.size)
    for step in route(group.size, here):
        arriving = comm.irecv(chunks[step.gets].new_empty(len(chunks[step.gets])), left)
        leaving = comm.isend(chunks[step.sends], right)
        chunk = arriving.wait()
        leaving.wait()
        chunks[step.gets].add_(chunk) if step.adds else chunks[step.gets].copy_(chunk)
    if flat.data_ptr() != x.data_ptr():
        x.detach().copy_(flat.view_as(x))
    return x
