"""The cases in which the broken program of notebook 22 is run, and its result on one rank."""

from typing import NamedTuple

from hybridlab.labs.zero.trial import ODD, SMALL

STEPS, RATE, MOMENTUM = 3, 0.1, 0.9


class Case(NamedTuple):
    """A net of these widths, the number of ranks, and the microbatches of each rank in a step."""

    ranks: int
    microbatches: int
    widths: tuple[int, ...] = ODD

    def __str__(self) -> str:
        return f"{self.ranks} ranks with {self.microbatches} microbatch{'es' * (self.microbatches > 1)}"


CASES = (Case(2, 3, SMALL), Case(3, 2), Case(4, 1))


class Did(NamedTuple):
    """The result of a program on one rank.

    first    the norm of the weights' change in the first step, over that of one device
    gaps     the largest difference of the rank's weights from those of one device, after each step
    weights  all weights after the last step;  ops  the operations that it called
    """

    first: float
    gaps: list[float]
    weights: list[float]
    ops: list[str]
