"""Plans with Muon: the operations of Newton–Schulz, divided among owners, and the gathers of momentum."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import hybridlab as hl
from hybridlab.core.added import added
from hybridlab.core.what.catalog import machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.modes import full_matrices
from hybridlab.modes.parts.newton_schulz import newton_schulz
from hybridlab.predict.plans import bytes_of_rank, time_of_muon
from hybridlab.predict.plans.bytes_of_rank import sent
from hybridlab.predict.plans.heaviest import in_matrices
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import FITTED, Rates
from hybridlab.training.dry.dry_run import dry_run
from hybridlab.training.make_job import job_of

A100, GPT = machine("a100"), model("gpt-18.4b").shape
RATES = Rates.of(A100, FITTED)
SIZES = {"layers": 4, "width": 16, "heads": 4, "context": 8}
SMALL = {
    "gpt": Shape(**SIZES),
    "llama": Shape(**SIZES, style="llama", kv_heads=2),
    "latents": Shape(**SIZES, style="llama", latent=6, query_latent=10, rotary=4),
    "some latents": Shape(**SIZES, style="llama", latent=6, rotary=4),
    "experts": Shape(**SIZES, experts=4, chosen=2, shared=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_matrices_are_those_that_ranks_orthogonalize(name):
    """Their sizes, one by one, and so their operations, as torch counts them."""
    job = job_of(hl.Mesh(dp=1), shape=SMALL[name], optimizer="muon", microbatches=1)
    shapes = [tuple(job.layout[one].shape) for one in full_matrices.of_muon(job) if one.startswith("blocks.0.")]
    found = time_of_muon.matrices(SMALL[name], Plan())
    every = [(one.many, one.rows, one.columns) if one.many > 1 else (one.rows, one.columns) for one in found]
    assert sorted(every) == sorted(shapes)
    with FlopCounterMode(display=False) as counted:
        for one in found:
            newton_schulz(torch.randn(one.rows, one.columns))
    assert counted.get_total_flops() == added(one.operations for one in found)
    held = added(math.prod(one) for one in shapes) * SIZES["layers"]
    assert in_matrices(SMALL[name], Plan()).total == held


def test_it_takes_5h_over_the_tokens_of_a_step():
    """Of a forward and a backward, 6 operations for each weight and token: square matrices have 30h³ against 6h²."""
    shape = Shape(layers=4, width=4096, heads=32, context=2048, inner=4096)  # all matrices square
    batch = 64
    tokens, products = batch * shape.context, 6 * 6 * shape.width**2 * shape.layers / RATES.multiply
    seconds = time_of_muon.seconds(shape, Plan(optimizer=1), RATES)
    assert seconds / (products * tokens) == pytest.approx(5 * shape.width / tokens, rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_owners_divide_it_and_tp_does_not(zero):
    alone = time_of_muon.seconds(GPT, Plan(optimizer=1), RATES)
    plan = Plan(d=8, zero=zero, optimizer=1)
    assert time_of_muon.seconds(GPT, plan, RATES) == pytest.approx(alone / (8 if zero else 1))
    assert time_of_muon.seconds(GPT, plan._replace(p=2), RATES) == pytest.approx(alone / 2 / (8 if zero else 1))
    gathers = 4 * in_matrices(GPT, Plan()).total * 7 / 8 * RATES.inside.beta
    sharded = time_of_muon.seconds(GPT, Plan(t=8, optimizer=1), RATES)
    latency = 6 * GPT.layers * 7 * RATES.inside.alpha  # six matrices of a block
    assert sharded == pytest.approx(alone + gathers + latency, rel=1e-9)


def test_a_step_has_it_in_its_optimizer_term():
    plan = Plan(p=2, t=2, d=8, zero=1, optimizer=1)
    adam, muon = (step(GPT, one, 64, A100) for one in (plan._replace(optimizer=0), plan))
    assert muon.optimizer - adam.optimizer == pytest.approx(time_of_muon.seconds(GPT, plan, RATES))
    assert muon._replace(optimizer=0) == adam._replace(optimizer=0)


def test_blocks_without_experts_have_other_matrices():
    few = Shape(layers=6, width=64, heads=4, experts=4, chosen=2, plain=(0, 1))
    of = lambda shape: added(one.many * one.operations for one in time_of_muon.matrices(shape, Plan())) / RATES.multiply
    every = 4 * of(few.others) + 2 * of(few.plain_ones)
    assert time_of_muon.seconds(few, Plan(optimizer=1), RATES) == pytest.approx(every)


PLANS = [
    ("gpt", Plan(t=2)),
    ("gpt", Plan(p=2, t=4)),
    ("gpt", Plan(x=2, t=4)),
    ("llama", Plan(t=4)),
    ("latents", Plan(t=2)),
    ("experts", Plan(t=2, ep=2)),
    ("experts", Plan(t=2, ep=2, fold=True)),
    ("gpt", Plan(t=2, d=2, zero=1)),
    ("gpt", Plan(d=2, zero=1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, plan", PLANS, ids=str)
def test_a_dry_run_sends_what_the_plan_says(name, plan):
    plan = plan._replace(optimizer=1)
    told = dry_run(**job_of_plan(plan, SMALL[name], 16))
    assert told.bytes == pytest.approx(sent(SMALL[name], plan, 16), rel=1e-12)
    assert (told.bytes.get("matrices", 0) > 0) == (plan.t * plan.x > 1)


@pytest.mark.parametrize(
    "line, other, name, plan",
    [
        ("along_t * self.copied", "along_t", "llama", Plan(t=4)),
        ("(size, size / self.t)", "(size / self.x, size)", "gpt", Plan(x=2, t=4)),
        ('"t": plan.expert_shards', '"t": t', "experts", Plan(t=2, ep=2, fold=True)),
        ("where(plan.zero > 0, ways, 1)", "ways", "gpt", Plan(t=2, d=2)),
    ],
)
def test_a_mistake_is_noticed(line, other, name, plan, monkeypatch):
    from one_line import change

    right = sent(SMALL[name], plan._replace(optimizer=1), 16)["matrices"]
    change(monkeypatch, time_of_muon, line, other)
    assert bytes_of_rank.sent(SMALL[name], plan._replace(optimizer=1), 16)["matrices"] != right


def test_the_best_plan_shares_it_among_owners():
    best = hl.plan("gpt3-175b", "a100", gpus=1024, batch=1536, optimizer="muon").best
    assert best.plan.zero and best.job()["optimizer"] == "muon"
    assert 0.01 < best.step.optimizer / best.step.total < 0.06


def test_a_matrix_has_one_owner_however_many_there_are():
    """Of the 60 matrices of ten blocks, 512 owners have at most one: the largest, into or out of an MLP."""
    plan = Plan(p=4, d=512, zero=1, optimizer=1)
    largest = 90 * GPT.width**3 / RATES.multiply  # 20 m²n + 10 m³ for n = 4m
    assert time_of_muon.seconds(GPT, plan, RATES) == pytest.approx(largest)
