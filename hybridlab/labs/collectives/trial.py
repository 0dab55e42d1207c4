"""A student's ring all-reduce on real ranks: its result is analyzed, its messages are counted, and both are judged."""

from typing import NamedTuple

MESSAGES = ("send", "isend", "recv", "irecv")
BASE = 8  # more than there are ranks: the digits of a sum to this base say how often each rank's number is in it


class Case(NamedTuple):
    """A number of ranks, and the length of the tensor on each."""

    ranks: int
    length: int

    def __str__(self) -> str:
        return f"{self.ranks} ranks with {self.length} numbers each"


class Did(NamedTuple):
    """The actions of one rank.

    returned  the returned value, in words, if it is not a tensor of the right shape
    wrong     (place, how often each rank's number is in the sum there) of the first wrong place
    added     whether there is a place with the numbers of two ranks or more
    others    operations that are not messages;  peers, bytes  of every message that it sent
    """

    returned: str
    wrong: tuple | None
    added: bool
    others: list[str]
    peers: list[int]
    bytes: list[int]


def play(comm, answer, case) -> Did:
    """On each rank: the student's function, called with numbers whose sum shows the ranks that they come from."""
    import torch

    before = len(comm.ledger)
    places = 1 + torch.arange(case.length) / 64
    y = answer(comm, float(BASE) ** comm.rank * places)
    rows = comm.ledger.rows()[before:]
    sent = [row for row in rows if row["op"] in ("send", "isend")]
    others = sorted({row["op"] for row in rows} - set(MESSAGES))
    returned = "" if isinstance(y, torch.Tensor) and y.shape == (case.length,) else _said(y)
    sums = [] if returned else (y.double() / places.double()).tolist()
    wrong, added = _wrong(sums, case.ranks), any(sum(summands(one, case.ranks) or [2]) > 1 for one in sums)
    return Did(returned, wrong, added, others, [row["peer"] for row in sent], [row["bytes"] for row in sent])


def _said(y) -> str:
    return f"a tensor of shape {tuple(y.shape)}" if hasattr(y, "shape") else repr(y)[:40]


def _wrong(sums, ranks) -> tuple | None:
    found = ((place, summands(value, ranks)) for place, value in enumerate(sums))
    return next(((place, counts) for place, counts in found if counts != [1] * ranks), None)


def summands(value: float, ranks: int) -> list[int] | None:
    """For each rank, how often its number is in a sum; None if it is not a sum of the numbers of this place.

    >>> summands(1 + 8 + 8 + 64, ranks=3), summands(1.5, ranks=3)
    ([1, 2, 1], None)
    """
    if value != value or value != round(value) or not 0 <= value < BASE**ranks:
        return None
    return [int(value) // BASE**rank % BASE for rank in range(ranks)]


def judge(case, homes) -> str:
    """The first mistake that is found on a rank, in words; empty if there is none."""
    for look in (_result, _messages):
        for rank, home in enumerate(homes):
            if told := look(case, rank, Did(*home)):
                return told
    return ""


def _result(case, rank, did) -> str:
    if did.others:
        return f"Rank {rank} called {did.others[0]}: build the sum from messages (send and receive) only."
    if did.returned:
        return f"Rank {rank} returned {did.returned}; return the sum, a tensor of shape {(case.length,)}."
    if did.wrong is None:
        return ""
    place, counts = did.wrong
    if counts is None:
        return (
            f"On rank {rank} number {place} is not a sum of numbers from that place. Does its chunk belong elsewhere?"
        )
    missing = [str(r) for r, count in enumerate(counts) if not count]
    often = [f"the number of rank {r} is in it {count} times" for r, count in enumerate(counts) if count > 1]
    told = [f"the number of rank {', '.join(missing)} is missing"] * bool(missing) + often
    alone = (
        ""
        if did.added
        else " Nothing was added: x itself has not changed. chunk += new changes x, chunk + new does not."
    )
    return f"On rank {rank} number {place} is not the sum over all ranks: {'; '.join(told)}.{alone}"


def _messages(case, rank, did) -> str:
    p, n = case.ranks, 4 * case.length
    if len(set(did.peers)) > 1:
        return f"Rank {rank} sent to ranks {sorted(set(did.peers))}: in a ring a rank sends to one neighbour only."
    if len(did.peers) != 2 * (p - 1):
        return f"The sum is right. But rank {rank} sent {len(did.peers)} messages; the ring sends 2(p-1) = {2 * p - 2}."
    least, most = (2 * (p - 1) * 4 * chunk for chunk in (case.length // p, -(-case.length // p)))
    if not least <= sum(did.bytes) <= most:
        about = f"2n(p-1)/p = {2 * n * (p - 1) / p:g}"
        return f"The sum is right. But rank {rank} sent {sum(did.bytes)} bytes; chunks of n/p make about {about}."
    return ""
