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
    """The answer as so many entries, one per rank, or None."""
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
            return False, f"Rank {rank} called all_reduce itself: build it from the two others."
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
    """The trial of `collectives.order`: what the function returns, or which operation it called that is neither a
    blocking send nor a blocking receive."""
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
    return True, "Every number has moved on by one rank, and no rank waits for ever."


def _not_blocking(homes) -> str:
    """Which rank called something else than send and recv, in words."""
    for rank, home in enumerate(homes):
        if isinstance(home, dict) and CALLED in home:
            op = home[CALLED]
            if op in ("isend", "irecv"):
                return (
                    f"With {op} no rank waits in a circle, as in the ring. Now without: comm.send and comm.recv only."
                )
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
        wanted = "rank 2 should return while the others wait for it, then the kind is 'left'"
        return False, f"The report is of kind {cause.kind!r} and names rank {cause.rank}; {wanted}. It says: {report}"
    return False, "All four ranks returned: no rank waits for another."


def _bytes(ranks, megabytes):
    p, n = ranks, megabytes
    return task(
        f"A ring all-reduce of {n} MB on {p} ranks: how many MB does each rank send?",
        Number(
            lambda: cost("all_reduce", p, n).bytes,
            "MB",
            slips=[
                (2 * n, "Nearly. That is 2n, the limit for very many ranks."),
                (cost("reduce_scatter", p, n).bytes, "That is one of the two rounds."),
                ((p - 1) * n, "That is what each rank sends if everything goes to everybody."),
                (n, "As many bytes as the tensor has would be too few for two rounds."),
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
        f"{p} ranks, links with alpha = {alpha} µs and {1e-9 / BETA:.0f} GB/s. How many ms does a ring all-reduce of "
        f"{n} MB take?",
        Number(
            lambda: link.seconds("all_reduce", p, 1e6 * n) * 1e3,
            "ms",
            within=0.005,
            slips=[
                (there.bytes * BETA * 1e3, f"That is the bytes alone. What do {there.messages:g} messages add?"),
                (1e6 * n * BETA * 1e3, "That is one message with the whole tensor."),
                (link.seconds("reduce_scatter", p, 1e6 * n) * 1e3, "That is one of the two rounds."),
            ],
        ),
        (
            "2(p-1) messages of n/p bytes, one after another.",
            f"Each message takes {alpha} µs and its bytes, 0.1 ns each: {n / p:g} MB are {n / p / 10:g} ms.",
            f"{there.messages:g} · ({alpha} µs + {n / p:g} MB · 0.1 ns per byte).",
        ),
        objective="Predict the time of a collective from two numbers of a link.",
        difficulty=2,
        minutes=3,
    )


ABOUT_THE_RING = {  # {words of a reply: the hint about what it says is off}
    "Nothing was added": "The chunks are views: to change x, change them in place.",
    "is missing": "Follow one chunk round the ring: after p-1 steps of the first loop one rank has all of it. Does "
    "every rank pass on in a step what it has received in the step before?",
    "is in it 2 times": "In the second loop finished chunks travel, and they are copied, not added. Where does it "
    "begin?",
    "messages; the ring sends": "Two loops of p-1 steps, and one chunk to the right in each: count the passes of "
    "yours.",
    "bytes; chunks of n/p": "Each message is one chunk. What else goes along, and what would happen to your loop if "
    "only chunks[a] went?",
}

TASKS: dict[str, Task] = {
    "collectives.bytes": varying(_bytes, ranks=(4, 5, 6, 8), megabytes=(12, 30, 60, 120)),
    "collectives.seconds": varying(_seconds, ranks=(8, 10, 16), megabytes=(100, 80, 40), microseconds=(20, 40, 50)),
    "collectives.ring": task(
        "Write the ring. Every rank calls my_ring(comm, x) with a flat tensor x; return the sum over all ranks. Use "
        "messages only, no collective. Each rank sends 2(p-1) messages to its right neighbour, each a chunk of x. "
        "Tried on 4 ranks with 12 numbers, then on other sizes, also where p does not divide the length.",
        OnCases(
            trial.play,
            trial.judge,
            tuple(starmap(trial.Case, RINGS)),
            f"The sum on every rank, with 2(p-1) messages of one chunk from each, in all {len(RINGS)} sizes tried.",
        ),
        (
            "Two loops of p-1 steps. In each step a rank sends one chunk to the right and receives another one from "
            "the left; the first loop adds what has come, the second copies it.",
            "chunks = x.tensor_split(comm.size) are views of x, some longer by one. In step s rank r sends chunk "
            "(r - s) % p and receives chunk (r - s - 1) % p: through both loops, s goes on counting.",
            "In each step: leaving = comm.isend(chunks[a], right); new = comm.recv(torch.empty_like(chunks[b]), left); "
            "leaving.wait(); then add new to chunks[b] while s < p - 1, and copy it later.",
        ),
        about=ABOUT_THE_RING,
        objective="Write the ring all-reduce from messages.",
        difficulty=3,
        minutes=15,
    ),
    "collectives.order": task(
        "Four ranks; rank r starts with r. Return from each rank the number of the rank before it (rank 0: of the last "
        "one). Use comm.send and comm.recv only. Three ranks are tried too.",
        OnRanks(_shifted, (RANKS, 3), lambda size: [float((rank - 1) % size) for rank in range(size)], _by_hand),
        (
            "If everybody sends first, everybody waits. Who could receive first?",
            "Ranks with an odd number receive into a new tensor first, and send then.",
            "left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size. if comm.rank % 2: "
            "comm.recv(y, left), then comm.send(x, right); else the other way round.",
        ),
        objective="Break a circle of sends that wait for each other.",
        difficulty=2,
        minutes=5,
    ),
    "collectives.compose": task(
        f"Four ranks; rank r holds {PARTS} numbers: r, r + 1, r + 2, … Return the sum over all ranks, from every "
        "rank, without calling all_reduce.",
        OnRanks(_composed, (RANKS,)),
        (
            "Which operation leaves every rank with its part of the sum? Which one joins the parts?",
            "First comm.reduce_scatter, which returns a rank's part; then hand that part to comm.all_gather.",
            "part = comm.reduce_scatter(x); x = comm.all_gather(part)",
        ),
        objective="Build an all-reduce from its two halves.",
        difficulty=1,
        minutes=4,
    ),
    "collectives.broken": task(
        f"Break a rank, and read why: write a function for {RANKS} ranks in which rank 2 returns while the others "
        "wait for it in a collective. The reply shows the report, which must name rank 2.",
        _broken,
        (
            "A collective ends when all ranks have come to it. Make rank 2 return first.",
            "if comm.rank == 2: return. After that the others call a collective. What does it need to end?",
            "Behind the line in which rank 2 returns: comm.all_reduce(torch.zeros(1)).",
        ),
        objective="Read from a report which rank is to blame, and where the others wait.",
        difficulty=1,
        minutes=4,
    ),
    "collectives.which": task(
        "Each rank has gradients of all parameters, but updates only its own quarter of them. It needs the sum over "
        "the ranks, of that quarter. Which collective?",
        _named(
            "reduce_scatter",
            {
                "all_reduce": "That works, and sends twice as much: three quarters of it are not used.",
                "all_gather": "That joins parts and sums nothing.",
                "all_to_all": "That sends the right parts to the right rank, but does not add them.",
                "broadcast": "That copies the numbers of one rank only.",
            },
        ),
        (
            "Sum, and let every rank keep a part.",
            "It is the first round of the ring.",
            "Its name has two words: one for the sum, one for handing out the parts.",
        ),
        objective="Choose the collective that sends no more than is needed.",
        difficulty=1,
        minutes=2,
    ),
}
