"""Context: the bytes that attention sends along cp, with a sequence sharded among ranks, and the work of each rank.

  one layer sends, forward     of b·s·h numbers of queries, b·s·k of keys; each rank, of p
  gather                       2·b·s·k·(p-1)/p           backward the same
  ring                         2·b·s·k·(p-1)/p           backward 2·b·s·k·(2p-1)/p: keys, values, and their gradients
  ulysses                      (2·b·s·h + 2·b·s·k)/p·(p-1)/p   backward the same

Sizes may be numpy arrays.

Source: Liu et al. 2023, arXiv:2310.01889 (ring); Jacobs et al. 2023, arXiv:2309.14509 (Ulysses); Llama Team 2024,
arXiv:2407.21783, 3.3.2 (gathered keys and values; the zigzag). Relatives: `modes.context_parallel`, which says the same
for its ledgers; `predict.plans.time_of_context_and_experts`, its seconds; notebook 33.
"""

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape

ATTEND = ("gather", "ring", "ulysses")
GATHER, RING, ULYSSES = range(3)


def widths(shape: Shape, tensor: Amount = 1) -> Amount:
    """(numbers of a position's queries, keys, values, and of what its heads find) on one of so many ranks of tp.

    Too few heads of keys are copied.

    >>> from hybridlab.core.what.catalog import model
    >>> print(*widths(model("llama3-405b").shape, tensor=8))
    2048.0 128.0 128.0 2048.0
    """
    if not shape.heads:
        return 0, 0, 0, 0
    keys = np.minimum(tensor, shape.key_heads)[()]
    return shape.query_width / tensor, shape.key_width / keys, shape.value_width / keys, shape.found_width / tensor


def exchanged(
    shape: Shape, sequences: Amount, ways: Amount, attend: str, when: str, tensor: Amount = 1
) -> list[tuple[str, float]]:
    """[(operation, elements)] of one microbatch in one layer on one rank, as its ledger has them: of a collective the
    full tensor, where uneven parts are filled up; of messages all hops together.

    sequences  b, in the microbatch;  ways  the length of cp;  attend  a name in ATTEND;  when  "forward", "backward"

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
    if attend == "ulysses":
        return [("all_to_all", part * each) for each in (queries, keys, values, found)]
    return [("isend", part * (keys + values) * hops(ways, when))]


def hops(ways: int, when: str) -> int:
    """How often a part of keys, or of values, or of their gradients, moves on to the next rank."""
    return ways - 1 if when == "forward" else 2 * ways - 1


def multiplied(ways: Amount, attend: Amount = GATHER, zigzag: Amount = False, fused: Amount = False) -> Amount:
    """The share of all pairs of a query and a key, s·s, that the busiest rank multiplies.

    Whole chunks: a chunk behind a rank's queries costs nothing on the ring, and what the mask hides inside a chunk is
    multiplied all the same, as the papers count. A fused kernel (FlashAttention) leaves that out too.

    attend  a place in ATTEND;  zigzag  a rank has a chunk from the front and one from the back

    In order the last rank sees everything, and all wait for it: cut into p parts, a causal sequence is not p times as
    fast. In a zigzag it is.

    >>> alone = multiplied(1, fused=True)
    >>> print(*(f"{multiplied(8, RING, zigzag, fused=True) / alone:.4f}" for zigzag in (False, True)))
    0.2344 0.1250
    """
    ways, turned = np.asarray(ways), zigzag | (np.asarray(attend) == ULYSSES)
    seen = np.where(turned, 1 / 2, 1 - 1 / (2 * ways))
    chunks = np.where(zigzag & (np.asarray(attend) == RING), (2 * ways + 1) / (4 * ways), 1.0)
    return (np.where(fused, seen, chunks) / ways)[()]
