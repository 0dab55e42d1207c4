"""Experts on one device: against every token through every expert, one after the other; routing, balance, capacity."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.modes.parts.token_order import in_order, loads
from hybridlab.training.models.experts import Many, with_room
from hybridlab.training.models.gpt import GPT
from hybridlab.training.models.modern import Modern

DOUBLE = torch.float64
SMALL = Shape(layers=1, width=8, heads=2, context=6, experts=5, chosen=2, inner=12)
KINDS = {"gpt": GPT, "llama": Modern}


def layer(shape: Shape):
    """The experts of a block, with numbers large enough that scores differ, and biases that are not 0."""
    made = KINDS[shape.style](shape, dtype=DOUBLE).blocks[0].mlp
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn(weight.shape, dtype=DOUBLE, generator=draw))
    return made


def tokens(shape, rows=3):
    draw = torch.Generator().manual_seed(2)
    return torch.randn(rows, shape.context, shape.width, dtype=DOUBLE, generator=draw).requires_grad_()


def one_expert(many, number, x):
    """What one of the experts makes, written by hand."""
    through = lambda layer, x: x @ layer.weight[number].T + (0 if layer.bias is None else layer.bias[number])
    if hasattr(many, "gate"):
        return through(many.down, functional.silu(through(many.gate, x)) * through(many.up, x))
    return through(many.down, functional.gelu(through(many.up, x)))


def densely(made, shape, x_BTD, kept=None):
    """Every token through all experts; what it did not choose counts 0."""
    logits = x_BTD @ made.router.weight.T
    scores = logits.softmax(-1) if shape.routing.scores == "softmax" else logits.sigmoid()
    best = scores.detach().sort(-1, descending=True).indices[..., : shape.chosen]
    mask = torch.zeros_like(scores).scatter(-1, best, 1.0)
    weights = scores * mask
    if shape.routing.normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights if kept is None else weights * kept
    out = sum(weights[..., e, None] * one_expert(made.experts, e, x_BTD) for e in range(shape.experts))
    return sum((mlp(x_BTD) for mlp in made.shared), out)


CASES = [
    SMALL,
    replace(SMALL, style="llama"),
    replace(SMALL, shared=2),
    replace(SMALL, chosen=1, routing=Routing(normalised=False)),
    replace(SMALL, chosen=3, routing=Routing(scores="sigmoid")),
    replace(SMALL, style="llama", shared=1, routing=Routing(scores="sigmoid", normalised=False)),
]


@pytest.mark.parametrize("shape", CASES, ids=range(len(CASES)))
def test_tokens_in_the_order_of_their_experts_are_every_token_through_every_expert(shape):
    made, x_BTD = layer(shape), tokens(shape)
    both = []
    for out in (made(x_BTD), densely(made, shape, x_BTD)):
        wanted = x_BTD, *made.parameters()
        gradients = torch.autograd.grad(out.square().sum(), wanted)
        both.append((out, *gradients))
    for one, other in zip(*both):
        assert (one - other).abs().max() <= 1e-12 * other.abs().max()


@pytest.mark.slow
def test_parameters_are_counted_and_named():
    for shape in CASES:
        model = KINDS[shape.style](replace(shape, layers=2))
        assert sum(weight.numel() for weight in model.parameters()) == replace(shape, layers=2).parameters
        for name, weight in model.named_parameters():
            letters = shape.dims(name).split()
            assert len(letters) == weight.dim(), name
            assert ("E" in letters) == (".experts." in name)


def test_an_expert_without_tokens_has_the_gradient_0_and_not_none():
    made, x_BTD = layer(replace(SMALL, chosen=1)), tokens(SMALL)
    with torch.no_grad():
        made.router.weight.zero_()
        made.router.weight[3] = 1.0
        x_BTD.abs_()
    made(x_BTD).sum().backward()
    for name, weight in made.experts.named_parameters():
        assert weight.grad is not None and not weight.grad[[0, 1, 2, 4]].any() and weight.grad[3].any(), name


def by_hand(chosen, experts, slots):
    """First choices first, in the order of their positions."""
    kept, taken = {}, [0] * experts
    for choice in range(len(chosen[0])):
        for position, choices in enumerate(chosen):
            expert = choices[choice]
            kept[position, choice] = expert if taken[expert] < slots else experts
            taken[expert] += 1
    return [[kept[position, choice] for choice in range(len(chosen[0]))] for position in range(len(chosen))]


@pytest.mark.slow
@given(st.data())
def test_who_finds_no_room_is_dropped(data):
    experts, chosen, positions = (
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 6)),
    )
    some = st.lists(st.integers(0, experts - 1), min_size=chosen, max_size=chosen)
    rows = data.draw(st.lists(st.lists(some, min_size=positions, max_size=positions), min_size=1, max_size=3))
    slots = data.draw(st.integers(1, 4))
    right = [by_hand(row, experts, slots) for row in rows]
    assert with_room(torch.tensor(rows), experts, slots).tolist() == right
    order, counts = in_order(torch.tensor(right).flatten(0, 1), experts)
    flat = torch.tensor(right).flatten()
    assert flat[order].tolist() == sorted(one for one in flat.tolist() if one < experts)
    assert counts.tolist() == [flat.tolist().count(one) for one in range(experts)] == loads(flat, experts).tolist()


@pytest.mark.parametrize("capacity", [0.5, 1.0, 1.5, 100.0])
def test_what_a_full_expert_drops_goes_through_the_others_alone(capacity):
    shape = replace(SMALL, routing=Routing(capacity=capacity))
    made, x_BTD = layer(shape), tokens(shape)
    slots = min(shape.context, math.ceil(capacity * shape.context * shape.chosen / shape.experts))
    scores = (x_BTD @ made.router.weight.T).softmax(-1)
    chosen = scores.topk(shape.chosen).indices
    kept = torch.stack([torch.tensor(by_hand(row, shape.experts, slots)) for row in chosen.tolist()])
    mask = functional.one_hot(kept, shape.experts + 1).sum(2)[..., :-1]
    assert (made(x_BTD) - densely(made, shape, x_BTD, kept=mask)).abs().max() < 1e-12
    assert (kept == shape.experts).any() == (capacity < 100)


def test_a_capacity_counts_whole_sequences():
    made = layer(replace(SMALL, routing=Routing(capacity=1.0)))
    with pytest.raises(ValueError, match="only 4 of 6 positions are on this rank: leave out capacity, or do not"):
        made(tokens(SMALL)[:, :4])


def test_the_loss_that_balances_is_the_one_of_the_paper_with_the_loads_of_the_step_before():
    """α·E·Σ fᵢ·Pᵢ, fᵢ the share of the step before, Pᵢ the mean score of this one: its gradient, by autograd."""
    shape = replace(SMALL, routing=Routing(balance="loss", pace=0.7))
    made, x_BTD = layer(shape), tokens(shape)
    made(x_BTD)
    chosen = (x_BTD @ made.router.weight.T).softmax(-1).topk(shape.chosen).indices
    made.router.settle()
    assert not made.router.tally.any()
    f_E = torch.bincount(chosen.flatten(), minlength=shape.experts).double() / chosen.numel()
    plain = torch.autograd.grad(densely(made, shape, x_BTD).sum(), made.router.weight)[0]
    P_E = (x_BTD @ made.router.weight.T).softmax(-1).mean((0, 1))
    loss = 0.7 * shape.experts * (f_E * P_E).sum()
    extra = torch.autograd.grad(loss, made.router.weight)[0]
    found = torch.autograd.grad(made(x_BTD).sum(), made.router.weight)[0]
    assert (found - plain - extra).abs().max() < 1e-12 and extra.abs().max() > 1e-4


def test_a_bias_moves_against_the_load_and_changes_no_weight():
    shape = replace(SMALL, routing=Routing(balance="bias", pace=0.25))
    made, x_BTD = layer(shape), tokens(shape)
    made(x_BTD)
    load = made.router.tally.clone()
    made.router.settle()
    assert made.router.bias.tolist() == (0.25 * (load.mean() - load).sign()).tolist()
    made.router.bias[2] = 100.0
    chosen, weights = made.router(x_BTD)
    assert (chosen[..., 0] == 2).all()
    scores = (x_BTD @ made.router.weight.T).softmax(-1).gather(-1, chosen)
    assert (weights - scores / scores.sum(-1, keepdim=True)).abs().max() < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("balance", ["loss", "bias"])
def test_balance_evens_out_the_loads(balance):
    """A router that prefers one expert is brought back within some steps of training nothing else."""
    shape = replace(SMALL, routing=Routing(balance=balance, pace=0.005 if balance == "bias" else 0.1), context=64)
    made, x_BTD = layer(shape), tokens(shape).detach() / 4 + 0.5
    with torch.no_grad():
        made.router.weight.mul_(0.2)
        made.router.weight[0] += 0.1
    spread = []
    for _ in range(120):
        made.router.weight.grad = None
        chosen, weights = made.router(x_BTD)
        (0 * weights.sum()).backward()
        spread.append((loads(chosen, shape.experts).max() / loads(chosen, shape.experts).mean()).item())
        with torch.no_grad():
            made.router.weight -= made.router.weight.grad
        made.router.settle()
    assert spread[-1] < 0.8 * spread[0] and spread[-1] < 1.3


def test_evaluation_and_forwards_without_a_backward_count_nothing():
    made, x_BTD = layer(SMALL), tokens(SMALL)
    with torch.no_grad():
        made(x_BTD)
    made.router.draws.on = False
    made(x_BTD)
    assert not made.router.tally.any()


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Routing(scores="best"), "scores='best' is not known: choose one of softmax, sigmoid"),
        (lambda: Routing(balance="luck"), "balance='luck' is not known"),
        (lambda: Routing(capacity=0), "capacity=0 is not a positive finite number"),
        (lambda: Shape(shared=1), "shared=1 needs routed experts too"),
        (lambda: Shape(routing=Routing(capacity=1.5)), "capacity, balance, pace and scores need several experts"),
        (lambda: Shape(experts=2, chosen=3), "chosen=3 is more than the 2 experts"),
    ],
)
def test_bad_sizes_end_in_one_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_many_is_a_linear_layer_for_each_expert():
    many, x = Many(3, 4, 5).to(DOUBLE), torch.randn(6, 4, dtype=DOUBLE)
    with torch.no_grad():
        many.weight.normal_(), many.bias.normal_()
    parts = [
        functional.linear(x[a:b], many.weight[e], many.bias[e]) for e, (a, b) in enumerate([(0, 2), (2, 2), (2, 6)])
    ]
    assert torch.equal(many(x, [2, 0, 4]), torch.cat(parts))
