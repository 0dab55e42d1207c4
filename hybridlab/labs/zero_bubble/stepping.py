"""The run of a student's optimizer step before the norm is known, on a rank, and the verdict on it."""

from itertools import accumulate
from typing import NamedTuple

import torch

NEAR = 1e-9
ABOUT = {  # {words of a reply: the hint about the mistake that it reports}
    "compare them with clip²": "The square of the norm is a sum of squares. Which of so_far and clip is a norm, "
    "and which a square?",
    "waited for the total": "Compare the squares so far with clip² before you receive anything from the rank after.",
    "already clip": "The total is at least as large as the squares so far: if these clip, the total does too.",
    "did not undo": "Remember whether you stepped at once. After a wrong step, undo() comes before step(clip / norm).",
    "sent": "Each rank except the last sends its squares on, and each rank except the first sends the total back.",
}


class Squares(NamedTuple):
    """The squares of every rank, and the largest norm."""

    squares: tuple[float, ...]
    clip: float

    @property
    def ranks(self) -> int:
        return len(self.squares)

    def __str__(self):
        return (
            f"{self.ranks} ranks with the squares {', '.join(f'{one:g}' for one in self.squares)}, clip = {self.clip:g}"
        )

    def so_far(self, rank: int) -> float:
        """The sum of the squares of the ranks up to this one."""
        return [*accumulate(self.squares)][rank]

    def wanted(self, rank: int) -> list[tuple[str, float]]:
        """The calls of a rank: ("step", factor) and ("undo", 0)."""
        norm = sum(self.squares) ** 0.5
        calls = [("step", 1.0)] if self.so_far(rank) <= self.clip**2 else []
        if norm > self.clip:
            calls += [("undo", 0.0)] * len(calls) + [("step", self.clip / norm)]
        return calls


class Did(NamedTuple):
    """The calls of one rank, the messages that it had received at its first call, and those that it sent."""

    calls: list[tuple[str, float]]
    received: int
    sent: int


def update(comm, answer, case: Squares) -> Did:
    """On each rank: the student's function, with a step and an undo that are noted."""
    calls, received, begin = [], [], len(comm.ledger)
    count = lambda *ops: sum(row["op"] in ops for row in comm.ledger.rows()[begin:])

    def note(what, factor):
        received.append(count("recv", "irecv"))
        calls.append((what, float(factor)))

    mine = torch.tensor(case.squares[comm.rank], dtype=torch.float64)
    answer(comm, mine, case.clip, lambda factor: note("step", factor), lambda: note("undo", 0.0))
    return Did(calls, received[0] if received else 0, count("send", "isend"))


def first_wrong(case: Squares, home: list[Did]) -> str:
    """The mistake of the first wrong rank, in a sentence; empty if there is none."""
    for rank, did in enumerate(home):
        if told := _wrong(case, rank, *did):
            return f"Rank {rank} {told}"
    return ""


def _wrong(case, rank, calls, received, sent) -> str:
    wanted, kinds = case.wanted(rank), [what for what, _ in calls]
    early, asked = wanted[0] == ("step", 1.0), [what for what, _ in wanted]
    late = early and (kinds[:1] != ["step"] or received > (rank > 0))
    if (late or kinds != asked) and (told := _not_squared(case, rank, kinds, late)):
        return told
    if kinds != asked:
        if not early and kinds[:1] == ["step"] and len(kinds) > 1:
            return "stepped at once, although the squares so far already clip."
        if early and len(asked) == 3 and kinds == ["step", "step"]:
            return "did not undo its first step before the second."
        return f"called {_told(calls)}; it should call {_told(wanted)}."
    if any(abs(a - b) > NEAR for (_, a), (_, b) in zip(calls, wanted)):
        return f"called {_told(calls)}; it should call {_told(wanted)}."
    if early and received > (rank > 0):
        return "waited for the total before its step: that is the barrier."
    needed = (rank > 0) + (rank < case.ranks - 1)
    if sent != needed:
        return f"sent {sent} messages; {needed} are needed."
    return ""


def _not_squared(case, rank, kinds, late: bool) -> str:
    """The mistake of a rank that compares squares with clip instead of clip²; empty if there is none."""
    squares, root = case.so_far(rank), f"√{case.so_far(rank):g}"
    advice = "squares are squares, so compare them with clip²."
    if late and squares > case.clip:
        return f"waited although {root} is less than {case.clip:g}: {advice}"
    if case.clip**2 < squares <= case.clip and kinds[:1] == ["step"]:
        return f"stepped at once although {root} is more than {case.clip:g}: {advice}"
    return ""


def _told(calls) -> str:
    return ", ".join(f"step({factor:.3g})" if what == "step" else "undo()" for what, factor in calls) or "nothing"
