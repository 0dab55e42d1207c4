"""Copies of experts on real ranks: equal to one device with every other mode, every byte claimed; mutants."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.core.where.slots import Slots
from hybridlab.modes import expert_parallel
from hybridlab.modes.copied_experts import read
from hybridlab.modes.parts import lent_experts
from hybridlab.predict.bytes.copied_experts import loaned
from hybridlab.training.formulas import transfers
from hybridlab.training.make_job import job_of

SMALL = Shape(layers=2, width=16, heads=2, context=7, experts=5, chosen=2, inner=24, dropout=0.1)
LLAMA = replace(SMALL, style="llama", experts=7, chosen=3, inner=8, shared=2, routing=Routing(balance="bias", pace=0.1))
EP2, EP4 = hl.Mesh(ep=2), hl.Mesh(ep=4)
ONE, SEVERAL = {0: 1}, {0: (1, 2, 3), 4: 0}
CASES = [  # the first two are quick
    (EP4, {"expert_copies": SEVERAL, "batch": 8}),
    (hl.Mesh(ep=2, tp=2), {"model": LLAMA, "expert_copies": {0: 1, 4: 0}, "sequence": True}),
    (hl.Mesh(dp=2, ep=2), {"zero": 1, "optimizer": "adamw", "rate": 0.01, "clip": 0.1}),
    (hl.Mesh(dp=2, ep=2), {"zero": 3, "accumulate": 2, "sums": "buckets"}),
    (hl.Mesh(pp=2, ep=2), {"schedule": "zb_h1"}),
    (hl.Mesh(pp=2, ep=3), {"schedule": "zb_h1", "rows": 3}),  # one rank of three neither lends nor borrows
    (hl.Mesh(dp=2, pp=2, ep=2), {"schedule": "interleaved", "chunks": 2, "model": replace(SMALL, layers=4)}),
    (hl.Mesh(pp=2, ep=2), {"schedule": "seq1f1b", "slices": 3}),
    (hl.Mesh(ep=2, tp=2), {"expert_copies": {1: 1}}),
    (hl.Mesh(ep=2, cp=2), {"model": replace(LLAMA, context=8), "attend": "ring", "zigzag": True}),
    (hl.Mesh(ep=2, tp=2), {"fold": True, "expert_copies": {0: (1, 3)}}),
    (hl.Mesh(cp=2), {"fold": True, "expert_copies": {4: 0}}),
    (EP2, {"recompute": "full"}),
    (EP2, {"schedule": hl.schedule("gpipe", 1, 2, recompute="always")}),
    (EP2, {"optimizer": "muon", "rate": 0.01}),
]


@pytest.mark.ranks
@pytest.mark.parametrize(
    "mesh, more", [pytest.param(*one, marks=[pytest.mark.long] * (at > 1), id=str(at)) for at, one in enumerate(CASES)]
)
def test_it_trains_as_one_device_does_and_every_byte_is_claimed(bench, mesh, more):
    report = bench.asked(mesh, **{"model": SMALL, "microbatches": 2, "expert_copies": ONE} | more)
    assert report.ok and report.largest_gap < 1e-10, report
    assert next(counted for title, (counted, _) in report.bytes.items() if "loans" in title) > 0


# ---- the slots


@st.composite
def slots_of(draw):
    owned = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    owner = [rank for rank, number in enumerate(owned) for _ in range(number)]
    lent = {}
    for expert in draw(st.sets(st.integers(0, len(owner) - 1))):
        others = [rank for rank in range(len(owned)) if rank != owner[expert]]
        lent[expert] = tuple(draw(st.sets(st.sampled_from(others), min_size=1)))
    return Slots(owned, lent)


@given(slots_of())
def test_a_loan_is_sent_by_its_owner_and_arrives_in_its_slot(slots):
    ranks = range(len(slots.owned))
    loans = [slots.loans(rank) for rank in ranks]
    assert all(loans[a].sent[b] == loans[b].received[a] for a in ranks for b in ranks)
    for rank in ranks:
        came = []
        for owner in ranks:
            begin = sum(loans[owner].sent[:rank])
            first = slots.owner.index(owner)
            came += [first + one for one in loans[owner].lent[begin : begin + loans[owner].sent[rank]]]
        assert slots.held[rank] == (*[e for e, owner in enumerate(slots.owner) if owner == rank], *came)
    every = [expert for its in slots.held for expert in its]
    assert all(every[slot] == expert for expert, its in enumerate(slots.holders) for slot in its)
    assert sum(map(len, slots.holders)) == sum(slots.sizes)


@given(slots_of(), st.integers(0, 100), st.integers(0, 4))
def test_the_choices_of_an_expert_are_dealt_evenly_to_its_holders(slots, seed, here):
    draw = torch.Generator().manual_seed(seed)
    chosen_NC = torch.randint(len(slots.owner), (20, 2), generator=draw)
    slot_NC = lent_experts.in_turn(chosen_NC, slots.holders, here)
    for expert, its in enumerate(slots.holders):
        dealt = slot_NC[chosen_NC == expert].tolist()
        assert set(dealt) <= set(its)
        numbers = [dealt.count(slot) for slot in its]
        assert max(numbers) - min(numbers) <= 1


# ---- bytes


@pytest.mark.parametrize("shape", [replace(SMALL, experts=8), replace(LLAMA, experts=8)])
@pytest.mark.parametrize("tp", [1, 2])
def test_bytes_are_those_of_the_closed_form_and_tokens_cost_the_same(shape, tp):
    mesh, copies, microbatches = hl.Mesh(ep=4, tp=tp), {0: (1, 2, 3), 5: (0,)}, 3
    about = {"model": shape, "microbatches": microbatches, "rows": 4}
    plain, job = job_of(mesh, **about), job_of(mesh, **about, expert_copies=copies)
    mine = [one for one in transfers(job)["loans"] if 0 in one.ranks]
    form = 2 * microbatches * shape.layers * loaned(shape, copies, 4, tp) * job.widths.value
    assert sum(one.bytes for one in mine) == pytest.approx(form)
    of = lambda job, op: sum(one.bytes for one in transfers(job)["experts"] if one.op == op)
    assert of(job, "all_to_all") == of(plain, "all_to_all")
    assert of(job, "all_gather") / of(plain, "all_gather") == (8 + 4) / 8
    assert job.layout.params == plain.layout.params, "the layout knows owners only"


# ---- mutants: each is given a pytest.MonkeyPatch


def changed(patch, change):
    """What arrives of a loan is changed: change({name: rows})."""
    plain = lent_experts.borrowed
    patch.setattr(lent_experts, "borrowed", lambda *about: change(plain(*about)))


def gradient_not_returned(patch):
    """A copy's gradient stays where it was computed; the message goes, and holds zeros."""
    changed(patch, lambda came: {name: x.detach() + 0 * x for name, x in came.items()})


def gradient_returned_twice(patch):
    changed(patch, lambda came: {name: 2 * x - x.detach() for name, x in came.items()})


def weights_of_the_last_step(patch):
    """A copy computes with the weights that it had in the step before."""
    steps = {}

    def borrowed(weights, loans, comm, axis):
        came = plain(weights, loans, comm, axis)
        now = {name: x.detach().clone() for name, x in came.items()}
        seen = steps.setdefault(id(next(iter(weights.values()))), [now])
        if any(not torch.equal(now[name], seen[-1][name]) for name in now):
            seen.append(now)
        before = seen[max(len(seen) - 2, 0)]
        return {name: x + (before[name] - x).detach() for name, x in came.items()}

    plain = lent_experts.borrowed
    patch.setattr(lent_experts, "borrowed", borrowed)


def tokens_counted_twice(patch):
    """Both the owner and its copy compute a token."""

    def dealt(dispatch, holders, here, x_ND, chosen_NC, weights_NC, experts):
        by_owner, by_copy = ([its[0] for its in holders], [its[-1] if len(its) > 1 else 6 for its in holders])
        both_NC = torch.cat([torch.tensor(its)[chosen_NC] for its in (by_owner, by_copy)], 1)  # 6: no slot
        return dispatch(x_ND, both_NC, torch.cat([weights_NC, weights_NC], 1), experts)

    patch.setattr(expert_parallel, "dealt", dealt)


def another_expert_lent(patch):
    plain = Slots.loans
    patch.setattr(Slots, "loans", lambda self, rank: plain(self, rank)._replace(lent=[1] * len(plain(self, rank).lent)))


MUTANTS = (
    gradient_not_returned,
    gradient_returned_twice,
    weights_of_the_last_step,
    tokens_counted_twice,
    another_expert_lent,
)


@pytest.mark.ranks
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(bench, mutant):
    about = {"model": SMALL, "microbatches": 2, "steps": 3, "expert_copies": ONE}
    assert bench.right(EP2, **about)
    report = bench.asked(EP2, sabotage=mutant, **about)
    assert not report.ok and report.largest_gap > 1e-6


# ---- refusals


@pytest.mark.parametrize(
    "words, mesh, more",
    [
        ("has no effect without ep or fold: give one of them", hl.Mesh(tp=2), {}),
        ("takes all tokens to all ranks, but copies share tokens", EP2, {"dispatch": "all_gather"}),
        ("leave out capacity or expert_copies", EP2, {"model": replace(SMALL, routing=Routing(capacity=1.0))}),
        ("there is no expert 5: give copies of experts 0 to 4", EP2, {"expert_copies": {5: 0}}),
        ("rank 2 cannot have a copy of expert 0: choose ranks 0 to 1", EP2, {"expert_copies": {0: 2}}),
        ("rank 0 already has expert 0: name each rank only once", EP2, {"expert_copies": {0: 0}}),
        ("rank 1 already has expert 0: name each rank only once", EP2, {"expert_copies": {0: (1, 1)}}),
        (
            "sends tokens between stages, to the owners of experts: leave out expert_copies",
            EP2,
            {"schedule": hl.orders.dual_batch(2), "model": replace(SMALL, layers=1, dropout=0.0)},
        ),
    ],
)
def test_what_cannot_be_lent_is_refused_in_a_sentence(words, mesh, more):
    with pytest.raises(ValueError, match=words):
        job_of(mesh, **{"model": SMALL, "expert_copies": ONE, "batch": 8} | more)


@pytest.mark.parametrize("wrong", ["0", "0@", "a@1", "0@1@2", {0: "x"}, {0: None}])
def test_what_lists_no_copies_is_refused_in_a_sentence(wrong):
    with pytest.raises(ValueError, match="does not list copies of experts: give {expert: ranks}"):
        read(wrong)
