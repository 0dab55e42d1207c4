"""What programs hide and fuse: every term by itself, against arithmetic that is written out here; its mutants."""

import json
import math
import statistics
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from one_line import change

import hybridlab as hl
from hybridlab.core.what.catalog import MACHINES, Machine, machine, model
from hybridlab.predict.bytes import experts
from hybridlab.predict.bytes.activations import FULL, NONE, SELECTIVE
from hybridlab.predict.plans import footprint, performance, rates, software
from hybridlab.predict.plans import time_of_gradients as exchanging
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.planner import plan
from hybridlab.predict.plans.rates import FITTED, Fit
from hybridlab.predict.plans.software import MEGATRON_2021, REASONS, SOFTWARE, Software, programs, shown
from hybridlab.predict.plans.trust import CALIBRATED, ERRORS, PUBLISHED, error_of
from hybridlab.predict.plans.usual import TPU, USUAL, family
from hybridlab.training.dry.one_rank import played
from hybridlab.training.make_job import job_of
from tools.scoreboard import RECORD

NODE = Machine("test", "nodes of 4", 4, 1e12, 1e9, 1e11, 1e10, 1e9, (0.0, 0.0), {}, eight=2e12, four=4e12)
SLOW = replace(NODE, latency=(1e-6, 1e-5))
EXACT = Fit(1, 1, 0)
TINY = hl.Shape(layers=4, width=64, heads=4, context=32, vocabulary=100)
SPARSE = hl.Shape(layers=4, width=64, heads=4, context=32, vocabulary=100, experts=8, chosen=4)


def step(one, machine=NODE, shape=TINY, batch=64, fit=EXACT, **terms):
    return performance.step(shape, one, batch, machine, fit, MEGATRON_2021._replace(**terms))


def whole(one, **more):
    """Seconds of one microbatch in all layers, forward and backward."""
    forward, backward, *_ = performance.pieces(TINY, one, 64, NODE, EXACT, MEGATRON_2021._replace(**more))
    return [float(TINY.layers * sum(work)) for work in (forward, backward)]


# --- one law for each term ------------------------------------------------------------------------------------------


def the_first_software_is_what_was_fitted():
    """Nobody asks, and nothing is hidden but ZeRO 3's gathers."""
    assert Software() == SOFTWARE["megatron-2021"] == MEGATRON_2021
    one = Plan(p=2, t=2, d=2, b=2)
    assert performance.step(TINY, one, 64, NODE) == performance.step(TINY, one, 64, NODE, software=Software())


def a_share_is_hidden_as_far_as_the_work_lasts():
    carried, beside = np.array([1.0, 4.0, 9.0]), np.array([2.0, 2.0, 2.0])
    assert np.allclose(shown(carried, beside, 0.5), [0.5, 2.0, 7.0])
    assert np.allclose(shown(carried, beside, 1.0), np.maximum(carried - beside, 0))


def launches_show_by_their_share():
    fit = Fit(1, 1, 1e-3)
    full, half, none = (float(step(Plan(), fit=fit, launch=share).launch) for share in (1, 0.5, 0))
    assert math.isclose(full, 64 * 4 * 0.75e-3) and math.isclose(half, full / 2) and none == 0
    asked = float(step(Plan(ep=2), shape=SPARSE, fit=fit, launch=0, asked=0.5).launch)
    assert math.isclose(asked, 32 * 4 * 0.75e-3 * 0.5 * 4)  # four experts on a rank


def eager_programs_move_more():
    one, other = (step(Plan(), traffic=share) for share in (1, 2.5))
    scores = float(step(Plan()).pointwise - step(Plan(fused=True)).pointwise)  # are moved as often as before
    assert math.isclose(other.pointwise - scores, 2.5 * (one.pointwise - scores))
    fused = [float(step(Plan(fused=True), traffic=share).pointwise) for share in (1, 2.5)]
    assert math.isclose(fused[1], 2.5 * fused[0])


def a_fused_kernel_has_a_speed_of_its_own():
    one, other = (float(step(Plan(fused=True), attention=speed).multiply) for speed in (1, 0.5))
    core = 3.5 * 4 * 64 * 32 * 32 * 64 / 2 * TINY.layers / 1e12
    assert math.isclose(other - one, core, rel_tol=1e-9)
    assert step(Plan(), attention=0.5) == step(Plan())  # nothing is fused


def checkpoints_may_end_early():
    """The last of a block's matrices, 4 h² of 12 h², is not multiplied again."""
    late, early, none = (
        float(step(Plan(fused=True, recompute=how), early=ends).multiply)
        for how, ends in ((2, False), (2, True), (0, True))
    )
    again = 2 * 64 * 32 * TINY.layers * 12 * 64 * 64 / 1e12
    assert math.isclose(late - early, again / 3, rel_tol=1e-9) and early > none


def a_share_of_layers_is_done_again():
    none, half, full = (
        float(step(Plan(recompute=how, redone=share)).multiply) for how, share in ((0, 1), (2, 0.5), (2, 1))
    )
    assert math.isclose(half, (none + full) / 2)


def libraries_get_faster():
    one, other = (float(step(Plan(), library=share).multiply) for share in (1, 1.25))
    assert math.isclose(one, 1.25 * other)


def narrow_products_keep_part_of_their_promise():
    """In 8 bits twice, in 4 four times as fast; attention and the head stay as they are."""
    one = step(Plan())
    core = 3 * 4 * 64 * 32 * 32 * 64 * TINY.layers / 1e12
    for bits, faster in ((1, 2 * 0.75), (2, 4 * 0.5)):
        other = step(Plan(), precision=bits, narrow=(0.75, 0.5))
        assert math.isclose(other.multiply - core, (one.multiply - core) / faster, rel_tol=1e-9)
        assert other.head == one.head


def gradients_are_as_wide_as_they_are_kept():
    two, four = (float(step(Plan(d=4), gradient=width).data) for width in (2, 4))
    assert math.isclose(four, 2 * two)
    sharded = [float(step(Plan(d=4, zero=1), gradient=width).data) for width in (2, 4)]
    assert math.isclose(sharded[1], 1.5 * sharded[0])  # weights travel in 16 bits
    held = [
        footprint.footprint(TINY, Plan(d=4), 64, MEGATRON_2021._replace(gradient=width)).gradients for width in (2, 4)
    ]
    assert held[1] == 2 * held[0]


def sums_hide_behind_a_backward():
    one = Plan(d=4, b=2)
    carried, beside = float(step(one).data), whole(one)[1]
    for share in (0.5, 1.0):
        assert math.isclose(float(step(one, gradients=share).data), carried - min(share * carried, beside))


def gradients_that_are_shared_out_may_be_summed_every_time():
    """Eight microbatches: of stage 2 a gather and a reduce-scatter each, of stage 3 one gather more."""
    slow = replace(NODE, inside=1e6)
    for zero, gathers in ((2, 1), (3, 2)):
        one = Plan(d=4, b=2, zero=zero)
        half = TINY.parameters * 2 * 3 / 4 / 1e6
        found = float(step(one, slow, each=True, gathers=0.0).data)
        assert math.isclose(found, 8 * (gathers + 1) * half, rel_tol=1e-9)
        late = float(step(one, slow, gathers=0.0).data)
        assert math.isclose(late, (1 + (16 * half / half if zero == 3 else 1)) * half, rel_tol=1e-9)


def layers_travel_one_by_one():
    """Each with its own latency: three messages for each of four layers."""
    one = Plan(d=4, b=16, zero=3)
    at_once, layered = (float(step(one, SLOW, layered=each, gathers=0.0).data) for each in (False, True))
    assert math.isclose(layered - at_once, 3 * 3 * 3 * 1e-6, rel_tol=1e-6)


def a_flat_ring_knows_no_nodes():
    """All bytes go over the slow link."""
    one = Plan(d=8)
    flat, levels = (float(step(one, flat=ring).data) for ring in (True, False))
    size = 2 * TINY.parameters
    assert math.isclose(flat, 2 * 7 / 8 * size / 1e9, rel_tol=1e-9)
    assert math.isclose(levels, 2 * 3 / 4 * size / 1e10 + 2 / 2 * size / 4 / 1e9, rel_tol=1e-9)


def links_reach_a_share():
    one = Plan(d=8)
    parts = [float(step(one, **{name: 0.5}).data - step(one).data) for name in ("inside", "network")]
    size = 2 * TINY.parameters
    assert np.allclose(parts, [2 * 3 / 4 * size / 1e10, size / 4 / 1e9], rtol=1e-9)


def sums_along_tp_hide_behind_products():
    one = Plan(t=4)
    carried = float(step(one).tensor)
    assert math.isclose(float(step(one, replace(NODE, peak=1e9), tensor=0.5).tensor), carried / 2)
    assert math.isclose(float(step(one, replace(NODE, peak=1e18), tensor=0.5).tensor), carried, rel_tol=1e-3)


def stages_send_ahead():
    one = Plan(p=4)
    assert math.isclose(float(step(one, messages=0.75).messages), float(step(one).messages) / 4)


def keys_are_gathered_beside_attention():
    one = Plan(cp=4)
    slow = replace(NODE, peak=1e9)
    assert math.isclose(float(step(one, slow, context=0.5).context), float(step(one, slow).context) / 2)


def tokens_travel_beside_products():
    one = Plan(ep=4)
    slow = replace(NODE, peak=1e9)
    found = [float(step(one, slow, SPARSE, experts=share).experts) for share in (0, 0.5)]
    assert math.isclose(found[1], found[0] / 2)


def a_token_crosses_to_a_node_once():
    """By counting all choices of 4 among 8 experts in 2 and 4 nodes, with repetition."""
    for nodes in (2, 4):
        ways = np.stack(np.meshgrid(*[range(nodes)] * 4)).reshape(4, -1)
        copies_away = (ways != 0).sum(0).mean()
        visited = np.mean([len({*way} - {0}) for way in ways.T])
        assert math.isclose(experts.crossing(4, nodes), visited / copies_away)
    often, once = (float(step(Plan(ep=8), shape=SPARSE, once=how).experts) for how in (False, True))
    assert once < often


def activations_may_wait_on_the_host():
    """Two blocks' stay on the device; a slow link shows by what it is longer than the work beside it."""
    one = Plan(b=4, offload=True, fused=True)
    kept = footprint.kept_on(TINY, one).total
    plain = footprint.footprint(TINY, one._replace(offload=False), 64)
    found = footprint.footprint(TINY, one, 64)
    assert math.isclose(plain.activations - found.activations, (TINY.layers - 2) * kept)
    assert step(one, replace(NODE, host=1e15)) == step(one._replace(offload=False))
    passes = [sum(work) for work in performance.pieces(TINY, one._replace(offload=False), 64, NODE, EXACT)[:2]]
    slow = float(step(one, replace(NODE, host=1e6)).total - step(one._replace(offload=False)).total)
    assert math.isclose(slow, 16 * TINY.layers * float(sum(kept / 1e6 - work for work in passes)), rel_tol=1e-9)


@cache
def sent_inside(one):
    """The operations of one rank in a step, in order: from its ledger, which no mutant of a prediction changes."""
    ledger = played(job_of(**job_of_plan(one, replace(TINY, vocabulary=256), 4)), 0)[0].comm.ledger
    return [row["op"] for row in ledger.rows() if row["purpose"] == "inside"]


def sums_outside_of_blocks_may_count():
    """As many as a rank sends: where a sum of two takes two seconds, a gather or a scatter one, all else nothing."""
    slow = replace(NODE, peak=1e30, bandwidth=1e30, inside=1e30, latency=(1.0, 1.0))
    for one in (Plan(t=2), Plan(t=2, b=2, recompute=FULL), Plan(t=2, b=2, sequence=True)):
        sent = sent_inside(one)
        took, without = (float(step(one, slow, batch=4, ends=ends).total) for ends in (True, False))
        assert math.isclose(took, sum(2 if op == "all_reduce" else 1 for op in sent), rel_tol=1e-6)
        assert math.isclose(took - without, one.microbatches(4) * (9 if one.sequence else 8), rel_tol=1e-6)
    first, both = (step(Plan(p=p, t=2), slow, ends=True).head for p in (2, 1))
    assert math.isclose(both - first, 2 * 64, rel_tol=1e-6)  # the embedding's, which another stage has


LAWS = [
    the_first_software_is_what_was_fitted, a_share_is_hidden_as_far_as_the_work_lasts, launches_show_by_their_share,
    eager_programs_move_more, a_fused_kernel_has_a_speed_of_its_own, checkpoints_may_end_early,
    a_share_of_layers_is_done_again, libraries_get_faster, narrow_products_keep_part_of_their_promise,
    gradients_are_as_wide_as_they_are_kept, sums_hide_behind_a_backward,
    gradients_that_are_shared_out_may_be_summed_every_time, layers_travel_one_by_one, a_flat_ring_knows_no_nodes,
    links_reach_a_share, sums_along_tp_hide_behind_products, stages_send_ahead, keys_are_gathered_beside_attention,
    tokens_travel_beside_products, a_token_crosses_to_a_node_once, activations_may_wait_on_the_host,
    sums_outside_of_blocks_may_count,
]  # fmt: skip
MUTANTS = [  # (where, what stands there, what a mutant has, the law that it breaks)
    (software, "np.minimum(share * carried, beside)", "share * carried", a_share_is_hidden_as_far_as_the_work_lasts),
    (performance, "software.launch + software.asked", "software.launch + 0", launches_show_by_their_share),
    (performance, "shape.experts / plan.expert_ways) / 4", "1) / 4", launches_show_by_their_share),
    (performance, "2 * software.traffic * left.apart", "2 * left.apart", eager_programs_move_more),
    (performance, "np.where(plan.fused, software.attention, 1.0)", "1.0", a_fused_kernel_has_a_speed_of_its_own),
    (performance, "(1 - software.early * _last(shape))", "1", checkpoints_may_end_early),
    (performance, "(plan.recompute == FULL) * plan.redone", "(plan.recompute == FULL)",
     a_share_of_layers_is_done_again),
    (rates, "fit.multiply * software.library", "fit.multiply", libraries_get_faster),
    (rates, "software.narrow[place] * peak", "peak", narrow_products_keep_part_of_their_promise),
    (exchanging, "else half(software.gradient, sharers)", "else gather", gradients_are_as_wide_as_they_are_kept),
    (footprint, "gradient=software.gradient, **numbers", "**numbers", gradients_are_as_wide_as_they_are_kept),
    (exchanging, "hidden(2 * reduce, backward)", "2 * reduce", sums_hide_behind_a_backward),
    (exchanging, "again = later + shown(repeated + reduce, backward", "again = later + shown(repeated, backward",
     gradients_that_are_shared_out_may_be_summed_every_time),
    (exchanging, "np.where(plan.zero >= 2, first + each", "np.where(plan.zero >= 3, first + each",
     gradients_that_are_shared_out_may_be_summed_every_time),
    (exchanging, "parts = layers if software.layered else 1", "parts = 1", layers_travel_one_by_one),
    (rates, "if self.flat:", "if False:", a_flat_ring_knows_no_nodes),
    (rates, "machine.across * software.network", "machine.across", links_reach_a_share),
    (performance, "shown(seconds, beside, software.tensor)", "seconds", sums_along_tp_hide_behind_products),
    (performance, "* (1 - software.messages)", "", stages_send_ahead),
    (performance, "shown(wait, one, software.context)", "wait", keys_are_gathered_beside_attention),
    (performance, "shown(experts[0], products[0], software.experts)", "experts[0]", tokens_travel_beside_products),
    (performance, "np.maximum(copied - added(one), 0)", "copied", activations_may_wait_on_the_host),
    (footprint, "plan.offload * np.maximum(blocks - ON_DEVICE, 0)", "0", activations_may_wait_on_the_host),
    (performance, "(1 + (plan.p == 1) +", "(2 +", sums_outside_of_blocks_may_count),
    (performance, "+ plan.sequence / 2) * summed + loss", ") * summed + loss", sums_outside_of_blocks_may_count),
    (performance, "for each in LOSS_SUMS)", "for each in (3,))", sums_outside_of_blocks_may_count),
    (experts, "(1 - (1 - 1 / nodes) ** chosen)", "(1 - 1 / nodes)", a_token_crosses_to_a_node_once),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_hold(law):
    law()


@pytest.mark.slow
@pytest.mark.parametrize("where, line, other, law", MUTANTS, ids=[one[1] for one in MUTANTS])
def test_every_mutant_breaks_its_law(where, line, other, law, monkeypatch):
    change(monkeypatch, where, line, other)
    with pytest.raises(AssertionError):
        law()


# --- names ----------------------------------------------------------------------------------------------------------


def test_every_software_has_its_reason():
    assert SOFTWARE.keys() == REASONS.keys()
    for one in SOFTWARE.values():
        shares = (one.tensor, one.gradients, one.gathers, one.messages, one.context, one.experts, one.network)
        assert all(0 <= share <= 1 for share in shares)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOFTWARE)
def test_many_plans_at_once_are_as_one_by_one(name):
    found = plan("gpt-7.5b", "h100", gpus=64, batch=64, software=name, fused=True)
    for place in range(0, len(found.seconds), 97):
        one = found.choice(found.one(place))
        assert one.step.total == found.seconds[place]
        assert one.memory.total == found.bytes[place]


def test_where_attention_is_fused_selective_recomputation_is_no_choice():
    """No scores are kept that it could do again; all other plans are the same."""
    of = lambda fused: hl.plan("gpt-7.5b", "h100", gpus=64, batch=64, fused=fused).space
    fused, plain = of(True), of(False)
    kept = plain.recompute != SELECTIVE
    assert {*fused.recompute.tolist()} == {NONE, FULL} and not kept.all()
    assert all(
        np.array_equal(getattr(fused, name), getattr(plain, name)[kept]) for name in fused._fields if name != "fused"
    )


@pytest.mark.parametrize(
    "asked, words",
    [
        ({"software": "megatron-1999"}, "there is no software 'megatron-1999': choose one of megatron-2021"),
        ({"precision": "int4"}, "precision='int4' is not known: choose one of bf16, fp8, fp4"),
        ({"precision": "fp8"}, "a100 has no peak rate for fp8: choose precision='bf16', or another machine"),
    ],
)
def test_what_is_not_known_is_said(asked, words):
    with pytest.raises(ValueError, match=words):
        plan("gpt-1.7b", "a100", gpus=32, batch=64, **asked)


def test_errors_are_those_of_the_scoreboard():
    record = json.loads(RECORD.read_text("utf-8"))
    assert {f"{near}, {kind}": [*one] for (near, kind), one in ERRORS.items()} == record["bars"]
    assert {kind: [*one] for kind, one in CALIBRATED.items()} == record["calibrated"]
    assert {row["machine"] for row in record["rows"]} == set(PUBLISHED)


def test_what_nobody_published_about_has_the_largest_error():
    most = max(one.median for one in ERRORS.values())
    for kind, runs in (("v100", SOFTWARE["megatron-2021"]), ("a100", Software(tensor=0.123))):
        assert error_of(machine(kind), "dense", runs).median == most > ERRORS["a100", "dense"].median
    assert error_of(machine("h100"), "dense", SOFTWARE["fsdp-2023"]) == ERRORS["h100", "dense"]


def test_shares_are_those_of_the_scoreboard():
    """Of a machine with published runs in 16 bits, the mean of the sources, within what two of them differ by."""
    found = {}
    for row in json.loads(RECORD.read_text("utf-8"))["shares"]:
        found.setdefault(family(machine(row["machine"])), []).append(row["share"])
    assert USUAL["h100"].fit.multiply == pytest.approx(statistics.fmean(found["h100"]), abs=5e-4)
    assert USUAL["a100"].fit == FITTED and FITTED.multiply == pytest.approx(statistics.fmean(found["a100"]), rel=0.002)
    assert USUAL[TPU].fit.multiply == pytest.approx(statistics.fmean(found[TPU]), abs=1e-3)
    assert USUAL.keys() - {"b200"} == found.keys()


@pytest.mark.slow
def test_plans_closer_than_the_error_are_equal():
    found = plan("llama3-70b", "h100", gpus=256, batch=512, precision="fp8")
    ties, best = found.ties, found.best.step.total
    assert found.error == ERRORS["h100", "fp8"] and ties[0].plan == found.best.plan
    assert all(one.step.total <= best * (1 + found.error.median) for one in ties)
    after = [one for one in found.top() if one not in ties]
    assert all(one.step.total > best * (1 + found.error.median) for one in after)


def test_a_machine_brings_the_programs_of_its_time():
    """And what is named counts: software, attention, a share of one's own."""
    new, old = (plan("llama3-8b", kind, gpus=64, batch=256) for kind in ("h100", "a100"))
    assert (new.software, new.fit, new.best.plan.fused) == (SOFTWARE["megatron-2024"], USUAL["h100"].fit, True)
    assert (old.software, old.fit, old.best.plan.fused) == (SOFTWARE["megatron-2021"], FITTED, False)
    named = plan("llama3-8b", "h100", gpus=64, batch=256, software="megatron-2022", fused=False, fit=FITTED)
    assert (named.software, named.fit, named.best.plan.fused) == (SOFTWARE["megatron-2022"], FITTED, False)
    assert named.calibrated and named.error == CALIBRATED["dense"] and not new.calibrated
    selective = plan("llama3-8b", "h100", gpus=64, batch=256, recompute="selective").best.plan
    assert (selective.fused, selective.recompute) == (False, 1)


def test_a_waterfall_adds_up():
    found = plan("gpt-39.1b", "a100", gpus=512, batch=1536)
    first, *between, last = found.waterfall(t=16).values()
    assert math.isclose(first + sum(between), last) and first == found.best.step.total < last
    with pytest.raises(ValueError, match="impossible"):
        found.waterfall(t=5)


def test_narrow_products_are_planned():
    wide, narrow = (
        plan("llama3-8b", "b200", 64, 128, software="megatron-2024", precision=bits) for bits in ("bf16", "fp8")
    )
    assert narrow.best.step.total < wide.best.step.total and programs("megatron-2024", "fp8").precision == 1


@pytest.mark.slow
def test_every_machine_can_be_planned_for():
    for name in MACHINES:
        found = plan(model("gpt-1.7b").shape, machine(name), gpus=32, batch=64, software="megatron-2024")
        assert found.best.step.total > 0
