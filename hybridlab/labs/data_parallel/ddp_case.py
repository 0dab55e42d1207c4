"""The runs of a student's data parallelism, and what a rank tells of one: plain values, without torch."""

from itertools import starmap
from typing import NamedTuple

ALL_AT_ONCE = 1 << 20  # bytes: more than the net has


class Case(NamedTuple):
    """One run; `twist` says what is particular about its net."""

    ranks: int
    bucket_bytes: int
    twist: str = ""

    def __str__(self) -> str:
        return f"{self.ranks} ranks, bucket_bytes = {self.bucket_bytes}{TWISTS[self.twist]}"


TWISTS = {
    "": "",
    "tied": ", one weight in two layers",
    "frozen": ", a frozen weight (requires_grad=False)",
    "unused": ", a layer that no rank uses",
    "unused on rank 1": ", a layer that rank 1 does not use",  # its bucket is full on rank 0 alone
}
CASES = tuple(
    starmap(
        Case,
        (
            (2, 2048),
            (3, 2048),
            (2, 1),
            (2, ALL_AT_ONCE),
            (2, 2048, "tied"),
            (2, 2048, "frozen"),
            (2, 1100, "unused"),
            (2, 1100, "unused on rank 1"),
        ),
    )
)


class Did(NamedTuple):
    """What one rank did in one step.

    missing  weights without a gradient;  own  whether all gradients are still those of the rank's own rows
    gap      the largest difference from one device, and the weight that has it
    ratio    the norm of all gradients over that of one device
    sums     bytes of each sum;  wanted  the same for the buckets that were asked for;  others  other operations
    early    sums that had begun when the last gradient was made;  open  those of them that nobody had waited for yet
    """

    missing: list[str]
    own: bool
    gap: tuple[float, str]
    ratio: float
    sums: list[int]
    wanted: list[int]
    others: list[str]
    early: int
    open: int
