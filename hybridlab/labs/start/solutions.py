"""Solutions of notebooks 00 and 01."""

import hybridlab as hl
from hybridlab.labs.exercises.solution import Cell, Solution

NAIVE_ORDER = "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1"
GPIPE_ORDER = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1"
ONE_F_ONE_B = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"


def _sum(line: str, result: str = "x.item()") -> Cell:
    """A cell whose function has this line between the first and the last."""
    return Cell(f"""\
def my_sum(comm):
    x = torch.tensor([comm.rank + 1.0])
    {line}
    return {result}

labs.answer("start.all_reduce", my_sum)""")


SWAP = """\
def my_swap(comm):
    x, theirs = torch.tensor([100.0 + comm.rank]), torch.zeros(1)
    if comm.rank == 0:
        comm.send(x, to=1)
        comm.recv(theirs, source=1)
    else:
        comm.recv(theirs, source=0)
        comm.send(x, to=0)
    return theirs.item()

labs.answer("start.swap", my_swap)"""
HAND_IN = 'labs.answer("start.swap", my_swap)'
FIRST_ATTEMPT = """\
def my_swap(comm):
    x = torch.tensor([100.0 + comm.rank])
    if comm.rank == 0:
        comm.send(x, to=1)
    else:
        comm.recv(x, source=0)
    return x.item()

labs.answer("start.swap", my_swap)"""

SOLUTIONS: dict[str, Solution] = {
    "start.all_reduce": Solution(
        _sum("comm.all_reduce(x)"),
        "comm.all_reduce puts the sum over all ranks into x, on every rank; it must be called on every rank.",
        (
            (_sum("pass"), "still holds its own"),
            (_sum("x = comm.all_gather(x)", "x.sum().item() + comm.rank"), "All four must be equal"),
            (_sum("x[0] = 10.0"), "Right on 4 ranks. 3 ranks return"),
            (_sum("if comm.rank: comm.all_reduce(x)"), "rank 0"),
            (_sum("while True: pass"), "no result after"),
            (_sum("import os; os._exit(3)"), "exit code 3"),
            (_sum("raise KeyError(comm.size)"), "KeyError"),
            ([1.0, 2.0, 3.0, 4.0], "still holds its own"),
            ([10.0], "There are 1 numbers"),
            (_sum("x = torch.tensor([comm.size * (comm.size + 1) / 2])"), "neither sent nor received"),
            ([10.0, 10.0, 10.0, 10.0], "Submit the function"),
            ([10.0, 2.0, 3.0, 4.0], "All four must be equal"),
            (10, "Answer with a function"),
        ),
    ),
    "start.swap": Solution(
        SWAP,
        "One rank sends first and the other receives first, so each send finds its receive.",
        (
            (Cell(FIRST_ATTEMPT), "Rank 0 still holds its own number, 100"),
            (Cell(SWAP.replace("comm.rank == 0", "comm.rank >= 0").replace("to=1", "to=1 - comm.rank")), "rank"),
            (
                Cell("def my_swap(comm):\n    return 101 - comm.rank\n\n" + HAND_IN),
                "rank 0 has neither sent nor received",
            ),
            ((101, 100), "Submit the function"),
            ([100.0, 101.0], "Both ranks still hold"),
            ([100.0, 100.0], "Rank 0 still holds its own number, 100"),
            ([101.0, 101.0], "Rank 1 still holds its own number, 101"),
            ([0.0, 0.0], "Rank 0 must end with 101"),
            ([1, 2, 3, 4], "use the pool named pair"),
        ),
    ),
    "tour.bubble": Solution(
        'labs.answer("tour.bubble", ($ranks - 1) / ($microbatches + $ranks - 1))',
        "Every rank works in m slots and is idle in p-1, so idle / total is (p-1)/(m+p-1).",
        ((7 / 24, "idle / ideal"), (0.9, "Too large"), (0.01, "Too small")),
        also=(7 / 31, 0.226, "0.2258"),
    ),
    "tour.schedule": Solution(
        f'''mine = """
{ONE_F_ONE_B}
""".strip()

labs.answer("tour.schedule", mine)''',
        "Rank 0 sends the second microbatch before the first gradient comes back, so rank 1 never waits; and it does "
        "each backward immediately, so it holds one activation.",
        (
            (NAIVE_ORDER, "It takes 12 units; 9 are possible"),
            (GPIPE_ORDER, "rank 1 holds 2 activations at once; 1 would be enough"),
            ("0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1", "waits on itself"),
            ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1", "add 1B1"),
            ("0F0,0B0\n1F0,1B0", "Make it 2, 2, 2"),
            ("0F0,0X0", "is not an action"),
            ("nowhere.csv", "No such file"),
        ),
        also=(ONE_F_ONE_B, hl.schedule("1f1b", ranks=2, microbatches=2)),
    ),
}
