"""Experts cut along tp: equal to one device on a whole and on a cut stream, every byte claimed; mutants are caught."""

from dataclasses import replace

import pytest
import torch

import hybridlab as hl
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.modes.parts import cut_experts
from hybridlab.scheduling.dispatched import dispatched
from hybridlab.training.make_job import job_of

pytestmark = pytest.mark.ranks
SMALL = Shape(layers=2, width=16, heads=2, context=7, experts=5, chosen=2, inner=23, dropout=0.1)
DEEP = replace(SMALL, layers=4, shared=1, routing=Routing(balance="bias", pace=0.5))
LLAMA = replace(SMALL, style="llama", context=8)
SLOTS = replace(SMALL, routing=Routing(capacity=1.0))
CASES = [  # the first is quick
    (hl.Mesh(tp=2), {}),
    (hl.Mesh(tp=2), {"sequence": True}),
    (hl.Mesh(ep=2, tp=2), {"sequence": True, "model": DEEP, "zero": 1}),
    (hl.Mesh(ep=2, tp=2), {"model": DEEP, "sums": "each"}),
    (hl.Mesh(ep=2, tp=2), {"dispatch": "all_gather", "sequence": True, "recompute": "full"}),
    (hl.Mesh(ep=2, tp=2), {"dispatch": "all_gather", "model": LLAMA}),
    (hl.Mesh(tp=2), {"model": SLOTS}),
    (hl.Mesh(ep=2, tp=2), {"model": SLOTS}),
    (hl.Mesh(cp=2, ep=2, tp=2), {"model": LLAMA, "sequence": True, "zero": 3}),
    (hl.Mesh(pp=2, tp=2, ep=2), {"schedule": "gpipe", "sequence": True}),
    (hl.Mesh(pp=2, tp=2), {"scatter": True, "schedule": "interleaved", "chunks": 2, "model": DEEP}),
    (hl.Mesh(dp=2, tp=4), {"model": replace(SMALL, heads=4), "optimizer": "adamw", "rate": 0.01, "clip": 0.1}),
]


@pytest.mark.parametrize(
    "mesh, more", [pytest.param(*one, marks=[pytest.mark.long] * (at > 0), id=str(at)) for at, one in enumerate(CASES)]
)
def test_it_trains_as_one_device_does_and_every_byte_is_claimed(bench, mesh, more):
    report = bench.asked(mesh, **{"model": SMALL, "microbatches": 2} | more)
    assert report.ok, report


def test_a_rank_has_its_hidden_units_of_every_expert():
    layout = job_of(hl.Mesh(tp=2), model=SMALL).layout
    held = {name: layout.box(name, 1) for name in layout.named if ".experts." in name and "blocks.0" in name}
    assert [box[1] for name, box in held.items() if "up" in name] == [slice(12, 23)] * 2
    assert held["blocks.0.mlp.experts.down.weight"][2] == slice(12, 23)
    assert layout["blocks.0.mlp.experts.down.bias"].partial[-1] == "tp"


def test_all_to_alls_between_layers_are_refused():
    schedule, one = dispatched(hl.schedule("1f1b", 1, 2)), replace(SMALL, layers=1)
    with pytest.raises(ValueError, match="has its all-to-alls between layers, where tokens are not sharded"):
        hl.check(hl.Mesh(tp=2), schedule=schedule, model=one)


# ---- mutants


def every_rank_adds_the_biases():
    plain = cut_experts.cut

    def cut(layer, comm, sequence):
        plain(layer, comm, sequence)
        layer.experts.down.share = 1

    cut_experts.cut = cut


def nothing_is_entered():
    cut_experts.enter = lambda comm, x, axis: x


def weights_are_not_entered():
    plain = cut_experts.enter
    cut_experts.enter = lambda comm, x, axis: x if x.shape[1] == SMALL.chosen else plain(comm, x, axis)


def not_sorted():
    cut_experts.by_expert = lambda counts_RE: torch.arange(int(counts_RE.sum()))


def own_summand_alone():
    plain = torch.Tensor.repeat
    torch.Tensor.repeat = lambda self, *sizes: plain(self, *sizes) * 0 if sizes == (2, 1) else plain(self, *sizes)


MUTANTS = [  # the first is quick
    (every_rank_adds_the_biases, False),
    (every_rank_adds_the_biases, True),
    (nothing_is_entered, False),
    (weights_are_not_entered, False),
    (own_summand_alone, True),
    (not_sorted, True),
]


@pytest.mark.parametrize(
    "mutant, sequence",
    [pytest.param(*one, marks=[pytest.mark.long] * (at > 0)) for at, one in enumerate(MUTANTS)],
)
def test_a_mutant_is_caught(mutant, sequence):
    report = hl.check(hl.Mesh(tp=2), model=SMALL, microbatches=1, sequence=sequence, sabotage=mutant)
    assert not report.ok and report.largest_gap > 1e-6
