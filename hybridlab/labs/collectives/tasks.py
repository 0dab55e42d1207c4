"""The exercises of notebook 20, collectives. As in `labs.exercises.all_tasks`, the package computes every number."""

from functools import partial
from itertools import starmap

from hybridlab.labs.collectives import trial
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.trials.cases import OnCases
from hybridlab.labs.trials.trial import Failed, OnRanks, called_on_rank, is_code, run
from hybridlab.predict.bytes.collectives import Link, cost

RANKS = 4
RINGS = ((4, 12), (4, 10), (2, 7), (3, 7), (5, 13))  # (ranks, numbers) in collectives.ring
BETA = 0.1e-9  # seconds for a byte, in collectives.seconds
CALLED = "called"  # where a rank says which operation it called, in collectives.order
PARTS = 8  # numbers that a rank holds in collectives.compose

task = partial(Task, notebook="20_collectives")


def _lists(answer, count: int) -> list | None:
    """The answer as `count` entries, one per rank, or None."""
    return list(answer) if isinstance(answer, list | tuple) and len(answer) == count else None


def _numbers(values) -> list[float] | None:
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return None


def _composed(answer) -> Verdict:
    """The sum on every rank, made of a reduce-scatter and an all-gather: (numbers, operations) from each rank."""
    homes = _lists(answer, RANKS)
    if homes is None or not all(isinstance(home, list | tuple) and len(home) == 2 for home in homes):
        return False, "Answer with a function that returns numbers and operations from each of four ranks."
    expected = [float(RANKS * i + sum(range(RANKS))) for i in range(PARTS)]
    for rank, (values, operations) in enumerate(homes):
        held = _numbers(values)
        if held is None:
            return False, f"Rank {rank} returned no list of numbers: return x.tolist() first."
        if "all_reduce" in operations:
            return False, f"Rank {rank} called all_reduce itself: build it from the other two."
        if held == [float(i + rank) for i in range(PARTS)]:
            return False, f"Rank {rank} still holds its own numbers."
        if len(held) == PARTS // RANKS:
            return False, f"Rank {rank} holds {len(held)} numbers, its part of the sum. The rest is on the other ranks."
        if len(held) > PARTS:
            return False, f"Rank {rank} holds {len(held)} numbers: they were gathered before they were summed."
        if held != expected:
            return False, f"Rank {rank} holds {held[:3]} …; the sum begins with {expected[:3]}."
    return True, f"All ranks hold the sum, {expected[0]:g} {expected[1]:g} …, and no rank has called all_reduce."


def _by_hand(comm, function):
    """The trial of `collectives.order`: the function's value, or {CALLED: the first operation that it called and that
    is neither a blocking send nor a blocking receive}."""
    value = function(comm)
    return next(({CALLED: op} for op in comm.ledger.op if op not in ("send", "recv")), value)


def _shifted(answer) -> Verdict:
    """On every rank the number of the rank before it, with blocking sends and receives only."""
    homes = _lists(answer, RANKS)
    if told := _not_blocking(homes or ()):
        return False, told
    values = homes and _numbers(homes)
    if values is None:
        return False, "Answer with a function that returns one number from each of four ranks."
    if values == [float(rank) for rank in range(RANKS)]:
        return False, "Every rank still holds its own number: nothing has arrived."
    if values != [float((rank - 1) % RANKS) for rank in range(RANKS)]:
        wrong = next(rank for rank, value in enumerate(values) if value != (rank - 1) % RANKS)
        return False, f"Rank {wrong} holds {values[wrong]:g}; the rank before it is {(wrong - 1) % RANKS}."
    return True, "Every number has moved to the next rank, and no rank waits forever."


def _not_blocking(homes) -> str:
    """In words: a rank that called an operation other than send and recv; empty if there is none."""
    for rank, home in enumerate(homes):
        if isinstance(home, dict) and CALLED in home:
            op = home[CALLED]
            if op in ("isend", "irecv"):
                return f"With {op}, as in the ring, no rank waits in a cycle. Now use comm.send and comm.recv only."
            return f"Rank {rank} called {op}: use comm.send and comm.recv only."
    return ""


def _named(right: str, mixed_up: dict[str, str]):
    """A check for the name of an operation; `mixed_up` are the replies to others."""

    def check(answer) -> Verdict:
        given = str(answer).strip().lower().replace("-", "_").replace(" ", "_")
        if given == right:
            return True, f"{right}."
        return False, mixed_up.get(given, "Answer with the name of one of the five collectives, in quotes.")

    return check


def _broken(answer) -> Verdict:
    """A function for four ranks, after which the report says that others wait for rank 2, which has finished."""
    if not is_code(answer) or isinstance(answer, list | tuple):
        return False, "Answer with your function itself: my_fault, without parentheses."
    try:
        run(RANKS, called_on_rank, answer)
    except Failed as failed:
        cause, report = failed.__cause__, str(failed)
        if not hasattr(cause, "kind"):
            return False, report
        if (cause.kind, cause.rank) == ("left", 2):
            return True, f"The report: {report}"
        wanted = "let rank 2 return while the others wait for it; then the kind is 'left'"
        return False, f"The report is of kind {cause.kind!r} and names rank {cause.rank}; {wanted}. It says: {report}"
    return False, "All four ranks returned: no rank waits for another."


def _bytes(ranks, megabytes):
    p, n = ranks, megabytes
    return task(
        f"In a ring all-reduce of {n} MB on {p} ranks, how many MB does each rank send?",
        Number(
            lambda: cost("all_reduce", p, n).bytes,
            "MB",
            slips=[
                (2 * n, "Nearly. That is 2n, the limit for very many ranks."),
                (cost("reduce_scatter", p, n).bytes, "That is only one of the two rounds."),
                ((p - 1) * n, "Each rank would send this if it sent the full tensor to all others."),
                (n, "That is the size of the tensor: two rounds send more."),
            ],
        ),
        (
            "Two rounds of p-1 steps, and a chunk of n/p in each step.",
            f"2 · {p - 1} chunks, each {_part(p)} of {n} MB.",
            f"2 · {p - 1} · {n} / {p} MB.",
        ),
        objective="Say how many bytes each rank sends in an all-reduce.",
        difficulty=1,
        minutes=2,
    )


def _part(count: int) -> str:
    """
    >>> _part(4), _part(8)
    ('a quarter', 'an eighth')
    """
    return {4: "a quarter", 5: "a fifth", 6: "a sixth", 8: "an eighth"}[count]


def _seconds(ranks, megabytes, microseconds):
    p, n, alpha = ranks, megabytes, microseconds
    link = Link(alpha=alpha * 1e-6, beta=BETA)
    there = cost("all_reduce", p, 1e6 * n)
    return task(
        f"{p} ranks have links with alpha = {alpha} µs and {1e-9 / BETA:.0f} GB/s. How many ms does a ring all-reduce "
        f"of {n} MB take?",
        Number(
            lambda: link.seconds("all_reduce", p, 1e6 * n) * 1e3,
            "ms",
            within=0.005,
            slips=[
                (
                    there.bytes * BETA * 1e3,
                    f"That is the time of the bytes alone. How much do {there.messages:g} messages add?",
                ),
                (1e6 * n * BETA * 1e3, "That is one message with the full tensor."),
                (link.seconds("reduce_scatter", p, 1e6 * n) * 1e3, "That is only one of the two rounds."),
            ],
        ),
        (
            "2(p-1) messages of n/p bytes, one after another.",
            f"Each message takes {alpha} µs and 0.1 ns for each byte: {n / p:g} MB take {n / p / 10:g} ms.",
            f"{there.messages:g} · ({alpha} µs + {n / p:g} MB · 0.1 ns per byte).",
        ),
        objective="Predict the time of a collective from two numbers of a link.",
        difficulty=2,
        minutes=3,
    )


ABOUT_THE_RING = {  # {words of a reply: the hint about the mistake that it reports}
    "Nothing was added": "The chunks are views: to change x, change them in place.",
    "is missing": "Follow one chunk around the ring: after p-1 steps of the first loop one rank has its complete sum. "
    "Does every rank pass on the chunk that it received in the step before?",
    "is in it 2 times": "In the second loop the chunks are complete, so they are copied, not added. At which step does "
    "the second loop begin?",
    "messages; the ring sends": "There are two loops of p-1 steps, and each step sends one chunk to the right. How "
    "many steps do your loops have?",
    "bytes; chunks of n/p": "Each message is one chunk. What else do you send, and what would happen if you sent "
    "only chunks[a]?",
}

TASKS: dict[str, Task] = {
    "collectives.bytes": varying(_bytes, ranks=(4, 5, 6, 8), megabytes=(12, 30, 60, 120)),
    "collectives.seconds": varying(_seconds, ranks=(8, 10, 16), megabytes=(100, 80, 40), microseconds=(20, 40, 50)),
    "collectives.ring": task(
        "Write the ring. Every rank calls `my_ring(comm, x)` with a flat tensor `x`; return the sum over all ranks. "
        "Use messages only, no collective. Each rank sends 2(p-1) messages to its right neighbour, each with one chunk "
        "of x. Your code is tested on 4 ranks with 12 numbers, then with other sizes, including lengths that p does "
        "not divide.",
        OnCases(
            trial.play,
            trial.judge,
            tuple(starmap(trial.Case, RINGS)),
            f"Every rank has the sum, and has sent 2(p-1) messages of one chunk, in all {len(RINGS)} sizes tested.",
        ),
        (
            "Write two loops of p-1 steps. In each step a rank sends one chunk to the right and receives another one "
            "from the left. The first loop adds the received chunk, the second copies it.",
            "chunks = x.tensor_split(comm.size) are views of x, some longer by one. In step s rank r sends chunk "
            "(r - s) % p and receives chunk (r - s - 1) % p. Do not restart s in the second loop.",
            "In each step: leaving = comm.isend(chunks[a], right); new = comm.recv(torch.empty_like(chunks[b]), left); "
            "leaving.wait(); then add new to chunks[b] while s < p - 1, and copy it later.",
        ),
        about=ABOUT_THE_RING,
        objective="Write the ring all-reduce from messages.",
        difficulty=3,
        minutes=15,
    ),
    "collectives.order": task(
        "There are four ranks, and rank r starts with the number r. On each rank, return the number of the rank before "
        "it (on rank 0, that of the last rank). Use `comm.send` and `comm.recv` only. Your code is also tested on "
        "three ranks.",
        OnRanks(_shifted, (RANKS, 3), lambda size: [float((rank - 1) % size) for rank in range(size)], _by_hand),
        (
            "If all ranks send first, all ranks wait. Which ranks could receive first?",
            "Ranks with an odd number first receive into a new tensor, then send.",
            "left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size. if comm.rank % 2: "
            "comm.recv(y, left), then comm.send(x, right); else the other way round.",
        ),
        objective="Break a cycle of sends that wait for each other.",
        difficulty=2,
        minutes=5,
    ),
    "collectives.compose": task(
        f"There are four ranks, and rank r holds {PARTS} numbers: r, r + 1, r + 2, … On every rank, return the sum "
        "over all ranks. Do not call `all_reduce`.",
        OnRanks(_composed, (RANKS,)),
        (
            "Which operation leaves every rank with its part of the sum? Which one gives all parts to every rank?",
            "First call comm.reduce_scatter, which returns a rank's part; then pass that part to comm.all_gather.",
            "part = comm.reduce_scatter(x); x = comm.all_gather(part)",
        ),
        objective="Build an all-reduce from its two halves.",
        difficulty=1,
        minutes=4,
    ),
    "collectives.broken": task(
        f"Cause a hang and read its report. Write a function for {RANKS} ranks in which rank 2 returns while the "
        "others wait for it in a collective. The reply shows the report, which must name rank 2.",
        _broken,
        (
            "A collective ends when all ranks have called it. Make rank 2 return before that.",
            "if comm.rank == 2: return. After that the others call a collective. When can it end?",
            "After the line in which rank 2 returns: comm.all_reduce(torch.zeros(1)).",
        ),
        objective="Read from a report which rank caused a hang, and where the others wait.",
        difficulty=1,
        minutes=4,
    ),
    "collectives.which": task(
        "Each of four ranks has gradients of all parameters, but updates only its own quarter of the parameters. For "
        "that quarter it needs the sum over the ranks. Which collective sends no more than that?",
        _named(
            "reduce_scatter",
            {
                "all_reduce": "That works, but sends twice as much: three quarters of the result are not used.",
                "all_gather": "That joins parts and sums nothing.",
                "all_to_all": "That sends the right parts to the right ranks, but does not add them.",
                "broadcast": "That copies the numbers of one rank only.",
            },
        ),
        (
            "It sums, and every rank keeps one part of the sum.",
            "It is the first round of the ring.",
            "Its name has two words: one for the sum, one for distributing the parts.",
        ),
        objective="Choose the collective that sends no more than is needed.",
        difficulty=1,
        minutes=2,
    ),
}
