"""Solutions of notebook 21."""

import numpy as np

from hybridlab.labs.data_parallel import build_solutions
from hybridlab.labs.data_parallel.pictures import model
from hybridlab.labs.data_parallel.tasks import ROWS, _uses
from hybridlab.labs.exercises.solution import Cell, Solution


def _gradient(loss: str, g: str, summed: str = "comm.all_reduce(g)") -> Cell:
    return Cell(f"""\
def my_gradient(comm):
    first, last, x, targets = tied_part(comm.rank)
    squares = (x @ first @ last.T - targets).square().sum(dim=1)  # one for each row
    {loss}.backward()
    g = {g}
    {summed}
    return g.flatten().tolist()


labs.answer("data_parallel.equal", my_gradient)""")


def _homes(*gradients) -> list[list[float]]:
    """The values that two ranks return: the same from both, unless two are given."""
    return [one.flatten().tolist() for one in (gradients * 2 if len(gradients) == 1 else gradients)]


def filled(mebibytes: int) -> list[list[str]]:
    """Consecutive gradients, together until a bucket is full."""
    groups, room = [], 0
    for name, its in model().gradients:
        if its > room:
            groups.append([])
            room = max(mebibytes << 20, its)
        groups[-1].append(name)
        room -= its
    return groups


(FIRST_0, LAST_0), (FIRST_1, LAST_1) = (_uses(rank) for rank in range(len(ROWS)))
OWN = [(FIRST_0 + LAST_0) / 1, (FIRST_1 + LAST_1) / 3]
SUM = np.sum([FIRST_0, LAST_0, FIRST_1, LAST_1], axis=0)
NAMES = [name for name, _ in model().gradients]

SOLUTIONS: dict[str, Solution] = {
    **build_solutions.SOLUTIONS,
    "data_parallel.equal": Solution(
        _gradient("(squares.sum() / 4)", "first.grad + last.grad"),
        "Every row counts a quarter, on either rank. Both uses of the weight, on both ranks, add to one gradient.",
        (
            (_gradient("squares.mean()", "first.grad"), "mean over its own rows"),
            (_gradient("squares.mean()", "first.grad + last.grad", "pass"), "nothing was summed"),
            (_gradient("squares.mean()", "first.grad + last.grad"), "sum of means"),
            (_gradient("squares.mean()", "(first.grad + last.grad) / 2"), "mean of means"),
            (_gradient("squares.sum()", "first.grad + last.grad"), "gradient of the sum"),
            (_gradient("(squares.sum() / 4)", "first.grad"), "the gradient of first alone"),
            (_gradient("(squares.sum() / 4)", "first.grad + last.grad", "pass"), "nothing was summed"),
            (
                _gradient("(squares.sum() / comm.size)", "first.grad + last.grad"),
                "divided the sum by the number of ranks",
            ),
            (
                _gradient("(squares.sum() / 4)", "first.grad + last.grad", "g = comm.all_reduce(g) / comm.size"),
                "also by",
            ),
            (_homes(*OWN), "nothing was summed"),
            (_homes((LAST_0 + LAST_1) / 4), "the gradient of last alone"),
            (_homes(FIRST_0, FIRST_1 / 3), "And nothing was summed"),
            (_homes(LAST_0 + LAST_1 / 3), "mean over its own rows"),
            (_homes(SUM / 5), "not the gradient"),
            (_homes(SUM / 4), "Submit the function"),
            (_homes(SUM / 4)[:1], "Answer with a function"),
        ),
    ),
    "data_parallel.exposed": Solution(
        """\
small, large = (1e3 * (14 * 30e-6 + 1.75 * size / 25e9) for size in (9e6, 26e6))
labs.answer("data_parallel.exposed", max(28, 26 + large) + small - 28)""",
        "The link is busy with the previous all-reduce until 28.24 ms, and the last one then takes 1.05 ms.",
        ((1.05, "the last all-reduce alone"), (3.29, "That is both"), (0.00129, "Too small"), (20, "Too large")),
        also=(1.29, "1.29"),
    ),
    "data_parallel.reverse": Solution(
        'labs.answer("data_parallel.reverse", $count * $sums)',
        "The bucket that is sent first is full last, when the backward ends. So all all-reduces come after the "
        "backward.",
        ((4, "order of the backward"), (36, "backward too"), (12, "One is missing"), (0, "Too small")),
        also=(16, 16.0),
    ),
    "data_parallel.buckets": Solution(
        """\
def my_buckets(gradients, size=38 << 20):
    groups, room = [], 0
    for name, its in gradients:
        if its > room:
            groups.append([])
            room = max(size, its)
        groups[-1].append(name)
        room -= its
    return groups


mine = my_buckets(pictures.model().gradients)
labs.answer("data_parallel.buckets", mine)""",
        "Few large buckets need few messages. With 38 MiB the last bucket, whose all-reduce is fully exposed, is small "
        "enough.",
        (
            ([[name] for name in NAMES], "197 buckets, 79.05 ms exposed. At most 10"),
            ([NAMES], "one bucket has 329.0 MiB"),
            (filled(45), "Expose at most 3.84 ms"),
            ([NAMES[1:]], "is in 0 buckets"),
            ([NAMES, NAMES], "is in 2 buckets"),
            ([["a"]], "no gradient 'a'"),
            (NAMES, "list of buckets"),
        ),
        also=(filled(40), [tuple(group) for group in filled(38)]),
    ),
}
