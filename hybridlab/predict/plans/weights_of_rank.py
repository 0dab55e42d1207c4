"""Count the weights on one rank, grouped by the ranks that hold the same weights.

There are functions for a block, for the embedding, for the head and for one of its pieces.

Ranks with the same weights and different data reduce their gradients, so these groups give the reductions and their
axes. If tp does not divide a size, the first rank has one more. Sizes may be numpy arrays.

See also `core.what.shape` (the same for one device), `modes.tensor_parallel` (the shards of each rank),
`predict.plans.footprint` and `predict.plans.bytes_of_rank`.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape


class Held(NamedTuple):
    """Weights and biases on a rank.

    cut     sharded along tp;  whole  replicated along tp
    asked   replicated along tp, but each rank uses them for its own heads: the matrices that make latents
    keys    sharded along tp; if there are fewer heads than ranks, some neighbours have the same
    routed  experts, sharded along tp and ep, or folded;  behind  the biases after them; each rank along tp adds a part
    """

    cut: float = 0
    whole: float = 0
    keys: float = 0
    routed: float = 0
    behind: float = 0
    asked: float = 0

    @property
    def alike(self) -> Amount:
        """The weights that are the same on all ranks along cp and ep."""
        return self.cut + self.whole + self.keys + self.asked

    @property
    def experts(self) -> Amount:
        """The weights of experts."""
        return self.routed + self.behind


def of_block(shape: Shape, t: Amount = 1, x: Amount = 1, ways: Amount = 1, shards: Amount | None = None) -> Held:
    """One block, with its experts distributed over `ways` ranks, each expert sharded over `shards`; None: over t.

    >>> print(*of_block(Shape(width=16, experts=4), t=2, ways=2))
    264.0 144.0 272.0 2112.0 32.0 0.0
    >>> print(*of_block(Shape(width=16, experts=4), t=2, ways=4, shards=1))  # folded
    264.0 144.0 272.0 2112.0 16.0 0.0
    >>> float(sum(of_block(Shape()))) == sum(Shape().block)
    True
    """
    h, biased, attends = shape.width, shape.style == "gpt", shape.heads > 0
    mlps, unit = shape.shared + (shape.experts == 1), (2 if biased else 3) * h / x + biased
    mlp, expert = (-(-shape.inside // cut) * unit for cut in (t, t if shards is None else shards))
    queries = shape.query_width if not shape.query_latent else 0  # made from the residual stream
    keys = shape.value_width / np.minimum(t, shape.key_heads)[()] if attends and not shape.latent else 0
    norms = (1 + attends) * (1 + biased) + biased * (mlps + attends)  # and the biases after all-reduces
    router = shape.experts * (shape.experts > 1) * h
    here = shape.experts / ways * (shape.experts > 1)
    return Held(
        ((queries + shape.found_width) * h / x + queries * biased + shape.block.heads) / t + mlps * mlp,
        norms * h / x + router,
        2 * keys * (h / x + biased),
        here * expert,
        here * h * biased,
        shape.latents * h / x + shape.block.norms,
    )


def of_embedding(shape: Shape, t: Amount = 1, x: Amount = 1) -> Held:
    """The embedding of tokens and, in a GPT, of positions, which every rank along tp has."""
    positions = shape.context * (shape.style == "gpt")
    return Held(-(-shape.vocabulary // t) * shape.width / x, positions * shape.width / x)


def of_head(shape: Shape, t: Amount = 1, x: Amount = 1, apart: Amount = True) -> Held:
    """The last norm and the output matrix. apart: a tied matrix is a copy, on a different stage from the embedding."""
    return Held(-(-shape.vocabulary // t) * shape.width / x * where(apart, 1, not shape.tied), of_norm(shape, x))


def of_norm(shape: Shape, x: Amount = 1) -> Amount:
    """The weights of a norm, each with its bias in a GPT."""
    return (1 + (shape.style == "gpt")) * shape.width / x


def of_piece(shape: Shape, pieces: Amount, x: Amount = 1, place: Amount = 0) -> Held:
    """One of the pieces of the head in vocabulary parallelism over the stages; all ranks along tp have the same.

    >>> print(of_piece(Shape(vocabulary=5, width=4), 2).whole, of_piece(Shape(vocabulary=5, width=4), 2, place=1).whole)
    12.0 8.0
    """
    return Held(whole=(shape.vocabulary // pieces + (place < shape.vocabulary % pieces)) * shape.width / x)
