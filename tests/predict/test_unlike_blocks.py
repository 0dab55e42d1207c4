"""Plans of models whose blocks differ, of models that predict further tokens, and of Muon's state."""

from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.core.what.catalog import machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.memory import MIXED, model_states
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.by_schedule import by_schedule
from hybridlab.predict.plans.bytes_of_rank import layers_at, sent, weights_at
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.heaviest import further_weights, heaviest, weights
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.kinds import ranks_of
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.training.dry.dry_run import dry_run
from hybridlab.training.make_job import job_of

FIRST = Shape(layers=12, width=256, heads=8, context=128, experts=8, chosen=2, shared=1, style="llama", inner=200)
FIRST = replace(FIRST, plain=(0, 1, 2), plain_inner=3000)
OTHER = replace(FIRST, plain=tuple(range(0, 12, 2)), plain_inner=300, shared=0)  # experts in every other block
PLANS = [Plan(p=4, ep=2, d=2), Plan(p=2, v=2, t=2, ep=2, fold=True), Plan(p=5, uneven=True), Plan(d=2)]
PLANS += [Plan(p=14, uneven=True), Plan(p=3, t=2, sequence=True, recompute=2)]
A100, H100, DEEPSEEK = machine("a100"), machine("h100"), model("deepseek-v3").shape
SMALL = Shape(layers=4, width=32, heads=4, context=16, experts=4, chosen=2, style="llama", inner=24)
SMALL = replace(SMALL, plain=(0, 2), plain_inner=40)


@pytest.mark.parametrize("shape", (FIRST, OTHER), ids=("first", "every other"))
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_time_is_that_of_the_schedule(shape, plan):
    batch = plan.d * plan.ep * 24
    found = step(shape, check_plan(plan, shape, batch), batch, A100)
    played = by_schedule(shape, plan, batch, A100).length
    assert float(found.total - found.data - found.optimizer) == pytest.approx(played, rel=0.02)


@pytest.mark.parametrize("shape", (FIRST, OTHER), ids=("first", "every other"))
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_heaviest_rank_has_the_weights_that_are_counted_layer_by_layer(shape, plan):
    held = [weights_at(shape, plan, layers_at(shape, plan, place)) for place in range(plan.p)]
    assert float(weights(shape, plan)) == pytest.approx(max(one.alike + one.experts for one in held), rel=1e-4)


def test_a_shape_whose_plain_blocks_are_like_the_others_has_their_time_and_memory():
    """A plain block with the width of the chosen experts costs what they cost, but for router, messages and weights."""
    plan = Plan(p=4, d=2)
    same = replace(FIRST, plain_inner=None)
    assert same.plain_ones.inside == 3 * FIRST.inside
    every = [flops(one, 8).total for one in (same, replace(same, plain=(), plain_inner=None))]
    routers = 3 * 6 * 8 * FIRST.context * FIRST.width * FIRST.experts
    assert every[1] - every[0] == routers
    assert float(footprint(same, plan, 16).activations) > 0


def test_a_wider_plain_block_takes_longer_and_holds_more():
    narrow, wide = (replace(FIRST, plain_inner=inner) for inner in (500, 50_000))
    for plan in PLANS[:4]:
        batch = plan.d * plan.ep * 24
        times = [float(step(one, plan, batch, A100).total) for one in (narrow, wide)]
        bytes_ = [float(footprint(one, plan, batch).total) for one in (narrow, wide)]
        assert times[0] < times[1] and bytes_[0] < bytes_[1]


def test_candidates_are_the_ranks_that_no_other_exceeds():
    its = ranks_of(FIRST, Plan(p=4))
    assert [tuple(map(int, one)) for one in its.between] == [(3, 3, 0), (3, 0, 1)]
    assert tuple(map(int, its.first)) == (3, 3, 0) and tuple(map(int, its.last)) == (3, 0, 3)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ({"p": 2, "ep": 2}, {"t": 2, "ep": 2, "fold": True}, {"p": 2, "t": 2}))
def test_bytes_of_a_rank_are_those_of_a_dry_run(sizes):
    plan = Plan(**sizes)
    job = job_of_plan(plan, SMALL, 8)
    for place in range(plan.p):
        dry = dry_run(**job, rank=place * (plan.devices // plan.p))
        assert sent(SMALL, plan, 8, place) == dry.bytes


# --- further tokens ---------------------------------------------------------------------------------------------------


def test_a_further_token_of_deepseek_has_its_weights_and_its_flops():
    """DeepSeek-V3's page: 14 billion weights, which include copies of embedding and head of 0.93 billion each."""
    copies = 2 * DEEPSEEK.vocabulary * DEEPSEEK.width
    assert further_weights(DEEPSEEK) + copies == pytest.approx(14e9, rel=0.05)
    none, one = (flops(DEEPSEEK, 1, further=further) for further in (0, 1))
    tokens = DEEPSEEK.context
    assert one.head == 2 * none.head
    assert one.blocks - none.blocks == 6 * tokens * (DEEPSEEK.multiplied + 2 * DEEPSEEK.width**2)
    assert one.attention / none.attention == pytest.approx(62 / 61)


def test_a_further_token_is_on_the_last_stage():
    plan = Plan(p=4, d=2)
    more = plan._replace(further=1)
    times = [step(OTHER, one, 48, A100) for one in (plan, more)]
    assert times[1].head > 2 * times[0].head and times[1].total > times[0].total
    last = weights_at(OTHER, plan, layers_at(OTHER, plan, 3))
    held = last.alike + last.experts + further_weights(OTHER) + OTHER.vocabulary * OTHER.width
    assert float(heaviest(OTHER, more).total) == held > float(heaviest(OTHER, plan).total)
    assert float(footprint(OTHER, more, 48).total) > float(footprint(OTHER, plan, 48).total)


def test_the_call_counts_a_further_token_if_asked_and_says_so():
    plain, more = (hl.plan("llama3-8b", "h100", gpus=64, batch=128, further=further) for further in (None, 1))
    assert "further" not in plain.assumed and "1 further token predicted by a block on the last stage" in more.assumed
    assert more.best.step.total > plain.best.step.total and more.best.plan.further == 1
    assert more.best.memory.total != plain.best.memory.total
    with pytest.raises(ValueError, match="leave out further="):
        more.best.job()
    with pytest.raises(ValueError, match="further=1 needs full rows"):
        hl.memory("llama3-8b", batch=8, p=2, n=2, further=1)


# --- Muon -------------------------------------------------------------------------------------------------------------

LATENT = Shape(layers=2, width=32, heads=4, context=8, style="llama", latent=12, rotary=4, query_latent=16)


@pytest.mark.parametrize(
    "shape", (Shape(layers=2), SMALL, LATENT, Shape(experts=4, shared=1)), ids=("gpt", "unlike", "latents", "experts")
)
def test_muons_state_is_that_of_its_layout(shape):
    plan = Plan(b=2, optimizer=1)
    layout = job_of(**job_of_plan(plan, shape, 4)).layout
    found = hl.memory(shape, batch=4, b=2, optimizer="muon").optimizer
    assert found == model_states(layout, 0, MIXED)["optimizer"]
    assert found < hl.memory(shape, batch=4, b=2).optimizer == 12 * shape.parameters


def test_muon_takes_four_bytes_less_for_each_weight_in_a_matrix():
    gpt = model("gpt3-175b").shape
    for zero, shards in ((0, 1), (1, 8), (3, 8)):
        adam, muon = (footprint(gpt, Plan(p=8, t=8, d=8, zero=zero, optimizer=one), 64).optimizer for one in range(2))
        assert float(adam - muon) == pytest.approx(4 * 12 * gpt.width**2 * gpt.layers / 64 / shards)
    asked = hl.plan("gpt3-175b", "a100", gpus=1024, batch=1536, optimizer="muon")
    assert "Muon" in asked.assumed and asked.best.job()["optimizer"] == "muon"


@pytest.mark.ranks
@pytest.mark.parametrize(
    "sizes, more",
    [({"tp": 2, "ep": 2}, {"sequence": True}), ({"pp": 2, "dp": 2}, {"zero": 1}), ({"ep": 2, "tp": 2}, {"fold": True})],
)
def test_ranks_train_unlike_blocks_as_one_device_does(bench, sizes, more):
    report = bench.asked(hl.Mesh(**sizes), shape=SMALL, dtype="float64", **more)
    assert report.ok and report.largest_gap < 1e-10, report
