"""Expert parallelism: equal to one device beside every other mode, every byte claimed; bugs that shipped, caught."""

from dataclasses import replace

import pytest
import torch
from few import one_in

import hybridlab as hl
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.modes import expert_parallel
from hybridlab.modes.parts import dispatch
from hybridlab.predict.bytes.experts import DISPATCH
from hybridlab.runtime import tallies
from hybridlab.training.models.experts import Router

pytestmark = pytest.mark.ranks
SMALL = Shape(layers=2, width=16, heads=2, context=7, experts=5, chosen=2, inner=24, dropout=0.1)
SLOTS = replace(SMALL, routing=Routing(capacity=1.0))
DEEP = replace(SMALL, layers=4, experts=4, shared=1)
FINE = replace(SMALL, style="llama", experts=7, chosen=3, inner=8, shared=2, routing=Routing("sigmoid", balance="bias"))
PUSHED = replace(SMALL, routing=Routing(balance="loss", pace=0.5))
ADAM = {"optimizer": "adamw", "rate": 0.01, "clip": 0.1}
WITH = [  # mesh, what else is asked; a quick one for each way to dispatch
    (hl.Mesh(ep=2), {}),
    (hl.Mesh(ep=2), {"model": SLOTS}),
    (hl.Mesh(dp=2, ep=2, pp=2), {"zero": 2, **ADAM}),
    (hl.Mesh(ep=3), {"batch": 8}),
    (hl.Mesh(ep=4), {"batch": 8, "model": FINE}),
    (hl.Mesh(ep=2), {"model": PUSHED}),
    (hl.Mesh(ep=3), {"batch": 8, "model": SLOTS}),
    (hl.Mesh(ep=2, pp=2), {}),
    (hl.Mesh(ep=2, pp=2), {"schedule": "zb_h1"}),
    (hl.Mesh(ep=2, pp=2), {"schedule": "dualpipe_v", "microbatches": 4, "model": DEEP}),
    (hl.Mesh(pp=2, ep=2), {"schedule": "interleaved", "chunks": 2, "model": DEEP}),
    (hl.Mesh(dp=2, ep=2), {"zero": 1, "model": replace(DEEP, routing=Routing(balance="bias", pace=0.5))}),
    (hl.Mesh(dp=2, ep=2), {"zero": 2}),
    (hl.Mesh(dp=2, ep=2), {"zero": 3, "accumulate": 2}),
    (hl.Mesh(ep=2, cp=2), {}),
    (hl.Mesh(ep=2, cp=2), {"attend": "ring", "zigzag": True, "model": replace(PUSHED, context=8)}),
    (hl.Mesh(ep=2, tp=2), {"model": DEEP}),
    (hl.Mesh(ep=2, tp=2), {"sequence": True, "model": DEEP}),
    (hl.Mesh(ep=2), {"schedule": hl.schedule("gpipe", 1, 2, recompute="always")}),
    (hl.Mesh(ep=2), {"dtype": "bfloat16", "model": FINE}),
    (hl.Mesh(dp=2, ep=2, pp=2), {"zero": 1, "schedule": "zb_h1", "model": SLOTS, **ADAM}),
]
CASES = [
    pytest.param(
        way, mesh, more, marks=() if number == 2 * (way != DISPATCH[0]) else pytest.mark.long, id=f"{way} {number}"
    )
    for way in DISPATCH
    for number, (mesh, more) in enumerate(WITH)
]


@pytest.mark.parametrize("way, mesh, more", CASES)
def test_it_trains_as_one_device_does_and_every_byte_is_claimed(bench, way, mesh, more):
    report = bench.asked(mesh, **{"model": SMALL, "microbatches": 2, "dispatch": way} | more)
    assert report.ok, report
    assert report.bytes["inside stages, along ep"][0] > 0


@pytest.mark.long
@pytest.mark.parametrize("mesh, more", [(hl.Mesh(dp=2), {}), (hl.Mesh(cp=2), {}), (hl.Mesh(tp=2), {"sequence": True})])
def test_experts_that_stay_on_every_rank_need_no_mode(bench, mesh, more):
    report = bench.asked(mesh, model=replace(DEEP, routing=Routing(balance="loss")), microbatches=2, **more)
    assert report.ok, report


def test_experts_without_tokens_train_as_on_one_device(bench):
    """Nine experts of which a token takes one: of 14 tokens on a rank, most go nowhere near the last ones."""
    for way in DISPATCH:
        shape = replace(SMALL, experts=29, chosen=1, context=3)
        report = bench.asked(hl.Mesh(ep=2), model=shape, microbatches=2, dispatch=way)
        assert report.ok, report


def dropped(comm, job, way):
    """Which choices of this rank's tokens find no room, told by the router of the first block."""
    from hybridlab.training.loop import Trainer

    found = []
    plain = Router.forward
    Router.forward = lambda self, x: found.append(plain(self, x)) or found[-1]
    trainer = Trainer(comm, job)
    trainer.gradients(0)
    Router.forward = plain
    return [(chosen == job.sizes["E"]).tolist() for chosen, _ in found]


@pytest.mark.long
@pytest.mark.parametrize("way", DISPATCH)
def test_the_same_tokens_are_dropped_as_on_one_device(way):
    from hybridlab.training.make_job import job_of

    drops = {}
    for ranks in (1, 2, 4):
        cut = {"dispatch": way} if ranks > 1 else {}
        mesh = hl.Mesh(ep=ranks) if ranks > 1 else hl.Mesh(pp=1)
        job = job_of(mesh, microbatches=1, batch=4, shape=SLOTS, dtype="float64", **cut)
        with hl.ranks(mesh) as pool:
            homes = pool.run(dropped, job, way)
        blocks = zip(*homes)
        drops[ranks] = [[row for rank in block for row in rank] for block in blocks]
    assert drops[1] == drops[2] == drops[4]
    assert any(any(one) for block in drops[1] for row in block for one in row)


# ---- the bugs that shipped


def divided_by_the_ranks():
    """Experts' gradients are divided by ep, as if they had been averaged over ranks that hold them."""
    plain = expert_parallel.ExpertParallel.fit

    def fit(self, module, comm, job):
        plain(self, module, comm, job)
        for name, weight in module.named_parameters():
            if ".experts." in name and not weight.is_meta:
                weight.register_hook(lambda g: g / job.mesh["ep"])

    expert_parallel.ExpertParallel.fit = fit


def weights_outside_the_graph():
    """What the router weighed with has no gradient: the loss is right, and the router never learns."""
    plain = dispatch.combine
    dispatch.combine = lambda y, order, weights: plain(y, order, weights.detach())


def not_sorted():
    """Rows that came rank by rank are taken as if they were expert by expert."""
    dispatch.by_expert = lambda counts_RE: torch.arange(int(counts_RE.sum()))


def not_sent_home():
    """Rows go home in the order in which experts made them."""
    plain = torch.Tensor.argsort
    torch.Tensor.argsort = lambda self, **more: plain(self, **more) if more else torch.arange(len(self))


def own_loads():
    """Each rank balances by the loads that it has seen itself: a mean of means."""
    tallies.settle = lambda comm, layout, layers: [layer.settle() for layer in layers.values()]


MUTANTS = [
    (divided_by_the_ranks, SMALL),
    (weights_outside_the_graph, SMALL),
    (not_sorted, SMALL),
    (not_sent_home, SMALL),
    (own_loads, replace(SMALL, routing=Routing(balance="bias", pace=0.5))),
    (own_loads, replace(SMALL, routing=Routing(balance="loss", pace=5.0))),
]


@pytest.mark.parametrize(
    "mutant, shape", one_in(3, MUTANTS), ids=[f"{one.__name__} {shape.routing.balance}" for one, shape in MUTANTS]
)
def test_a_mutant_is_caught(mutant, shape):
    report = hl.check(hl.Mesh(ep=2), model=shape, microbatches=1, sabotage=mutant)
    assert not report.ok and report.largest_gap > 1e-6


@pytest.mark.parametrize(
    "words, mesh, more",
    [
        ("this model has none: leave out ep", hl.Mesh(ep=2), {"model": Shape()}),
        ("this model has none", hl.Mesh(ep=2), {"model": "conv"}),
        ("cannot distribute 5 experts: choose ep up to 5", hl.Mesh(ep=6), {"model": SMALL, "batch": 12}),
        ("cannot distribute 2 rows of a microbatch", hl.Mesh(ep=4), {"model": SMALL}),
        ("there is no dispatch 'mail'", hl.Mesh(ep=2), {"model": SMALL, "dispatch": "mail"}),
        ("shards the width, but experts need full tokens", hl.Mesh(ep=2, x=2), {"model": SMALL}),
        ("shards the width, but experts need full tokens", hl.Mesh(x=2), {"model": SMALL}),
        ("leave out capacity", hl.Mesh(ep=2, cp=2), {"model": SLOTS}),
        ("leave out capacity", hl.Mesh(tp=2), {"model": SLOTS, "sequence": True}),
    ],
)
def test_what_cannot_be_shared_out_is_refused_in_a_sentence(words, mesh, more):
    with pytest.raises((ValueError, hl.RankError), match=words):
        hl.check(mesh, **more)


GO_ON = {
    "one process": (hl.Mesh(pp=1), {}),
    "ep=4": (hl.Mesh(ep=4), {}),
    "ep=3, zero=1": (hl.Mesh(dp=2, ep=3), {"zero": 1}),
    "dp=2, zero=3": (hl.Mesh(dp=2, pp=2), {"zero": 3}),
}


@pytest.mark.long
@pytest.mark.parametrize("name", GO_ON)
def test_a_checkpoint_goes_on_with_other_ranks_for_the_experts(tmp_path, name):
    """Weights, Adam's state, and the biases that balance."""
    mesh, more = GO_ON[name]
    shape = replace(SMALL, layers=2, routing=Routing(balance="bias", pace=0.1))
    about = {
        "batch": 24,
        "shape": shape,
        "optimizer": "adamw",
        "rate": 1e-2,
        "dtype": "float64",
        "progress": False,
    } | more
    runs = lambda mesh, steps, **more: hl.train(mesh, steps=steps, **about | more)["losses"]
    first = {"microbatches": 3, "zero": 0}
    whole = runs(hl.Mesh(ep=2), 6, **first)
    runs(hl.Mesh(ep=2), 3, checkpoint=tmp_path, **first)
    went_on = runs(mesh, 6, checkpoint=tmp_path, resume=True, microbatches=3 // mesh["dp"])
    assert went_on == pytest.approx(whole[3:], rel=1e-10) and len(went_on) == 3
