"""Compute the bytes that attention sends along cp if the sequence is sharded, and the work of each rank.

The queries of a layer have b·s·h numbers, its keys b·s·k. Each of p ranks sends:

  one layer                    forward
  gather                       2·b·s·k·(p-1)/p           backward the same
  ring                         2·b·s·k·(p-1)/p           backward 2·b·s·k·(2p-1)/p: keys, values, and their gradients
  ulysses                      (2·b·s·h + 2·b·s·k)/p·(p-1)/p   backward the same
  usp                          (2·b·s·h + 2·b·s·k)/p·(u-1)/u   backward the same, by Ulysses among u ranks
                               2·b·s·k/u·(r-1)/r   backward 2·b·s·k/u·(2r-1)/r, by a ring of r = p/u ranks

Sizes may be numpy arrays.

Source: Liu et al. 2023, arXiv:2310.01889 (ring); Jacobs et al. 2023, arXiv:2309.14509 (Ulysses); Llama Team 2024,
arXiv:2407.21783, 3.3.2 (gathered keys and values; the zigzag); Fang and Zhao 2024, arXiv:2405.07719 (USP). See also
`modes.context_parallel` (the same for its ledgers), `predict.plans.time_of_context_and_experts` (the seconds) and
notebook 33.
"""

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape

ATTEND = ("gather", "ring", "ulysses", "usp")
GATHER, RING, ULYSSES, USP = range(4)


def widths(shape: Shape, tensor: Amount = 1) -> Amount:
    """(numbers of a position's queries, keys, values and head outputs) on one of `ways` ranks of tp.

    If there are fewer KV heads than ranks, they are replicated.

    >>> from hybridlab.core.what.catalog import model
    >>> print(*widths(model("llama3-405b").shape, tensor=8))
    2048.0 128.0 128.0 2048.0
    """
    if not shape.heads:
        return 0, 0, 0, 0
    keys = np.minimum(tensor, shape.key_heads)[()]
    return shape.query_width / tensor, shape.key_width / keys, shape.value_width / keys, shape.found_width / tensor


def exchanged(
    shape: Shape, sequences: Amount, ways: Amount, attend: str, when: str, tensor: Amount = 1, ulysses: Amount = 1
) -> list[tuple[str, float]]:
    """[(operation, elements)] of one microbatch in one layer on one rank, as in its ledger. A collective counts the
    full tensor, with uneven parts padded; messages count all hops together.

    sequences  b, in the microbatch;  ways  the length of cp;  attend  a name in ATTEND;  when  "forward", "backward"
    ulysses    u, for usp: the ranks of an inner group

    >>> [(_, hops)] = exchanged(Shape(width=8, heads=2, context=16), 1, 4, "ring", "backward")
    >>> print(hops)  # 7 times 4 keys and 4 values of 8 numbers
    448.0
    """
    queries, keys, values, found = (sequences * each for each in widths(shape, tensor))
    if attend == "gather":
        filled = ways * -(-shape.context // ways)
        op = "all_gather" if when == "forward" else "reduce_scatter"
        return [(op, filled * each) for each in (keys, values)]
    part = shape.context / ways
    turned = [("all_to_all", part * each) for each in (queries, keys, values, found)]
    if attend == "ulysses":
        return turned
    around = [("isend", part * (keys + values) * hops(ways // ulysses, when))]
    return around if attend == "ring" else turned + around


def hops(ways: Amount, when: str) -> Amount:
    """The number of times that a part of the keys, values or their gradients is sent to the next rank."""
    return ways - 1 if when == "forward" else 2 * ways - 1


def multiplied(
    ways: Amount, attend: Amount = GATHER, zigzag: Amount = False, fused: Amount = False, ulysses: Amount = 1
) -> Amount:
    """The fraction of all pairs of a query and a key, s·s, that the busiest rank computes.

    Chunks count in full. On the ring, a chunk after a rank's queries costs nothing. Masked pairs inside a chunk are
    computed, as in the papers. A fused kernel (FlashAttention) omits these too.

    attend  an index in ATTEND;  zigzag  a rank has a chunk from the front and one from the back
    ulysses  the ranks of an inner group of usp, which have all positions of the group for their heads

    In order, the last rank attends to all positions, and all ranks wait for it: with p parts, causal attention is not p
    times as fast. In zigzag order it is.

    >>> alone = multiplied(1, fused=True)
    >>> print(*(f"{multiplied(8, RING, zigzag, fused=True) / alone:.4f}" for zigzag in (False, True)))
    0.2344 0.1250
    """
    ways, attend, parts = np.asarray(ways), np.asarray(attend), np.asarray(ways) / ulysses
    seen = np.where(zigzag | (attend == ULYSSES), 1 / 2, 1 - 1 / (2 * parts))
    chunks = np.where(zigzag & passes(attend), (2 * parts + 1) / (4 * parts), 1.0)
    return (np.where(fused, seen, chunks) / ways)[()]


def passes(attend: Amount) -> Amount:
    """Whether keys and values pass around a ring, so that no scores are saved: on the ring, and with usp.

    attend  an index in ATTEND
    """
    return (np.asarray(attend) == RING) | (np.asarray(attend) == USP)
