"""The exercises of notebook 20, collectives. As in `labs.tasks`, the package computes every number."""

from hybridlab.labs.task import Task, Verdict, number
from hybridlab.predict.collectives import Link, cost

RANKS = 4
MEGABYTES = 12  # of the tensor in collectives.bytes
LINK = Link(alpha=20e-6, beta=0.1e-9)  # in collectives.seconds
FAST = {"ranks": 8, "size": 100e6}
PARTS = 8  # numbers that a rank brings in collectives.compose


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
        return False, "Give the list that pool.run returned: numbers and operations from each of four ranks."
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
    return True, f"All ranks hold the sum, {expected[0]:g} {expected[1]:g} …, and nobody has called all_reduce."


def _shifted(answer) -> Verdict:
    """On every rank the number of the rank before it."""
    homes = _lists(answer, RANKS)
    values = homes and _numbers(homes)
    if values is None:
        return False, "Give the list that impatient.run returned: one number from each of four ranks."
    if values == [float(rank) for rank in range(RANKS)]:
        return False, "Every rank still holds its own number: nothing has arrived."
    if values != [float((rank - 1) % RANKS) for rank in range(RANKS)]:
        wrong = next(rank for rank, value in enumerate(values) if value != (rank - 1) % RANKS)
        return False, f"Rank {wrong} holds {values[wrong]:g}; the rank before it is {(wrong - 1) % RANKS}."
    return True, "Every number has moved on by one rank, and nobody waits for ever."


def _named(right: str, mixed_up: dict[str, str]):
    """A check for the name of an operation; `mixed_up` are the replies to others."""

    def check(answer) -> Verdict:
        given = str(answer).strip().lower().replace("-", "_").replace(" ", "_")
        if given == right:
            return True, f"{right}."
        return False, mixed_up.get(given, "Answer with the name of one of the five collectives, in quotes.")

    return check


def _two_backwards(answer) -> Verdict:
    """The backwards of an all-gather: to R, and to I."""
    pair = [str(one).strip().lower().replace("-", "_") for one in _lists(answer, 2) or []]
    if pair == ["reduce_scatter", "split"]:
        return True, "With work of its own on every rank the gradients are summands; with the same work they are whole."
    if pair == ["split", "reduce_scatter"]:
        return False, "The other way round."
    if len(pair) == 2 and pair[0] == "split":
        return False, "Where each rank does other work, each has another gradient: to drop all but one part loses some."
    if len(pair) == 2 and pair[1] == "reduce_scatter":
        return (
            False,
            "Where all ranks do the same, each has the whole gradient already: their sum is too large.",
        )
    return False, 'Answer with two words, as in ("split", "split").'


COLLECTIVE_TASKS: dict[str, Task] = {
    "collectives.bytes": Task(
        f"A ring all-reduce of {MEGABYTES} MB on {RANKS} ranks: how many MB does each rank send?",
        number(
            lambda: cost("all_reduce", RANKS, MEGABYTES).bytes,
            "MB",
            slips=[
                (2 * MEGABYTES, "Nearly. That is what it comes to with very many ranks, 2n."),
                (cost("reduce_scatter", RANKS, MEGABYTES).bytes, "That is one of the two rounds."),
                ((RANKS - 1) * MEGABYTES, "That is what sending everything to everybody costs."),
                (MEGABYTES, "As many bytes as the tensor has would be too few for two rounds."),
            ],
        ),
        ("Two rounds of p-1 steps, and a chunk of n/p in each step.", "2 · 3 chunks, each a quarter of 12 MB."),
    ),
    "collectives.seconds": Task(
        f"{FAST['ranks']} ranks, links with alpha = {LINK.alpha * 1e6:.0f} µs and {1e-9 / LINK.beta:.0f} GB/s. How "
        f"many ms does a ring all-reduce of {FAST['size'] / 1e6:.0f} MB take?",
        number(
            lambda: LINK.seconds("all_reduce", **FAST) * 1e3,
            "ms",
            within=0.005,
            slips=[
                (
                    cost("all_reduce", **FAST).bytes * LINK.beta * 1e3,
                    "That is the bytes alone. What do 14 messages add?",
                ),
                (FAST["size"] * LINK.beta * 1e3, "That is one message with the whole tensor."),
                (LINK.seconds("reduce_scatter", **FAST) * 1e3, "That is one of the two rounds."),
            ],
        ),
        (
            "2(p-1) messages of n/p bytes, one after another.",
            "14 · (20 µs + 12.5 MB · 0.1 ns per byte).",
        ),
    ),
    "collectives.order": Task(
        "Four ranks; rank r starts with r. Return from each rank the number of the rank before it (rank 0: of rank 3).",
        _shifted,
        (
            "If everybody sends first, everybody waits. Who could receive first?",
            "Ranks with an odd number receive into a new tensor first, and send then.",
        ),
    ),
    "collectives.compose": Task(
        f"Four ranks; rank r brings {PARTS} numbers, r, r + 1, r + 2, … Return the sum over all ranks, from every "
        "rank, without all_reduce.",
        _composed,
        (
            "Which operation leaves every rank with its part of the sum? And which one puts parts together?",
            "part = comm.reduce_scatter(x); x = comm.all_gather(part)",
        ),
    ),
    "collectives.which": Task(
        "Each rank has gradients of all parameters, but updates only its own quarter of them. It needs the sum over "
        "the ranks, of that quarter. Which collective?",
        _named(
            "reduce_scatter",
            {
                "all_reduce": "That works, and sends twice as much: three quarters of it nobody uses.",
                "all_gather": "That joins, and sums nothing.",
                "all_to_all": "That brings the right parts to the right rank, but does not add them.",
                "broadcast": "That hands out the numbers of one rank only.",
            },
        ),
        ("Sum, and let every rank keep a part.", "It is the first round of the ring."),
    ),
    "collectives.backward": Task(
        "All ranks gather the parts of a tensor. Which operation must bring the gradient back, if then (a) each rank "
        "does other work with the whole, (b) all ranks do the same with it? Answer with two words; one of them is "
        "split, which keeps a rank's own part and sends nothing.",
        _two_backwards,
        (
            "In (b) every rank has the same gradient of the whole. In (a) each has only its own summand of it.",
            "(a) sum, then keep the own part; (b) keep the own part.",
        ),
    ),
}
