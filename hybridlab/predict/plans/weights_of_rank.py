"""The weights of a block, of the embedding and of the head on one rank, grouped by the ranks that hold the same
weights.

Ranks with the same weights and other data reduce their gradients. So the parts tell what is summed, and along what. Of
what tp does not divide, the first rank has one more. Sizes may be numpy arrays.

Relatives: `core.what.shape` (the same for one device), `modes.tensor_parallel` (who has what),
`predict.plans.footprint`, `predict.plans.bytes_of_rank`.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape


class Held(NamedTuple):
    """Weights and biases on a rank.

    cut     along tp: nobody else along it has them;  whole  all along tp do
    asked   all along tp do, and each reads them for its own heads: what makes latents
    keys    as cut; where heads are fewer than ranks, some neighbours have the same
    routed  experts, cut along tp and ep;  behind  the biases behind them, of which each rank along tp adds a share
    """

    cut: float = 0
    whole: float = 0
    keys: float = 0
    routed: float = 0
    behind: float = 0
    asked: float = 0

    @property
    def alike(self) -> Amount:
        """Those that all ranks along cp and ep have alike."""
        return self.cut + self.whole + self.keys + self.asked

    @property
    def experts(self) -> Amount:
        """Those of experts."""
        return self.routed + self.behind


def of_block(shape: Shape, t: Amount = 1, x: Amount = 1, ep: Amount = 1) -> Held:
    """One block.

    >>> print(*of_block(Shape(width=16, experts=4), t=2, ep=2))
    264.0 144.0 272.0 2112.0 32.0 0.0
    >>> float(sum(of_block(Shape()))) == sum(Shape().block)
    True
    """
    h, biased, attends = shape.width, shape.style == "gpt", shape.heads > 0
    f, mlps = -(-shape.inside // t), shape.shared + (shape.experts == 1)
    mlp = f * ((2 if biased else 3) * h / x + biased)
    queries = shape.query_width if not shape.query_latent else 0  # that are made from the stream
    keys = shape.value_width / np.minimum(t, shape.key_heads)[()] if attends and not shape.latent else 0
    norms = (1 + attends) * (1 + biased) + biased * (mlps + attends)  # and the biases behind sums
    router = shape.experts * (shape.experts > 1) * h
    here = shape.experts / ep * (shape.experts > 1)
    return Held(
        ((queries + shape.found_width) * h / x + queries * biased + shape.block.heads) / t + mlps * mlp,
        norms * h / x + router,
        2 * keys * (h / x + biased),
        here * mlp,
        here * h * biased,
        shape.latents * h / x + shape.block.norms,
    )


def of_embedding(shape: Shape, t: Amount = 1, x: Amount = 1) -> Held:
    """Tokens, and in a GPT positions, which every rank along tp has."""
    positions = shape.context * (shape.style == "gpt")
    return Held(-(-shape.vocabulary // t) * shape.width / x, positions * shape.width / x)


def of_head(shape: Shape, t: Amount = 1, x: Amount = 1, apart: Amount = True) -> Held:
    """The last norm and the scores;  apart  whether tied scores are a copy, on another stage than the embedding."""
    norm = (1 + (shape.style == "gpt")) * shape.width / x
    return Held(-(-shape.vocabulary // t) * shape.width / x * where(apart, 1, not shape.tied), norm)
