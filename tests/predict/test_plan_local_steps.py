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
from hybridlab.predict.plans import bytes_of_rank
from hybridlab.predict.plans.bytes_of_rank import _fragments, layers_at, sent, weights_at
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.fragments import largest_fragment
from hybridlab.predict.plans.heaviest import heaviest
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.link_needed import link_needed
from hybridlab.predict.plans.performance import step, without_moves
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.scaled import scaled
from hybridlab.predict.plans.software import SOFTWARE
from hybridlab.training.dry.dry_run import dry_run
from hybridlab.training.make_job import job_of

A100, GPT, MIXTRAL = machine("a100"), model("gpt-18.4b").shape, model("mixtral-8x7b").shape
SIZES = {"layers": 4, "width": 16, "heads": 4, "context": 8}
SMALL = {"gpt": Shape(**SIZES), "tied": Shape(**SIZES, tied=True), "experts": Shape(**SIZES, experts=4, chosen=2)}
SMALL["parallel"] = Shape(**SIZES, parallel=True)
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


# ---- fragments, and steps that hide them


def exposed(plan, **more) -> float:
    """The seconds of a step in which copies wait for moves."""
    return data(plan, **more) - data(plan._replace(sync_every=10**15, sync_delay=10**14), **more)


def test_without_a_delay_fragments_change_the_latency_only():
    """The same bytes in P messages."""
    plan, d, parts = Plan(t=8, d=4, sync_every=8), 4, 4
    more = exposed(plan._replace(fragments=parts)) - exposed(plan)
    assert more == pytest.approx((parts - 1) * 2 * (d - 1) * A100.latency[1] / 8, rel=1e-6)


def test_steps_hide_an_exchange_as_long_as_they_take():
    """On a slow link each of the P exchanges of H steps is exposed for what min(τ, H/P) steps do not hide."""
    slow, runs = replace(A100, across=1e7), SOFTWARE["megatron-2021"]
    for parts, delay in ((1, 3), (4, 1), (4, 2), (4, 7)):
        plan = Plan(t=8, d=4, sync_every=8, fragments=parts, sync_delay=delay)
        alone = float(without_moves(GPT, plan, 256, slow, software=runs).total)
        whole, largest = heaviest(GPT, plan).total, largest_fragment(GPT, plan).total
        each = [largest, *[(whole - largest) / max(parts - 1, 1)] * (parts - 1)]
        seconds = [2 * 3 * (slow.latency[1] + runs.gradient * one / 4 / slow.across) for one in each]
        closed = sum(max(0, one - min(delay, 8 / parts) * alone) for one in seconds) / 8
        assert exposed(plan, kind=slow) == pytest.approx(closed, rel=1e-9) and closed > 0
        assert exposed(plan, kind=replace(A100, across=1e12)) == 0


SIZES_OF = [(1, 1, 2), (2, 1, 2), (2, 2, 2), (4, 1, 2), (2, 4, 2), (2, 1, 5), (4, 2, 3), (1, 1, 10)]


@pytest.mark.parametrize("p, v, parts", SIZES_OF)
@pytest.mark.parametrize("kind", [{}, {"tied": True}, {"parallel": True, "style": "gpt"}, {"style": "llama"}])
def test_the_largest_fragment_is_that_of_the_fullest_rank_and_fragment(p, v, parts, kind):
    shape, plan = Shape(layers=8, width=64, heads=4, vocabulary=32, **kind), Plan(p=p, v=v, d=2, sync_every=10)
    plan = plan._replace(fragments=parts)
    exact = max(max(_fragments(shape, plan, layers_at(shape, plan, place))) for place in range(p))
    assert largest_fragment(shape, plan).total == pytest.approx(exact, rel=0.01)
    assert largest_fragment(shape, plan._replace(fragments=1)) == heaviest(shape, plan)


def test_with_chunks_all_blocks_of_a_rank_may_be_in_the_same_fragment():
    """Four chunks of one block on two ranks: odd layers on one of them, even layers on the other."""
    shape, plan = Shape(layers=8, width=64, heads=4, vocabulary=8), Plan(p=2, d=2, sync_every=4, fragments=2)
    few, many = (largest_fragment(shape, plan._replace(v=v)).total for v in (1, 4))
    assert many == pytest.approx(2 * few, rel=0.05)


def test_under_way_are_as_many_as_the_steps_of_an_exchange():
    plan = Plan(t=8, d=4, sync_every=8, fragments=4)
    held = {delay: footprint(GPT, plan._replace(sync_delay=delay), 256) for delay in (0, 1, 2, 3, 7)}
    largest, whole = (float(one(GPT, plan).total) for one in (largest_fragment, heaviest))
    more = {delay: float(one.gradients - held[0].gradients) for delay, one in held.items()}
    assert more[1] == more[2] == pytest.approx(2 * largest)  # bfloat16, as in this software
    assert more[3] == pytest.approx(2 * (largest + (whole - largest) / 3)) and more[7] == pytest.approx(2 * whole)
    assert all(one._replace(gradients=0) == held[0]._replace(gradients=0) for one in held.values())


# ---- memory and bytes


@pytest.mark.parametrize("optimizer", [0, 1])
@pytest.mark.parametrize("shape", [GPT, MIXTRAL])
def test_two_numbers_of_four_bytes_for_each_weight(shape, optimizer):
    plan = Plan(p=2, t=2, d=2, ep=2 if shape is MIXTRAL else 1, optimizer=optimizer)
    for every in (1, 64):
        one, other = (footprint(shape, each, 64) for each in (plan, plan._replace(sync_every=every)))
        assert other.optimizer - one.optimizer == pytest.approx(8 * heaviest(shape, plan).total, rel=1e-12)
        assert other._replace(optimizer=0) == one._replace(optimizer=0)


# of the streaming ones, the dry run takes the step that hides the rank's largest fragment
PLANS = [
    ("gpt", Plan(d=2, sync_every=3)),
    ("gpt", Plan(p=2, t=2, d=2, sequence=True, sync_every=3)),
    ("gpt", Plan(cp=2, d=2, sync_every=3)),
    ("tied", Plan(p=2, d=2, sync_every=3)),
    ("experts", Plan(ep=2, d=2, sync_every=3)),
    ("experts", Plan(t=2, ep=2, d=2, sequence=True, sync_every=3)),
    ("gpt", Plan(d=2, sync_every=4, fragments=2, sync_delay=1)),
    ("gpt", Plan(p=2, v=2, d=2, sync_every=6, fragments=3, sync_delay=4)),
    ("tied", Plan(p=2, d=2, sync_every=4, fragments=4, sync_delay=3)),
    ("tied", Plan(p=2, d=2, spread_head=True, sync_every=6, fragments=3)),
    ("experts", Plan(ep=2, d=2, sync_every=4, fragments=2, sync_delay=1)),
    ("parallel", Plan(p=2, t=2, d=2, sync_every=4, fragments=3, sync_delay=1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, plan", PLANS, ids=str)
def test_a_dry_run_sends_and_holds_what_the_plan_says(name, plan):
    shape, place = SMALL[name], plan.p - 1
    job = job_of_plan(plan, shape, 16)
    rank = job["mesh"].rank(pp=place) if plan.p > 1 else 0
    told, held = dry_run(**job, rank=rank), sum(weights_at(shape, plan, layers_at(shape, plan, place)))
    assert told.bytes == pytest.approx(sent(shape, plan, 16, place), rel=1e-12)
    behind = dict(zip(KINDS, told.kept[-1].tolist()))
    assert behind["optimizer"] == 20 * held
    every = _fragments(shape, plan, layers_at(shape, plan, place))
    one, most = plan.rounds.under_way * 4 * max(every), 4 * sum(every)
    if plan.sync_delay:
        assert min(one, most) / 2 <= behind["in flight"] <= min(one, most)
        assert plan.rounds.under_way > 1 or behind["in flight"] == one


def test_a_mistake_about_fragments_is_noticed(monkeypatch):
    """Each line of the formula in another form gives different bytes from the dry run."""
    from one_line import change

    for line, other, at in (
        ("max(_fragments(shape, plan, layers))", "added(_fragments(shape, plan, layers)) / plan.fragments", 6),
        ("found[0] += matrix", "found[number % plan.fragments] += matrix", 8),
        ("pieces * (layer - 1) + 1 if layer", "layer if layer", 11),
        ("found[(number + 1) % plan.fragments] += mlp", "found[number % plan.fragments] += mlp", 11),
    ):
        name, plan = PLANS[at]
        right = sent(SMALL[name], plan, 16, plan.p - 1)
        with monkeypatch.context() as patch:
            change(patch, bytes_of_rank, line, other)
            assert bytes_of_rank.sent(SMALL[name], plan, 16, plan.p - 1) != right


# ---- a job


@pytest.mark.ranks
@pytest.mark.parametrize(
    "name, plan", [pytest.param(*PLANS[0]), *(pytest.param(*PLANS[at], marks=pytest.mark.long) for at in (1, 6, 7))]
)
def test_ranks_do_what_the_plan_says(name, plan):
    report = hl.check(**job_of_plan(plan, SMALL[name], 16) | {"dtype": "float64", "steps": 8})
    assert report.ok and report.reference == "a replay of its copies on one device", report


def test_a_job_and_a_small_plan_have_the_plans_local_steps():
    job = job_of(**job_of_plan(Plan(d=2, sync_every=64), SMALL["gpt"], 16))
    assert job["sums"] == "local" and job["sync_every"] == 64 and job["fragments"] == 1
    job = job_of(**job_of_plan(Plan(d=2, sync_every=64, fragments=3, sync_delay=5), SMALL["gpt"], 16))
    assert (job["fragments"], job["sync_delay"]) == (3, 5)
    small = scaled(Plan(d=8, sync_every=64, fragments=3, sync_delay=5), GPT)
    assert small.plan.rounds == (2, 2, 1) and job_of(**small.job())["sync_delay"] == 1
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
        ({"zero": 1}, "sums=local keeps all weights in every copy: leave out zero"),
        ({"fragments": 27}, "fragments=27 is too many: give at most sync_every=100 and the 26 layers"),
        ({"fragments": 0}, "fragments=0 is not possible: give a number from 1"),
        ({"sync_delay": 100}, "sync_delay=100 is too long: give less than sync_every"),
        (
            {"sync_every": None, "sums": None, "sync_delay": 1},
            "sync_delay=1 has no effect without sums=local: give both",
        ),
        ({"gpus": 8, "d": 1}, "sync_every=100 excludes every plan of 8 devices with d=1: leave out sync_every"),
    ],
)
def test_what_cannot_be_planned_is_refused(more, words):
    with pytest.raises(ValueError, match=words):
        hl.plan("gpt-1.7b", "a100", **ASKED | more)


def test_the_answer_explains_sums_and_plans_without_them():
    planned = hl.plan("gpt-1.7b", "a100", **ASKED)
    assert "local steps, sums every 100" in str(planned.best.plan)
    assert "leave out zero" in planned.why(zero=1)
    assert "hl.plan(..., sync_every=9) plans with it" in planned.why(sync_every=9)
    assert "hl.plan(..., fragments=2) plans with it" in planned.why(fragments=2)
    streamed = hl.plan("gpt-1.7b", "a100", **ASKED, fragments=4, sync_delay=5)
    assert "local steps, sums every 100 in 4 fragments, hidden by 5" in str(streamed.best.plan)
    assert streamed.what_if(sync_every=0).changed == {"fragments": (4, 1), "sync_delay": (5, 0)}
    with pytest.raises(ValueError, match="sync_delay=5 is too long: give less than sync_every"):
        streamed.what_if(sync_every=5)
    other = planned.what_if(sync_every=0)
    assert other.after.plan == planned.best.plan._replace(sync_every=0) and "gradients over copies" in str(other)


# ---- the link


def test_with_the_link_that_is_needed_sums_take_one_hundredth():
    planned = hl.plan("gpt-1.7b", "a100", **ASKED)
    plan, kind = planned.best.plan, replace(A100, across=link_needed(planned))
    here, there = (planned.best.step, step(planned.shape, plan, 1024, kind, planned.fit, planned.software))
    assert there.data / (here.total - here.data + there.data) == pytest.approx(0.01, rel=1e-9)
    assert link_needed(planned, share=0.05) < link_needed(planned) < A100.across


@pytest.mark.parametrize("parts, delay", [(1, 1), (1, 5), (4, 1), (4, 25), (12, 3)])
def test_the_peak_falls_with_fragments_and_with_the_steps_that_hide_them(parts, delay):
    """With no further wait it is the closed form of notebook 21, of P fragments like the largest."""
    machine_ = replace(A100, latency=(0.0, 0.0))
    planned = hl.plan("gpt-18.4b", machine_, gpus=256, batch=1024, sums="local", sync_every=100, p=1, t=8, d=32,
                      fragments=parts, sync_delay=delay)  # fmt: skip
    plan, seconds = planned.best.plan, planned.best.step.total
    assert planned.best.step.data == 0
    largest = float(largest_fragment(planned.shape, plan).total)
    closed = hl.bytes.link_needed(parts * largest, 32, 100, seconds, parts, delay, width=2)
    assert link_needed(planned, share=1e-12) == pytest.approx(closed, rel=1e-6)
    for share in (0.01, 0.2):
        kind = replace(machine_, across=link_needed(planned, share))
        there = step(planned.shape, plan, 1024, kind, planned.fit, planned.software)
        alone = without_moves(planned.shape, plan, 1024, machine_, planned.fit, planned.software).total
        waits = there.total - without_moves(planned.shape, plan, 1024, kind, planned.fit, planned.software).total
        assert waits / (waits + alone) == pytest.approx(share, rel=1e-6)


def test_some_copies_need_no_link_and_no_link_helps_others():
    inside = hl.plan("gpt-1.7b", "a100", gpus=8, batch=64, sums="local", d=2)
    assert link_needed(inside) == 0 == link_needed(hl.plan("gpt-1.7b", "a100", gpus=16, batch=64, zero=0))
    late = hl.plan("gpt-1.7b", replace(A100, latency=(0.0, 10.0)), **ASKED | {"t": 8, "p": 1})
    assert math.isinf(link_needed(late)) and "their latency alone is more than 1%" in str(late)
    assert "quickest plan's steps\n" in str(inside)


def test_the_command_plans_fragments(capsys):
    line = "plan --model gpt-1.7b --gpus 64 --batch 1024 --dp 8 --sums local --sync-every 100 --json"
    assert main(f"{line} --fragments 4 --sync-delay 5".split()) == 0
    out = capsys.readouterr().out
    best = json.loads(out.splitlines()[-1])["best"]
    assert (best["sync_every"], best["fragments"], best["sync_delay"]) == (100, 4, 5)
    assert best["link_needed_gb_per_second"] < 0.01 and "Sums over the copies take 0.00%" in out
    assert main(f"{line} --fragments 101".split()) == 2
    assert "fragments=101 is too many" in capsys.readouterr().err


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
