"""Activations: the bytes that a block saves for its backward, in 16-bit numbers with one-byte dropout masks.

Sizes, ways and switches may be numpy arrays: a planner computes 100 000 layouts at once.

Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4; blocks of the Llama kind are counted the same way.
Relatives: `core.what.shape`, `predict.plans.footprint`, notebooks 02, 12 and 22.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape

RECOMPUTE = ("none", "selective", "full")  # recomputed in the backward: nothing, the core of attention, or everything
NONE, SELECTIVE, FULL = range(3)


class Kept(NamedTuple):
    """Bytes that one block saves for one microbatch, on one rank.

    whole   tensors that tp does not shard; only sequence parallelism and the width shard them
    cut     tensors that are sharded along tp;  core  scores between positions, sharded along tp by heads
    inside  inputs and outputs of experts, for the dispatched tokens; latents, which every rank of tp holds in full
    """

    whole: float
    cut: float
    core: float
    inside: float = 0.0

    @property
    def total(self) -> Amount:
        """The sum of all fields."""
        return added(self)

    @property
    def apart(self) -> Amount:
        """All fields except the scores, which selective recomputation frees."""
        return self.whole + self.cut + self.inside


def kept(
    shape: Shape,
    sequences: Amount,
    ways: Amount = 1,
    sequence: Amount = False,
    x: Amount = 1,
    imbalance: Amount = 1.0,
    apart: Amount = 1,
) -> Kept:
    """The saved activations of a block without recomputation: in a GPT s·b·h·(10 + 24/t) + 5·a·b·s²/t bytes. With
    sequence parallelism, all of it is divided by t.

    sequences  b, in a microbatch, or a part of one;  ways  t, the length of tp
    sequence  whether sequence parallelism is on;  x  the number of shards of the width
    imbalance  load of this rank's experts over the mean load
    apart  the number of ranks along tp with different tokens for experts: 1, or t if experts are folded

    >>> gpt = Shape(layers=96, width=12288, heads=96, context=2048)
    >>> one = kept(gpt, sequences=1)
    >>> one.total == 2048 * 12288 * (34 + 5 * 96 * 2048 / 12288)
    True
    >>> kept(gpt, 1, ways=8).whole == 10 * 2048 * 12288, kept(gpt, 1, ways=8, sequence=True).total == one.total / 8
    (True, True)
    """
    tokens, h, f, gpt = sequences * shape.context, shape.width, shape.inside, shape.style == "gpt"
    attends = shape.heads > 0
    norms = 4 * h if attends else 2 * h  # what goes into each
    into = 4 * h if attends else 2 * h  # what goes into attention, and into the MLP
    masks = (2 if attends else 1) * h * gpt  # dropout of both residual branches
    # queries, keys, values, and what goes into the projection
    heads = 2 * (shape.query_width + shape.key_width + shape.value_width + shape.found_width)
    latents = 4 * (shape.query_latent + shape.latent)  # before and after their norms
    mlps = shape.chosen * imbalance + shape.shared
    mlp = (4 if gpt else 6) * f * mlps  # before and after the nonlinearity, and the gate's output
    routed = (2 * h * imbalance + 2 * h) * shape.chosen * (shape.experts > 1) / apart
    core = (5 if gpt else 2) * shape.heads * shape.context  # after the softmax; and dropout's mask and its result
    return Kept(
        tokens * (norms + into + masks) / _parts(ways, sequence) / x,
        tokens * (heads + mlp) / ways,
        tokens * core / ways,
        tokens * (routed / x + latents),
    )


def kept_for(
    shape: Shape,
    sequences: Amount,
    ways: Amount = 1,
    sequence: Amount = False,
    recompute: str | np.ndarray = "none",
    x: Amount = 1,
) -> tuple[Amount, Amount]:
    """(bytes saved for each block of a microbatch, extra bytes while one block is in its backward), given a
    recomputation.

    recompute  a name, or an array of indices in RECOMPUTE

    >>> gpt = Shape(layers=96, width=12288, heads=96, context=2048)
    >>> [round(kept_for(gpt, 1, ways=8, sequence=True, recompute=how)[0] / 2**20) for how in RECOMPUTE]
    [342, 102, 6]
    """
    how = RECOMPUTE.index(recompute) if isinstance(recompute, str) else recompute
    return stays(kept(shape, sequences, ways, sequence, x), came_in(shape, sequences, ways, sequence, x), how)


def stays(one: Kept, entered: Amount, how: Amount) -> tuple[Amount, Amount]:
    """The bytes as from `kept_for`, computed from the saved activations of a block and its input.

    "none" saves everything. "selective" recomputes the scores between positions. "full" saves only the input, 2·s·b·h,
    and recomputes the block; during its backward, all activations of the recomputed block exist.

    how  indices in RECOMPUTE
    """
    left = (how == FULL) * entered + (how != FULL) * one.apart + (how == NONE) * one.core
    return left, (how == FULL) * one.total + (how == SELECTIVE) * one.core


def came_in(shape: Shape, sequences: Amount, ways: Amount = 1, sequence: Amount = False, x: Amount = 1) -> Amount:
    """The size of a block's input in bytes, 2·s·b·h."""
    return 2 * sequences * shape.context * shape.width / _parts(ways, sequence) / x


def _parts(ways, sequence):
    """The number of shards along the sequence for tensors that tp does not shard: t with sequence parallelism, else
    1."""
    return 1 + sequence * (ways - 1)
