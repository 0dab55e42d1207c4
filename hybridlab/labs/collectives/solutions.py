"""Solutions of notebook 20."""

from hybridlab.labs.exercises.solution import Cell, Solution

SUM = [4.0 * i + 6 for i in range(8)]
OWN = [[float(i + r) for i in range(8)] for r in range(4)]


def _home(values, *operations):
    """The value that one rank returns."""
    return values, list(operations)


def _shift(first: str, *lines: str) -> Cell:
    body = "\n".join(f"    {line}" for line in (first, *lines))
    return Cell(f"""\
def my_shift(comm):
    x, y = torch.tensor([float(comm.rank)]), torch.zeros(1)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
{body}
    return y.item()

labs.answer("collectives.order", my_shift)""")


def _compose(*lines: str) -> Cell:
    body = "\n".join(f"    {line}" for line in lines)
    return Cell(f"""\
def my_all_reduce(comm):
    x = torch.arange(8.0) + comm.rank
{body}
    return x.tolist(), comm.ledger.op

labs.answer("collectives.compose", my_all_reduce)""")


def _fault(*lines: str) -> Cell:
    body = "\n".join(f"    {line}" for line in lines)
    return Cell(f'def my_fault(comm):\n{body}\n\nlabs.answer("collectives.broken", my_fault)')


RING = Cell("""\
def my_ring(comm, x):
    p, r = comm.size, comm.rank
    right, left = (r + 1) % p, (r - 1) % p
    chunks = x.tensor_split(p)
    for step in range(2 * (p - 1)):
        sends, gets = chunks[(r - step) % p], chunks[(r - step - 1) % p]
        leaving = comm.isend(sends, right)
        new = comm.recv(torch.empty_like(gets), left)
        leaving.wait()
        if step < p - 1:
            gets += new
        else:
            gets.copy_(new)
    return x

labs.answer("collectives.ring", my_ring)""")
WHOLE = Cell("""\
def my_ring(comm, x):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    total = passing = x
    for step in range(comm.size - 1):
        leaving = comm.isend(passing, right)
        new = comm.recv(torch.empty_like(x), left)
        leaving.wait()
        total, passing = total + new, new
    return total

labs.answer("collectives.ring", my_ring)""")

SOLUTIONS: dict[str, Solution] = {
    "collectives.bytes": Solution(
        'labs.answer("collectives.bytes", 2 * ($ranks - 1) * $megabytes / $ranks)',
        "Two rounds of p-1 steps, and in each step every rank sends a chunk of n/p.",
        (
            (24, "very many"),
            (9, "one of the two rounds"),
            (36, "to all others"),
            (12, "two rounds send more"),
            (30, "large"),
            ("x", "one"),
        ),
        also=(18, 18.0, "18"),
    ),
    "collectives.seconds": Solution(
        """\
alpha, per_megabyte = $microseconds / 1e3, 0.1  # ms
labs.answer("collectives.seconds", 2 * ($ranks - 1) * (alpha + $megabytes / $ranks * per_megabyte))""",
        "2(p-1) messages come one after another, and each takes alpha and the time of n/p bytes.",
        (
            (17.5, "bytes alone"),
            (10, "one message"),
            (8.89, "one of the two rounds"),
            (0.01778, "Too small"),
        ),
        also=(17.78,),
    ),
    "collectives.ring": Solution(
        RING,
        "Each chunk goes around the ring once to be summed and once to be copied. Every link carries one chunk in each "
        "step.",
        (
            (RING.but("    return x", ""), "returned None"),
            (RING.but("return x", "return comm.all_reduce(x)"), "called all_reduce"),
            (RING.but("range(2 * (p - 1))", "range(p - 1)"), "the number of rank 1, 2, 3 is missing"),
            (RING.but("step < p - 1", "True"), "the number of rank 0 is in it 2 times"),
            (RING.but("step < p - 1", "False"), "the number of rank 1, 2, 3 is missing"),
            (RING.but("gets += new", "gets = gets + new"), "x itself has not changed"),
            (RING.but("sends, gets = chunks[(r - step) % p]", "sends, gets = chunks[r]"), "is missing"),
            (WHOLE, "rank 0 sent 3 messages; the ring sends 2(p-1) = 6"),
            (WHOLE.but("comm.size - 1", "2 * (comm.size - 1)").but("total + new", "total + new * (step < 3)"), "72"),
            (
                RING.but("leaving = comm.isend(sends, right)", "comm.send(sends, right)").but("leaving.wait()", ""),
                "deadlock: rank 0 waits in send",
            ),
            (RING.but("p, r = comm.size", "p, r = 4"), "Right on 4 ranks with 12 numbers each. On 2 ranks"),
            (
                RING.but("chunks[(r - step) % p], chunks[(r - step - 1) % p]", "chunks[r], chunks[r - 1]"),
                "is missing",
            ),
            (RING.but("gets.copy_(new)", "gets.copy_(new.flip(0))"), "belong elsewhere"),
            (RING.but("x.tensor_split(p)", "x.view(p, -1)"), "On 4 ranks with 10 numbers each: all 4 ranks failed"),
            ([1.0, 2.0], "your function itself"),
        ),
    ),
    "collectives.order": Solution(
        _shift(
            "if comm.rank % 2:",
            "    comm.recv(y, source=left)",
            "comm.send(x, to=right)",
            "if comm.rank % 2 == 0:",
            "    comm.recv(y, source=left)",
        ),
        "Odd ranks receive first. So the sends of the even ranks can end, and no cycle of waiting ranks forms.",
        (
            (_shift("comm.send(x, to=right)", "comm.recv(y, source=left)"), "wait"),
            (
                _shift("leaving = comm.isend(x, right)", "comm.recv(y, source=left)", "leaving.wait()"),
                "With isend, as in the ring, no rank waits in a cycle",
            ),
            (_shift("y = comm.all_gather(x)[left]"), "Rank 0 called all_gather"),
            (_shift("y = x"), "its own"),
            (_shift("y += [3, 0, 1, 2][comm.rank]"), "Right on 4 ranks. 3 ranks return"),
            (_shift("y += left"), "neither sent nor received"),
            ([3, 0, 1, 2], "Submit the function"),
            ([0, 1, 2, 3], "its own"),
            ([3, 0, 1, 1], "Rank 3 holds 1"),
            ([3, 0], "four ranks"),
            (7, "four ranks"),
            (["a"] * 4, "four ranks"),
        ),
    ),
    "collectives.compose": Solution(
        _compose("part = comm.reduce_scatter(x)", "x = comm.all_gather(part)"),
        "The reduce-scatter gives each rank its part of the sum, and the all-gather joins the parts: the two rounds.",
        (
            (_compose("comm.all_reduce(x)"), "called all_reduce itself"),
            (_compose("pass"), "its own numbers"),
            (_compose("x = comm.reduce_scatter(x)"), "its part of the sum"),
            (_compose("x = comm.all_gather(x)"), "gathered before"),
            (_compose("x = 4 * torch.arange(8.0) + 6"), "neither sent nor received"),
            ([_home(SUM, "reduce_scatter", "all_gather")] * 4, "Submit the function"),
            ([_home(SUM, "all_reduce")] * 4, "called all_reduce itself"),
            ([_home(own) for own in OWN], "its own numbers"),
            ([_home(SUM[:2], "reduce_scatter")] * 4, "its part of the sum"),
            ([_home(SUM * 4, "all_gather")] * 4, "gathered before"),
            ([_home(SUM[::-1])] * 4, "the sum begins with"),
            ([_home(7)] * 4, "no list of numbers"),
            ([SUM] * 4, "numbers and operations"),
            (5, "numbers and operations"),
        ),
    ),
    "collectives.broken": Solution(
        _fault("if comm.rank == 2:", "    return", "comm.all_reduce(torch.zeros(1))"),
        "Three ranks are in an all-reduce that needs four; the report names the one that has finished without it.",
        (
            (_fault("comm.all_reduce(torch.zeros(1))"), "no rank waits for another"),
            (_fault("if comm.rank == 1:", "    return", "comm.all_reduce(torch.zeros(1))"), "names rank 1"),
            (_fault("assert comm.rank != 2", "comm.all_reduce(torch.zeros(1))"), "of kind 'AssertionError'"),
            (_fault("comm.all_reduce(torch.zeros(1 + comm.rank // 2))"), "of kind 'mismatch'"),
            ("left", "your function itself"),
        ),
    ),
    "collectives.which": Solution(
        'labs.answer("collectives.which", "reduce_scatter")',
        "It sums, gives each rank its part, and sends half the bytes of an all-reduce.",
        (
            ("all_reduce", "twice as much"),
            ("all_gather", "sums nothing"),
            ("all_to_all", "not add"),
            ("broadcast", "one rank"),
            (7, "five collectives"),
        ),
        also=("reduce_scatter", "Reduce-Scatter", "reduce scatter"),
    ),
}
