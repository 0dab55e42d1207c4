"""Collectives: what each one sends, and how long it takes over links of latency α and time per byte β.

Every operation is counted as a ring does it, the broadcast as a tree. `size` is always the bytes of the *full* tensor:
gathered for all_gather, unscattered for reduce_scatter, all that one rank has to give for all_to_all.
Source: Thakur, Rabenseifner, Gropp 2005, *Optimization of Collective Communication Operations in MPICH*.
"""

from typing import NamedTuple

import numpy as np


class Cost(NamedTuple):
    """What one rank does in an operation: messages one after another, and bytes that it sends in all of them."""

    messages: int
    bytes: float


def cost(op: str, ranks: int, size: float) -> Cost:
    """The cost of an operation for one of its ranks; for the broadcast, of the rank that sends most.

    raises  ValueError when there is no such operation

    >>> cost("all_reduce", ranks=4, size=1000)
    Cost(messages=6, bytes=1500.0)
    >>> cost("all_gather", ranks=4, size=1000)
    Cost(messages=3, bytes=750.0)
    """
    around, share = ranks - 1, (ranks - 1) / ranks
    match op:
        case "all_reduce":
            return Cost(2 * around, 2 * share * size)
        case "all_gather" | "reduce_scatter" | "all_to_all":
            return Cost(around, share * size)
        case "broadcast":
            return Cost((ranks - 1).bit_length(), (ranks - 1).bit_length() * size)
        case "send":
            return Cost(1, size)
    raise ValueError(
        f"{op!r} has no formula: choose all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send"
    )


class Link(NamedTuple):
    """A link between ranks: alpha, seconds before a message's first byte, and beta, seconds for each byte.

    >>> link = Link(alpha=1e-4, beta=1e-9)
    >>> round(link.seconds("all_reduce", ranks=4, size=4_000_000), 6)
    0.0066
    """

    alpha: float
    beta: float

    def seconds(self, op: str, ranks: int, size: float) -> float:
        """The predicted time of an operation: alpha for each message, beta for each byte."""
        one = cost(op, ranks, size)
        return one.messages * self.alpha + one.bytes * self.beta

    @classmethod
    def fit(cls, op: str, ranks: int, sizes, seconds) -> "Link":
        """The link with which the formula of an operation comes closest to what was measured, in relative terms.

        Relative, so that a microsecond of a small message counts as much as a millisecond of a large one. Neither
        part comes out negative.

        >>> Link.fit("send", 2, [1e3, 1e6], [1.01e-4, 1.1e-3])
        Link(alpha=0.0001, beta=1e-09)
        """
        costs = np.array([cost(op, ranks, size) for size in sizes], float)
        shares = costs / np.asarray(seconds, float)[:, None]  # of each measured time, per unit of alpha and of beta
        found = np.linalg.lstsq(shares, np.ones(len(shares)), rcond=None)[0]
        if found.min() < 0:
            one = int(found.argmax())
            found = np.zeros(2)
            found[one] = shares[:, one].sum() / (shares[:, one] ** 2).sum()
        return cls(*(float(f"{x:.12g}") for x in found))
