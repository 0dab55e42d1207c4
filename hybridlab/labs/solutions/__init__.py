"""The solutions of all exercises, for tests and for the instructor's edition. Who learns reads them last."""

from hybridlab.labs.solutions import (
    asynchronous,
    choosing,
    collectives,
    data_parallel,
    gpipe,
    hybrid,
    interleaved,
    megatron,
    naive,
    one_device,
    one_f_one_b,
    sc21,
    start,
    zero,
    zero_bubble,
)
from hybridlab.labs.solutions.solution import Cell, Solution

__all__ = ["SOLUTIONS", "Cell", "Solution"]

FAMILIES = (
    start, one_device, naive, gpipe, one_f_one_b, interleaved, zero_bubble, asynchronous, collectives, data_parallel,
    zero, megatron, hybrid, choosing, sc21,
)  # fmt: skip
SOLUTIONS: dict[str, Solution] = {task: one for family in FAMILIES for task, one in family.SOLUTIONS.items()}
