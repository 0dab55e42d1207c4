"""What students build, beside the facts that the notebooks tell about it."""

import pytest
import torch

import hybridlab as hl
from hybridlab.labs.asynchronous.rank import RULES, replay, version_of
from hybridlab.labs.engine.case import Case, lists
from hybridlab.labs.megatron import clinic, layers, vocabulary
from hybridlab.labs.zero_bubble import without_autograd


@pytest.mark.slow
def test_torch_makes_a_whole_backward_of_an_i_and_its_w():
    from torch.distributed.pipelining.schedules import I, W, _Action, _merge_bw

    merge = lambda *actions: [str(one) for one in _merge_bw(list(actions))]
    assert merge(_Action(1, I, 3), _Action(1, W, 3)) == ["1B3"]
    assert merge(_Action(1, I, 3), _Action(1, W, 2)) == ["1I3", "1W2"]


@pytest.mark.slow
def test_the_products_of_a_stage_add_up_to_its_gradients():
    right = without_autograd.one_device(stages=3, count=4)
    for number, gradients in enumerate(right):
        found = without_autograd.products(number, stages=3, count=4)
        assert [sum(one.kind == kind for one in found) for kind in "FIW"] == [8, 8, 8]
        halves = [one.result for one in found if one.kind == "W"]  # of each microbatch the last layer first
        for layer, wanted in enumerate(gradients):
            torch.testing.assert_close(sum(halves[1 - layer :: 2]), wanted)


def test_products_are_told_apart():
    """No product of another microbatch, layer or kind looks like one: what is recognised is what was computed."""
    found = without_autograd.products(1, stages=3, count=6)
    for one in found:
        assert [other is one for other in found if without_autograd.alike(one.result, other.result)] == [True]


@pytest.mark.parametrize("ranks, count", [(3, 8), (2, 5), (4, 8)])
def test_versions_met_are_those_of_the_schedule_pipedream(ranks, count):
    """A list of 1F1B, with an update after every B, meets the versions that PipeDream's schedule states."""
    stated = hl.schedule("pipedream", ranks=ranks, microbatches=count)
    for rank, program in enumerate(lists("1f1b", ranks, count)):
        its = {action.microbatch: action.version for action in stated.program[rank] if action.kind == "F"}
        assert {k: version_of(program, k) for k in range(count)} == its


@pytest.mark.slow
def test_replays_by_other_rules_end_elsewhere():
    """Each rule that a mutant is recognised by gives weights of its own; with a flush nothing is old."""
    ends = [replay(Case("1f1b", 3, 8), rule)[0][0] for rule in RULES]
    assert not any(torch.equal(a, b) for i, a in enumerate(ends) for b in ends[:i])
    flushed = Case("naive", 3, 4)
    assert torch.equal(replay(flushed)[0][0], replay(flushed, "from the version")[0][0])


def test_targets_lie_in_every_shard_at_its_ends_too():
    _, targets = vocabulary.drawn()
    for ranks in (2, 4):
        length = vocabulary.VOCABULARY // ranks
        for first in range(0, vocabulary.VOCABULARY, length):
            assert {first, first + length - 1} <= set(targets.tolist())


@pytest.mark.ranks
def test_the_clinic_shows_what_it_says():
    with hl.ranks(2) as pool:
        broken, off = pool.run(clinic.symptoms, clinic.clip), pool.run(clinic.symptoms, None)
    (losses, biases), (others, other_biases) = broken
    assert losses[0] == pytest.approx(clinic.alone()[0]) and biases != other_biases
    assert abs(losses[1] - clinic.alone()[1]) > 0.1 and losses[1] != others[1]
    assert off[0] == off[1] and off[0][0] == pytest.approx(clinic.alone(most=None))


def test_gradients_of_the_mlp_are_the_equations_of_the_picture():
    """∂H = ∂Z·Bᵀ, ∂Y = ∂H ⊙ GELU′, ∂x = ∂Y·Aᵀ, and ∂A = xᵀ·∂Y, which needs no ∂x."""
    whole, _, x_grad = layers.one_process()
    x, z_grad = layers.given()
    y = (x @ whole[0].weight.T + whole[0].bias).detach().requires_grad_()
    (slope,) = torch.autograd.grad(torch.nn.functional.gelu(y).sum(), y)
    y_grad = (z_grad @ whole[2].weight) * slope  # torch keeps Bᵀ and Aᵀ
    torch.testing.assert_close(y_grad @ whole[0].weight, x_grad)
    torch.testing.assert_close((x.T @ y_grad).T, whole[0].weight.grad)
