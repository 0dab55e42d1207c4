"""This machine as a machine from the catalog: the fit gives back what it was made from, and plans really run."""

import math

import pytest
import torch

import hybridlab as hl
from hybridlab.core.what.catalog import machine
from hybridlab.measuring import timed
from hybridlab.measuring.here import FEW, MANY, OURS, _microbatch, calibrated, here, hidden, in_turns
from hybridlab.predict.plans.performance import pieces, step
from hybridlab.predict.plans.plan import Plan

SHAPE = hl.Shape(layers=2, width=32, heads=4, context=16)


A100 = machine("a100")


def seconds(fit, sequences):
    one = pieces(SHAPE, Plan(b=sequences), sequences, A100, fit)
    return float(SHAPE.layers * (sum(one.forward) + sum(one.backward)) + one.head)


@pytest.mark.parametrize("launch, each", [(1e-3, 1e-4), (0, 2e-3), (5e-3, 1e-6)])
def test_with_the_fit_a_model_takes_what_it_took(launch, each):
    few, many = (launch + n * each for n in (FEW, MANY))
    fit = calibrated(SHAPE, A100, few, many)
    assert math.isclose(seconds(fit, FEW), few, rel_tol=1e-9) and math.isclose(seconds(fit, MANY), many, rel_tol=1e-9)


def test_noise_that_makes_many_cheaper_than_few_is_no_negative_time():
    fit = calibrated(SHAPE, A100, few=2e-3, many=1e-3)
    assert min(fit) >= 0 and seconds(fit, FEW) > 0


@pytest.mark.parametrize("share", [-0.25, 0.0, 0.4, 1.0])
def test_what_messages_do_not_show_is_found_again(share):
    one, fit = Plan(p=2, b=2), calibrated(SHAPE, A100, few=2e-3, many=3e-3)
    took = step(SHAPE, one, 32, A100, fit, OURS._replace(messages=share)).total
    assert math.isclose(hidden(SHAPE, one, 32, A100, fit, float(took)), share, abs_tol=1e-9)


def test_a_microbatch_has_so_many_sequences_of_the_models_length():
    class Noted(torch.nn.Linear):
        def forward(self, tokens):
            seen.append(tuple(tokens.shape))
            return self.weight.sum() + torch.zeros(*tokens.shape, SHAPE.vocabulary)

    seen, model = [], Noted(1, 1)
    _microbatch(model, SHAPE, 3)()
    assert seen == [(3, SHAPE.context)] and model.weight.grad is not None


def test_what_is_done_many_times_between_two_looks_at_the_clock_is_told_of_one(monkeypatch):
    done, clock = [], lambda device: lambda: 0.25 * len(done)
    monkeypatch.setattr(timed, "own_clock", clock)
    assert timed.least(lambda: done.append(1), torch.device("cpu"), repeat=2, times=4) == 0.25


@pytest.mark.long
@pytest.mark.ranks
def test_this_machine_has_rates_and_plans_run_on_it():
    kind, fit, software = here(SHAPE, count=2)
    assert kind.node == 2 and 1e8 < kind.peak < 1e13 and 1e8 < kind.bandwidth < 1e12 and kind.memory > 2**27
    assert 1e6 < kind.inside == kind.across and 0 <= kind.latency[0] < 1 and set(kind.sources) >= {"peak", "memory"}
    plans = [Plan(d=2, b=2), Plan(p=2, b=2), Plan(t=2, b=2)]
    assert all(float(step(SHAPE, one, 8, kind, fit, software).total) > 0 for one in plans)
    times = in_turns(plans, SHAPE, batch=8, rounds=2)
    assert [len(one) for one in times] == [2, 2, 2] and all(0 < t < 60 for one in times for t in one)
