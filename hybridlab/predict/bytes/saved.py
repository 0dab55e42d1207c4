"""Compute the bytes that the reference model's layers save for their backward, and the paper's count of the same.

Our numbers differ from the paper's for four reasons. Numbers take four bytes, not two. Without dropout there is no
mask. Attention is one fused operation and saves no scores between positions: with one number for each head and
position, the backward recomputes them (Dao et al. 2022, arXiv:2205.14135). And each norm saves its mean and its
standard deviation.

Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1. See also `predict.bytes.activations` (the paper's sum,
for all kinds of models), `measuring.saved` (measured) and notebook 02.
"""

from hybridlab.core.added import added
from hybridlab.core.what.shape import Shape

NUMBER, ID = 4, 8  # bytes of a number in single precision, and of a token's id
STATISTICS = 2  # numbers that a norm saves for each position: mean and standard deviation


def block(shape: Shape, sequences: int) -> dict[str, int]:
    """{what: bytes} that one block of the reference model saves for a microbatch, in single precision.

    >>> one = block(Shape(layers=1, width=32, heads=4, context=16), sequences=2)
    >>> one["scores"], sum(one.values()) / (16 * 2 * 32)
    (0, 65.0)
    """
    tokens, h, f, attends = sequences * shape.context, shape.width, shape.inside, shape.heads > 0
    norms = 2 if attends else 1
    numbers = {
        "into the norms": norms * h,
        "out of the norms": norms * h,
        "queries, keys, values": shape.query_width + shape.key_width + shape.value_width,
        "out of the heads": shape.found_width,
        "scores": 0,
        "inside the MLP": 2 * f,
        "sums for norms and heads": STATISTICS * norms + shape.heads,
    }
    masks = norms * h if shape.dropout else 0
    return {what: NUMBER * tokens * count for what, count in numbers.items()} | {"masks": tokens * masks}


def paper(shape: Shape, sequences: int) -> dict[str, int]:
    """The same as the paper counts it: numbers of two bytes, masks of one byte, all scores; s·b·h·(34 + 5·a·s/h).

    >>> sum(paper(Shape(layers=1, width=32, heads=4, context=16), sequences=2).values()) / (16 * 2 * 32)
    44.0
    """
    tokens, dropped = sequences * shape.context, (2 if shape.heads else 1) * shape.width
    two_bytes = {what: size // 2 for what, size in block(shape, sequences).items()}
    otherwise = {"masks": dropped, "scores": 5 * shape.heads * shape.context, "sums for norms and heads": 0}
    return two_bytes | {what: tokens * size for what, size in otherwise.items()}


def layers(shape: Shape, sequences: int) -> list[int]:
    """Bytes that each layer saves. The embedding saves the ids of tokens and positions (and a mask). Then come the
    blocks. The head saves the inputs of its norm and of its scores, the loss's values, and the targets' ids.

    >>> layers(Shape(layers=1, width=32, heads=4, context=16), sequences=2)
    [384, 66560, 41476]
    """
    tokens, h = sequences * shape.context, shape.width
    embed = ID * (tokens + shape.context) + (tokens * h if shape.dropout else 0)
    scores = NUMBER * tokens * shape.vocabulary
    head = NUMBER * tokens * (2 * h + STATISTICS) + scores + ID * tokens + NUMBER  # one number: the sum of weights
    return [embed, *[added(block(shape, sequences).values())] * shape.layers, head]
