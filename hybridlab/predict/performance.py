"""Performance: the time of one training step under a plan, from a few terms that can each be explained.

One microbatch on one stage takes

    multiply   its matrix products, at a share of the device's peak
    pointwise  everything between them: each kept byte is written once and read once, again when it is done again, and
               twice in the backward; at a share of the memory's bandwidth
    tensor     the sums along tp: two in a block's forward, two in its backward, two more when it is done again
    launch     what is left: a fixed time for each block

and the last stage multiplies with the vocabulary too. A step is m of these, p - 1 more (over v) to fill and empty the
pipeline, the messages between stages, the sum of gradients over the copies, and the optimizer. Nothing overlaps, as
in the programs that were measured, but ZeRO 3's gathers, one for each forward and each backward of a microbatch.

Three numbers are fitted: the two shares, and the launch. They are fitted on the ten rows of table 1 of Narayanan et al.
2021, arXiv:2104.04473, and on nothing else; every other prediction is a test of them.

Relatives: `predict.activations`, `predict.arithmetic`, `predict.collectives`, notebooks 41 and 42.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.catalog import Machine
from hybridlab.core.shape import Shape
from hybridlab.predict.activations import FULL, NONE, RECOMPUTE, kept
from hybridlab.predict.arithmetic import flops
from hybridlab.predict.collectives import Link, hierarchical
from hybridlab.predict.footprint import weights
from hybridlab.predict.plan import Plan

ADAM_BYTES = 30  # of memory for each weight: its gradient read twice, three numbers of 4 bytes read and written, itself
SCORE_BYTES = 16  # of each score of a token: in single precision, written and read, forward and backward


class Fit(NamedTuple):
    """The fitted numbers: shares of the peak and of the memory's bandwidth, and seconds for each block."""

    multiply: float = 0.7249
    memory: float = 0.8365
    launch: float = 3.307e-3


FITTED = Fit()


class Step(NamedTuple):
    """Seconds of one step on the rank that has most to do, by what they go into; numbers, or arrays for many plans."""

    multiply: float
    pointwise: float
    tensor: float
    launch: float
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
        return (self.tensor + self.messages + self.data) / self.total

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
    p, t, d, b, _, how, zero, sequence, scatter = plan
    tokens, full, again = b * shape.context, how == FULL, how != NONE
    inside, across = (Link(alpha, 1 / rate) for alpha, rate in zip(machine.latency, (machine.inside, machine.across)))
    rate, memory = machine.peak * fit.multiply, machine.bandwidth * fit.memory

    core = 4 * tokens * shape.context * (shape.width if shape.heads else 0)
    matrices, core = 2 * tokens * shape.multiplied / t / rate, core / t / rate
    left = kept(shape, b, t, sequence)
    between, scores = 2 * (left.whole + left.cut) / memory, 2 * left.core / memory
    stream = 2 * tokens * shape.width  # bytes between two blocks
    pairs = 2 if shape.heads else 1
    one_sum = _hierarchical(t, np.minimum(t, machine.node), stream, inside, across)
    forward = Work(matrices + core, between + scores, pairs * one_sum, fit.launch / 4)
    backward = Work(
        (2 + full) * matrices + (2 + again) * core,
        (2 + full) * between + (2 + again) * scores,
        pairs * (1 + full + sequence / 2) * one_sum,  # with sequence parallelism what came in is gathered once more
        (2 + full) * fit.launch / 4,
    )
    head = tokens * shape.vocabulary / t * (6 * shape.width / rate + SCORE_BYTES / memory)

    parts = 1 + (sequence | scatter) * (t - 1)
    far = plan.devices > machine.node
    hop = np.where(far, across.seconds("send", 2, stream / parts), inside.seconds("send", 2, stream / parts))
    gathered = scatter & (np.asarray(sequence) == 0)
    hop = (hop + gathered * one_sum / 2) * (p > 1)

    held = weights(shape, p, t)
    near = np.clip(machine.node // t, 1, d)  # copies in one node
    gradients = _hierarchical(d, near, 2 * held, inside, across)
    m, layers = plan.microbatches(batch), shape.layers / p
    exposed = sum(np.maximum(gradients / 2 - layers * sum(one), 0) for one in (forward, backward))
    data = np.where(zero == 3, gradients / 2 + m * exposed, gradients)  # gathers go on behind forward and backward
    return Pieces(forward, backward, head, hop, data, ADAM_BYTES * held / np.where(zero > 0, d, 1) / memory)


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


def _hierarchical(ways, near, size, inside, across):
    """The seconds of a sum over so many ranks, `near` of them in one node."""
    return hierarchical(-(-ways // near), near, size).seconds(inside, across)


def throughput(shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED):
    """FLOP/s of one device, all that it does counted (HFU's numerator), as the paper prints them.

    >>> from hybridlab.core.catalog import machine, model
    >>> one = Plan(p=64, t=8, d=6, b=1, recompute=FULL, scatter=True)
    >>> round(throughput(model("gpt-1t").shape, one, 3072, machine("a100")) / 1e12)
    162
    """
    work = np.array([flops(shape, batch, how).total for how in RECOMPUTE])[plan.recompute]
    return work / (step(shape, plan, batch, machine, fit).total * plan.devices)
