"""Compute the bytes and the time of a collective over links with latency α and time per byte β.

`size` is always the bytes of the *full* tensor: the gathered one for all_gather, the unscattered one for
reduce_scatter, everything that one rank sends for all_to_all. Ranks and sizes may be numpy arrays.

There are two families. A *ring* sends the minimum number of bytes for an all-reduce (Patarasuk and Yuan 2009), in a
number of messages proportional to the ranks. A *tree* needs a number of messages proportional to log₂ of the ranks, and
more bytes for some operations (`crossover`).

Source: Thakur, Rabenseifner, Gropp 2005, *Optimization of Collective Communication Operations in MPICH*; the tree of
all_reduce: Sanders, Speck, Träff 2009, *Two-Tree Algorithms for Full Bandwidth Broadcast, Reduction and Scan*, as in
NCCL.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.doors import AMOUNT, guarded


class Cost(NamedTuple):
    """The cost of an operation for one rank: the number of consecutive messages, and their total bytes."""

    messages: int
    bytes: float


def _ring(p, size):
    return Cost(p - 1, (p - 1) * size / p)


def _doubling(p, size):
    return Cost(_rounds(p), (p - 1) * size / p)


FORMULAS = {  # {operation: {algorithm: its cost for p ranks}}; the first algorithm is the default
    "all_reduce": {
        "ring": lambda p, size: Cost(2 * (p - 1), 2 * (p - 1) * size / p),
        # two binary trees with half of the tensor each; a rank sends up to a parent, and down to two children in one of
        # them
        "tree": lambda p, size: Cost(2 * _rounds(p), 2 * size * (p > 1)),
    },
    "all_gather": {"ring": _ring, "tree": _doubling},  # Bruck: twice as much in every round
    "reduce_scatter": {"ring": _ring, "tree": _doubling},  # the same backwards
    "all_to_all": {
        "ring": _ring,  # with one rank after another
        "tree": lambda p, size: Cost(_rounds(p), _rounds(p) * size / 2),  # Bruck: half of it in every round
    },
    "broadcast": {
        "tree": lambda p, size: Cost(
            _rounds(p), _rounds(p) * size
        ),  # the number of ranks with the value doubles in every round
        # scattered by a tree, then gathered around the ring
        "ring": lambda p, size: Cost(_rounds(p) + p - 1, 2 * (p - 1) * size / p),
    },
    "send": {"ring": lambda p, size: Cost(1, size), "tree": lambda p, size: Cost(1, size)},
}


def cost(op: str, ranks: Amount, size: Amount, algorithm: str | None = None) -> Cost:
    """The cost of an operation for one of its ranks; for the broadcast, the cost of the rank that sends the most.

    op         a collective, such as "all_reduce"
    ranks      p, a number or an array
    size       bytes of the full tensor
    algorithm  "ring" or "tree"; by default a ring, but a tree for the broadcast

    The formulas for trees hold only for powers of two. For other numbers of ranks, the formula of all_to_all is an
    upper bound. The trees of all_reduce send many small pieces; their latency is not included. A tree's reduce_scatter
    followed by its all_gather is Rabenseifner's all_reduce.

    raises  ValueError for an unknown operation or algorithm

    >>> cost("all_reduce", ranks=4, size=1000)
    Cost(messages=6, bytes=1500.0)
    >>> cost("all_gather", ranks=4, size=1000)
    Cost(messages=3, bytes=750.0)
    >>> cost("all_reduce", ranks=np.array([2, 16]), size=1000, algorithm="tree")
    Cost(messages=array([2, 8]), bytes=array([2000, 2000]))
    """
    if op not in FORMULAS:
        *most, last = FORMULAS
        raise ValueError(f"{op!r} has no formula: choose {', '.join(most)} or {last}")
    usual = next(iter(FORMULAS[op]))
    formula = FORMULAS[op].get(algorithm or usual)
    if formula is None:
        raise ValueError(f"{op} has no algorithm {algorithm!r}: choose {' or '.join(FORMULAS[op])}")
    return formula(ranks, size)


def _rounds(ranks):
    """⌈log₂ ranks⌉: the number of doublings to reach all ranks. (The bits of ranks - 1, so exact.)"""
    bits = np.frexp(np.subtract(ranks, 1))[1].astype(int)
    return bits if bits.ndim else int(bits)


@guarded(AMOUNT)
class Link(NamedTuple):
    """A link between ranks: alpha, seconds before a message's first byte, and beta, seconds for each byte.

    >>> link = Link(alpha=1e-4, beta=1e-9)
    >>> round(link.seconds("all_reduce", ranks=4, size=4_000_000), 6)
    0.0066
    """

    alpha: float
    beta: float

    def price(self, one: Cost) -> Amount:
        """The seconds of a `Cost`: alpha for each message, beta for each byte."""
        return one.messages * self.alpha + one.bytes * self.beta

    def seconds(self, op: str, ranks: Amount, size: Amount, algorithm: str | None = None) -> Amount:
        """The predicted time of an operation."""
        return self.price(cost(op, ranks, size, algorithm))

    @classmethod
    def fit(
        cls, op: str, ranks: int, sizes: Sequence[float], seconds: Sequence[float], algorithm: str | None = None
    ) -> "Link":
        """The link whose formula fits measured times of an operation best, by relative error.

        With relative errors, a microsecond of a small message counts as much as a millisecond of a large one. Neither
        part is negative.

        >>> Link.fit("send", 2, [1e3, 1e6], [1.01e-4, 1.1e-3])
        Link(alpha=0.0001, beta=1e-09)
        """
        costs = np.array([cost(op, ranks, size, algorithm) for size in sizes], float)
        shares = costs / np.asarray(seconds, float)[:, None]  # per unit of alpha and of beta: a fraction of each time
        found = np.linalg.lstsq(shares, np.ones(len(shares)), rcond=None)[0]
        if found.min() < 0:
            one = int(found.argmax())
            found = np.zeros(2)
            found[one] = shares[:, one].sum() / (shares[:, one] ** 2).sum()
        return cls(*(float(f"{x:.12g}") for x in found))


def crossover(op: str, ranks: int, link: Link) -> float:
    """The size in bytes up to which a tree is faster than a ring; infinite: always; 0: never.

    op     a collective, such as "all_reduce"
    ranks  p
    link   alpha and beta of a message between two ranks

    Both times are linear in the size, so their lines cross once. For an all_reduce of p ranks that is at
    p·(p - 1 - ⌈log₂ p⌉)·α/β.

    >>> crossover("all_reduce", 16, Link(alpha=1e-5, beta=1e-10))
    17600000.0
    >>> crossover("all_gather", 16, Link(alpha=1e-5, beta=1e-10))
    inf
    """
    tree, ring = cost(op, ranks, 1, "tree"), cost(op, ranks, 1, "ring")
    saved, extra = (ring.messages - tree.messages) * link.alpha, (tree.bytes - ring.bytes) * link.beta
    if saved <= 0:
        return 0.0
    return saved / extra if extra > 0 else float("inf")


class Hierarchical(NamedTuple):
    """The cost for one rank of an all_reduce in two levels: inside its node, and across the nodes."""

    inside: Cost
    across: Cost

    def seconds(self, inside: Link, across: Link) -> Amount:
        """The time over two kinds of links. All ranks of a node send across at the same time: `across` is one rank's
        part."""
        return inside.price(self.inside) + across.price(self.across)


def hierarchical(nodes: Amount, per_node: Amount, size: Amount, algorithm: str | None = None) -> Hierarchical:
    """The cost of a hierarchical all_reduce, which reduces inside each node before it communicates between nodes.

    nodes      the number of nodes
    per_node   ranks in each node
    size       bytes of the tensor
    algorithm  the algorithm across nodes: "ring" or "tree"; None: a ring

    It has three steps: a reduce_scatter inside the nodes; an all_reduce across them with the named algorithm, in which
    each rank of a node reduces its part; an all_gather inside the nodes.

    >>> two = hierarchical(nodes=2, per_node=4, size=1000)
    >>> two
    Hierarchical(inside=Cost(messages=6, bytes=1500.0), across=Cost(messages=2, bytes=250.0))
    >>> round(two.seconds(inside=Link(0, 1e-9), across=Link(0, 1e-8)), 9)
    4e-06
    """
    scatter, gather = cost("reduce_scatter", per_node, size), cost("all_gather", per_node, size)
    inside = Cost(scatter.messages + gather.messages, scatter.bytes + gather.bytes)
    return Hierarchical(inside, cost("all_reduce", nodes, size / per_node, algorithm))
