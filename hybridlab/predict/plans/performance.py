"""Performance: the time of one training step under a plan, from a few terms that can each be explained.

One microbatch on one stage takes

    multiply   its GEMMs, at a share of the device's peak
    pointwise  everything between them: each kept byte is written once and read once, again when it is recomputed, and
               twice in the backward; at a share of the memory's bandwidth
    tensor     the tp all-reduces: two in a block's forward, two in its backward, two more when it is recomputed; on a
               grid those along x too, one for each matrix and one or two for each norm
    launch     what is left: a fixed time for each block
    context    waiting for keys and values along cp
    experts    tokens on their way to experts along ep, and back (`predict.plans.inside` says of both what is hidden)

and the last stage multiplies with the vocabulary too. A step is m of these, p - 1 more (over v) to fill and empty the
pipeline, the messages between stages, the all-reduce of gradients over the copies, and the optimizer. Nothing overlaps,
as in the programs that were measured, but ZeRO 3's all-gathers, one for each forward and each backward of a microbatch;
they run over all links of a node. Table 2 of the paper contradicts that (`papers.sc21.table_2`): an upper bound.

Three numbers are fitted: the two shares, and the launch. They are fitted on the ten rows of table 1 of Narayanan et al.
2021, arXiv:2104.04473, and on nothing else; every other prediction is a test of them.

Relatives: `predict.bytes.activations`, `predict.plans.arithmetic`, `predict.bytes.collectives`, notebooks 41 and 42.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.catalog import Machine
from hybridlab.core.shape import Shape
from hybridlab.predict.bytes.activations import FULL, NONE, RECOMPUTE, kept
from hybridlab.predict.bytes.context import RING, multiplied
from hybridlab.predict.bytes.experts import imbalance, weights_of_one
from hybridlab.predict.bytes.traffic import Along, along_block, along_head
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.footprint import alike, kept_on, of_experts
from hybridlab.predict.plans.inside import along_cp, along_ep
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import FITTED, Fit, Rates

ADAM_BYTES = 30  # of memory for each weight: its gradient read twice, three numbers of 4 bytes read and written, itself
SCORE_BYTES = 16  # of each score of a token: in single precision, written and read, forward and backward


class Step(NamedTuple):
    """Seconds of one step on the rank that has most to do, by what they go into; numbers, or arrays for many plans."""

    multiply: float
    pointwise: float
    tensor: float
    launch: float
    context: float
    experts: float
    head: float
    messages: float
    bubble: float
    data: float
    optimizer: float

    @property
    def total(self):
        """All of them: the time of the step."""
        return sum(self)

    @property
    def communication(self):
        """The share of the time in which devices wait for messages of any kind."""
        return (self.tensor + self.context + self.experts + self.messages + self.data) / self.total

    @property
    def idle(self):
        """The share of the time in which the pipeline is filled and emptied: bubble_fraction."""
        return self.bubble / self.total


class Work(NamedTuple):
    """Seconds that a block takes for one microbatch on one rank of its stage, by what they go into."""

    multiply: float
    pointwise: float
    tensor: float
    launch: float
    context: float
    experts: float


class Pieces(NamedTuple):
    """The seconds that a step is put together from; numbers, or arrays for many plans.

    forward, backward  of one block and microbatch; a backward holds what is done again
    head  of one microbatch, forward and backward;  hop  of one tensor from a stage to the next
    data, optimizer  once in a step
    """

    forward: Work
    backward: Work
    head: float
    hop: float
    data: float
    optimizer: float


def pieces(shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED) -> Pieces:
    """The pieces of a plan's step, or of those of many plans."""
    rates, node = Rates.of(machine, fit), machine.node
    summed = rates.sum(plan.t, plan.near("t", node), _stream(shape, plan))
    across = _across(plan, node, rates)
    forward, backward = _block(shape, plan, node, rates, fit.launch, summed, across)
    tokens = plan.b * shape.context / plan.cp
    head = tokens * shape.vocabulary / plan.t * (6 * shape.width / plan.x / rates.multiply + SCORE_BYTES / rates.memory)
    head = head + across(along_head(shape, plan.t), tokens, 1, 1)

    held = of_experts(shape, plan.p, plan.t, plan.x, plan.ep), alike(shape, plan.p, plan.t, plan.x)
    gradients, gathered = _over_copies(plan, node, rates, [2 * weights for weights in held])
    # ZeRO 3's gathers go on behind the forward, and behind the backward, of all layers of a stage
    layers = shape.layers / plan.p
    exposed = sum(np.maximum(gathered - layers * sum(one), 0) for one in (forward, backward))
    data = np.where(plan.zero == 3, gradients - gathered + plan.microbatches(batch) * exposed, gradients)
    updated = sum(weights / np.where(plan.zero > 0, sharers, 1) for weights, sharers in zip(held, plan.sharers))
    optimizer = ADAM_BYTES * updated / rates.memory
    return Pieces(forward, backward, head, _hop(shape, plan, node, rates, summed), data, optimizer)


def _over_copies(plan: Plan, node: int, rates: Rates, sizes):
    """(seconds of the gradients' sum over the copies, those of one gather of the weights among the sharers).

    sizes  bytes of the experts' weights, whose copies are not those along ep, and of all others
    """
    found = [
        _over(plan.z, copies, plan.near(axes, node), sharers, rates, size)
        for axes, copies, sharers, size in zip(("cp+d", "cp+ep+d"), plan.copies, plan.sharers, sizes)
        if np.any(size)
    ]
    return [sum(seconds) for seconds in zip(*found)]


def _over(z, copies, near, sharers, rates: Rates, size):
    gathered = rates.sum(sharers, np.minimum(near, sharers), size) / 2
    among_others = rates.sum(copies // sharers, np.clip(near // sharers, 1, copies // sharers), size / sharers)
    return np.where(z, 2 * gathered + among_others, rates.sum(copies, near, size)), gathered


def _across(plan: Plan, node: int, rates: Rates):
    """A function: the seconds of what a layer sends along x, of so many forwards and backwards."""
    near = plan.near("x", node)

    def seconds(one: Along, tokens, forwards, backwards):
        sums = lambda elements: sum(rates.sum(plan.x, near, 2 * tokens * each) for each in elements)
        norms = (forwards + backwards) * len(one.norms) * rates.sum(plan.x, near, 4 * tokens)  # in single precision
        return forwards * sums(one.forward) + backwards * sums(one.backward) + norms

    return seconds


def _stream(shape: Shape, plan: Plan):
    """The bytes between two blocks: 2·s·b·h/(x·cp)."""
    return 2 * plan.b * shape.context * shape.width / (plan.x * plan.cp)


def _block(shape: Shape, plan: Plan, node: int, rates: Rates, launch: float, summed, across) -> tuple[Work, Work]:
    """A block's forward and backward; `summed` seconds take a sum along tp, `across` tells those along x.

    Attention and what stands between two matrices of a pair is done on all ranks along x alike.
    """
    tokens, full = plan.b * shape.context / plan.cp, plan.recompute == FULL
    uneven = imbalance(shape.experts, shape.chosen, plan.ep, plan.skew)
    busiest = shape.multiplied + (uneven - 1) * shape.chosen * weights_of_one(shape)
    matrices = 2 * tokens * busiest / (plan.t * plan.x) / rates.multiply
    left = kept_on(shape, plan)
    between = 2 * left.apart / rates.memory
    core, scores = _attention(shape, plan, rates)
    context = along_cp(shape, plan, node, rates, [one + other for one, other in zip(core, scores)])
    experts = along_ep(shape, plan, node, rates)
    pairs, along = 2 if shape.heads else 1, along_block(shape, plan.t)
    # what has come to experts is gathered along tp, and scattered: k tokens for one
    pairs = pairs + np.where(plan.sequence & (plan.ep > 1), shape.chosen * uneven - 1, 0)
    forward = Work(
        matrices + core[0],
        between + scores[0],
        pairs * summed + across(along, tokens, 1, 0),
        launch / 4,
        context[0],
        experts[0],
    )
    backward = Work(
        (2 + full) * matrices + core[1],
        (2 + full) * between + scores[1],
        pairs * (1 + full + plan.sequence / 2) * summed  # a cut sequence is gathered once more
        + across(along, tokens, full, 1),
        (2 + full) * launch / 4,
        context[1],
        experts[1],
    )
    return forward, backward


def _attention(shape: Shape, plan: Plan, rates: Rates):
    """((seconds of products of queries, keys and values, forward, backward), the same of what moves their scores).

    Where scores are not kept, on a ring or in a fused kernel, the backward makes them again: half a forward more.
    """
    again, tiles = plan.recompute != NONE, plan.fused | ((plan.attend == RING) & (plan.cp > 1))
    part = plan.cp * multiplied(plan.cp, plan.attend, plan.zigzag, plan.fused)
    whole = kept(shape, plan.b / plan.cp, plan.t).core * part
    product = 4 * plan.b * shape.context**2 * (shape.width if shape.heads else 0) / plan.t * part / plan.cp
    core, scores = product / rates.multiply, 2 * whole / rates.memory * np.where(plan.fused, 0, 1)
    return (core, (2 + again + tiles / 2) * core), (scores, (2 + again + tiles) * scores)


def _hop(shape: Shape, plan: Plan, node: int, rates: Rates, summed):
    """The seconds of a tensor's way to the next stage: whole, or in parts that are gathered behind it."""
    size = _stream(shape, plan) / (1 + (plan.sequence | plan.scatter) * (plan.t - 1))
    far, near = (link.seconds("send", 2, size) for link in (rates.across, rates.inside))
    gathered = plan.scatter & (np.asarray(plan.sequence) == 0)
    return (np.where(plan.devices > node, far, near) + gathered * summed / 2) * (plan.p > 1)


def step(shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED) -> Step:
    """The predicted step of a plan, or of many.

    >>> from hybridlab.core.catalog import machine, model
    >>> gpt = model("gpt-145.6b").shape
    >>> one = step(gpt, Plan(p=8, t=8, d=24, b=2, v=2, recompute=FULL, scatter=True), 2304, machine("a100"))
    >>> print(f"{one.total:.1f} s, of which {one.idle:.0%} to fill and empty the pipeline")
    24.8 s, of which 7% to fill and empty the pipeline
    """
    forward, backward, head, hop, data, optimizer = pieces(shape, plan, batch, machine, fit)
    m, layers = plan.microbatches(batch), shape.layers / plan.p
    stage = [layers * (one + other) for one, other in zip(forward, backward)]
    messages = 2 * plan.v * hop
    bubble = (plan.p - 1) * (sum(stage) + messages) / plan.v
    return Step(*(m * one for one in stage), m * head, m * messages, bubble, data, optimizer)


def throughput(shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED):
    """FLOP/s of one device, all that it does counted (HFU's numerator), as the paper prints them.

    >>> from hybridlab.core.catalog import machine, model
    >>> one = Plan(p=64, t=8, d=6, b=1, recompute=FULL, scatter=True)
    >>> round(throughput(model("gpt-1t").shape, one, 3072, machine("a100")) / 1e12)
    162
    """
    work = np.array([flops(shape, batch, how).total for how in RECOMPUTE])[plan.recompute]
    return work / (step(shape, plan, batch, machine, fit).total * plan.devices)
