"""A run of a student's pipeline: its schedule as plain lists, and the expected work of every rank."""

from typing import NamedTuple

import hybridlab as hl

Program = list[list[tuple]]
WIDTH, ROWS = 16, 4  # columns and rows of every tensor that crosses a cut
HELD = {"F": 1, "B": -1, "W": -1}  # microbatches held on a rank: from F to the end of their backward


class Case(NamedTuple):
    """One run: the lists of a schedule, its ranks and microbatches, and the stages of each rank."""

    name: str
    ranks: int
    microbatches: int
    chunks: int | None = None  # None: one stage on each rank, which the lists do not name

    @property
    def stages(self) -> int:
        return self.ranks * (self.chunks or 1)

    def __str__(self):
        """
        >>> print(Case("1f1b", 3, 4), Case("interleaved", 2, 4, 2), sep="; ")
        3 ranks with the lists of 1f1b, m = 4; 2 ranks with the lists of interleaved, m = 4, v = 2
        """
        chunks = f", v = {self.chunks}" if self.chunks else ""
        return f"{self.ranks} ranks with the lists of {self.name}, m = {self.microbatches}{chunks}"


def lists(name: str, ranks: int, microbatches: int, chunks: int | None = None) -> Program:
    """A schedule as plain lists, one for each rank: (kind, microbatch); with `chunks`, (kind, microbatch, stage).

    >>> lists("1f1b", ranks=2, microbatches=2)
    [[('F', 0), ('F', 1), ('B', 0), ('B', 1)], [('F', 0), ('B', 0), ('F', 1), ('B', 1)]]
    >>> lists("interleaved", ranks=2, microbatches=2, chunks=2)[1][:3]
    [('F', 0, 1), ('F', 1, 1), ('F', 0, 3)]
    """
    more = {"chunks": chunks} if (chunks or 1) > 1 else {}
    programs = hl.schedule(name, ranks=ranks, microbatches=microbatches, **more).computing
    last = 3 if chunks else 2
    return [[(one.kind, one.microbatch, one.stage)[:last] for one in program] for program in programs]


def counted(case: Case, rank: int) -> tuple[int, int]:
    """(the most forwards held, messages sent) on a rank, by the lists of a case.

    >>> counted(Case("1f1b", 3, 4), 0), counted(Case("gpipe", 3, 4), 1), counted(Case("zb_h1", 3, 4), 1)
    ((3, 4), (4, 8), (3, 8))
    """
    holds = most = sent = 0
    for kind, _, *number in lists(*case)[rank]:
        stage = number[0] if number else rank
        holds += HELD.get(kind, 0)
        most = max(most, holds)
        sent += sends(kind, stage, case.stages)
    return most, sent


def sends(kind: str, stage: int, stages: int) -> bool:
    """Whether an action ends with a message: a forward to the next stage, a B or I to the stage before."""
    return stage < stages - 1 if kind == "F" else kind in ("B", "I") and stage > 0
