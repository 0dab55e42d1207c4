"""The rows that test a student's cache of keys and values: a pipeline, the lengths of slices, and the lists."""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh


class Rows(NamedTuple):
    """Rows in slices of these lengths, on a pipeline with this number of stages, one on each rank.

    name  the name of the schedule;  stages  the number of stages
    lengths  the lengths of the slices;  count  the number of rows
    """

    name: str
    stages: int
    lengths: tuple[int, ...]
    count: int

    @property
    def ranks(self) -> Mesh:
        return Mesh(pp=self.stages)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @property
    def spans(self) -> list[slice]:
        """The positions of each slice.

        >>> Rows("seq1f1b", 2, (5, 3), 2).spans
        [slice(0, 5, None), slice(5, 8, None)]
        """
        return [slice(*one) for one in pairwise(accumulate((0, *self.lengths)))]

    def actions(self, rank: int) -> Iterator[tuple[str, int, int]]:
        """(F or B, row, slice) of one rank, in order.

        >>> list(Rows("seq1f1b", 2, (5, 3), 1).actions(1))
        [('F', 0, 0), ('F', 0, 1), ('B', 0, 1), ('B', 0, 0)]
        """
        n = len(self.lengths)
        schedule = hl.schedule(self.name, ranks=self.stages, microbatches=self.count, slices=n)
        for action in schedule.program[rank]:
            yield action.kind, action.microbatch, action.stage % n

    def __str__(self):
        """
        >>> print(Rows("seq1f1b", 2, (5, 4, 3), 3))
        2 ranks, 3 rows in slices of 5, 4 and 3 tokens, with seq1f1b
        """
        *most, last = map(str, self.lengths)
        lengths = f"{', '.join(most)} and {last}" if most else last
        return f"{self.stages} ranks, {self.count} rows in slices of {lengths} tokens, with {self.name}"


ROWS = (
    Rows("seq1f1b", 2, (5, 4, 3), 3),
    Rows("seq1f1b", 3, (2, 4, 3, 3), 2),
    Rows("terapipe", 2, (4, 4), 2),
)
