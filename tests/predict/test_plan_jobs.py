"""Plans as jobs: what a plan means is what ranks are asked to do, and they do it as one device does."""

import json

import pytest
from few import first

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.what.shape import Shape
from hybridlab.predict.plans.jobs import job_of_plan, mesh_of
from hybridlab.predict.plans.plan import Plan
from hybridlab.training.make_job import job_of

GPT = Shape(layers=4, width=16, heads=4, context=8)
LLAMA = Shape(layers=4, width=16, heads=4, kv_heads=2, context=8, style="llama")
ROUTED = Shape(layers=4, width=16, heads=4, context=8, experts=4, chosen=2)
PLANS = [
    (Plan(p=2, t=2, b=2, recompute=2, sequence=True), GPT),
    (Plan(d=2, p=2, v=2, zero=1), LLAMA),
    (Plan(ep=2, dispatch=1, recompute=2), ROUTED),
    (Plan(p=2, t=2, d=2, scatter=True, recompute=1), GPT),
    (Plan(d=4, z=2, zero=3), LLAMA),
    (Plan(cp=2, attend=1, zigzag=True, d=2, zero=2), GPT),
    (Plan(cp=2, attend=2, p=2), LLAMA),
    (Plan(x=2, t=2, d=2, zero=3), GPT),
    (Plan(ep=2, p=2, d=2, zero=1), ROUTED),
]


def test_neighbours_share_a_stage():
    assert list(mesh_of(Plan(p=2, t=2, d=2)).groups("tp")) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert list(mesh_of(Plan(p=2, t=2, cp=2, x=2)).axes) == ["pp", "cp", "x", "tp"]
    assert mesh_of(Plan()).size == 1


@pytest.mark.slow
@pytest.mark.parametrize("plan, shape", PLANS, ids=lambda one: str(one) if isinstance(one, Plan) else one.style)
def test_a_job_has_the_plans_sizes(plan, shape):
    job = job_of(**job_of_plan(plan, shape, 16))
    assert job.mesh.size == plan.devices and job.rows == plan.b * plan.ep
    assert job.microbatches == plan.d * plan.microbatches(16)
    assert len(job.bounds) == plan.p * plan.v or plan.zero == 3


def test_a_plan_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="must divide the model's 4 layers"):
        job_of_plan(Plan(p=3), GPT, 16)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "plan, shape",
    [
        pytest.param(*one, id=str(one[0]), marks=[pytest.mark.long] * (one[1] is not ROUTED or one[0].p > 1))
        for one in PLANS
    ],
)
def test_ranks_do_it_as_one_device_does(plan, shape):
    report = hl.check(**job_of_plan(plan, shape, 16) | {"dtype": "float64"})
    assert report.ok, report


@pytest.mark.ranks
@pytest.mark.parametrize(
    "typed, said", first(1, [("--tp 2 --pp 2", "scaled to 4 ranks"), ("--tp 2 --pp 2 --zero 1", "scaled to 8")])
)
def test_the_command_runs_its_plan(typed, said, capsys):
    more = "--model gpt-1.7b --gpus 4 --batch 8" if "zero" not in typed else "--model gpt-1.7b --gpus 8 --batch 16"
    assert main(f"plan {more} {typed} --recompute full --run --json".split()) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert said in out and "equal to one device" in out and found["run"]["ok"] and found["run"]["largest_gap"] < 1e-10


@pytest.mark.long
def test_too_many_ranks_even_scaled_are_played_dry(capsys):
    typed = "--model mixtral-8x7b --machine h100 --gpus 16 --batch 16 --context 64 --fused"
    typed += " --tp 2 --ep 2 --pp 2 --dp 2 --zero 1"
    assert main(f"plan {typed} --run --json".split()) == 0
    out = capsys.readouterr().out
    assert "16 ranks are too many" in out and json.loads(out.splitlines()[-1])["run"]["dry_run"]["peak_bytes"] > 0


@pytest.mark.long
def test_the_best_plan_is_a_job_that_can_be_played_dry():
    best = hl.plan("gpt3-175b", "a100", gpus=64, batch=64, recompute="full").best
    told = hl.dry_run(**best.job(), rank=0)
    assert told.mesh == mesh_of(best.plan) and told.fits


@pytest.mark.parametrize("field", ({"offload": True}, {"redone": 0.5}))
def test_what_only_plans_can_do_is_refused(field):
    with pytest.raises(ValueError, match="leave out offload and redone"):
        job_of_plan(Plan(**field), Shape(), batch=2)
