"""Compute the exposed seconds of a block's messages along cp and along ep, on the busiest rank.

Along cp, `gather` waits for all keys and values, and `ulysses` for four all-to-alls. On a ring, the next keys and
values are sent while the current ones are multiplied. So a hop is exposed only if it takes longer than its part of
attention. In the backward a hop also sends gradients, and one more hop returns them to their owners; that one is fully
exposed. With `usp`, all-to-alls are among u neighbours, and hops are between their groups: a hop has the keys and
values of a group, of 1/u of the heads.

Along ep, tokens are sent to their experts and back. Nothing overlaps with this, and all ranks wait for the busiest
one. tp shards experts like all other layers, as in Megatron-LM (`modes.parts.cut_experts`). With sequence parallelism
a rank of tp sends its own positions, and the received tokens are gathered along tp: `performance` counts this as an
all-reduce along tp. Folded experts are unsharded and have one group of ranks, along t, cp and ep: a rank sends only
its own tokens, also of a full stream, and nothing is gathered along tp afterwards.

See also `predict.bytes.context` and `predict.bytes.experts` (the same in elements), `predict.time.ring` (the number of
positions that hide a hop) and `predict.plans.performance`.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes import context, experts
from hybridlab.predict.bytes.activations import FULL
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import Rates

WHEN = ("forward", "backward")
WIDTHS = {"counts": 8, "choices": 8, "tokens": 2, "weights": 2}  # bytes of a number


def along_cp(shape: Shape, plan: Plan, rates: Rates, attention: Sequence[Amount]) -> tuple[Amount, Amount]:
    """(seconds of a block's forward, of its backward) in which a rank waits for keys and values.

    attention  the seconds of the matmuls of attention, in the forward and in the backward
    """
    if not shape.heads or np.all(plan.cp == 1):
        return 0.0, 0.0
    near, full, groups = rates.near(plan, "cp"), plan.recompute == FULL, np.maximum(plan.cp // plan.ulysses, 1)

    def collective(way, when, ways, near):
        every = context.exchanged(shape, plan.b, plan.cp, way, when, plan.t)
        return added(rates.seconds(op, ways, near, 2 * elements) for op, elements in every)

    _, keys, values, _ = context.widths(shape, plan.t)
    part = 2 * plan.b * shape.context / plan.cp * (keys + values)
    hop = rates.hop(groups, near.every(plan.ulysses, groups), part)
    shown = lambda carried, hidden: (groups - 1) * np.maximum(carried - hidden / groups, 0)
    around = shown(hop, attention[0]), shown(2 * hop, attention[1]) + hop * (groups > 1)

    def seconds(way, when, ring):
        if way == "usp":
            return ring + collective("ulysses", when, plan.ulysses, near.first(plan.ulysses))
        return ring if way == "ring" else collective(way, when, plan.cp, near)

    forward, backward = (
        _of_method(plan.attend, context.ATTEND, partial(seconds, when=when, ring=ring))
        for when, ring in zip(WHEN, around)
    )
    return forward, backward + full * forward


def along_ep(shape: Shape, plan: Plan, rates: Rates, once: bool = False) -> tuple[Amount, Amount]:
    """(seconds of a block's forward, of its backward) to send tokens to experts and back.

    once  a token is sent to a node once, even if several of its experts are there
    """
    ways = plan.expert_ways
    if shape.experts == 1 or np.all(ways == 1):
        return 0.0, 0.0
    near = rates.of_experts(plan, "t+cp+ep", "ep")
    tokens = plan.b * shape.context / (plan.cp * plan.n) / where(plan.sequence | plan.fold, plan.t, 1)
    uneven = experts.imbalance(shape.experts, shape.chosen, ways, plan.skew)
    away = experts.crossing(shape.chosen, ways / near.node) if once else 1.0

    def seconds(dispatch, when):
        every = experts.exchanged(shape, tokens, ways, dispatch, when)
        busy = lambda op: uneven if op == "all_to_all" else 1
        sizes = ((op, WIDTHS[what] * busy(op) * size) for op, what, size in every)
        return plan.n * added(rates.seconds(op, ways, near, size, away) for op, size in sizes)

    forward, backward = (_of_method(plan.dispatch, experts.DISPATCH, partial(seconds, when=when)) for when in WHEN)
    return forward, backward + (plan.recompute == FULL) * forward


def _of_method(chosen: Amount, names: Sequence[str], seconds: Callable[[str], Amount]) -> Amount:
    """The seconds of each plan with its method, an index in `names`; a method that no plan has is not computed."""
    found = [seconds(name) if np.any(np.equal(chosen, place)) else 0.0 for place, name in enumerate(names)]
    return np.choose(chosen, found)
