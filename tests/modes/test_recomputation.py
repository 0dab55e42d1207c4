"""Recomputation: gradients are those of one device, less is kept, and what is sent twice is counted twice; mutants."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from few import first

import hybridlab as hl
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.seams import Draws
from hybridlab.core.what.shape import Shape
from hybridlab.modes import recomputation
from hybridlab.modes.recomputation import again
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.scheduling.dispatched import dispatched

SMALL = Shape(layers=4, width=16, heads=4, context=8, dropout=0.1)
ROUTED = replace(SMALL, experts=4, chosen=2, routing=Routing(balance="bias"))
CHUNKED = {"schedule": "interleaved", "chunks": 2}
WITH = [  # mesh, what else is asked; the first is quick
    (hl.Mesh(pp=2), {}),
    (hl.Mesh(tp=2), {}),
    (hl.Mesh(cp=2), {"attend": "ring"}),
    (hl.Mesh(dp=2, pp=2, tp=2), {"zero": 1, "sequence": True}),
    (hl.Mesh(pp=2, tp=2), {"scatter": True}),
    (hl.Mesh(dp=2), {"zero": 3}),
    (hl.Mesh(cp=2, pp=2), {}),
    (hl.Mesh(cp=2), {"attend": "ulysses"}),
    (hl.Mesh(x=2, tp=2), {}),
    (hl.Mesh(ep=2, pp=2), {"shape": ROUTED}),
    (hl.Mesh(pp=2), CHUNKED | {"shape": replace(SMALL, skips=True)}),
    (hl.Mesh(pp=2), {"driven": True}),
    (hl.Mesh(dp=2, pp=2), {"dtype": "bfloat16", "zero": 2}),
]
HOW = ("selective", "full")


def about(mesh, more):
    return " ".join([*(f"{axis}{length}" for axis, length in mesh.axes.items()), *map(str, more)])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    "mesh, more",
    [pytest.param(*one, id=about(*one), marks=[pytest.mark.long] * (place > 0)) for place, one in enumerate(WITH)],
)
@pytest.mark.ranks
def test_gradients_are_those_of_one_device(mesh, more, how):
    report = hl.check(mesh, **{"shape": SMALL} | more, recompute=how)
    assert report.ok and report.largest_gap < (1e-2 if "dtype" in more else 1e-11), report


@pytest.mark.ranks
@pytest.mark.parametrize("model", first(1, ["conv", "unet"]))
def test_anyones_layers_are_done_again_and_count_once(model):
    report = hl.check(hl.Mesh(pp=2), model=model, recompute="full")
    assert report.ok and report.largest_gap < 1e-11, report


def test_a_layer_may_take_a_tuple_and_hand_on_two_things():
    do = lambda pair, x: (pair[0] * x, pair[1], pair[0].argmax())
    left, right, x = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    product, same, place = again(do, Draws())((left, right), x)
    assert not place.requires_grad
    (product.sum() + 2 * same.sum()).backward()
    assert (
        torch.equal(left.grad, x) and torch.equal(x.grad, left) and torch.equal(right.grad, torch.full_like(right, 2))
    )


def test_a_layer_without_weights_that_reads_the_batch_has_nothing_to_give_back():
    batch, weight = torch.ones(2, 3), torch.ones(3, requires_grad=True)
    (again(torch.flatten, Draws())(batch).view(2, 3) * weight).sum().backward()
    assert batch.grad is None and weight.grad.tolist() == [2, 2, 2]


@pytest.mark.slow
def test_less_is_kept():
    long = replace(SMALL, width=32, context=64)
    kept = {how: hl.dry_run(hl.Mesh(pp=2), model=long, recompute=how).peak["activations"] for how in RECOMPUTE}
    assert kept["selective"] < kept["none"] and kept["full"] < 0.1 * kept["none"]


REFUSED = [
    ({"schedule": "zb_h1", "recompute": "full"}, "choose 1f1b"),
    ({"schedule": hl.schedule("gpipe", 2, 4, recompute="always"), "recompute": "full"}, "leave out recompute"),
    ({"schedule": "pipedream", "recompute": "full"}, "updates its weights before the recomputation"),
    ({"model": "conv", "recompute": "selective"}, "choose 'full'"),
    (
        {"schedule": dispatched(hl.schedule("1f1b", 2, 4)), "model": replace(ROUTED, layers=2), "recompute": "full"},
        "1f1b with experts splits a block into three stages",
    ),
    ({"device_memory": 0.5, "recompute": "full"}, "give make_room='recompute'"),
    ({"recompute": "some"}, "choose one of none, selective, full"),
]


@pytest.mark.parametrize("more, sentence", REFUSED)
def test_what_cannot_be_done_again_is_refused(more, sentence):
    with pytest.raises(ValueError, match=sentence):
        hl.dry_run(hl.Mesh(pp=2), **more)


def _draws_go_on():
    recomputation._at = lambda draws, row: nullcontext()


def _gradient_twice():
    backward = recomputation.Again.backward
    doubled = lambda found: (*found[:3], *(2 * x for x in found[3:]))
    recomputation.Again.backward = staticmethod(lambda ctx, *gradients: doubled(backward(ctx, *gradients)))


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", first(1, [_draws_go_on, _gradient_twice]))
def test_mutants_are_caught(mutant):
    report = hl.check(hl.Mesh(pp=2), shape=SMALL, recompute="full", sabotage=mutant)
    assert not report.ok


@pytest.mark.ranks
def test_a_formula_that_forgets_what_is_sent_twice_is_caught(monkeypatch):
    monkeypatch.setattr(recomputation.Recomputation, "repeats", lambda *_: False)
    report = hl.check(hl.Mesh(tp=2), shape=SMALL, recompute="full")
    assert not report.ok and report.largest_gap < 1e-11
