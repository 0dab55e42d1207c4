"""Folded experts, over ep, cp and tp: equal to one device, every byte claimed, 1/tp of the bytes; mutants."""

from dataclasses import replace

import pytest

import hybridlab as hl
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.modes.expert_parallel import ExpertParallel
from hybridlab.modes.parts import cut_experts
from hybridlab.modes.parts.dispatch import Way
from hybridlab.scheduling.dispatched import dispatched
from hybridlab.training.formulas import transfers
from hybridlab.training.make_job import job_of

SMALL = Shape(layers=2, width=16, heads=2, context=7, experts=9, chosen=2, inner=24, dropout=0.1)
LLAMA = replace(SMALL, style="llama", context=8, shared=1, routing=Routing("sigmoid", balance="bias", pace=0.5))
BOTH = hl.Mesh(ep=2, tp=2)
CASES = [  # the first two are quick
    (BOTH, {"sequence": True}),
    (BOTH, {}),
    (hl.Mesh(tp=2), {"sums": "each"}),
    (hl.Mesh(tp=3, ep=2), {"model": replace(SMALL, heads=3, width=15)}),  # 7 rows of tokens do not divide by 3
    (hl.Mesh(cp=2), {"model": LLAMA, "attend": "ring", "zigzag": True}),
    (hl.Mesh(ep=2, cp=2), {"zero": 3}),
    (hl.Mesh(dp=2, ep=2, tp=2), {"zero": 1, "sequence": True, "model": LLAMA}),
    (hl.Mesh(tp=2, dp=2, ep=2), {"zero": 3, "recompute": "full"}),
    (hl.Mesh(pp=2, ep=2, tp=2), {"schedule": "zb_h1", "sequence": True}),
    (hl.Mesh(pp=2, tp=2), {"schedule": "seq1f1b", "slices": 3}),
    (hl.Mesh(ep=2, cp=2, tp=2), {"model": LLAMA, "sequence": True}),
    (hl.Mesh(ep=2, cp=2, tp=2), {"model": LLAMA, "accumulate": 2, "optimizer": "adamw", "rate": 0.01, "clip": 0.1}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more", [pytest.param(*one, marks=[pytest.mark.long] * (at > 1), id=str(at)) for at, one in enumerate(CASES)]
)
def test_it_trains_as_one_device_does_and_every_byte_is_claimed(bench, mesh, more):
    report = bench.asked(mesh, **{"model": SMALL, "microbatches": 2, "fold": True} | more)
    assert report.ok and report.largest_gap < 1e-10, report


def test_all_to_alls_between_layers_are_refused_with_cp():
    one = replace(SMALL, layers=1, context=8, dropout=0.0)
    schedule = dispatched(hl.Schedule.from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1"))
    with pytest.raises(ValueError, match="where positions are not sharded: leave out cp"):
        job_of(hl.Mesh(ep=2, cp=2), schedule=schedule, model=one, fold=True, batch=8)


@pytest.mark.parametrize("ep, tp", [(2, 2), (4, 2), (2, 4)])
def test_tokens_cost_exactly_one_part_in_tp(ep, tp):
    form, counted = wire(ep, tp, fold=True)
    assert counted == pytest.approx(form)
    assert wire(ep, tp)[1] == pytest.approx(tp * form)


def wire(ep: int, tp: int, **more) -> tuple[float, float]:
    """Bytes of tokens that rank 0 sends in a step: (the closed form of folded experts, those that the job claims)."""
    shape = replace(SMALL, context=8, heads=4)
    job = job_of(hl.Mesh(ep=ep, tp=tp), model=shape, microbatches=2, batch=8, sequence=True, **more)
    found = [one for purpose in ("experts", "inside") for one in transfers(job)[purpose] if 0 in one.ranks]
    numbers = shape.layers * shape.chosen * 8 / ep * 8 / tp * shape.width  # of one pass over a step's tokens
    there_and_back, passes = 2, 2
    form = there_and_back * passes * numbers * job.widths.value * (1 - 1 / (ep * tp))
    return form, sum(one.sent for one in found if one.op == "all_to_all")


def test_a_rank_has_whole_experts_and_its_hidden_units_of_other_mlps():
    layout = job_of(BOTH, model=replace(SMALL, shared=1), fold=True, batch=8).layout
    assert layout.box("blocks.0.mlp.experts.up.weight", 1) == (slice(3, 5), slice(0, 24), slice(0, 16))
    assert layout.box("blocks.0.mlp.shared.0.up.weight", 1) == (slice(12, 24), slice(0, 16))
    held = {param.name: param.partial for param in layout.params if param.name.startswith("blocks.0.mlp")}
    assert not {"ep", "tp"} & {axis for name, axes in held.items() if ".experts." in name for axis in axes}
    assert held["blocks.0.mlp.router.weight"][-1] == "ep"
    other = job_of(hl.Mesh(tp=2, ep=2), model=SMALL, fold=True, batch=8)
    assert other.layout.box("blocks.0.mlp.experts.up.weight", 1)[0] == slice(3, 5), "places follow the mesh"


@pytest.mark.parametrize(
    "words, mesh, more",
    [
        ("ep·tp=4 cannot distribute 3 experts: choose ep·tp up to 3", BOTH, {"model": replace(SMALL, experts=3)}),
        ("fold=True distributes experts, but this model has none: leave out fold", hl.Mesh(tp=2), {"model": Shape()}),
        (
            "fold=True has no effect without tp or cp: give one of them",
            hl.Mesh(ep=2),
            {"model": SMALL},
        ),
        ("gathers full rows, and fold=True has parts of rows", BOTH, {"dispatch": "all_gather"}),
        (
            "leave out capacity, or cp, sequence and fold",
            BOTH,
            {"model": replace(SMALL, routing=Routing(capacity=1.0))},
        ),
        ("sharded along its width|experts need full tokens", hl.Mesh(x=2, tp=2), {"model": SMALL}),
    ],
)
def test_what_cannot_be_folded_is_refused_in_a_sentence(words, mesh, more):
    with pytest.raises(ValueError, match=words):
        job_of(mesh, **{"model": SMALL, "fold": True, "batch": 8} | more)


# ---- mutants: each is given a pytest.MonkeyPatch


def experts_added_over_tp(patch):
    """Gradients of experts are added over tp, as if its ranks had copies."""
    plain = ExpertParallel.fit

    def fit(self, module, comm, job):
        plain(self, module, comm, job)
        for name, weight in module.named_parameters():
            if ".experts." in name and not weight.is_meta:
                weight.register_hook(lambda g: comm.all_reduce(g.clone(), "tp") if g.shape[0] == 2 else g * 2)

    patch.setattr(ExpertParallel, "fit", fit)


def router_not_added(patch):
    """The router's gradient is taken for complete: each rank has that of its own tokens."""
    own = lambda param: (
        {"partial": tuple(axis for axis in param.partial if axis != "tp")} if "router" in param.name else {}
    )
    patch.setattr(ExpertParallel, "placed", lambda self, layout, job: layout.with_params(own))


def places_turned(patch):
    """A rank holds the experts of its place along tp+ep, and gets the tokens of those along ep+tp."""
    patch.setattr(ExpertParallel, "rules", lambda self, job: {"E": "tp+ep"})


def sent_by_every_rank(patch):
    """All ranks along tp send the same tokens: the loss is right, gradients are not."""
    patch.setattr(cut_experts, "fold", lambda layer, comm, sequence: None)


def gradients_of_all_outputs(patch):
    """The outputs that all ranks have are used by each of them for different work, it is said: gradients are added."""
    plain = cut_experts.all_gather
    patch.setattr(cut_experts, "all_gather", lambda *about, to, **more: plain(*about, to="R", **more))


def gradients_of_own_tokens(patch):
    """Of the gradient with respect to all tokens, only this rank's part is taken for what it is."""
    plain = cut_experts.split
    patch.setattr(cut_experts, "split", lambda *about, of, **more: plain(*about, of="R", **more))


MUTANTS = [  # the first two are quick
    (experts_added_over_tp, True),
    (sent_by_every_rank, False),
    (experts_added_over_tp, False),
    (router_not_added, True),
    (places_turned, True),
    (gradients_of_all_outputs, False),
    (gradients_of_own_tokens, False),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mutant, sequence",
    [pytest.param(*one, marks=[pytest.mark.long] * (at > 1)) for at, one in enumerate(MUTANTS)],
)
def test_a_mutant_is_caught(bench, mutant, sequence):
    about = {"model": replace(SMALL, experts=8), "microbatches": 1, "sequence": sequence, "fold": True}
    assert bench.right(BOTH, **about)
    report = bench.asked(BOTH, sabotage=mutant, **about)
    assert not report.ok and report.largest_gap > 1e-6


def test_hidden_units_cut_as_well_are_refused_by_the_layout(monkeypatch):
    monkeypatch.setattr(ExpertParallel, "leading", "")
    with pytest.raises(ValueError, match=r"experts.up.weight \(E F D\) would be sharded twice along tp"):
        job_of(BOTH, model=SMALL, fold=True)


def place_along_ep_only(patch):
    """A rank takes itself for the one with its place along ep, as if experts were not distributed over tp."""
    plain = Way.__init__

    def wrong(self, comm, counts_RE, owned, axis="ep"):
        plain(self, comm, counts_RE, owned, axis)
        self.counts_E = counts_RE.split(list(owned), 1)[comm.coordinates["ep"]].sum(0)

    patch.setattr(Way, "__init__", wrong)


@pytest.mark.ranks
@pytest.mark.long
def test_a_place_along_ep_only_has_tokens_of_another_rank(bench):
    with pytest.raises(hl.RankError, match="split_sizes"):
        bench.asked(BOTH, sabotage=place_along_ep_only, model=SMALL, microbatches=1, sequence=True, fold=True)
