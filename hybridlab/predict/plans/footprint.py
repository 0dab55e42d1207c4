"""Compute the memory footprint of a plan: the bytes on one device during training, and the largest part.

Source: Rajbhandari et al. 2020, arXiv:1910.02054 (states); Korthikanti et al. 2022, arXiv:2205.05198 (activations).
Relatives: `predict.plans.memory_of_plan` (`hl.memory`), `predict.bytes.memory` (the same states of a real layout, to
the byte), `predict.bytes.activations`, notebooks 02 and 41.
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount, where
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.machines import machine_of
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes import context, experts
from hybridlab.predict.bytes.activations import FULL, NONE, Kept, came_in, kept, stays
from hybridlab.predict.bytes.local_steps import BESIDES
from hybridlab.predict.bytes.memory import MIXED, Widths
from hybridlab.predict.plans.fragments import under_way
from hybridlab.predict.plans.heaviest import heaviest, in_matrices
from hybridlab.predict.plans.kinds import of_kinds, ranks_of
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.slicing import first_of, rows_in_flight
from hybridlab.predict.plans.software import MEGATRON_2021, Software

ROOM = 0.95  # fraction of the memory; the rest is for CUDA's context, NCCL's buffers and gaps between tensors
ON_DEVICE = 2  # blocks with activations on the device if they are offloaded: one computes, one is copied


class Footprint(NamedTuple):
    """Bytes on one device, of one plan or of many."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> Amount:
        """The sum of all parts."""
        return added(self)

    @property
    def most(self) -> str:
        """The name of the largest part."""
        return self._fields[int(np.argmax(self))]

    def fits(self, machine: str | Path | Machine) -> Amount:
        """Whether the total is no more than a plan may use on a device of a machine: a name in the catalog, a TOML
        file, or a `Machine`.

        >>> print(states(4.7e9).fits("a100"), states(4.8e9).fits("a100"))
        True False
        """
        return self.total <= room_of(machine_of(machine))


def room_of(machine: Machine) -> float:
    """Bytes of a device that a plan may use.

    >>> from hybridlab.core.what.catalog import machine
    >>> f"{room_of(machine('a100')) / 1e9:.0f} GB"
    '76 GB'
    """
    return ROOM * machine.capacity


def states(
    parameters: Amount,
    stage: Amount = 0,
    ways: Amount = 1,
    widths: Widths = MIXED,
    groups: Amount = 1,
    secondary: Amount = 0,
    each: bool = False,
    matrices: Amount = 0,
) -> Footprint:
    """The bytes of `parameters` weights between steps if a stage of ZeRO shards them among some copies.

    groups     of such copies, over which the optimizer's state is sharded once more: two levels
    secondary  neighbours that have a second copy of the weights;  each  whether gradients are summed after every
               microbatch, in pieces as large as those of the weights; otherwise as large as those of the optimizer
    matrices   how many of the weights Muon updates: it keeps one number for each, where Adam keeps two

    With 16-bit weights and gradients and Adam in single precision, that is 16, 4 + 12/d, 2 + 14/d or 16/d bytes for
    each weight.

    >>> print(*(f"{states(7.5e9, stage, 64).total / 1e9:.1f} GB" for stage in range(4)))
    120.0 GB 31.4 GB 16.6 GB 1.9 GB
    >>> print(*(f"{states(7.5e9, 3, 8, groups=groups).total / 1e9:.1f} GB" for groups in (1, 8)))
    15.0 GB 3.5 GB
    """
    among = ways, ways * where(each, 1, groups), ways * groups
    shares = [parameters / np.where(stage >= least, many, 1) for least, many in zip((3, 2, 1), among)]
    shares[0] = shares[0] + where(secondary, parameters / np.maximum(secondary, 1), 0)
    apart = widths.master != widths.value  # without a separate master copy
    kept = (widths.value, widths.gradient, (apart + widths.states) * widths.master)
    found = Footprint(*(share * width for share, width in zip(shares, kept)), activations=0)
    if not np.any(matrices):
        return found
    fewer = (widths.states - widths.matrix) * widths.master * matrices / np.where(stage >= 1, among[2], 1)
    return found._replace(optimizer=found.optimizer - fewer)


def passed(p: Amount, m: Amount, v: Amount = 1, behind: Amount = 0, n: Amount = 1) -> Amount:
    """The number of forwards, each of one chunk and one slice, that wait for their backward on the first rank, or on a
    later one.

    >>> print(passed(4, 8), passed(4, 8, v=2), passed(4, 8, n=4), passed(4, 8, v=2, n=4))
    4 11 7 14
    """
    chunks = 2 * (p - behind - 1) + (v - 1) * group_of(p, m, n) + n
    return np.minimum(m * v * n, where(v > 1, chunks, p - behind + n - 1))


def group_of(p: Amount, m: Amount, n: Amount = 1) -> Amount:
    """Microbatches, or slices of full rows, that pass through one chunk before the next (`scheduling.interleaved`).

    >>> print(group_of(4, 8), group_of(4, 3, n=2))
    4 6
    """
    return where(n == 1, p, n * -(-m // np.maximum(1, m // -(-p // n))))


def live(p: Amount, m: Amount, v: Amount = 1, behind: Amount = 0) -> Amount:
    """The number of microbatches in flight on the first rank, or on a later one: min(p, m) with 1F1B; with interleaved
    stages, the number of chunks in flight divided by v. (A test compares it with `peak_live` of the schedules.)

    >>> print(live(4, 8), live(4, 2), live(4, 8, v=2))
    4.0 2.0 5.5
    """
    return passed(p, m, v, behind) / v


def in_flight(blocks: Amount, p: Amount, m: Amount, v: Amount = 1, place: Amount = 0, n: Amount = 1) -> Amount:
    """The largest number of blocks whose activations one rank saves at a time, each for one microbatch.

    blocks  of the rank, in v chunks; if they are unequal, late chunks have one extra block
    place   of the rank in the pipeline;  n  token slices of a row, here of equal length

    Groups of p microbatches pass through the chunks forwards, and backwards through the last chunk first. So the most
    long chunks are in flight when a group has passed all chunks, or when the first backward begins.

    >>> print(in_flight(4, 4, 8, v=2), 4 * live(4, 8, v=2), in_flight(3, 4, 8, v=2))
    22.0 22.0 15.0
    """
    many, one = passed(p, m, v, place, n), group_of(p, m, n)
    group, longer = one * v, one * (blocks % v)
    rounds = -(-many // group)
    begins = many // group * longer + np.maximum(many % group - (group - longer), 0)
    ended = rounds * longer - np.minimum(rounds * group - many, longer)
    return (blocks // v * many + np.maximum(begins, ended)) / n


def longer_first(shape: Shape, plan: Plan, m: Amount, place: Amount) -> Amount:
    """The tokens that a rank has in flight, relative to slices of equal length: first slices are longer."""
    (p, v, n), many = (plan.p, plan.v, plan.n), passed(plan.p, m, plan.v, place, plan.n)
    full, rows = (v - 1) * group_of(p, m, n), where(v > 1, np.inf, m)
    return where(many < m * v * n, (full + n * rows_in_flight(shape, n, many - full, rows)) / many, 1)


def footprint(shape: Shape, plan: Plan, batch: int, software: Software = MEGATRON_2021) -> Footprint:
    """Bytes on the device that holds the most.

    Gradients have the width that the software uses; the largest gradient of a block is counted twice, since it exists
    next to its sum while it is added. Local steps keep two more numbers for each weight. The buffer in which the copies
    all-reduce their updates counts as gradients if later steps hide it; otherwise it is not counted, since no
    activations are saved then.

    The memory of activations is the maximum over three ranks: the first, the first with the most blocks, and the last.
    They include all microbatches in flight and one recomputed block; on the last rank, also the scores of one
    microbatch in single precision. With token slices, scores and the recomputed block are of one slice, the longest;
    and the keys and values of a row have gradients until its first slice's backward ends.

    >>> from hybridlab.core.what.catalog import model
    >>> one = footprint(model("gpt3-175b").shape, Plan(p=12, t=8, b=1, recompute=2), batch=96)
    >>> print(f"{one.total / 1e9:.0f} GB, most of it {one.most}")
    36 GB, most of it optimizer
    """
    p, t, b, v = plan.p, plan.t, plan.b, plan.v
    slice_, its, kinds = first_of(shape, plan.n), ranks_of(shape, plan), of_kinds(shape, plan)
    recomputed = [stays(saved_on(*one, software), entered(*one), plan.recompute)[1] for one in kinds]
    again = slice_ * functools.reduce(np.maximum, recomputed)
    left = [left_behind(*one, software) for one in kinds]
    m = plan.microbatches(batch)
    scores = slice_ * 4 * b * shape.context / plan.cp * shape.vocabulary / t
    there = lambda rank, blocks: (
        (blocks - plan.offload * np.maximum(blocks - ON_DEVICE, 0)) * rank.mean(left[0], left[-1])
    )
    sliced = np.asarray(plan.n) > 1
    held = lambda rank, flying: (
        there(rank, in_flight(rank.blocks, flying, m, v, rank.place, plan.n) * longer_first(shape, plan, m, rank.place))
        + sliced * rank.blocks * cached(shape, plan)
    )
    # with a spread head, two more microbatches are in flight, and a piece, not sharded by tp, has scores of at most two
    spread = plan.spread_head & (p > 1)
    piece, flying = where(spread, 2 * scores * t / p, 0), p + where(spread, 2, 0)
    # a further token: a block with the two vectors that it joins and their norms, and scores of its own
    scores = scores + plan.further * (scores + left[0] + 4 * entered(shape, plan))
    first = held(its.first, flying) + np.where(p == 1, scores, piece)
    longest = functools.reduce(np.maximum, (held(rank, flying) for rank in its.between)) + piece
    last = there(its.last, (its.last.blocks - its.least) * p + its.least) + scores
    last = where(spread | sliced, held(its.last, flying) + where(spread, piece, scores), last)
    activations = again + np.maximum(np.maximum(first, longest), last)
    states_ = _states(shape, plan, software)
    added_to = software.converted * largest(shape) / (t * plan.x)
    if np.any(plan.sync_delay):
        added_to = added_to + software.gradient * under_way(shape, plan)
    return states_._replace(gradients=states_.gradients + added_to, activations=activations)


def _states(shape: Shape, plan: Plan, software: Software) -> Footprint:
    """Weights, gradients and the optimizer's state of the rank that holds the most weights."""
    besides = where(plan.sync_every, BESIDES, 0)
    numbers = {"states": MIXED.states + besides, "matrix": MIXED.matrix + besides}
    widths = MIXED._replace(gradient=software.gradient, **numbers)
    every = in_matrices(shape, plan) if np.any(plan.optimizer) else (0, 0)
    routed, other = (
        states(weights, plan.zero, ways, widths, updaters // ways, plan.secondary, software.each, matrices)
        for weights, ways, updaters, matrices in zip(heaviest(shape, plan), plan.sharers, plan.updaters, every)
    )
    return Footprint(*map(added, zip(routed, other)))


def largest(shape: Shape) -> int:
    """The weights of the largest matrix of a block: the one into an MLP, with its gate if it has one.

    >>> largest(Shape(width=4, style="gpt")), largest(Shape(width=4, style="llama"))
    (64, 128)
    """
    widest = max(shape.inside, shape.plain_ones.inside) if shape.plain else shape.inside
    return shape.width * widest * (2 if shape.style == "llama" else 1)


def left_behind(shape: Shape, plan: Plan, software: Software) -> Amount:
    """Bytes that an average block saves for one microbatch; `recompute` applies to the fraction `redone` of them."""
    saved = saved_on(shape, plan, software)
    every, some = (stays(saved, entered(shape, plan), how)[0] for how in (NONE, plan.recompute))
    some = some + ((plan.n > 1) & (plan.recompute == FULL)) * cached(shape, plan)
    return plan.redone * some + (1 - plan.redone) * every


def cached(shape: Shape, plan: Plan) -> Amount:
    """Bytes of a microbatch's keys and values in a block: later slices read them even if all else is recomputed. Their
    gradients have the same size."""
    _, keys, values, _ = context.widths(shape, plan.t)
    return 2 * plan.b * shape.context * (shape.latent + shape.rotary if shape.latent else keys + values)


def saved_on(shape: Shape, plan: Plan, software: Software) -> Kept:
    """Like `kept_on`, but for a low precision: matmuls with weights save their inputs in at most 8 bits.

    Norms, attention, the router and the nonlinearity save their own inputs in 16 bits, so what attention returns is
    saved twice.
    """
    left, narrow, sparse = kept_on(shape, plan), software.precision > 0, shape.experts > 1
    tokens, routed = plan.b / plan.cp * shape.context, shape.chosen * _busiest(shape, plan)
    whole = ((shape.heads > 0) + (not sparse)) * entered(shape, plan) / 2
    cut = tokens * (shape.inside * (routed + shape.shared) - shape.found_width) / plan.t
    inside = sparse * tokens * shape.width * routed / (plan.x * where(plan.fold, plan.t, 1))
    return left._replace(
        whole=left.whole - narrow * whole, cut=left.cut - narrow * cut, inside=left.inside - narrow * inside
    )


def _busiest(shape: Shape, plan: Plan) -> Amount:
    return experts.imbalance(shape.experts, shape.chosen, plan.expert_ways, plan.skew)


def kept_on(shape: Shape, plan: Plan) -> Kept:
    """The bytes that a block saves for one microbatch on the busiest rank of a plan.

    cp shards the sequence. Gathered keys and values are saved in full. A ring and a fused kernel save no scores.
    """
    part = plan.b / plan.cp
    left = kept(shape, part, plan.t, plan.sequence, plan.x, _busiest(shape, plan), where(plan.fold, plan.t, 1))
    _, keys, values, _ = context.widths(shape, plan.t)
    others = part * shape.context * (plan.cp - 1) * (plan.attend == context.GATHER)
    unkept = plan.fused | (context.passes(plan.attend) & (plan.cp > 1))
    return left._replace(cut=left.cut + 2 * others * (keys + values), core=left.core * np.where(unkept, 0, 1))


def entered(shape: Shape, plan: Plan) -> Amount:
    """Bytes of the input of a block for one microbatch, on one rank of a plan."""
    return came_in(shape, plan.b / plan.cp, plan.t, plan.sequence, plan.x)
