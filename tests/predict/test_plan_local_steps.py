"""Plans whose copies take local steps: their time, memory and bytes by closed forms, their job, and the link that they
need."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.dry import KINDS
from hybridlab.core.what.catalog import machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.collectives import Link, hierarchical
from hybridlab.predict.bytes.local_steps import EVERY
from hybridlab.predict.plans.bytes_of_rank import layers_at, sent, weights_at
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.heaviest import heaviest
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.link_needed import link_needed
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.scaled import scaled
from hybridlab.predict.plans.software import SOFTWARE
from hybridlab.training.dry.dry_run import dry_run
from hybridlab.training.make_job import job_of

A100, GPT, MIXTRAL = machine("a100"), model("gpt-18.4b").shape, model("mixtral-8x7b").shape
SIZES = {"layers": 4, "width": 16, "heads": 4, "context": 8}
SMALL = {"gpt": Shape(**SIZES), "tied": Shape(**SIZES, tied=True), "experts": Shape(**SIZES, experts=4, chosen=2)}
ASKED = {"gpus": 64, "batch": 1024, "sums": "local", "sync_every": 100, "d": 8}


def data(plan, shape=GPT, software="megatron-2021", kind=A100, batch=256) -> float:
    """The seconds of a step in which messages along dp are exposed."""
    return float(step(shape, plan, batch, kind, software=SOFTWARE[software]).data)


# ---- time


@pytest.mark.parametrize("software", ["megatron-2021", "megatron-2024"])
@pytest.mark.parametrize("every", [1, 8, 500])
def test_one_ring_of_all_weights_is_paid_once_in_so_many_steps(every, software):
    """Each rank of a node is in another ring over d nodes, and nothing hides it: 2(d-1)(α + gΨ/(d·W))/H."""
    runs, d = SOFTWARE[software], 4
    plan = Plan(t=8, d=d, sync_every=every)
    sent_here = runs.gradient * heaviest(GPT, plan).total
    ring = 2 * (d - 1) * (A100.latency[1] + sent_here / d / (A100.across * runs.network))
    assert data(plan, software=software) == pytest.approx(float(ring) / every, rel=1e-12)


def test_a_sum_after_every_step_takes_as_long_as_gradients_that_nothing_hides():
    plan = Plan(p=2, t=4, d=8)
    one, other = (step(GPT, each, 256, A100) for each in (plan, plan._replace(sync_every=1)))
    assert other == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize("software", ["megatron-2021", "megatron-2024"])
@pytest.mark.parametrize(
    "shape, plan", [(GPT, Plan(t=4, cp=4, d=4)), (MIXTRAL, Plan(t=2, ep=8, d=4)), (MIXTRAL, Plan(t=4, cp=2, d=4))]
)
def test_ranks_of_one_copy_still_sum_in_every_step(shape, plan, software):
    """Only the exchange between copies is seldom: without it remains what one copy sends."""
    seldom = data(plan._replace(sync_every=10**15), shape, software)
    assert seldom == pytest.approx(data(plan._replace(d=1), shape, software, batch=64), rel=1e-9) and seldom > 0


def test_copies_of_two_nodes_reduce_inside_them_first():
    """Ranks along cp are neighbours: a node has two of four copies, whatever cp is."""
    plan = Plan(cp=4, d=4, sync_every=4)
    size = 2 * float(heaviest(GPT, plan).total)
    inside, across = (Link(alpha, 1 / rate) for alpha, rate in zip(A100.latency, (A100.inside, A100.across)))
    seconds = hierarchical(nodes=2, per_node=2, size=size).seconds(inside, across)
    assert data(plan) - data(plan._replace(sync_every=10**15)) == pytest.approx(seconds / 4, rel=1e-9)


def test_copies_in_the_same_node_exchange_over_its_links():
    plan = Plan(t=2, cp=2, d=2, sync_every=4)
    moves = lambda kind: data(plan, kind=kind) - data(plan._replace(sync_every=10**15), kind=kind)
    slow, fast = (replace(A100, across=rate) for rate in (1e6, 1e12))
    assert moves(slow) == pytest.approx(moves(fast), rel=1e-6)
    assert data(plan._replace(d=16), kind=slow) > 100 * data(plan._replace(d=16), kind=fast)


# ---- memory and bytes


@pytest.mark.parametrize("optimizer", [0, 1])
@pytest.mark.parametrize("shape", [GPT, MIXTRAL])
def test_two_numbers_of_four_bytes_for_each_weight(shape, optimizer):
    plan = Plan(p=2, t=2, d=2, ep=2 if shape is MIXTRAL else 1, optimizer=optimizer)
    for every in (1, 64):
        one, other = (footprint(shape, each, 64) for each in (plan, plan._replace(sync_every=every)))
        assert other.optimizer - one.optimizer == pytest.approx(8 * heaviest(shape, plan).total, rel=1e-12)
        assert other._replace(optimizer=0) == one._replace(optimizer=0)


PLANS = [
    ("gpt", Plan(d=2, sync_every=3)),
    ("gpt", Plan(p=2, t=2, d=2, sequence=True, sync_every=3)),
    ("gpt", Plan(cp=2, d=2, sync_every=3)),
    ("tied", Plan(p=2, d=2, sync_every=3)),
    ("experts", Plan(ep=2, d=2, sync_every=3)),
    ("experts", Plan(t=2, ep=2, d=2, sequence=True, sync_every=3)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, plan", PLANS, ids=str)
def test_a_dry_run_sends_and_holds_what_the_plan_says(name, plan):
    shape, place = SMALL[name], plan.p - 1
    job = job_of_plan(plan, shape, 16)
    rank = job["mesh"].rank(pp=place) if plan.p > 1 else 0
    told, held = dry_run(**job, rank=rank), sum(weights_at(shape, plan, layers_at(shape, plan, place)))
    assert told.bytes == pytest.approx(sent(shape, plan, 16, place), rel=1e-12)
    assert dict(zip(KINDS, told.kept[-1].tolist()))["optimizer"] == 20 * held


# ---- a job


@pytest.mark.ranks
@pytest.mark.parametrize("name, plan", [pytest.param(*PLANS[0]), pytest.param(*PLANS[1], marks=pytest.mark.long)])
def test_ranks_do_what_the_plan_says(name, plan):
    report = hl.check(**job_of_plan(plan, SMALL[name], 16) | {"dtype": "float64", "steps": 5})
    assert report.ok and report.reference == "a replay of its copies on one device", report


def test_a_job_and_a_small_plan_have_the_plans_local_steps():
    job = job_of(**job_of_plan(Plan(d=2, sync_every=64), SMALL["gpt"], 16))
    assert job["sums"] == "local" and job["sync_every"] == 64
    assert [scaled(Plan(d=8, sync_every=every), GPT).plan.sync_every for every in (0, 1, 64)] == [0, 1, 2]
    assert job_of_plan(Plan(d=2), SMALL["gpt"], 16)["sums"] == "buckets"


# ---- the search


def test_all_plans_have_copies_and_no_zero():
    found = hl.plan("gpt-1.7b", "a100", gpus=16, batch=64, sums="local").space
    assert len(found.p) and np.all(found.sync_every == EVERY) and np.all(found.d > 1) and not np.any(found.zero)
    usual = hl.plan("gpt-1.7b", "a100", gpus=16, batch=64).space
    assert len(found.p) == np.sum((usual.d > 1) & (usual.zero == 0))


def test_the_default_is_the_jobs():
    assert job_of(hl.Mesh(dp=2), shape=SMALL["gpt"], sums="local")["sync_every"] == EVERY


@pytest.mark.parametrize(
    "more, words",
    [
        ({"sums": "each"}, "sums='each' cannot be planned: give 'local'"),
        ({"sync_every": 0}, "sync_every=0 sums gradients in every step"),
        ({"zero": 1}, "sums=local keeps all weights in every copy: leave zero out"),
        ({"gpus": 8, "d": 1}, "sync_every=100 excludes every plan of 8 devices with d=1: leave sync_every out"),
    ],
)
def test_what_cannot_be_planned_is_refused(more, words):
    with pytest.raises(ValueError, match=words):
        hl.plan("gpt-1.7b", "a100", **ASKED | more)


def test_the_answer_explains_sums_and_plans_without_them():
    planned = hl.plan("gpt-1.7b", "a100", **ASKED)
    assert "local steps, sums every 100" in str(planned.best.plan)
    assert "leave zero out" in planned.why(zero=1)
    assert "hl.plan(..., sync_every=9) plans with it" in planned.why(sync_every=9)
    other = planned.what_if(sync_every=0)
    assert other.after.plan == planned.best.plan._replace(sync_every=0) and "gradients over copies" in str(other)


# ---- the link


def test_with_the_link_that_is_needed_sums_take_one_hundredth():
    planned = hl.plan("gpt-1.7b", "a100", **ASKED)
    plan, kind = planned.best.plan, replace(A100, across=link_needed(planned))
    here, there = (planned.best.step, step(planned.shape, plan, 1024, kind, planned.fit, planned.software))
    assert there.data / (here.total - here.data + there.data) == pytest.approx(0.01, rel=1e-9)
    assert link_needed(planned, share=0.05) < link_needed(planned) < A100.across


def test_some_copies_need_no_link_and_no_link_helps_others():
    inside = hl.plan("gpt-1.7b", "a100", gpus=8, batch=64, sums="local", d=2)
    assert link_needed(inside) == 0 == link_needed(hl.plan("gpt-1.7b", "a100", gpus=16, batch=64, zero=0))
    late = hl.plan("gpt-1.7b", replace(A100, latency=(0.0, 10.0)), **ASKED | {"t": 8, "p": 1})
    assert math.isinf(link_needed(late)) and "their latency alone is more than 1%" in str(late)
    assert "quickest plan's steps\n" in str(inside)


def test_the_command_prints_it(capsys):
    assert main("plan --model gpt-1.7b --gpus 64 --batch 1024 --dp 8 --sums local --sync-every 100 --json".split()) == 0
    out = capsys.readouterr().out
    best = json.loads(out.splitlines()[-1])["best"]
    assert best["sync_every"] == 100 and best["zero"] == 0
    planned = hl.plan("gpt-1.7b", "a100", **ASKED)
    assert best["link_needed_gb_per_second"] == link_needed(planned) / 1e9
    assert f"from {best['link_needed_gb_per_second']:.3g} GB/s between nodes for each device, at most 1%" in out
    share = planned.best.step.data / planned.best.step.total
    assert f"Sums over the copies take {share:.2%} of the quickest plan's steps" in out
