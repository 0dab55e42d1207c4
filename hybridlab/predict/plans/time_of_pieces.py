"""Compute the exposed seconds of tp's messages that are sent in pieces during their matmuls (`overlap`).

With sequence parallelism, each pair of sharded matrices has a gather before its entrance and a reduce-scatter after its
exit; in the backward the entrance has both, and the exit a gather. In t pieces, a matmul hides (t - 1)/t of its
time; in two directions, each of half as many hops is sent during two matmuls (`predict.time.pieces.exposed`):

    message                        during
    a gather for the entrance      its matmul; backward: the gradient of its weights
    a sum after the exit           its matmul
    a sum of gradients, entrance   the gradient of its input
    a gather of gradients, exit    both gradients

The hidden time follows from the local widths, the rate of matmuls and the link. Short matmuls are slower, and copies
take processors from them; neither is counted here. Messages of routed experts are not in pieces.

Relatives: `modes.parts.overlapped`, which runs it; `performance`; `software`, whose fraction holds for other programs.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import FULL
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import Rates
from hybridlab.predict.time.pieces import exposed, hops


class Pair(NamedTuple):
    """A pair of sharded matrices: the features that its entrance makes on a rank, and those that its exit reads."""

    entered: Amount
    left: Amount


def pairs(shape: Shape, plan: Plan) -> list[Pair]:
    """The pairs of a block: of attention, and of each MLP that all tokens use.

    >>> for one in pairs(Shape(width=8192, heads=64, kv_heads=8, inner=28672, style="llama"), Plan(t=8)): print(*one)
    1280.0 1024.0
    7168.0 3584.0
    """
    t, hidden, attention = plan.t, shape.inside / plan.t, []
    if shape.heads:
        keys = 2 * shape.value_width / np.minimum(t, shape.key_heads)
        made = shape.latents + (0 if shape.query_latent else shape.query_width / t) + (0 if shape.latent else keys)
        attention = [Pair(made, shape.found_width / t)]
    mlp = Pair(hidden * (2 if shape.style == "llama" else 1), hidden)
    return attention + [mlp] * (shape.mlps if shape.experts == 1 else shape.shared)


def in_pieces(shape: Shape, plan: Plan, rates: Rates, summed: Amount) -> tuple[Amount, Amount]:
    """The exposed seconds of all these messages of a block and a microbatch, forward and backward.

    summed  seconds of an all-reduce of the stream along tp
    """
    tokens, message = plan.b * shape.context / plan.cp, summed / 2
    again = (plan.recompute == FULL) * plan.redone
    matmul = lambda features: 2 * tokens * shape.width * features / rates.products
    many, hop = hops(plan.t, plan.directions), message / np.maximum(plan.t - 1, 1)
    shown = lambda beside: exposed(beside / plan.t, hop, many, plan.directions)
    forward = backward = 0.0
    for one in pairs(shape, plan):
        enter, leave = (matmul(features) for features in one)
        ahead = shown(enter) + shown(leave)
        forward = forward + ahead
        backward = backward + 2 * shown(enter) + shown(2 * leave) + again * ahead
    return forward, backward
