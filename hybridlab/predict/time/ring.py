"""Compute how many tokens ring attention needs so that a block of attention hides a hop of keys and values.

While a rank computes with the keys and values of one rank, it receives the next ones. The work grows with the square of
a rank's tokens, the message with their number. So with enough tokens the message is hidden.

    block  4·b·c²·h FLOP, forward, of c queries and c keys that all see each other: 2·b·c²·h for the scores, and again
           for the sums of values. In a zigzag half of the pairs of two ranks see each other
    hop    2·b·c·k numbers: keys and values of c tokens

Source: Liu et al. 2023, arXiv:2310.01889, section 3, where keys have as many heads as queries. Relatives:
`modes.parts.ring_attention`, `predict.plans.time_of_context_and_experts`, notebook 33.
"""

import math

from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.collectives import Link


def block_seconds(shape: Shape, tokens: float, rate: float, sequences: int = 1, seen: float = 1.0) -> float:
    """Seconds of one block of one layer: the queries of a rank and the keys of another one.

    tokens  c, of each sequence on a rank;  rate  FLOP/s of attention;  seen  fraction of the pairs that are not masked
    """
    return 2 * seen * sequences * tokens**2 * (shape.query_width + shape.found_width) / rate


def hop_seconds(shape: Shape, tokens: float, link: Link, width: int = 2, sequences: int = 1) -> float:
    """Seconds to send the keys and values of one layer to the next rank; `width`: bytes of a number."""
    return link.alpha + link.beta * sequences * tokens * (shape.key_width + shape.value_width) * width


def least_tokens(shape: Shape, rate: float, link: Link, width: int = 2, sequences: int = 1, seen: float = 1.0) -> float:
    """The number of tokens per rank for which a hop is as long as a block; with more, the hop is hidden.

    Without latency it is β·w·F·k/(2·h) divided by `seen`, for numbers of w bytes, F FLOP/s, β seconds per byte, and it
    does not depend on the batch.

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
