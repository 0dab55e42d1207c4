"""Predict the time of one training step of a plan as a sum of a few terms, each with an explanation.

The time of one microbatch on one stage is the sum of

    multiply   its GEMMs, at a fraction of the device's peak
    pointwise  all other operations: each saved byte is written once and read once, again for recomputation, and twice
               in the backward; at a fraction of the memory bandwidth. Also the exposed part of copies to the host
    tensor     the tp all-reduces: two in a block's forward, two in its backward, two more for recomputation; on a grid
               also those along x, one for each matrix and one or two for each norm
    launch     a fixed time for each block
    context    waiting for keys and values along cp
    experts    sending tokens to experts along ep and back (`predict.plans.time_of_context_and_experts` computes the
               overlap of both)

The last stage also has the matmul with the vocabulary, or each stage has a piece of it (`spread_head`). A step takes m
times this time, plus (p - 1)/(v·n) times this time to fill and drain the pipeline, with n slices of a row; plus the
messages between stages, the all-reduce of gradients over the copies (with local steps the exposed part of their
exchanges), and the optimizer step. No rank begins a step before all have ended the last one, as if the norm of all
gradients were clipped (`by_schedule.seconds_of_clipping`). As in the measured programs, nothing overlaps except ZeRO
3's all-gathers, one for each forward and each backward of a microbatch; they use all links of a node. Table 2 of the
paper contradicts this (`papers.sc21.table_2`): the speed is an upper bound.

Three numbers are fitted: the two fractions and the launch time. They are fitted only on the ten rows of table 1 of
Narayanan et al. 2021, arXiv:2104.04473; all other predictions test them.

Relatives: `predict.bytes.activations`, `predict.plans.arithmetic`, `predict.bytes.collectives`, notebooks 41 and 42.
"""

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount, where
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import FULL, NONE, RECOMPUTE, kept
from hybridlab.predict.bytes.context import multiplied, passes
from hybridlab.predict.bytes.experts import imbalance, weights_of_one
from hybridlab.predict.bytes.traffic import LOSS_SUMS, Along, along_block, along_head
from hybridlab.predict.plans import time_of_muon
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.footprint import kept_on, left_behind
from hybridlab.predict.plans.heaviest import heaviest
from hybridlab.predict.plans.kinds import Rank, of_kinds, ranks_of
from hybridlab.predict.plans.partition import lengths
from hybridlab.predict.plans.parts_of_a_step import Pieces, Step, Work
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import FITTED, Fit, Rates
from hybridlab.predict.plans.software import MEGATRON_2021, Software, shown
from hybridlab.predict.plans.time_of_context_and_experts import along_cp, along_ep
from hybridlab.predict.plans.time_of_gradients import among_copies, seconds_of_copies
from hybridlab.predict.plans.time_of_moves import seconds_of_moves
from hybridlab.predict.plans.time_of_pieces import in_pieces
from hybridlab.predict.plans.time_of_pieces import pairs as pairs_of

ADAM_BYTES = 30  # for each weight: reads its gradient twice, reads and writes three numbers of 4 bytes and itself
LOSS_BYTES = 4  # of a number in the loss's sums
SCORE_BYTES = 16  # for each score of a token: single precision, written and read, forward and backward


def pieces(
    shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED, software: Software = MEGATRON_2021
) -> Pieces:
    """The parts of the step of a plan, or of many plans."""
    rates = Rates.of(machine, fit, software)
    summed = plan.n * rates.sum(plan.t, rates.near(plan, "t"), _stream(shape, plan))
    across = _across(plan, rates)
    blocks = [
        _block(kind, its, rates, plan.n * fit.launch, summed, across, software) for kind, its in of_kinds(shape, plan)
    ]
    if np.any(plan.offload):
        blocks = [
            _with_host(kind, its, machine, software, *one) for one, (kind, its) in zip(blocks, of_kinds(shape, plan))
        ]
    forward, backward = blocks[0]
    head = _head(shape, plan, rates, summed, across, software)
    if np.any(plan.further):
        head = head + plan.further * (head + added(forward) + added(backward) + _joined(shape, plan, rates))

    held, layers = heaviest(shape, plan), lengths(shape.layers, plan.p, plan.v).longest
    once = among_copies(plan, rates, held, layers, software)
    ahead, back = (layers * added(one) for one in (forward, backward))
    data = seconds_of_copies(once, plan, plan.passes(batch), ahead / plan.n, back / plan.n, software)
    updated = added(weights / np.where(plan.zero > 0, sharers, 1) for weights, sharers in zip(held, plan.updaters))
    hop = _hop(shape, plan, rates, summed) * (1 - software.messages)
    optimizer = ADAM_BYTES * updated / rates.memory + time_of_muon.seconds(shape, plan, rates)
    return Pieces(forward, backward, head, hop, data, optimizer, blocks[-1])


def _head(shape: Shape, plan: Plan, rates: Rates, summed, across, software: Software):
    """The seconds of the head and the loss, forward and backward."""
    tokens = plan.b * shape.context / plan.cp
    moved = SCORE_BYTES * software.traffic / rates.memory
    ways = where(plan.spread_head, 1, plan.t)  # tp does not shard pieces of the head
    head = tokens * shape.vocabulary / ways * (6 * shape.width / plan.x / rates.multiply + moved)
    head = head + across(along_head(shape, ways), tokens, 1, 1)
    if software.ends:
        head = head + where(plan.spread_head, 0, _ends(plan, rates, summed, tokens))
    return head


def _joined(shape: Shape, plan: Plan, rates: Rates):
    """The seconds of the matrix that joins two vectors of a position to one, for a further token."""
    return 6 * plan.b * shape.context / plan.cp * 2 * shape.width**2 / (plan.t * plan.x) / rates.products


def _with_host(shape: Shape, plan: Plan, machine: Machine, software: Software, *passes: Work) -> tuple[Work, Work]:
    """Forward and backward with offload: copies of saved activations overlap with them, and only a longer copy is
    exposed; on the average of all layers."""
    if not machine.host:
        raise ValueError(f"the host link of {machine.name} is not known: leave out offload, or choose another machine")
    copied = left_behind(shape, plan, software) / machine.host
    shown_of = lambda one: plan.offload * np.maximum(copied - added(one), 0)
    forward, backward = (one._replace(pointwise=one.pointwise + shown_of(one)) for one in passes)
    return forward, backward


def _across(plan: Plan, rates: Rates):
    """A function that gives the seconds of a layer's messages along x, for some numbers of forwards and backwards."""
    if np.all(plan.x == 1):
        return lambda *_: 0.0
    near = rates.near(plan, "x")

    def seconds(one: Along, tokens, forwards, backwards):
        part = tokens / plan.n
        sums = lambda elements: added(rates.sum(plan.x, near, 2 * part * each) for each in elements)
        norms = (forwards + backwards) * len(one.norms) * rates.sum(plan.x, near, 4 * part)  # in single precision
        return plan.n * (forwards * sums(one.forward) + backwards * sums(one.backward) + norms)

    return seconds


def _stream(shape: Shape, plan: Plan):
    """The bytes between two blocks, of one slice: 2·s·b·h/(x·cp·n)."""
    return 2 * plan.b * shape.context * shape.width / (plan.x * plan.cp * plan.n)


def _block(
    shape: Shape, plan: Plan, rates: Rates, launch: float, summed, across, software: Software
) -> tuple[Work, Work]:
    """A block's forward and backward. `summed` is the seconds of an all-reduce along tp; `across` gives those along x.

    All ranks along x do the same attention and the same operations between the two matrices of a pair.
    """
    tokens, full = plan.b * shape.context / plan.cp, (plan.recompute == FULL) * plan.redone
    uneven = imbalance(shape.experts, shape.chosen, plan.expert_ways, plan.skew)
    busiest = shape.multiplied + (uneven - 1) * shape.chosen * weights_of_one(shape)
    read = (plan.n > 1) * plan.n / rates.memory  # reading the weights, once for each slice: longer than a short matmul
    matrices = 2 * np.maximum(tokens / rates.products, read) * _here(shape, plan, busiest)
    left = kept_on(shape, plan)
    between = 2 * software.traffic * left.apart / rates.memory
    core, scores = _attention(shape, plan, rates, software)
    context = along_cp(shape, plan, rates, [one + other for one, other in zip(core, scores)])
    context = [shown(wait, one, software.context) for wait, one in zip(context, core)]
    experts = along_ep(shape, plan, rates, software.once)
    pairs, along = (shape.heads > 0) + _inner_pairs(shape, plan, uneven), along_block(shape, plan.t)
    launch = launch * (software.launch + software.asked * (shape.experts > 1) * shape.experts / plan.expert_ways) / 4
    sums = lambda seconds, beside: shown(seconds, beside, software.tensor)
    ahead = back = 0.0
    if np.any(plan.overlap):
        ahead, back = (np.where(plan.overlap, one, 0) for one in in_pieces(shape, plan, rates, summed))
        pairs = pairs - np.where(plan.overlap, len(pairs_of(shape, plan)), 0)
    products = matrices + core[0], (2 + full * (1 - software.early * _last(shape))) * matrices + core[1]
    forward = Work(
        products[0],
        between + scores[0],
        ahead + sums(pairs * summed + across(along, tokens, 1, 0), products[0]),
        launch,
        context[0],
        shown(experts[0], products[0], software.experts),
    )
    backward = Work(
        products[1],
        (2 + full) * between + scores[1],
        back
        + sums(  # with sequence parallelism, one more gather
            pairs * (1 + full + plan.sequence / 2) * summed + across(along, tokens, full, 1), products[1]
        ),
        (2 + full) * launch,
        context[1],
        shown(experts[1], products[1], software.experts),
    )
    return forward, backward


def _inner_pairs(shape: Shape, plan: Plan, uneven):
    """The all-reduces along tp of an MLP, or of experts and the shared ones, in a forward.

    With sequence parallelism, the tokens of sharded experts are gathered along tp, and scattered: k for each token.
    Each rank sends its own tokens to folded experts; only if the stream is full, the outputs are gathered, which is
    half an all-reduce.
    """
    sharded, folded = np.where(plan.sequence, shape.chosen * uneven, 1), np.where(plan.sequence, 0.0, 0.5)
    return np.where(plan.fold, folded, sharded) + shape.shared


def _ends(plan: Plan, rates: Rates, summed, tokens):
    """The seconds of all-reduces along tp outside of blocks: for the embedding's output, if the last stage has it too;
    for the gradient of the head's input, with one more gather if the sequence is sharded; and for the loss.
    """
    near, part = rates.near(plan, "t"), LOSS_BYTES * tokens / plan.n
    loss = plan.n * added(rates.sum(plan.t, near, each * part) for each in LOSS_SUMS)
    return (1 + (plan.p == 1) + plan.sequence / 2) * summed + loss


def _here(shape: Shape, plan: Plan, multiplied):
    """The weights of a block in matmuls, on one rank. tp does not shard the matrices that make latents, and x does not
    shard the matrices that read them."""
    whole, read = shape.width * shape.latents, shape.block.heads
    return (multiplied - whole - read) / (plan.t * plan.x) + whole / plan.x + read / plan.t


def _last(shape: Shape) -> float:
    """The fraction of a block's matmuls that the last matrix has; no backward needs its output."""
    return shape.width * shape.inside * (shape.chosen + shape.shared) / shape.multiplied


def _attention(shape: Shape, plan: Plan, rates: Rates, software: Software = MEGATRON_2021):
    """((seconds of the matmuls of queries, keys and values, forward, backward), the same for the traffic of scores).

    If scores are not saved, on a ring or in a fused kernel, the backward recomputes them: an additional half of a
    forward.
    """
    again, tiles = (plan.recompute != NONE) * plan.redone, plan.fused | (passes(plan.attend) & (plan.cp > 1))
    part = plan.cp * multiplied(plan.cp, plan.attend, plan.zigzag, plan.fused, plan.ulysses)
    whole = kept(shape, plan.b / plan.cp, plan.t).core * part
    product = 2 * plan.b * shape.context**2 * (shape.query_width + shape.found_width) / plan.t * part / plan.cp
    speed = np.where(plan.fused, software.attention, 1.0)
    core, scores = product / (rates.multiply * speed), 2 * whole / rates.memory * np.where(plan.fused, 0, 1)
    return (core, (2 + again + tiles / 2) * core), (scores, (2 + again + tiles) * scores)


def _hop(shape: Shape, plan: Plan, rates: Rates, summed):
    """The seconds to send a slice's tensor to the next stage: at once, or in parts that are gathered there."""
    size = _stream(shape, plan) / (1 + (plan.sequence | plan.scatter) * (plan.t - 1))
    links = rates.ring(plan.p, rates.near(plan, "p")), rates.inside
    far, near = (link.seconds("send", 2, size) for link in links)
    gathered = plan.scatter & (np.asarray(plan.sequence) == 0)
    return (np.where(plan.devices > rates.node, far, near) + gathered * summed / plan.n / 2) * (plan.p > 1)


def step(
    shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED, software: Software = MEGATRON_2021
) -> Step:
    """The predicted time of a step of a plan, or of many plans.

    shape     of the model
    plan      one plan, or many: a plan whose fields are arrays
    batch     sequences in the global batch
    machine   the machine on which it runs
    fit       the three fitted numbers
    software  overlap and fusion of the program

    >>> from hybridlab.core.what.catalog import machine, model
    >>> gpt = model("gpt-145.6b").shape
    >>> one = step(gpt, Plan(p=8, t=8, d=24, b=2, v=2, recompute=FULL, scatter=True), 2304, machine("a100"))
    >>> print(f"{one.total:.1f} s, of which {one.idle:.0%} to fill and empty the pipeline")
    24.8 s, of which 7% to fill and empty the pipeline
    """
    alone = without_moves(shape, plan, batch, machine, fit, software)
    moves = seconds_of_moves(shape, plan, Rates.of(machine, fit, software), software, alone.total)
    return alone._replace(data=alone.data + moves)


def without_moves(
    shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED, software: Software = MEGATRON_2021
) -> Step:
    """The predicted time of a step, without the exchanges between copies that train alone."""
    forward, backward, head, hop, data, optimizer, plain = pieces(shape, plan, batch, machine, fit, software)
    m, its = plan.microbatches(batch), ranks_of(shape, plan)
    block = other = Work(*map(added, zip(forward, backward)))
    if shape.plain:
        other = Work(*map(added, zip(*plain)))
    every, of_plain = added(block), added(other)
    length = lambda rank: rank.sum(every, of_plain)
    slowest = its.between[0]
    for one in its.between[1:]:
        slowest = Rank(*(where(length(one) > length(slowest), *both) for both in zip(one, slowest)))
    # the slowest rank is never idle: the last one, unless earlier stages are longer by more than the head
    ending = length(its.last) + head >= length(slowest)
    ending = np.logical_and(ending, np.logical_not(plan.spread_head))
    busy = Rank(*(where(ending, *both) for both in zip(its.last, slowest)))
    its_head = where(plan.spread_head, head / plan.p, where(ending, head, 0))
    messages = 2 * plan.v * plan.n * hop
    later = where(plan.spread_head, 0, head - its_head)  # pieces fill the pipeline's ends together
    whole = Rank(shape.layers, len(shape.plain), 0).sum(every, of_plain)
    bubble = (whole - length(busy) + later + (plan.p - 1) * messages) / (plan.v * plan.n)
    # the last rank sends its output to all other pieces, and gets their gradients
    messages = messages + where(plan.spread_head, 2 * (plan.p - 1) * hop, 0)
    work = Work(*(m * busy.sum(one, another) for one, another in zip(block, other)))
    return Step(*work, m * its_head, m * messages, bubble, data, optimizer)


def throughput(
    shape: Shape, plan: Plan, batch: int, machine: Machine, fit: Fit = FITTED, software: Software = MEGATRON_2021
) -> Amount:
    """FLOP/s of one device, including recomputation (as for HFU, and in the paper).

    >>> from hybridlab.core.what.catalog import machine, model
    >>> one = Plan(p=64, t=8, d=6, b=1, recompute=FULL, scatter=True)
    >>> round(throughput(model("gpt-1t").shape, one, 3072, machine("a100")) / 1e12)
    162
    """
    work = np.array([flops(shape, batch, how, int(np.max(plan.further))).total for how in RECOMPUTE])[plan.recompute]
    return work / (step(shape, plan, batch, machine, fit, software).total * plan.devices)
