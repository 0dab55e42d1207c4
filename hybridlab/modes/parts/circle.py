"""A circle of ranks: parts of a tensor travel from each rank to the next one, while each rank computes with another
part.

    passing  every rank's part comes by once: an all-gather in pieces
    summed   a sum for every rank's part comes by once, and each rank adds its own term: a reduce-scatter in pieces

Each makes p - 1 hops for p ranks, and waits for a hop only after the work that overlaps with it. With two directions,
parts also travel to the previous rank, so only ⌈(p - 1)/2⌉ hops follow each other, and two parts arrive at a time; the
bytes stay the same.

Source of two directions: Wang et al. 2023, ASPLOS, section 5. Relatives: `ring_attention` and `overlapped`, which
compute with the parts; `world.talk.ring`, an all-reduce of such hops.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from hybridlab.world.talk.windows import Flight


class Circle:
    """One rank's place in the ring of an axis, and the order in which parts arrive.

    lengths     of each rank's part along `dim`
    directions  in which parts travel: 1, to the next rank; or 2, also to the previous one
    """

    def __init__(self, comm, axis, lengths: Sequence[int], dim: int, directions: int = 1):
        self.comm, self.lengths, self.dim, self.ranks = comm, lengths, dim, comm.group(axis).ranks
        self.here = self.ranks.index(comm.rank)
        others = len(self.ranks) - 1
        self.ahead = -(-others // directions)  # ranks before this one, whose parts come from the previous rank
        self.back = others - self.ahead  # the ranks whose parts come from the next one

    def sources(self) -> list[tuple[int, bool]]:
        """Yield (the rank whose part is here, whether its part is the last one): first this rank, then the previous
        one, and so on.
        """
        size = len(self.ranks)
        return [((self.here - step) % size, step == size - 1) for step in range(size)]

    def passed_on(self, part: torch.Tensor, source: int, way: int = 1) -> Flight:
        """Start sending a part, of the length of the source's, to the next rank; `wait` returns the one that comes from
        the previous rank, of the length of the part of the rank before the source. way=-1: in the other direction."""
        size = len(self.ranks)
        if size == 1:
            return Flight({}, [], lambda _: part)
        before, shape = (self.here - way) % size, list(part.shape)
        shape[self.dim] = self.lengths[(source - way) % size]
        room = part.new_empty(shape)
        arriving = {before: self.comm.irecv(room, self.ranks[before])}
        leaving = [self.comm.isend(part.contiguous(), self.ranks[(self.here + way) % size])]
        return Flight(arriving, leaving, lambda came: came[before])

    def passing(self, part: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """(source, its part), first this rank's, then the nearest; the next parts are in transit while the caller
        computes."""
        here, held = self.here, {1: (self.here, part), -1: (self.here, part)}
        for step in range(1, self.ahead + 1):
            ways = (1, -1) if step <= self.back else (1,)
            coming = {way: self.passed_on(held[way][1], held[way][0], way) for way in ways}
            yield from self._distinct(held, step - 1)
            held |= {way: ((here - way * step) % len(self.ranks), its.wait()) for way, its in coming.items()}
        yield from self._distinct(held, self.ahead)

    def _distinct(self, held: dict, step: int):
        """The parts that arrived in a step."""
        return [held[1], *([held[-1]] if 0 < step <= self.back else [])]

    def summed(self, term: Callable[[int], torch.Tensor]) -> torch.Tensor:
        """This rank's part of the sum over all ranks; term(rank) computes this rank's term of a rank's part.

        The sums with the terms of other ranks travel while a term is computed. This rank's own part comes last.
        """
        late, size = self.ahead - self.back, len(self.ranks)
        owner = lambda way, step: (self.here + (self.ahead - step if way == 1 else step - self.ahead)) % size
        sums = {}
        for step in range(self.ahead + 1):
            coming = {way: self.passed_on(its, owner(way, step - 1), way) for way, its in sums.items()}
            if step == self.ahead:
                break
            ways = (1, -1) if self.back and step >= late else (1,)
            sums = {way: term(owner(way, step)) for way in ways}
            for way, its in coming.items():
                sums[way] += its.wait()
        total = term(self.here)
        for its in coming.values():
            total += its.wait()
        return total
