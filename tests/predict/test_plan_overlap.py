"""Plans whose messages along tp are in pieces: what is hidden follows from local widths; bytes, job and refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.added import added
from hybridlab.core.what.catalog import machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.launch.lines import megatron, torchtitan
from hybridlab.predict.plans import bytes_of_rank, time_of_pieces
from hybridlab.predict.plans.bytes_of_rank import sent
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.performance import pieces, step
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.predict.plans.rates import FITTED, Rates
from hybridlab.predict.plans.software import MEGATRON_2021
from hybridlab.predict.time import overlap
from hybridlab.predict.time.pieces import in_pieces, least_width
from hybridlab.training.costs import costs_of
from hybridlab.training.dry.dry_run import dry_run
from hybridlab.training.make_job import job_of

H100, LLAMA, MIXTRAL = machine("h100"), model("llama3-70b").shape, model("mixtral-8x7b").shape
PIECES = {"sequence": True, "overlap": True}
SIZES = {"layers": 4, "width": 16, "heads": 4, "context": 8}
SMALL = {
    "gpt": Shape(**SIZES),
    "tied": Shape(**SIZES, tied=True),
    "llama": Shape(**SIZES, style="llama", kv_heads=2),
    "latents": Shape(**SIZES, style="llama", latent=6, query_latent=10, rotary=4),
    "experts": Shape(**SIZES, experts=4, chosen=2, shared=1),
}


# ---- time


def drawn(shape, plan, rates) -> tuple[float, float]:
    """The exposed seconds of a block's messages, each drawn hop by hop beside its matmul."""
    stream, tokens = 2 * plan.b * shape.context * shape.width, plan.b * shape.context
    hop = float(rates.sum(plan.t, rates.near(plan, "t"), stream)) / 2 / (plan.t - 1)

    def shown(features) -> float:
        matmul = 2 * tokens * shape.width * features / rates.products
        return overlap.exposed(in_pieces(plan.t, matmul / plan.t, hop, directions=plan.directions))

    every = time_of_pieces.pairs(shape, plan)
    forward = added(shown(one.entered) + shown(one.left) for one in every)
    backward = added(2 * shown(one.entered) + shown(2 * one.left) for one in every)
    return forward, backward


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("inside", [900e9, 100e9, 10e9])
def test_each_message_is_hidden_by_its_own_matmul(t, directions, inside):
    plan, kind = Plan(t=t, b=2, directions=directions, **PIECES), replace(H100, inside=inside)
    found, plain = (pieces(LLAMA, one, 2, kind) for one in (plan, plan._replace(overlap=False)))
    rates = Rates.of(kind, FITTED, MEGATRON_2021)
    assert (found.forward.tensor, found.backward.tensor) == pytest.approx(drawn(LLAMA, plan, rates), rel=1e-9)
    assert 0 <= found.forward.tensor < plain.forward.tensor and found.backward.tensor < plain.backward.tensor
    assert found.forward._replace(tensor=0) == plain.forward._replace(tensor=0)


def test_hops_are_hidden_from_the_local_width_of_notebook_30():
    """N > gC/2W, whatever the batch, the width and t are; latency aside."""
    kind = replace(H100, latency=(0.0, 0.0))
    rates = Rates.of(kind, FITTED, MEGATRON_2021)
    least = least_width(rates.products, rates.inside)
    for t, b, width in ((2, 1, 4096), (8, 2, 4096), (8, 4, 8192)):
        for beside, exposed in ((1.01, False), (0.99, True)):
            hidden = round(least * t * beside)
            shape = Shape(1, width, 0, context=1024, inner=hidden)  # without attention
            one = pieces(shape, Plan(t=t, b=b, **PIECES), b, kind).forward.tensor
            assert (one > 1e-9) == exposed


def test_full_recomputation_repeats_what_is_exposed():
    slow = replace(H100, inside=50e9)
    plain, again = (pieces(LLAMA, Plan(t=8, recompute=how, **PIECES), 1, slow) for how in (0, 2))
    assert again.backward.tensor == pytest.approx(plain.backward.tensor + plain.forward.tensor, rel=1e-12)


def test_messages_of_routed_experts_are_not_in_pieces():
    """Those of attention are; a program that hides none of the others is slower than its plan without experts."""
    plan = Plan(t=4, ep=2, **PIECES)
    found, plain = (pieces(MIXTRAL, one, 2, H100).forward.tensor for one in (plan, plan._replace(overlap=False)))
    rates = Rates.of(H100, FITTED, MEGATRON_2021)
    summed = float(rates.sum(4, rates.near(plan, "t"), 2 * MIXTRAL.context * MIXTRAL.width))
    attention, _ = drawn(MIXTRAL, plan, rates)
    assert plain - found == pytest.approx(summed - attention, rel=1e-9)


def test_a_jobs_predicted_time_has_no_assumed_share():
    """Of wide matrices all hops are hidden, and of narrow ones few: no fraction is the same for both."""
    shapes = {width: Shape(layers=2, width=width, heads=16, context=2048) for width in (512, 16384)}
    share = {}
    for width, shape in shapes.items():
        ask = lambda over, shape=shape: job_of(hl.Mesh(tp=8), shape=shape, sequence=True, overlap=over)
        plain, ours = (costs_of(ask(over), H100).of("F", 0) for over in (False, True))
        alone = pieces(shape, Plan(t=8, b=2, sequence=True), 8, H100).forward
        share[width] = (plain - ours) / (2 * float(alone.tensor))
    assert share[512] < 0.3 and share[16384] == pytest.approx(1, abs=0.02)


# ---- bytes, and a job

PLANS = [
    ("gpt", Plan(t=2)),
    ("gpt", Plan(p=2, t=4, recompute=2)),
    ("llama", Plan(t=4, d=2, zero=3, directions=2)),
    ("tied", Plan(p=2, t=2, v=2)),
    ("latents", Plan(t=2, recompute=1)),
    ("experts", Plan(t=2, ep=2)),
    ("experts", Plan(t=2, ep=2, fold=True)),
    ("gpt", Plan(t=2, cp=2, attend=1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, plan", PLANS, ids=str)
def test_a_dry_run_sends_what_the_plan_says(name, plan):
    plan, shape = plan._replace(**PIECES), SMALL[name]
    job = job_of_plan(plan, shape, 16)
    rank = job["mesh"].rank(pp=plan.p - 1) if plan.p > 1 else 0
    told = dry_run(**job, rank=rank)
    assert told.bytes["inside"] == pytest.approx(sent(shape, plan, 16, plan.p - 1)["inside"], rel=1e-12)
    assert {op for purpose, _, op in told.axes if purpose == "inside"} >= {"isend"}


@pytest.mark.parametrize("line, other", [('"head": (plan.t - 1) / plan.t', '"head": 1'), ("hops.get(what, 1) *", "")])
def test_a_mistake_in_the_bytes_is_noticed(line, other, monkeypatch):
    from one_line import change

    plan, shape = Plan(t=4, **PIECES), SMALL["gpt"]
    right = sent(shape, plan, 16)["inside"]
    change(monkeypatch, bytes_of_rank, line, other)
    assert bytes_of_rank.sent(shape, plan, 16)["inside"] != right


@pytest.mark.ranks
def test_ranks_do_what_the_plan_says(bench):
    job = job_of_plan(Plan(t=4, directions=2, **PIECES), SMALL["llama"], 8) | {"dtype": "float64", "optimizer": "sgd"}
    report = bench.asked(job.pop("mesh"), **job)
    assert report.ok, report
    assert ("inside", "tp", "isend") in report.axes


# ---- the search, the commands


def test_all_plans_are_sharded_along_the_sequence():
    asked = {"gpus": 64, "batch": 256, "t": 8}
    plain, ours = (hl.plan("llama3-70b", "h100", **asked, **more) for more in ({"sequence": True}, {"overlap": True}))
    assert np.all(ours.space.sequence) and np.all(ours.space.t == 8) and len(ours.seconds) == len(plain.seconds)
    assert np.all(ours.seconds <= plain.seconds * (1 + 1e-12)) and "overlapped" in str(ours.best.plan)
    other = plain.what_if(overlap=True)
    assert other.after.plan == plain.best.plan._replace(overlap=True) and "tp all-reduces" in str(other)
    assert "hl.plan(..., overlap=True) plans with it" in plain.why(overlap=True)
    both = hl.plan("llama3-70b", "h100", **asked, overlap=True, directions=2)
    assert both.best.step.tensor < ours.best.step.tensor and "in two directions" in str(both.best.plan)
    assert both.what_if(overlap=False).changed == {"directions": (2, 1)}
    with pytest.raises(ValueError, match="directions=2 has no effect without overlap: give both"):
        hl.plan("llama3-70b", "h100", **asked, directions=2)
    with pytest.raises(ValueError, match="directions=3 is not possible, because a ring has two: give 1 or 2"):
        hl.plan("llama3-70b", "h100", **asked, overlap=True, directions=3)
    assert ours.best.scaled().job()["overlap"]


@pytest.mark.parametrize(
    "plan, words",
    [
        (Plan(t=2, overlap=True), "overlap=True has no effect without sequence: give both, or leave out overlap"),
        (Plan(d=2, **PIECES), "overlap=True has no effect without sequence"),
        (Plan(t=2, sequence=True, directions=2), "directions=2 has no effect without overlap: give both"),
        (Plan(t=2, directions=3, **PIECES), "directions=3 is not possible, because a ring has two: give 1 or 2"),
        (Plan(t=2, x=2, **PIECES), "x=2 shards each matrix a second time.* leave out overlap or x"),
    ],
)
def test_what_cannot_be_in_pieces_is_refused(plan, words):
    with pytest.raises(ValueError, match=words):
        check_plan(plan, SMALL["gpt"], 8)


def test_other_programs_are_started_with_it():
    plan = Plan(t=2, d=2, zero=1, **PIECES)
    assert "--tp-comm-overlap" in megatron(plan, LLAMA, 8)
    words = torchtitan(plan._replace(zero=3), LLAMA, 8)
    assert {"--parallelism.enable_async_tensor_parallel", "--compile.enable"} <= set(words)
    assert "--tp-comm-overlap" not in megatron(plan._replace(overlap=False), LLAMA, 8)


def test_the_command_plans_it(capsys):
    assert main("plan --model llama3-8b --machine h100 --gpus 16 --batch 64 --tp 8 --overlap --json".split()) == 0
    best = json.loads(capsys.readouterr().out.splitlines()[-1])["best"]
    assert best["overlap"] and best["sequence"]
    plain = step(model("llama3-8b").shape, Plan(t=8, d=2, sequence=True), 64, H100)
    assert plain.tensor > 0
