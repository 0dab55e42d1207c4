"""Learning rates that change: the same on every layout, in runs that go on, and as PyTorch's schedulers have them."""

import shutil

import pytest
import torch
from few import first, one_in

import hybridlab as hl
from hybridlab.training import loop, rates
from hybridlab.training.make_job import job_of
from hybridlab.training.run import train

SHAPE = hl.Shape(layers=4, width=16, heads=2, context=8)
DRAWN = iter(range(9))
COUNTED = [0]
PACED = {
    "cosine": {"rate": 0.02, "warmup": 2, "anneal": "cosine", "betas": (0.8, 0.95), "optimizer": "adamw"},
    "a function": {"rate": lambda step: 0.2 / (1 + step), "optimizer": "sgd"},
}
LAYOUTS = {
    "dp=2 pp=2, zero 3": (hl.Mesh(dp=2, pp=2), {"zero": 3}),
    "tp=2": (hl.Mesh(tp=2), {}),
    "offload": (hl.Mesh(dp=2), {"zero": 1, "offload": True}),
    "pipedream": (hl.Mesh(pp=2), {"schedule": "pipedream"}),
}


def of_torch(scheduler, steps):
    """The rates of a scheduler of torch, step by step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    paced, found = scheduler(optimizer), []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        paced.step()
    return found


@pytest.mark.parametrize(
    "anneal, scheduler",
    [
        ("cosine", lambda one: torch.optim.lr_scheduler.CosineAnnealingLR(one, T_max=7)),
        ("linear", lambda one: torch.optim.lr_scheduler.LinearLR(one, 1.0, 0.0, total_iters=7)),
    ],
)
def test_rates_fall_as_those_of_torchs_schedulers(anneal, scheduler):
    found = [rates.rate_at(step, 7, 0.3, anneal=anneal) for step in range(7)]
    assert found == pytest.approx(of_torch(scheduler, 7), rel=1e-12)


def test_a_warm_up_is_torchs_and_then_comes_what_falls():
    linear = lambda one: torch.optim.lr_scheduler.LinearLR(one, 1 / 4, 1.0, total_iters=3)
    found = [rates.rate_at(step, 9, 0.3, warmup=4, anneal="linear") for step in range(9)]
    assert found[:4] == pytest.approx(of_torch(linear, 4), rel=1e-12)
    assert found[4:] == pytest.approx([0.3 * (1 - one / 5) for one in range(5)], rel=1e-12)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "name, layout", one_in(2, [*(("cosine", layout) for layout in LAYOUTS), ("a function", "pipedream")])
)
def test_layouts_with_other_rates_in_each_step_are_equal(bench, name, layout):
    mesh, more = LAYOUTS[layout]
    assert bench.asked(mesh, microbatches=2, batch=8, shape=SHAPE, steps=4, **PACED[name] | more).ok


@pytest.mark.ranks
def test_ranks_that_keep_the_rate_of_the_first_step_are_seen(bench):
    def first_alone(patch):
        now = loop.set_rate
        patch.setattr(loop, "set_rate", lambda job, optimizers, step: now(job, optimizers, 0))

    about = dict(microbatches=2, batch=8, shape=SHAPE, steps=4, rate=0.2, anneal="linear", optimizer="sgd")
    assert not bench.asked(hl.Mesh(pp=2), sabotage=first_alone, **about).ok


@pytest.mark.ranks
@pytest.mark.parametrize("name", first(1, PACED))
def test_a_run_goes_on_with_the_rate_of_its_step_under_another_layout(kept, tmp_path, name):
    about = dict(microbatches=2, batch=8, shape=SHAPE, dtype="float64", progress=False, steps=6, **PACED[name])
    whole = train(hl.Mesh(pp=1), **about)["losses"]
    train(hl.Mesh(pp=2), checkpoint=tmp_path, every=3, **about)
    shutil.rmtree(tmp_path / "step-000006")  # as if it had been cut behind its third step
    went_on = train(hl.Mesh(dp=2), checkpoint=tmp_path, resume=True, zero=1, **about)["losses"]
    assert len(went_on) == 3 and went_on == pytest.approx(whole[3:], rel=1e-9)


@pytest.mark.parametrize(
    "more, says",
    [
        ({"rate": -1}, "rate=-1 is not possible"),
        ({"rate": lambda step: "fast"}, r"rate\(0\)='fast' is not possible: return a number"),
        ({"rate": lambda step: 0.1 - step}, r"rate\(2\)=-1.9 is not possible: return a number"),
        ({"rate": lambda: 0.1}, r"rate\(0\) raised TypeError"),
        ({"rate": lambda step: next(DRAWN)}, "let it depend only on the step"),
        ({"rate": lambda step: COUNTED.append(COUNTED.pop() + 1) or 0.1}, "rate changes COUNTED when it is called"),
        ({"warmup": -1}, "warmup=-1 is not a number of steps"),
        ({"anneal": "slowly"}, "there is no anneal 'slowly': choose one of constant, cosine, linear"),
        ({"betas": (0.9,), "optimizer": "adamw"}, r"betas=\(0.9,\) is not a valid pair"),
        ({"betas": (0.9, 1.0), "optimizer": "adamw"}, "is not a valid pair"),
        ({"betas": (0.8, 0.9)}, "betas belong to adamw and muon, but the optimizer is sgd"),
    ],
)
def test_what_is_no_rate_is_refused(more, says):
    with pytest.raises(ValueError, match=says):
        job_of(hl.Mesh(pp=1), shape=SHAPE, **more)
