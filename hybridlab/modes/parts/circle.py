"""A circle of ranks: parts of a tensor travel from each rank to the next one, while it computes with another part.

    passing  every rank's part comes by once: an all-gather in pieces
    summed   a sum for every rank's part comes by once, and each rank adds its own term: a reduce-scatter in pieces

Each makes p - 1 hops for p ranks, and waits for a hop only after the work that overlaps with it. Relatives:
`ring_attention` and `overlapped`, which compute with the parts; `world.talk.ring`, an all-reduce of such hops.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from hybridlab.world.talk.windows import Flight


class Circle:
    """One rank's place in the ring of an axis, and the order in which parts arrive.

    lengths  of each rank's part along `dim`
    """

    def __init__(self, comm, axis, lengths: Sequence[int], dim: int):
        self.comm, self.lengths, self.dim, self.ranks = comm, lengths, dim, comm.group(axis).ranks
        self.here = self.ranks.index(comm.rank)

    def sources(self) -> list[tuple[int, bool]]:
        """Yield (the rank whose part is here, whether it is the last one): first this rank, then the previous one, and
        so on."""
        size = len(self.ranks)
        return [((self.here - step) % size, step == size - 1) for step in range(size)]

    def passed_on(self, part: torch.Tensor, source: int) -> Flight:
        """Start to send a part, of the length of the source's, to the next rank; `wait` returns the one that comes from
        the previous rank, of the length of the part of the rank before the source."""
        size = len(self.ranks)
        if size == 1:
            return Flight({}, [], lambda _: part)
        before, shape = (self.here - 1) % size, list(part.shape)
        shape[self.dim] = self.lengths[(source - 1) % size]
        room = part.new_empty(shape)
        arriving = {before: self.comm.irecv(room, self.ranks[before])}
        leaving = [self.comm.isend(part.contiguous(), self.ranks[(self.here + 1) % size])]
        return Flight(arriving, leaving, lambda came: came[before])

    def passing(self, part: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """(source, its part), in the order of `sources`; the next part is in transit while the caller computes."""
        for source, last in self.sources():
            if last:
                yield source, part
            else:
                coming = self.passed_on(part, source)
                yield source, part
                part = coming.wait()

    def summed(self, term: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """This rank's part of the sum over all ranks; term(rank) computes this rank's term of a rank's part.

        The terms of other ranks come by while a term is computed. The own part is the last.
        """
        (first, *owners), size = [source - 1 for source, _ in self.sources()], len(self.ranks)
        total = term(first % size)
        for owner in owners:
            coming = self.passed_on(total, (owner + 1) % size)
            total = term(owner % size)
            total += coming.wait()
        return total
