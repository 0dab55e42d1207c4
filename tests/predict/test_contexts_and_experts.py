"""Formulas of context and expert parallelism: bytes as the modes say, loads, memory and seconds by hand, mutants."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from few import first
from hypothesis import given, settings
from hypothesis import strategies as st
from one_line import change

import hybridlab as hl
from hybridlab.core.what.catalog import Machine, model
from hybridlab.core.where.chunks import Chunks
from hybridlab.predict.bytes import context, experts
from hybridlab.predict.bytes.activations import FULL, NONE
from hybridlab.predict.bytes.collectives import Link, cost
from hybridlab.predict.bytes.context import ATTEND, GATHER, RING, ULYSSES, USP
from hybridlab.predict.plans import footprint as footprints
from hybridlab.predict.plans import heaviest, performance
from hybridlab.predict.plans import plan as plans
from hybridlab.predict.plans import time_of_context_and_experts as waiting
from hybridlab.predict.plans.hot_expert import hot
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.predict.plans.planner import plan
from hybridlab.predict.plans.rates import Rates
from hybridlab.predict.time import ring
from hybridlab.training.costs import costs_of
from hybridlab.training.formulas import transfers
from hybridlab.training.make_job import job_of

NODE = Machine("few", "nodes of 4, for tests", 4, 1e12, 4e9, 1e11, 1e10, 1e9, (1e-6, 1e-5), {})
LONG = hl.Shape(layers=4, width=64, heads=8, kv_heads=4, context=64, vocabulary=64, style="llama")
SPARSE = hl.Shape(layers=4, width=64, heads=8, context=16, vocabulary=64, style="llama", experts=8, chosen=2)
EXACT = performance.Fit(1, 1, 0)


def step(shape, batch=8, machine=NODE, **sizes):
    return performance.step(shape, check_plan(Plan(**sizes), shape, batch), batch, machine, EXACT)


def needs(shape, batch=8, **sizes):
    return footprints.footprint(shape, check_plan(Plan(**sizes), shape, batch), batch)


# --- bytes: a second derivation of what the modes say, and those are held against ledgers ----------------------------


def by_the_mode(mesh, purpose, **asked):
    """{operation: bytes} of one step, in one group along the axis."""
    found = {}
    for one in transfers(job_of(mesh, **asked))[purpose]:
        if 0 in one.ranks[:1]:
            found[one.op] = found.get(one.op, 0) + one.bytes
    return found


def of_a_step(shape, microbatches, exchanged):
    """The same by the closed formula: every layer and microbatch, forward and backward."""
    found = {}
    for when in ("forward", "backward"):
        for op, size in exchanged(when):
            found[op] = found.get(op, 0) + shape.layers * microbatches * size
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "way, mesh",
    [
        (way, mesh)
        for way in ATTEND
        for mesh in (hl.Mesh(cp=2), hl.Mesh(cp=4), hl.Mesh(cp=2, tp=2), hl.Mesh(dp=2, cp=2), hl.Mesh(cp=4, tp=2))
        if (way != "usp" or mesh["cp"] == 4) and (way, mesh.size) != ("ulysses", 8)
    ],
    ids=str,
)
@pytest.mark.parametrize("keys, positions", [(None, 16), (4, 16), (4, 18)])
def test_bytes_along_cp_are_what_the_mode_says(way, mesh, keys, positions):
    positions += positions % 4 if way == "usp" else 0  # which needs equal parts
    shape = hl.Shape(layers=3, width=32, heads=8, kv_heads=keys, context=positions)
    sent = by_the_mode(mesh, "context", model=shape, microbatches=2, batch=8, attend=way)
    rows, inner = 8 // 2 // mesh["dp"], 2 if way == "usp" else 1
    formula = lambda when: context.exchanged(shape, rows, mesh["cp"], way, when, mesh["tp"], inner)
    found = of_a_step(shape, 2, formula)
    assert sent == {op: 4 * elements for op, elements in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", experts.DISPATCH)
@pytest.mark.parametrize("mesh", [hl.Mesh(ep=2), hl.Mesh(ep=4), hl.Mesh(ep=2, cp=2), hl.Mesh(dp=2, ep=2)], ids=str)
@pytest.mark.parametrize("style, shared", [("gpt", 0), ("llama", 1)])
def test_bytes_along_ep_are_what_the_mode_says(dispatch, mesh, style, shared):
    shape = hl.Shape(layers=3, width=32, heads=4, context=16, experts=8, chosen=2, shared=shared, style=style)
    sent = by_the_mode(mesh, "experts", model=shape, microbatches=2, batch=16, dispatch=dispatch)
    tokens = 16 // 2 // mesh["dp"] // mesh["ep"] * 16 / mesh["cp"]
    width = {"counts": 8, "choices": 8, "tokens": 4, "weights": 4}
    every = lambda when: experts.exchanged(shape, tokens, mesh["ep"], dispatch, when)
    assert sent == of_a_step(shape, 2, lambda when: [(op, size * width[what]) for op, what, size in every(when)])


@pytest.mark.ranks
@pytest.mark.parametrize("way", first(1, ATTEND[:3]))
def test_ledgers_have_what_the_closed_formula_of_cp_says(bench, way):
    """Three steps of two microbatches of 4 sequences on two ranks, in float64."""
    shape = hl.Shape(layers=2, width=16, heads=4, kv_heads=2, context=8)
    report = bench.asked(hl.Mesh(cp=2), model=shape, microbatches=2, batch=8, attend=way)
    found = of_a_step(shape, 2, lambda when: context.exchanged(shape, 4, 2, way, when))
    assert report.ok and report.bytes["inside stages, along cp"][0] == 3 * 2 * 8 * sum(found.values())


@pytest.mark.ranks
@pytest.mark.parametrize("dispatch", first(1, experts.DISPATCH))
def test_ledgers_have_what_the_closed_formula_of_ep_says(bench, dispatch):
    """Counts and choices are 8 bytes wide, and so is all else in float64. 2 sequences on each rank."""
    shape = hl.Shape(layers=2, width=16, heads=4, context=8, experts=4, chosen=2)
    report = bench.asked(hl.Mesh(ep=2), model=shape, microbatches=2, batch=8, dispatch=dispatch)
    every = lambda when: [(op, size) for op, _, size in experts.exchanged(shape, 2 * 8, 2, dispatch, when)]
    found = of_a_step(shape, 2, every)
    assert report.ok and report.bytes["inside stages, along ep"][0] == 3 * 2 * 8 * sum(found.values())


def test_on_the_wire_ulysses_sends_less_the_more_ranks_and_the_others_hardly_change():
    def wire(way, ways):
        both = [one for when in ("forward", "backward") for one in context.exchanged(LONG, 1, ways, way, when)]
        return sum(size if op == "isend" else cost(op, ways, size).bytes for op, size in both)

    keys, queries = 64 * 32, 64 * 64
    for ways in (2, 4):
        assert wire("gather", ways) == 2 * 2 * keys * (ways - 1) / ways
        assert wire("ring", ways) == 2 * keys * (3 * ways - 2) / ways
        assert wire("ulysses", ways) == 2 * 2 * (queries + keys) / ways * (ways - 1) / ways
    assert wire("ulysses", 4) < wire("ulysses", 2) and wire("gather", 4) > wire("gather", 2)


def test_on_the_wire_groups_that_exchange_heads_send_less_than_a_ring_of_all():
    """Forward, with as many heads of keys as of queries, in units of b·s·h: all-to-alls inside, hops between."""
    shape, ways = replace(LONG, kv_heads=None), 8

    def wire(u):
        every = context.exchanged(shape, 1, ways, "usp", "forward", ulysses=u)
        return sum(size if op == "isend" else cost(op, u, size).bytes for op, size in every) / (64 * 64)

    closed = lambda u: 4 / ways * (u - 1) / u + 2 / u * (ways / u - 1) / (ways / u)
    assert [wire(u) for u in (1, 2, 4, 8)] == [closed(u) for u in (1, 2, 4, 8)] == [1.75, 1.0, 0.625, 0.4375]


@pytest.mark.slow
@given(ways=st.integers(1, 6), each=st.integers(1, 4), zigzag=st.booleans())
@settings(max_examples=40)
def test_the_share_of_the_busiest_rank_is_the_runtimes(ways, each, zigzag):
    """Pairs with a mask; the closed form leaves the half of the diagonal out. Whole chunks without a fused kernel."""
    positions = 2 * ways * each
    chunks = (Chunks.zigzag if zigzag else Chunks.in_order)(positions, ways)
    half_of_the_diagonal = positions / ways / 2
    for way in (GATHER, RING):
        share = context.multiplied(ways, way, zigzag, fused=True)
        assert max(chunks.pairs) == pytest.approx(share * positions**2 + half_of_the_diagonal)
    parts = Chunks.zigzag(positions, ways) if zigzag else Chunks.in_order(positions, ways)
    assert context.multiplied(2 * ways, USP, zigzag, fused=True, ulysses=2) * 2 * positions**2 == pytest.approx(
        max(parts.pairs) - half_of_the_diagonal  # of half of the heads
    )
    met = [
        sum(len(range(*chunks.spans[mine])) * len(range(*chunks.spans[other]))
            for mine in chunks.of[rank] for of in chunks.of for other in of if other <= mine)
        for rank in range(ways)
    ]  # fmt: skip
    assert max(met) == pytest.approx(context.multiplied(ways, RING, zigzag) * positions**2)
    assert (
        context.multiplied(ways, ULYSSES, fused=True) * ways == 1 / 2 and context.multiplied(ways, GATHER) == 1 / ways
    )


# --- experts: counts, loads -----------------------------------------------------------------------------------------


@pytest.mark.slow
@given(ways=st.sampled_from((1, 2, 3, 4)), each=st.integers(1, 3), tokens=st.integers(0, 9), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_counts_say_who_sends_what_to_whom(ways, each, tokens, seed):
    """Token by token: who is not at home sends h numbers to the expert's rank, and gets as many back."""
    draw, number = np.random.default_rng(seed), ways * each
    chosen = draw.integers(0, number, (ways, tokens))  # of every token of every rank
    leaves, comes = np.zeros(ways, int), np.zeros(ways, int)
    for (rank, _), expert in np.ndenumerate(chosen):
        leaves[rank] += 16 * (expert // each != rank)
        comes[expert // each] += 16 * (expert // each != rank)
    counts = [np.bincount(row, minlength=number) for row in chosen]
    found = experts.sent(counts, ways, width=8)
    assert (found[0] == leaves).all() and (found[1] == comes).all()


def test_even_counts_send_what_the_closed_formula_says():
    ways, tokens = 4, 32
    counts = np.full((ways, 8), tokens * 2 // 8)
    leaves, comes = experts.sent(counts, ways, width=64)
    _, (op, what, size), _ = experts.exchanged(SPARSE, tokens, ways, "all_to_all", "forward")
    assert (leaves == comes).all() and leaves[0] == 2 * cost(op, ways, size).bytes and what == "tokens"
    with pytest.raises(ValueError, match="a number of columns .experts. that 3 divides"):
        experts.sent(counts, 3, width=64)


@pytest.mark.slow
@given(number=st.integers(2, 64), skew=st.floats(0, 3), data=st.data())
@settings(max_examples=60)
def test_popularity_is_a_distribution_of_choices(number, skew, data):
    chosen = data.draw(st.integers(1, number))
    found = experts.popular(number, chosen, skew)
    assert len(found) == number and sum(found) == pytest.approx(chosen)
    assert max(found) <= 1 + 1e-12 and list(found) == sorted(found, reverse=True)
    assert experts.imbalance(number, chosen, 1, skew) == pytest.approx(1)
    loads = [experts.imbalance(number, chosen, ways, skew) for ways in range(1, number + 1) if number % ways == 0]
    assert all(more >= less * (1 - 1e-12) for more, less in zip(loads[1:], loads))
    assert skew or max(loads) == pytest.approx(1)


def test_imbalance_is_the_mean_over_all_ways_to_deal_experts():
    popular, loads, busiest = experts.popular(8, 2, 0.4), [], []
    for one in itertools.combinations(range(8), 4):
        ranks = [sum(popular[expert] for expert in range(8) if (expert in one) == here) for here in (True, False)]
        loads.append(ranks[0 if 0 in one else 1])
        busiest.append(max(ranks))
    assert experts.imbalance(8, 2, 2, 0.4) == pytest.approx(np.mean(loads) / (2 / 2))
    assert 1 < np.mean(busiest) / np.mean(loads) < 1.05, "the busiest rank of all has a little more"


def test_folded_experts_do_not_share_the_work_of_a_hot_one():
    """64 experts of which 8 are chosen, on ep = 8 and tp = 4: sharded experts, and folded ones."""
    assert [round(float(experts.imbalance(64, 8, ways, 0.6)), 2) for ways in (8, 8 * 4)] == [1.52, 3.30]


def test_many_skews_at_once_are_each_of_them():
    ways, skews = np.array([1, 2, 8]), np.array([0.5, 1.0, 0.5])
    found = experts.imbalance(8, 2, ways, skews)
    assert found.tolist() == [experts.imbalance(8, 2, *one) for one in zip(ways, skews)]


# --- memory ---------------------------------------------------------------------------------------------------------


def experts_are_shared_out_and_all_else_is_not():
    block = SPARSE.block
    for ways in (1, 2, 8):
        held = SPARSE.parameters - SPARSE.layers * block.mlp * 8 * (1 - 1 / ways)
        assert math.isclose(float(heaviest.weights(SPARSE, Plan(ep=ways))), held)


@pytest.mark.slow
@pytest.mark.parametrize("style", ("gpt", "llama"))
@pytest.mark.parametrize("shared", (0, 1))
def test_weights_along_ep_are_those_of_the_runtimes_layout(style, shared):
    shape = hl.Shape(layers=2, width=16, heads=2, context=8, experts=4, chosen=2, style=style, shared=shared)
    job = job_of(hl.Mesh(ep=2), model=shape, microbatches=1, batch=2)
    held = job.layout.elements(0)["value"]
    assert held == heaviest.weights(shape, Plan(ep=2)) < shape.parameters


def zero_shares_experts_among_fewer():
    """d = 2, ep = 4: experts have 2 copies, all else 8."""
    one, none = (needs(SPARSE, ep=4, d=2, zero=zero) for zero in (1, 0))
    routed, others = heaviest.heaviest(SPARSE, Plan(ep=4)).routed, heaviest.heaviest(SPARSE, Plan()).other
    assert math.isclose(none.optimizer, 12 * (routed + others))
    assert math.isclose(one.optimizer, 12 * (routed / 2 + others / 8)) and one.weights == none.weights


def activations_are_cut_along_cp():
    """All of them on a ring; gathered keys and values stay whole."""
    alone = needs(LONG, recompute=NONE, fused=True).activations
    for ways in (2, 4):
        ring, gather = (needs(LONG, cp=ways, attend=way, fused=True).activations for way in (RING, GATHER))
        assert math.isclose(ring, alone / ways)
        assert math.isclose(gather - ring, LONG.layers * 2 * 2 * 64 * 32 * (1 - 1 / ways))


def a_ring_keeps_no_scores():
    plain, ring = (needs(LONG, cp=2, attend=way).activations for way in (ULYSSES, RING))
    assert math.isclose(plain - ring, LONG.layers * 2 * 8 * 64 * 64 / 2)


def the_busiest_rank_keeps_more():
    """What its experts leave, 6 numbers inside, and tokens as they came; what came back for its own does not grow."""
    even, uneven = (needs(SPARSE, ep=8, skew=skew).activations for skew in (0.0, 0.9))
    load = experts.imbalance(8, 2, 8, 0.9)
    more = SPARSE.layers * 16 * 2 * (load - 1) * (6 * SPARSE.inside + 2 * 64)
    assert load > 1.5 and math.isclose(uneven - even, more)


# --- seconds --------------------------------------------------------------------------------------------------------


def a_ring_shows_only_what_is_longer_than_its_part_of_attention():
    """Four ranks in a node, 8 microbatches of 1 sequence, 4 layers; in order, so the last rank computes all parts."""
    part = 2 * 2 * 16 * 32  # bytes of 16 keys and values
    attention = 4 * 16 * 64 * 64 / 1e12 + 2 * 2 * 8 * 64 * 16 / 1e11  # products, and scores there and back
    for alpha in (0.0, 1e-6, 1e-3):
        kind = replace(NODE, latency=(alpha, alpha))
        hop = alpha + part / 1e10
        forward = 3 * max(hop - attention / 4, 0)
        its = (2.5 * 4 * 16 * 64 * 64 / 1e12) + 3 * 2 * 2 * 8 * 64 * 16 / 1e11
        backward = 3 * max(2 * hop - its / 4, 0) + hop
        spent = step(LONG, machine=kind, cp=4, attend=RING).context
        assert math.isclose(float(spent), 8 * 4 * (forward + backward), rel_tol=1e-9)
        again = step(LONG, machine=kind, cp=4, attend=RING, recompute=FULL).context
        assert again >= spent and (alpha < 1e-3 or again > spent)


def a_ring_hides_from_so_many_positions_on():
    """With a tenth fewer on each rank, hops show."""
    for ways, zigzag in itertools.product((2, 4), (False, True)):
        least = ring.least_tokens(
            LONG, NODE.peak, Link(0, 1 / NODE.inside), seen=1 / 2 if zigzag else 1 - 1 / (2 * ways)
        )
        for share, hidden in ((1.1, True), (0.9, False)):
            shape = replace(LONG, context=2 * ways * math.ceil(share * least / 2))
            one, free = Plan(cp=ways, attend=RING, zigzag=zigzag, fused=True), replace(NODE, latency=(0, 0))
            rates = Rates.of(free, EXACT)
            core, _ = performance._attention(shape, one, rates)
            spent, _ = waiting.along_cp(shape, one, rates, core)
            assert (spent == 0) == hidden


def in_groups_only_the_all_to_alls_inside_a_node_show():
    """Two ranks of a node exchange heads; the hops to the next group, of twice the positions and half the heads, hide
    from as many positions on as those of a ring of all."""
    shape = replace(LONG, context=1 << 14)
    one, free = Plan(cp=4, attend=USP, ulysses=2, fused=True), replace(NODE, latency=(0, 0))
    rates = Rates.of(free, EXACT)
    core, _ = performance._attention(shape, one, rates)
    spent = waiting.along_cp(shape, one, rates, core)
    exchanged = 2 * (1 << 14) / 4 * (64 + 32 + 32 + 64) / 2 / NODE.inside
    part = 2 * (1 << 14) / 4 * (32 + 32)
    assert math.isclose(spent[0], exchanged) and math.isclose(spent[1], exchanged + part / NODE.inside)
    slow = replace(NODE, node=2, latency=(0, 0), across=1.0)  # its hops leave the node, its all-to-alls do not
    shown = waiting.along_cp(shape, one, Rates.of(slow, EXACT), core)[0]
    assert math.isclose(shown, exchanged + part - core[0] / 2)


def gathers_wait_for_everything():
    """Eight ranks in two nodes: a hierarchical gather of keys and values, and their gradients back; nothing hides."""
    every = 64 * 32 * 2
    one = 3 / 4 * every / 1e10 + 3e-6 + every / 4 / 2 / 1e9 + 1e-5
    assert math.isclose(float(step(LONG, cp=8, attend=GATHER).context), 8 * 4 * 4 * one, rel_tol=1e-9)


def attention_takes_what_the_busiest_rank_multiplies():
    """Cut into 4, in order, a fused causal attention takes 7/16 and not 1/4; in a zigzag it does."""
    matrices = lambda **sizes: float(step(LONG, fused=True, **sizes).multiply)
    without = 8 * 3 * 2 * 64 * LONG.layers * LONG.multiplied / 1e12
    alone = matrices() - without
    assert math.isclose(alone, 8 * LONG.layers * 3.5 * 4 * 64 * 64 * 64 / 2 / 1e12)
    for sizes, share in (
        ({"attend": RING}, 7 / 16),
        ({"attend": RING, "zigzag": True}, 1 / 4),
        ({"attend": ULYSSES}, 1 / 4),
        ({"attend": USP, "ulysses": 2}, 3 / 8),
        ({"attend": USP, "ulysses": 2, "zigzag": True}, 1 / 4),
    ):
        assert math.isclose(matrices(cp=4, **sizes) - without / 4, share * alone)


def tokens_leave_their_node_over_the_slow_link():
    """8 ranks in two nodes: half of what leaves a rank goes to the other node, and that takes longest."""
    size = 2 * 2 * 16 * 64  # bytes of 16 tokens, two choices each
    counts = (3 / 4 * 8 * 8 * 8 / 1e10 + 3e-6) + (8 * 8 * 8 / 4 / 2 / 1e9 + 1e-5)
    across, within = 4 * 1e-5 + size / 2 / 1e9, 3 * 1e-6 + 3 / 4 * size / 1e10
    spent = float(step(SPARSE, ep=8).experts)
    assert math.isclose(spent, 4 * (4 * across + counts), rel_tol=1e-9)
    near = float(step(SPARSE, ep=4, d=2).experts)
    assert math.isclose(near, 4 * (4 * within + 3 / 4 * 4 * 8 * 8 / 1e10 + 3e-6), rel_tol=1e-9)


def all_wait_for_the_busiest_rank():
    load = experts.imbalance(8, 2, 8, 0.9)
    free = replace(NODE, latency=(0, 0))
    even, uneven = (step(SPARSE, machine=free, ep=8, skew=skew) for skew in (0.0, 0.9))
    routed = 4 * 3 * 2 * 16 * 2 * 3 * 64 * SPARSE.inside / 1e12
    assert math.isclose(uneven.multiply - even.multiply, (load - 1) * routed)
    tokens = 4 * 4 * (2 * 2 * 16 * 64) / 2 / 1e9
    assert math.isclose(uneven.experts - even.experts, (load - 1) * tokens)


def gathering_is_better_where_ranks_are_fewer_than_choices():
    """In one node. Between nodes a gather sends each token once to a node, and not once to each of its experts."""
    free, shape = replace(NODE, node=8, latency=(0, 0)), replace(SPARSE, chosen=4)
    for ways, better in ((2, "all_gather"), (8, "all_to_all")):
        spent = [float(step(shape, machine=free, ep=ways, dispatch=way).experts) for way in range(2)]
        assert experts.DISPATCH[spent.index(min(spent))] == better
        words = 4 * 64 * 2 + 4 * (8 + 2 + 2)  # of a token: to experts and back, and both again; choices and weights
        assert math.isclose(spent[1], 8 / ways * 4 * (ways - 1) * 16 * words / 1e10)


def gradients_of_experts_are_summed_over_their_copies():
    """One node of 4: ep = 4 has nothing to add for experts; ep = 2, d = 2 has."""
    free = replace(NODE, latency=(0, 0))
    others, routed = 2 * heaviest.heaviest(SPARSE, Plan()).other, 2 * heaviest.heaviest(SPARSE, Plan(ep=2)).routed
    assert math.isclose(float(step(SPARSE, machine=free, ep=4).data), 2 * 3 / 4 * others / 1e10)
    both = 2 * 3 / 4 * others / 1e10 + 2 * 1 / 2 * routed / 1e10
    assert math.isclose(float(step(SPARSE, machine=free, ep=2, d=2).data), both)
    assert math.isclose(float(step(LONG, machine=free, cp=4).data), 2 * 3 / 4 * 2 * LONG.parameters / 1e10)


def work_is_shared_out():
    """Twice the ranks along cp, with a zigzag, or along ep: half of all that is multiplied and moved."""
    for shape, sizes, more in (
        (LONG, {"cp": 2, "attend": RING, "zigzag": True}, {"cp": 4}),
        (SPARSE, {"ep": 2}, {"ep": 4}),
    ):
        one, other = step(shape, fused=True, **sizes), step(shape, fused=True, **sizes | more)
        assert math.isclose(one.multiply, 2 * other.multiply) and math.isclose(one.pointwise, 2 * other.pointwise)
        assert math.isclose(one.head, 2 * other.head)


def near_ranks_are_counted_in_rank_order():
    """Against ranks that are really numbered: how many of rank 0's group stand in its node."""
    for sizes in itertools.product((1, 2, 4), repeat=5):
        one, order = Plan(**dict(zip(plans.INSIDE_OUT, sizes))), list(zip(plans.INSIDE_OUT, sizes))
        places = list(itertools.product(*(range(size) for _, size in reversed(order))))  # the last axis varies slowest
        for axes in ("cp", "ep", "cp+d", "cp+ep+d"):
            fixed = [at for at, (name, _) in enumerate(reversed(order)) if name not in axes.split("+")]
            group = [rank for rank, place in enumerate(places) if not any(place[at] for at in fixed)]
            assert one.near(axes, 8) == sum(rank < 8 for rank in group)


LAWS = (
    experts_are_shared_out_and_all_else_is_not,
    zero_shares_experts_among_fewer,
    activations_are_cut_along_cp,
    a_ring_keeps_no_scores,
    the_busiest_rank_keeps_more,
    a_ring_shows_only_what_is_longer_than_its_part_of_attention,
    a_ring_hides_from_so_many_positions_on,
    in_groups_only_the_all_to_alls_inside_a_node_show,
    gathers_wait_for_everything,
    attention_takes_what_the_busiest_rank_multiplies,
    tokens_leave_their_node_over_the_slow_link,
    all_wait_for_the_busiest_rank,
    gathering_is_better_where_ranks_are_fewer_than_choices,
    gradients_of_experts_are_summed_over_their_copies,
    work_is_shared_out,
    near_ranks_are_counted_in_rank_order,
)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_hold(law):
    law()


# --- the planner ----------------------------------------------------------------------------------------------------


def test_where_nobody_asks_no_plan_has_another_axis():
    found = plan(LONG, NODE, gpus=8, batch=8).space
    assert (found.cp == 1).all() and (found.ep == 1).all() and len(found.p) == len(plan(LONG, NODE, 8, 8, cp=1).space.p)
    assert (plan(SPARSE, NODE, gpus=8, batch=8, experts=True).space.ep == 8).any()


def test_a_field_of_an_axis_asks_for_it():
    assert plan(LONG, NODE, gpus=8, batch=8, cp=4).best.plan.cp == 4
    best = plan(LONG, NODE, gpus=8, batch=8, attend="ring", zigzag=True, cp=2).best
    assert ATTEND[best.plan.attend] == "ring" and best.plan.zigzag and best.facts["attend"] == "ring"
    assert plan(SPARSE, NODE, gpus=8, batch=8, ep=4, dispatch="all_gather").best.facts["dispatch"] == "all_gather"
    assert plan(SPARSE, NODE, gpus=8, batch=8, experts=True, skew=0.7).best.plan.skew == 0.7


def test_a_long_sequence_that_fits_nowhere_else_is_cut():
    """A sequence for each of 64 devices does not exist, and its activations fit on none."""
    shape = replace(model("llama3-8b").shape, context=131_072)
    with pytest.raises(ValueError, match="no p·t·d = 96"):
        plan(shape, "h100", gpus=96, batch=3, p=1, t=1, fused=True)
    best = plan(shape, "h100", gpus=64, batch=4, contexts=True, fused=True).best
    assert best.plan.cp > 1 and best.plan.zigzag and best.memory.total < 80e9


def test_the_longer_the_row_the_more_it_is_cut_and_tp_stays_in_a_node():
    """A million tokens on 256 H100s: at 8k rows are enough for all devices, and later only tp could use the others."""
    found = {}
    for tokens in (8192, 32_768, 131_072):
        shape = replace(model("llama3-70b").shape, context=tokens)
        found[tokens] = plan(shape, "h100", gpus=256, batch=(1 << 20) // tokens, contexts=True)
    assert [one.best.plan.cp for one in found.values()] == [1, 8, 32]
    assert all(one.best.plan.t == 4 and one.best.plan.zigzag == (one.best.plan.cp > 1) for one in found.values())
    why = found[131_072].why(cp=1)
    assert "its best plan has t=32, which leaves the node of 8: tp all-reduces +" in why, why


def test_the_groups_that_exchange_heads_fill_a_node():
    """One sequence on two nodes of 4: with few positions all messages are latency, with many a ring hides its hops."""
    best = lambda context: plan(replace(LONG, context=context), NODE, 8, 1, contexts=True, p=1, t=1).best
    small, middle, large = (best(context).plan for context in (64, 1024, 4096))
    assert ATTEND[small.attend] == "gather" and ATTEND[large.attend] == "ring" and large.zigzag
    assert middle.attend == USP and middle.ulysses == NODE.node and middle.zigzag
    assert "usp ulysses=4 zigzag" in str(middle)
    assert best(1024).job()["ulysses"] == 4


def test_a_ring_of_groups_in_order_is_only_searched_if_it_is_asked_for():
    """It is never quicker than the zigzag, in which all ranks have the same number of pairs."""
    shape, fixed = model("llama3-8b").shape, {"cp": 4, "attend": "usp"}
    found = plan(shape, "h100", gpus=16, batch=32, **fixed)
    in_order = plan(shape, "h100", gpus=16, batch=32, zigzag=False, **fixed)
    assert found.best.plan.zigzag and not in_order.best.plan.zigzag
    assert found.best.plan.ulysses == in_order.best.plan.ulysses and found.best.step.total < in_order.best.step.total


@pytest.mark.parametrize(
    "shape, sizes, said",
    [
        (LONG, {"cp": 3}, "cp = 3 must divide the 64 positions: choose it from 1, 2, 4, 8, 16, 32, 64"),
        (LONG, {"cp": 4, "attend": USP}, "not into several of ulysses=1: give a divisor of cp between 1 and cp"),
        (LONG, {"cp": 4, "attend": USP, "ulysses": 4}, "not into several of ulysses=4"),
        (LONG, {"cp": 8, "t": 2, "attend": USP, "ulysses": 4}, "ulysses=4 does not divide the 2 KV heads"),
        (LONG, {"cp": 4, "ulysses": 2}, "ulysses=2 has no effect without attend='usp'"),
        (LONG, {"cp": 2, "attend": ULYSSES, "zigzag": True}, "leave out zigzag"),
        (LONG, {"cp": 4, "t": 2, "attend": ULYSSES}, "cp=4 does not divide the 2 KV heads on a rank"),
        (LONG, {"ep": 2}, "distributes experts, but this model has none: leave out ep"),
        (LONG, {"t": 2, "fold": True}, "fold=True distributes experts, but this model has none: leave out fold"),
        (SPARSE, {"ep": 2, "fold": True}, "fold=True has no effect without t or cp"),
        (SPARSE, {"t": 2, "dispatch": 1, "fold": True}, "gathers full rows, and fold=True has parts of rows"),
        (SPARSE, {"ep": 4, "cp": 4, "fold": True}, "ep·cp·t = 16 must divide the 8 experts: choose it from 1, 2, 4, 8"),
        (SPARSE, {"ep": 3}, "ep = 3 must divide the 8 experts: choose it from 1, 2, 4, 8"),
        (SPARSE, {"ep": 2, "x": 2}, "shards the width, but experts need full tokens: give x=1, or one MLP"),
        (SPARSE, {"ep": 8, "b": 2}, "b·d·ep = 16 must divide the batch of 8: choose b from 1"),
        (LONG, {"attend": 4}, "attend=4 is not an index in"),
        (LONG, {"cp": 0}, "cp=0 is not a valid size"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(shape, sizes, said):
    with pytest.raises(ValueError) as error:
        check_plan(Plan(**sizes), shape, 8)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "shape, asked, sizes, said",
    [
        (LONG, {"contexts": True}, {"cp": 3}, "cp=3 is impossible: p·t·cp·d must be 8"),
        (LONG, {"contexts": True, "p": 1, "t": 1}, {"attend": "ring", "zigzag": False, "cp": 4}, " s in place of "),
        (SPARSE, {"experts": True}, {"ep": 16}, "ep=16 is impossible: p·t·ep·d must be 8"),
        (SPARSE, {"experts": True}, {"skew": 1.0}, "hl.plan(..., skew=1.0) plans with it"),
        (SPARSE, {}, {"ep": 2}, "ep=2 was not searched: hl.plan(..., experts=True) does"),
        (LONG, {"grids": True}, {"attend": "ring"}, "attend=ring was not searched: hl.plan(..., contexts=True) does"),
    ],
)
def test_why_knows_the_new_axes(shape, asked, sizes, said):
    assert said in plan(shape, NODE, gpus=8, batch=8, **asked).why(**sizes)


@pytest.mark.parametrize(
    "asked", [lambda: plan(LONG, NODE, 8, 8, skew=1.0), lambda: plan(LONG, NODE, 8, 8).what_if(skew=1.0)]
)
def test_a_skew_is_refused_for_a_model_without_experts(asked):
    with pytest.raises(ValueError, match="skew=1.0 is invalid: this model has no experts. Leave skew out."):
        asked()


def test_a_name_that_a_field_has_not_is_refused():
    with pytest.raises(ValueError, match="attend='star' is not known"):
        plan(LONG, NODE, 8, 8, attend="star")
    with pytest.raises(ValueError, match="plan takes ep as int | None, not 'four', a str"):
        plan(SPARSE, NODE, 8, 8, ep="four")
    with pytest.raises(ValueError, match="no p·t·ep·d = 8 divides .* ep 8 experts"):
        plan(SPARSE, NODE, 8, 8, ep=3)


def test_a_hot_expert_costs_time_and_memory_and_no_rank_more_helps():
    shape = replace(model("mixtral-8x7b").shape, context=4096)
    steps = {
        ways: hot(shape, "h100", 256, Plan(p=4, d=16 // ways, v=8, zero=1, ep=ways, fused=True)) for ways in (2, 8)
    }
    for found in steps.values():
        assert found[0].load == pytest.approx(1) and found[0].most == pytest.approx(1 / 8)
        for more, less in zip(found[1:], found):
            assert more.step.total > less.step.total and more.memory.activations > less.memory.activations
            assert more.step.experts > less.step.experts and more.load > less.load
    assert steps[8][-1].step.total / steps[8][0].step.total > steps[2][-1].step.total / steps[2][0].step.total


@pytest.mark.slow
def test_a_dry_run_is_timed_by_the_same_formula():
    """Of a rank along cp or ep: what its own positions, or its own rows, take."""
    for mesh, shape, sizes, asked in (
        (hl.Mesh(cp=2), LONG, {"cp": 2, "attend": RING, "zigzag": True}, {"attend": "ring", "zigzag": True}),
        (hl.Mesh(ep=2), SPARSE, {"ep": 2, "b": 2, "dispatch": 1}, {"dispatch": "all_gather"}),
    ):
        shape = replace(shape, vocabulary=256)  # a text's
        job = job_of(mesh, model=shape, microbatches=2, batch=8, **asked)
        one = performance.pieces(shape, Plan(**{"b": 4} | sizes), 8, NODE)
        forward = shape.layers * sum(one.forward) + one.head / 3
        assert costs_of(job, NODE).F[0] == pytest.approx(float(forward), abs=1e-8)


# --- mutants --------------------------------------------------------------------------------------------------------

MUTANTS = [  # (where, what stands there, what a mutant has, the law that it breaks)
    (heaviest, "(x * plan.expert_ways)", "x", experts_are_shared_out_and_all_else_is_not),
    (footprints, "plan.sharers, plan.updaters, every)", "plan.sharers[::-1], plan.updaters, every)",
     zero_shares_experts_among_fewer),
    (footprints, "part = plan.b / plan.cp\n", "part = plan.b\n", activations_are_cut_along_cp),
    (footprints, "2 * others * (keys + values)", "0 * keys", activations_are_cut_along_cp),
    (footprints, "(context.passes(plan.attend) & (plan.cp > 1))", "False", a_ring_keeps_no_scores),
    (footprints, "plan.x, _busiest(shape, plan), where", "plan.x, 1.0, where", the_busiest_rank_keeps_more),
    (waiting, "hidden / groups, 0)", "hidden, 0)", a_ring_shows_only_what_is_longer_than_its_part_of_attention),
    (ring, "square = 2 *", "square = 4 *", a_ring_hides_from_so_many_positions_on),
    (waiting, "shown(2 * hop", "shown(hop", a_ring_shows_only_what_is_longer_than_its_part_of_attention),
    (waiting, " + hop * (groups > 1)", "", a_ring_shows_only_what_is_longer_than_its_part_of_attention),
    (waiting, '2 * elements) for', 'elements) for', gathers_wait_for_everything),
    (waiting, 'near, full, groups = rates.near(plan, "cp")', 'near, full, groups = rates.near(plan, "t")',
     gathers_wait_for_everything),
    (waiting, "when, plan.ulysses, near", "when, plan.cp, near", in_groups_only_the_all_to_alls_inside_a_node_show),
    (waiting, "near.every(plan.ulysses, groups), part", "near, part",
     in_groups_only_the_all_to_alls_inside_a_node_show),
    (context, "np.where(zigzag | (attend == ULYSSES), 1 / 2, 1 - 1 / (2 * parts))", "1 / 2",
     attention_takes_what_the_busiest_rank_multiplies),
    (performance, "(2 + again + tiles / 2) * core", "(2 + again) * core",
     attention_takes_what_the_busiest_rank_multiplies),
    (waiting, 'rates.of_experts(plan, "t+cp+ep", "ep")', 'rates.of_experts(Plan(), "ep", "ep")',
     tokens_leave_their_node_over_the_slow_link),
    (waiting, 'uneven if op == "all_to_all" else 1', "1", all_wait_for_the_busiest_rank),
    (performance, "(uneven - 1) * shape.chosen", "0 * shape.chosen", all_wait_for_the_busiest_rank),
    (experts, '[("all_gather", "tokens", ways * stream)]', '[("all_gather", "tokens", stream)]',
     gathering_is_better_where_ranks_are_fewer_than_choices),
    (plans, "where(self.fold, 1, self.cp) * d", "self.cp * self.ep * d",
     gradients_of_experts_are_summed_over_their_copies),
    (plans, "self.cp * self.ep * d\n\n    @property\n    def s", "self.cp * d\n\n    @property\n    def s",
     zero_shares_experts_among_fewer),
    (performance, "tokens = plan.b * shape.context / plan.cp\n    moved", "tokens = plan.b * shape.context\n    moved",
     work_is_shared_out),
    (plans, 'INSIDE_OUT = ("t", "x", "cp", "ep", "d", "p")', 'INSIDE_OUT = ("t", "x", "ep", "cp", "d", "p")',
     near_ranks_are_counted_in_rank_order),
    (plans, "np.clip(node // below, 1,", "np.clip(node, 1,", near_ranks_are_counted_in_rank_order),
]  # fmt: skip


@pytest.mark.parametrize("where, line, other, law", MUTANTS, ids=[one[2] for one in MUTANTS])
def test_every_mutant_breaks_its_law(where, line, other, law, monkeypatch):
    change(monkeypatch, where, line, other)
    with pytest.raises(AssertionError):
        law()
