"""Ring attention in time: the condition for hiding a hop of keys and values behind a block of attention.

While a rank computes its queries against one rank's keys and values, the next ones are on their way. The work grows
with the square of a rank's tokens, the message with their number: with enough tokens the message hides.

    block  4·b·c²·h FLOP, forward, of c queries and c keys that all see each other: 2·b·c²·h for the scores, and again
           for the sums of values. In a zigzag half of the pairs of two ranks see each other
    hop    2·b·c·k numbers: keys and values of c tokens

Source: Liu et al. 2023, arXiv:2310.01889, section 3, there with as many heads of keys as of queries. Relatives:
`modes.parts.ring_attention`, `predict.plans.time_of_context_and_experts`, notebook 33.
"""

import math

from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.collectives import Link


def block_seconds(shape: Shape, tokens: float, rate: float, sequences: int = 1, seen: float = 1.0) -> float:
    """Seconds of one block of one layer: the queries of a rank and the keys of another one.

    tokens  c, that a rank has of each sequence;  rate  FLOP/s that attention reaches;  seen  share of pairs that see
    each other
    """
    return 2 * seen * sequences * tokens**2 * (shape.query_width + shape.found_width) / rate


def hop_seconds(shape: Shape, tokens: float, link: Link, width: int = 2, sequences: int = 1) -> float:
    """Seconds until keys and values of one layer have gone to the next rank; `width`: bytes of a number."""
    return link.alpha + link.beta * sequences * tokens * (shape.key_width + shape.value_width) * width


def least_tokens(shape: Shape, rate: float, link: Link, width: int = 2, sequences: int = 1, seen: float = 1.0) -> float:
    """The tokens per rank from which a hop takes no longer than a block.

    Without latency β·w·F·k/(2·h), for numbers of w bytes, F FLOP/s, β seconds per byte, over the share that is seen.
    It then does not depend on the batch.

    >>> gpt = Shape(layers=1, width=4096, heads=32, kv_heads=8)
    >>> round(least_tokens(gpt, rate=1e15, link=Link(0, 1 / 50e9)))
    5000
    >>> tokens = least_tokens(gpt, rate=1e15, link=Link(1e-5, 1 / 50e9))
    >>> math.isclose(block_seconds(gpt, tokens, 1e15), hop_seconds(gpt, tokens, Link(1e-5, 1 / 50e9)))
    True
    """
    square = 2 * seen * sequences * (shape.query_width + shape.found_width) / rate
    linear = sequences * (shape.key_width + shape.value_width) * width * link.beta
    return (linear + math.sqrt(linear**2 + 4 * square * link.alpha)) / (2 * square)
