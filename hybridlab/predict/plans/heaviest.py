"""Count the weights of the rank that holds the most: its blocks, and the embedding or the head, or both.

Relatives: `predict.plans.weights_of_rank`, the same for one layer; `predict.plans.footprint`, their bytes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes import experts
from hybridlab.predict.plans.kinds import of_kinds, ranks_of
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.weights_of_rank import of_embedding, of_norm, of_piece


class Load(NamedTuple):
    """The weights of a rank's experts, which differ along ep, and the rank's other weights."""

    routed: Amount
    other: Amount

    @property
    def total(self) -> Amount:
        """The sum of both."""
        return self.routed + self.other

    def kept(self, plan: Plan) -> Amount:
        """The bytes of the states of these weights in mixed precision: 4 for weights and gradients, 12 for Adam, as far
        as ZeRO shards them.
        """
        each = [
            where(plan.zero == 3, 16 / sharers, 4 + 12 / where(plan.zero > 0, updaters, 1))
            for sharers, updaters in zip(plan.sharers, plan.updaters)
        ]
        return added(weights * bytes_ for weights, bytes_ in zip(self, each))


def weights(shape: Shape, plan: Plan) -> Amount:
    """The weights of the rank whose states need most memory.

    >>> bool(weights(Shape(), Plan()) == Shape().parameters)
    True
    """
    return heaviest(shape, plan).total


def heaviest(shape: Shape, plan: Plan) -> Load:
    """The weights of the rank whose states need most memory.

    >>> one = Shape(experts=8, style="llama")
    >>> print(heaviest(one, Plan(ep=4)).routed / one.block.mlp)  # 2 experts in each of 4 blocks
    8.0
    """
    every = _loads(shape, plan, of_block, ends_of(shape, plan))
    return _largest(every, every, plan)


def in_matrices(shape: Shape, plan: Plan) -> Load:
    """The part of these weights that is in hidden matrices, which Muon updates: not in embedding, head, router, norms
    and biases.

    >>> one = Shape(layers=1, width=8, heads=2)
    >>> print(in_matrices(one, Plan()).other == 12 * 8**2)
    True
    """
    joined = plan.further * 2 * shape.width**2 / plan.t
    every = _loads(shape, plan, of_block, ends_of(shape, plan))
    return _largest(every, _loads(shape, plan, _matrices, (0, 0, joined)), plan)


def further_weights(shape: Shape) -> int:
    """The weights that predict one more token: a block, the matrix that joins two vectors to one, and three norms."""
    return shape.block.every(shape.mlps) + shape.width * (2 * shape.width + 3)


def _loads(shape: Shape, plan: Plan, block: Callable, ends: tuple[Amount, Amount, Amount]) -> list[Load]:
    """The weights of the candidates; `ends` are the weights outside of blocks: on middle ranks, on the first and on the
    last.
    """
    its, (between, first, last) = ranks_of(shape, plan), ends
    kinds = [block(*one) for one in of_kinds(shape, plan)]
    usual, plain = kinds[0], kinds[-1]
    more = Load(*(plan.further * one for one in usual)) if np.any(plan.further) else Load(0, 0)
    every = [*((rank, between, Load(0, 0)) for rank in its.between), (its.first, first, Load(0, 0))]
    return [
        Load(
            rank.sum(usual.routed, plain.routed) + extra.routed,
            (rank.sum(usual.other, plain.other) + end + extra.other) / plan.x,
        )
        for rank, end, extra in (*every, (its.last, last, more))
    ]


def _largest(loads: list[Load], found: list[Load], plan: Plan) -> Load:
    """The entry of `found` for the rank whose load needs most memory."""
    most, kept = loads[0].kept(plan), found[0]
    for load, one in zip(loads[1:], found[1:]):
        here = load.kept(plan)
        larger = here > most
        most, kept = where(larger, here, most), Load(*(where(larger, *both) for both in zip(one, kept)))
    return kept


def of_block(shape: Shape, plan: Plan) -> Load:
    """The weights of a block on a rank; x does not shard those of heads and the norms of latents."""
    (routed, behind), one, (t, x) = experts.held(shape), shape.block, (plan.t, plan.x)
    alone = shape.mlps - shape.experts * (shape.experts > 1)
    other = (one.attention + alone * one.mlp) / t + one.whole - behind + x * (one.heads / t + one.norms)
    return Load((routed / plan.expert_shards + behind) / (x * plan.expert_ways), other)


def _matrices(shape: Shape, plan: Plan) -> Load:
    """The part of a block's weights on a rank that is in hidden matrices; a matrix ". D" does not count."""
    made, from_latents = shape.projected
    mlp = shape.width * shape.inside * (3 if shape.style == "llama" else 2)
    alone = shape.mlps - shape.experts * (shape.experts > 1)
    cut = shape.width * (made + shape.found_width) + alone * mlp
    whole = shape.width * (shape.query_latent + shape.latent)
    routed = shape.experts * mlp * (shape.experts > 1)
    other = cut / plan.t + whole + plan.x * from_latents / plan.t
    return Load(routed / plan.expert_shards / (plan.x * plan.expert_ways), other)


def ends_of(shape: Shape, plan: Plan, apart: Amount = False) -> tuple[Amount, Amount, Amount]:
    """Weights outside of blocks: on middle ranks, on the first and on the last. With one stage, each of the three is
    the sum of all, unless embedding and head are counted `apart`.
    """
    tokens, (p, t), tied = shape.vocabulary * shape.width, (plan.p, plan.t), shape.tied
    first, last = shape.embedding / t, (shape.head + tokens * tied) / t
    joined = shape.width * (2 * shape.width / t + 3)
    whole = first + shape.head / t + plan.further * joined
    last = last + plan.further * joined + where(plan.further, tokens * (not tied) / t, 0)  # reads the embedding again
    # a spread head: each stage has a piece, which tp does not shard; a tied embedding is made of all of them
    spread, every = plan.spread_head, where(plan.spread_head, added(of_piece(shape, p)), 0)
    first = where(spread, shape.embedding if tied else added(of_embedding(shape, t)) + every, first)
    last = where(spread, of_norm(shape) + every, last)
    alone = p == 1
    last = where(alone, whole - first, last)  # no copy of a tied matrix
    return tuple(where(np.logical_and(alone, np.logical_not(apart)), whole, one) for one in (every, first, last))
