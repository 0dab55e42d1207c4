"""Plans drawn by a seed: each is a job, ranks do it as one device does, and a dry run sends what the plan says.

What a plan and a dry run count differently is said here, term by term, and the difference is tested as a formula.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hybridlab.core.dry import KINDS
from hybridlab.core.what.catalog import MODELS
from hybridlab.core.what.routing import Routing
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import FULL
from hybridlab.predict.bytes.context import USP
from hybridlab.predict.plans import bytes_of_rank, divisions
from hybridlab.predict.plans.bytes_of_rank import SUM, VALUE, layers_at, sent, weights_at
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.plan import CONDITIONS, Plan, check_plan
from hybridlab.predict.plans.space import chosen, grid
from hybridlab.training.dry.dry_run import dry_run
from hybridlab.training.make_job import job_of

SIZES = {"layers": 6, "width": 16, "heads": 4, "context": 8}
SMALL = {
    "gpt": Shape(**SIZES),
    "llama": Shape(**SIZES, kv_heads=2, style="llama"),
    "tied": Shape(**SIZES, tied=True),
    "experts": Shape(**SIZES, experts=4, chosen=2, shared=1),
    "slots": Shape(**SIZES, experts=4, chosen=2, routing=Routing(capacity=1.0)),
    "parallel": Shape(**SIZES, parallel=True),
    "wide heads": Shape(**SIZES, per_head=8, style="llama"),
    "latents": Shape(**SIZES, style="llama", latent=6, query_latent=10, rotary=4),
    "keys' latent": Shape(**SIZES, style="llama", latent=8, rotary=4, per_head=8),
    "no attention": Shape(**SIZES | {"heads": 0}),
}
ALL = {"grids": True, "contexts": True, "experts": True, "stages": True}
BATCH, FEW, OF_SMALL, OF_CATALOG = 16, 4, 16, 5  # sequences; those of quick tests; plans of each model


def drawn(shape: Shape, number: int, devices=(2, 4, 8), batch=BATCH, seed=0, **asked) -> list[Plan]:
    """Legal plans, for equally many devices each time round."""
    random, found = np.random.default_rng(seed), []
    spaces = [chosen(*grid(shape, count, batch, **asked or ALL)) for count in devices]
    for at in range(number):
        plans = spaces[at % len(spaces)]
        found.append(plans.one(int(random.integers(len(plans.p)))))
    return found


def of_slices(n: int) -> dict:
    return {"grids": True, "experts": True, "stages": True, "slices": True, "given": {"n": n, "fold": False}}


SMALL_PLANS = [(name, plan) for name, shape in SMALL.items() for plan in drawn(shape, OF_SMALL)]
SMALL_PLANS += [(name, Plan(cp=4, attend=USP, ulysses=2, zigzag=True)) for name in ("gpt", "llama")]
SLICED = ("gpt", "tied", "experts", "latents")
SMALL_PLANS += [(of, plan) for of in SLICED for n in (2, 4) for plan in drawn(SMALL[of], 2, seed=n, **of_slices(n))]
COUNTED = [one for one in SMALL_PLANS if one[0] != "slots"]  # a plan counts no capacity
QUICK = [("gpt", Plan(p=4, b=2, uneven=True)), ("llama", Plan(t=2, cp=2, sequence=True, attend=1, zigzag=True, zero=1))]
ENDS = ("gpt", Plan(p=2, v=4, uneven=True))  # eight stages of six blocks: embedding and head have one each
QUICK += [ENDS]
ALONE = ("gpt", Plan(t=2, sequence=True))  # norms are summed over ranks that see other positions, and over no copies
QUICK += [("experts", Plan(t=2, ep=2, sequence=True, recompute=FULL))]
FOLDED = [("experts", Plan(t=2, ep=2, fold=True, recompute=FULL)), ("experts", Plan(t=2, cp=2, zero=1, fold=True))]
QUICK += FOLDED


SOME = [one for at, one in enumerate(SMALL_PLANS) if at % OF_SMALL < 2]  # of each model's


def marked(pairs, quick=QUICK):
    """The tests of these plans: quick ones, some that take long, and all others, which wait for the soak."""
    marks = lambda one: [] if one in quick else [pytest.mark.long if one in QUICK + SOME else pytest.mark.soak]
    return [pytest.param(*one, id=f"{one[0]}: {one[1]}", marks=marks(one)) for one in pairs]


# ---- every plan is a job


def test_there_are_enough_of_them():
    assert len(SMALL_PLANS) + OF_CATALOG * len(MODELS) >= 200
    plans = [plan for _, plan in SMALL_PLANS]
    for field in set(Plan._fields) - set(CONDITIONS):
        assert len({getattr(plan, field) for plan in plans}) > 1, f"all have the same {field}"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.soak if place % 6 else pytest.mark.long)
        for place, name in enumerate(MODELS)
    ],
)
def test_plans_of_the_catalog_are_jobs(name):
    shape = MODELS[name].shape
    for plan in drawn(shape, OF_CATALOG, devices=(64, 256, 1024), batch=1024):
        job = job_of(**job_of_plan(plan, shape, 1024))
        assert job.mesh.size == plan.devices and job.rows == plan.b * plan.ep
        assert job.microbatches == plan.d * plan.microbatches(1024)


@pytest.mark.slow
def test_uneven_stages_are_those_of_the_plan():
    for plan in (Plan(p=4, uneven=True), Plan(p=2, v=2, uneven=True), ENDS[1]):
        bounds = job_of(**job_of_plan(plan, SMALL["gpt"], BATCH)).bounds
        for place in range(plan.p):
            assert [layer for own in bounds[place :: plan.p] for layer in own] == layers_at(SMALL["gpt"], plan, place)


@pytest.mark.ranks
@pytest.mark.parametrize("name, plan", marked(QUICK + SMALL_PLANS, QUICK[:2]))
def test_ranks_do_it_as_one_device_does(bench, name, plan):
    job = job_of_plan(plan, SMALL[name], FEW if (name, plan) in QUICK else BATCH)
    report = bench.asked(job.pop("mesh"), **job | {"dtype": "float64", "optimizer": "sgd"})
    assert report.ok, report


# ---- one set of rules for plans and for ranks

REFUSED = [  # what no rule but one forbids, and its words
    ("tp", Shape(heads=6, kv_heads=4 - 1, width=48), {"t": 2}, "cannot share out heads=6 and kv_heads=3"),
    ("tp", SMALL["gpt"], {"t": 4, "cp": 4, "sequence": True}, "need 16 equal parts of 8 positions"),
    ("tp", SMALL["slots"], {"t": 2, "sequence": True}, "leave out capacity"),
    ("tp", replace(SMALL["experts"], plain=(0,), plain_inner=1), {"t": 2}, "cannot divide 1 hidden units of plain"),
    ("x", SMALL["experts"], {"x": 2}, "shards the width, but experts need full tokens"),
    ("cp", SMALL["llama"], {"cp": 4, "attend": 2}, "does not divide the 2 KV heads on a rank"),
    ("cp", SMALL["slots"], {"cp": 2}, "leave out capacity"),
    ("fold", SMALL["slots"], {"t": 2, "fold": True}, "leave out capacity"),
    ("tp", SMALL["gpt"], {"p": 2, "t": 2, "n": 2, "sequence": True}, "sequence=True is invalid: slices=2 cuts the"),
    ("cp", SMALL["gpt"], {"p": 2, "cp": 2, "n": 2}, "cp=2 is invalid: slices=2 cuts the positions of a row already"),
    ("slices", SMALL["slots"], {"p": 2, "n": 2}, "a capacity counts the tokens of whole rows"),
    ("slices", SMALL["no attention"], {"p": 2, "n": 2}, "a model without attention has nothing that joins them"),
    ("recompute", SMALL["no attention"], {"recompute": 1}, "this model has none: choose 'full'"),
    ("zero", SMALL["gpt"], {"p": 2, "zero": 1}, "give dp=2 or more"),
    ("zero", SMALL["gpt"], {"d": 2, "zero": 3, "z": 1}, "zero=3 with owners=1 shards nothing"),
    ("sums", SMALL["gpt"], {"d": 2, "cp": 2, "zero": 1, "sync_every": 4}, "sums=local keeps all weights in every copy"),
]


@pytest.mark.slow
@pytest.mark.parametrize("asks, shape, sizes, said", REFUSED, ids=[one[3] for one in REFUSED])
def test_plans_and_ranks_refuse_in_the_same_words(asks, shape, sizes, said, monkeypatch):
    plan = Plan(**sizes)
    with pytest.raises(ValueError, match=said) as of_plan:
        check_plan(plan, shape, BATCH)
    with monkeypatch.context() as let_through:
        let_through.setattr("hybridlab.predict.plans.jobs.check_plan", lambda *about: None)
        with pytest.raises(ValueError, match=said) as of_ranks:
            job_of(**job_of_plan(plan, shape, BATCH))
    assert str(of_plan.value) == str(of_ranks.value)
    assert not divisions.holds(shape.sizes, plan.division(shape))
    others = tuple(
        rule for rule in divisions.RULES if rule.said(shape.sizes, plan.division(shape)) != str(of_plan.value)
    )
    monkeypatch.setattr(divisions, "RULES", others)
    assert divisions.holds(shape.sizes, plan.division(shape)), "this rule alone forbids it"


# ---- what a dry run sends


def padding(layout, rank: int, zero: int) -> float:
    """What packs are filled up with: of it, a plan knows nothing."""
    found = 0
    for pack, names in layout.packs.items():
        owners = layout[names[0]].owners
        if layout.box(names[0], rank) is None or owners == 1:
            continue
        filled = layout.piece(pack, rank) * owners - sum(layout.size(name, rank) for name in names)
        alone = len(layout.twins(names[0], rank)) == 1
        found += filled * (SUM + VALUE * (zero < 3) + (0 if alone else SUM / owners))
    return found


def bytes_of(told, zero: int) -> Counter:
    """What a dry run sends, but for weights that ZeRO's stage 3 gathers as often as the schedule says."""
    found = Counter(told.bytes)
    gathered = sum(size for (what, _, op), size in told.axes.items() if (what, op) == ("shares", "all_gather"))
    return found - Counter({"shares": gathered * (zero == 3)})


def rank_at(job, place: int) -> int:
    return job["mesh"].rank(pp=place) if "pp" in job["mesh"].axes else 0


def played(shape, plan, batch=BATCH):
    """(a place along pp, what was said of the dry run of its first rank, its layout, the rank)."""
    job, place = job_of_plan(plan, shape, batch), plan.devices % plan.p if plan.p < 3 else plan.p // 2
    rank = rank_at(job, place)
    return place, dry_run(**job, rank=rank), job_of(**job).layout, rank


def sends_what_the_plan_says(shape, plan, batch=BATCH):
    place, told, layout, rank = played(shape, plan, batch)
    mine = Counter(sent(shape, plan, batch, place))
    if plan.zero:
        mine["shares"] += padding(layout, rank, plan.zero)
    assert +bytes_of(told, plan.zero) == pytest.approx(+mine, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name, plan", marked([ALONE, *QUICK, *COUNTED], [ALONE, *FOLDED]))
def test_bytes_of_a_dry_run_are_the_plans(name, plan):
    sends_what_the_plan_says(SMALL[name], plan)


def shorter(plan, batch: int) -> int:
    """A batch of which a copy has no more microbatches than stages: a dry run takes as long as it has actions."""
    each = plan.microbatches(batch)
    return batch // each * min(each, plan.p)


@pytest.mark.soak
@pytest.mark.parametrize("name", MODELS)
def test_plans_of_the_catalog_send_and_hold_at_full_size_what_they_say(name):
    shape = MODELS[name].shape
    for plan in drawn(shape, 1, devices=(256,), batch=1024, seed=1):
        sends_what_the_plan_says(shape, plan, shorter(plan, 1024))
        if not shape.tied:
            holds_what_the_plan_says(shape, plan, shorter(plan, 1024))


BYTES = [  # (what stands there, what a mutant has, a plan whose bytes are then wrong)
    ("layers_at(shape, plan, place)", "layers_at(shape, plan, 0)", Plan(p=4, t=2, uneven=True)),
    ("2 * plan.v - (place == 0)", "2 * plan.v", Plan(p=2, d=2)),
    ("times[when] * size / (plan.x", "size / (plan.x", Plan(t=2, recompute=FULL)),
    ("(plan.recompute != NONE)", "(plan.recompute == FULL)", Plan(cp=2, recompute=1)),
    ("(copies > 1 or more)", "(copies > 1)", Plan(t=2, sequence=True)),
    ("weights_at(shape, plan, layers), plan.t > 1", "weights_at(shape, plan, layers), False", Plan(t=2, sequence=True)),
    ("or more) + VALUE * (plan.zero < 3)", "or more)", Plan(d=2, zero=1)),
]


@pytest.mark.long
@pytest.mark.parametrize("line, other, plan", BYTES, ids=[one[1] for one in BYTES])
def test_a_mutant_of_the_formula_is_caught(line, other, plan, monkeypatch):
    from one_line import change

    change(monkeypatch, bytes_of_rank, line, other)
    monkeypatch.setitem(globals(), "sent", bytes_of_rank.sent)
    with pytest.raises(AssertionError):
        sends_what_the_plan_says(SMALL["gpt"], plan)


# ---- what a dry run holds


def held_at(shape, plan, place) -> float:
    return float(sum(weights_at(shape, plan, layers_at(shape, plan, place))))


def as_the_footprint_cuts(shape, plan, place) -> float:
    """The weights at a place. Cut along tp: all but norms, biases behind sums, and what makes latents. Cut along x: all
    but those between latents and heads."""
    layers, block = layers_at(shape, plan, place), shape.block
    cut = block.attention + (shape.shared + (shape.experts == 1)) * block.mlp
    routed, behind = shape.experts * block.mlp, shape.experts * shape.width * (shape.style == "gpt")
    each = cut / plan.t + block.whole
    if shape.experts > 1:
        ways = plan.ep * plan.cp * plan.t if plan.fold else plan.ep
        each += routed / ways / (1 if plan.fold else plan.t) - behind * (1 - 1 / ways)
    blocks = sum(0 < layer <= shape.layers for layer in layers)
    copy = shape.vocabulary * shape.width * (shape.tied and plan.p > 1)
    ends = (0 in layers) * shape.embedding + (shape.layers + 1 in layers) * (shape.head + copy)
    between = blocks * (block.heads / plan.t + block.norms)
    return float(blocks * each + ends / plan.t) / plan.x + between


def whole_after_all(shape, plan, place) -> float:
    """What of it ranks have whole: along tp the positions of a GPT, the last norm, and keys where heads are fewer than
    ranks; along x the biases of matrices whose outputs tp cuts."""
    layers, t, x, biased = layers_at(shape, plan, place), plan.t, plan.x, shape.style == "gpt"
    few = shape.key_width / min(t, shape.key_heads) - shape.key_width / t if shape.heads else 0
    biases = (shape.query_width + (shape.shared + (shape.experts == 1)) * shape.inside) / t
    biases += 2 * (shape.key_width / t + few)
    block = 2 * few * (shape.width + biased) / x + biased * biases * (1 - 1 / x)
    blocks = sum(0 < layer <= shape.layers for layer in layers)
    positions = (0 in layers) * biased * shape.context * shape.width
    norm = (shape.layers + 1 in layers) * (1 + biased) * shape.width
    return blocks * block + (positions + norm) * (1 - 1 / t) / x


@pytest.mark.parametrize("name, plan", COUNTED, ids=str)
def test_the_footprints_weights_are_those_of_the_rank_but_for_what_is_named(name, plan):
    shape = SMALL[name]
    for place in range(plan.p):
        more = whole_after_all(shape, plan, place)
        assert held_at(shape, plan, place) == pytest.approx(as_the_footprint_cuts(shape, plan, place) + more, rel=1e-12)
    if plan.zero < 3:
        most = max(as_the_footprint_cuts(shape, plan, place) for place in range(plan.p))
        found = footprint(shape, plan, BATCH).weights
        bound = plan.uneven and shape.experts > 1  # one stage may have most experts, and another one most of all else
        assert found == pytest.approx(2 * most, rel=1e-12) or bound and found > 2 * most


def at_rest(shape, plan, place) -> dict[str, float]:
    """Bytes that a rank keeps behind a step. A footprint counts 2, 2 and 12 for each weight; ranks keep

    gradients  in single precision; without ZeRO the sums beside them, where they are summed in buckets
    weights    with ZeRO 3 as the optimizer's shares alone, which are their master copy; and the loads of experts
    """
    held, (its, others) = weights_at(shape, plan, layers_at(shape, plan, place)), plan.copies
    tp, few = plan.t > 1, shape.heads > 0 and plan.t > shape.key_heads
    parts = ((held.cut, others, False), (held.whole, others, tp and plan.sequence), (held.keys, others, few))
    parts += ((held.routed, its, False), (held.behind, its, tp and not plan.fold), (held.asked, others, tp))
    found = Counter()
    for weights, copies, more in parts:
        sharers = min(plan.z or copies, copies) if plan.zero else 1
        summed = copies > 1 or more
        found["weights"] += weights * (4 / sharers if plan.zero == 3 else 2)
        found["optimizer"] += weights / sharers * (8 if plan.zero == 3 else 12)
        found["gradients"] += 4 * weights * {0: 1 + summed, 1: 1}.get(plan.zero, 1 / sharers)
    blocks = sum(0 < layer <= shape.layers for layer in layers_at(shape, plan, place))
    found["weights"] += 12 * shape.experts * blocks * (shape.experts > 1)
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("name, plan", marked(QUICK + [one for one in COUNTED if one[0] != "tied"], QUICK[:1]))
def test_memory_at_rest_is_the_plans_but_for_what_is_named(name, plan):
    holds_what_the_plan_says(SMALL[name], plan)


def holds_what_the_plan_says(shape, plan, batch=BATCH):
    place, told, *_ = played(shape, plan, batch)
    behind = dict(zip(KINDS, told.kept[-1].tolist()))
    mine = at_rest(shape, plan, place)
    assert {kind: behind[kind] for kind in mine} == pytest.approx(mine, rel=1e-12)
