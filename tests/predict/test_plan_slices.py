"""Plans with token slices: time as simulated, memory as the schedule holds it, bytes, job."""

from dataclasses import replace

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.core.added import added
from hybridlab.core.dry import KINDS
from hybridlab.core.what.catalog import machine, model
from hybridlab.core.what.shape import Shape
from hybridlab.predict.launch import lines
from hybridlab.predict.plans.by_schedule import by_schedule
from hybridlab.predict.plans.bytes_of_rank import VALUE, layers_at, sent, weights_at
from hybridlab.predict.plans.footprint import cached, footprint, in_flight, longer_first, passed
from hybridlab.predict.plans.jobs import job_of_plan
from hybridlab.predict.plans.performance import pieces, step
from hybridlab.predict.plans.plan import Plan, check_plan
from hybridlab.predict.plans.slicing import first_of, lengths, per_token
from hybridlab.predict.plans.space import SHORTEST, chosen, grid

LONG = Shape(layers=16, width=4096, heads=32, context=131_072)
GPT3 = model("gpt3-175b").shape
A100 = machine("a100")
SIZES = [(4, 4, 1, 8), (8, 2, 1, 8), (4, 8, 1, 1), (4, 8, 1, 2), (2, 3, 1, 2), (4, 4, 2, 4), (4, 4, 4, 2), (3, 4, 2, 3)]


@pytest.mark.parametrize("p, n, v, m", SIZES)
@pytest.mark.parametrize("context", [8192, 131_072])
def test_as_many_tokens_are_in_flight_as_in_the_schedule(p, n, v, m, context):
    shape, plan = replace(LONG, context=context), Plan(p=p, n=n, v=v)
    tokens = np.diff(first_of(shape, n, np.arange(n + 1)))
    for r, program in enumerate(hl.schedule("seq1f1b", p, m, slices=n, chunks=v).program):
        slices = np.cumsum([{"F": 1, "B": -1}[one.kind] for one in program])
        held = np.cumsum([{"F": 1, "B": -1}[one.kind] * tokens[one.stage % n] for one in program])
        assert passed(p, m, v, r, n) == slices.max()
        found = in_flight(v, p, m, v, r, n) * longer_first(shape, plan, m, r)
        assert found == pytest.approx(held.max(), rel=1e-9)


@pytest.mark.parametrize("p, n, v, m", SIZES)
def test_the_formula_is_the_schedule(p, n, v, m):
    """As near as for full rows: the messages of a step overlap here and there. Without them and a head it is exact."""
    shape, plan = replace(GPT3, context=32_768, layers=48), Plan(p=p, t=8, n=n, v=v, recompute=2, fused=True)
    found = by_schedule(shape, plan, m, A100)
    one = step(shape, plan, m, A100)
    assert one.total - one.data - one.optimizer == pytest.approx(found.length, rel=0.015)
    alone = hl.simulate(hl.schedule("seq1f1b", p, m, slices=n, chunks=v), hl.Costs(F=1 / n, B=2 / n))
    assert alone.length == pytest.approx(3 * (v * m + (p - 1) / n))
    bubble = one.bubble - (p - 1) * 2 * pieces(shape, plan, m, A100).hop
    full = step(shape, plan._replace(n=1, v=1), m, A100)._replace(messages=0)
    if n * shape.layers <= 4 * 48:  # one launch more for each slice is the rest
        assert bubble < full.bubble / (n * v) * 1.2


def test_what_slices_cost():
    plain, four = (step(GPT3, Plan(p=8, t=8, n=n, zero=0, recompute=2), 8, A100) for n in (1, 4))
    assert four.launch == pytest.approx(4 * plain.launch) and four.multiply == plain.multiply
    assert four.tensor > plain.tensor and four.messages > plain.messages and four.bubble < plain.bubble / 2
    assert four.head == pytest.approx(plain.head) and four.optimizer == plain.optimizer
    short = replace(GPT3, context=512)
    assert step(short, Plan(p=8, t=8, n=8), 8, A100).multiply > step(short, Plan(p=8, t=8), 8, A100).multiply


def test_the_cache_stays_if_all_else_is_recomputed_and_has_gradients():
    plans = [Plan(p=8, t=8, n=n, recompute=2) for n in (1, 4)]
    plain, four = (footprint(replace(GPT3, context=32_768), plan, 8).activations for plan in plans)
    shape = replace(GPT3, context=32_768)
    assert cached(shape, plans[1]) == 2 * shape.context * 2 * shape.width / 8
    rows = in_flight(12, 8, 8, 1, 0, 4) * longer_first(shape, plans[1], 8, 0)
    entered = 2 * shape.context * shape.width
    one_block = footprint(shape, plans[0], 8).activations - 12 * 8 * entered
    expected = rows * (entered + cached(shape, plans[1])) + 12 * cached(shape, plans[1])
    expected += float(first_of(shape, 4)) * one_block
    assert four == pytest.approx(expected) and four < plain


SMALL = {
    "gpt": Shape(layers=4, width=64, heads=4, context=64),
    "llama": Shape(layers=4, width=64, heads=4, context=64, style="llama", kv_heads=2),
    "experts": Shape(layers=4, width=64, heads=4, context=64, experts=4, chosen=2),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "of, plan",
    [
        ("gpt", Plan(p=2, t=2, n=4)),
        ("llama", Plan(p=2, d=2, n=2, v=2, zero=1)),
        ("llama", Plan(p=3, n=3, uneven=True)),
        ("experts", Plan(p=2, ep=2, t=2, n=2)),
    ],
    ids=str,
)
def test_a_rank_holds_and_sends_what_a_dry_run_says(of, plan):
    shape, batch = SMALL[of], 8
    job = job_of_plan(plan, shape, batch)
    for place in range(plan.p):
        told = hl.dry_run(**job, rank=job["mesh"].rank(pp=place))
        held = told.held[:, list(KINDS).index("weights")].max() / VALUE
        if shape.experts == 1:
            assert held == added(weights_at(shape, plan, layers_at(shape, plan, place)))
        if not plan.zero:
            assert told.bytes == pytest.approx(sent(shape, plan, batch, place))


@pytest.mark.slow
@pytest.mark.parametrize("of", ["gpt", "llama"])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_activations_of_a_dry_run_are_those_of_the_rows_in_flight(of, n):
    """Our layers save keys and values of earlier slices again, in each slice: a copy, which a shared cache avoids."""
    shape, rank, kind = SMALL[of], 1, list(KINDS).index("activations")
    found = {}
    for many in (1, n):
        job = job_of_plan(Plan(p=2, n=many), shape, 4)
        held = hl.dry_run(**job, rank=rank).held[:, kind].max()
        found[many] = held
    cut = lengths(shape, n, "cost")
    past = added(added(cut[:i]) for i in range(n))
    copies = 2 * cached(shape, Plan()) / shape.context * past  # of two blocks, for a row: the last rank has one
    assert found[n] == pytest.approx(found[1] + copies, rel=0.04)


def test_a_search_finds_only_what_can_be_run():
    shape = Shape(layers=4, heads=4, context=8 * SHORTEST)
    found = chosen(*grid(shape, 8, 8, contexts=True, slices=True))
    sliced = found.n > 1
    assert set(found.n) == {1, 2, 4, 8} and min(found.p[sliced]) > 1
    assert not any(found.sequence[sliced] | found.scatter[sliced]) and set(found.cp[sliced]) == {1}
    for place in np.flatnonzero(sliced)[::50]:
        check_plan(found.one(int(place)), shape, 8)
    assert set(chosen(*grid(Shape(layers=4, heads=4), 8, 8, slices=True, given={"n": 3})).n) == {3}
    assert set(chosen(*grid(shape, 8, 8)).n) == {1}
    for more in ({"p": 1}, {"spread_head": True}, {"p": 2, "v": 3, "uneven": True}):
        with pytest.raises(ValueError, match="slices need several stages, each with a block"):
            check_plan(Plan(**{"p": 2, "n": 2} | more), Shape(layers=4), 12)
    short = Shape(layers=4, heads=4, context=16)
    assert not any(one.legal.any() for one in grid(short, 8, 8, slices=True, given={"n": 17})[1])
    for asked in (lambda: check_plan(Plan(p=2, n=17), short, 12), lambda: hl.plan(short, "a100", 8, 8, n=17)):
        with pytest.raises(ValueError, match="n = 17 slices are too many: a row has 16 tokens"):
            asked()
    with pytest.raises(ValueError, match="the 3 slices do not fit p = 2"):
        check_plan(Plan(p=2, v=2, n=3), Shape(layers=4), 1)


ASKED = {"machine": "h100", "gpus": 512, "contexts": True, "slices": True}


@pytest.mark.parametrize("context, axis", [(8192, "cp"), (32_768, "n"), (131_072, "cp")])
def test_long_rows_are_cut_in_slices_or_over_ranks_where_that_wins(context, axis):
    """GPT-3 on 512 H100s, with two million tokens in a step."""
    planned = hl.plan(replace(GPT3, context=context), batch=2**21 // context, **ASKED)
    best, other = planned.best.plan, {"cp": "n", "n": "cp"}[axis]
    assert getattr(best, axis) > 1 and getattr(best, other) == 1
    both = planned.only(cp=1, n=1).best.step.total
    assert planned.best.step.total < planned.only(cp=1).best.step.total or axis == "n"
    assert planned.best.step.total < both
    told = planned.why(**{axis: 1})
    assert told.startswith(f"{axis}=1 is ") and "slower" in told


def test_without_the_switch_slices_are_not_looked_at_and_a_number_asks_for_them(capsys):
    from hybridlab.cli.main import main

    shape = replace(GPT3, context=32_768)
    plain = hl.plan(shape, "h100", 512, 64)
    assert plain.why(n=4) == "n=4 was not searched: hl.plan(..., slices=True) does"
    four = hl.plan(shape, "h100", 512, 64, n=4)
    assert four.best.plan.n == 4 and "4 slices of a row" in str(four.best)
    assert four.best.job()["schedule"] == "seq1f1b" and four.best.job()["slices"] == 4
    small = four.best.scaled()
    assert small.plan.n == 2 and small.job()["slicing"] == "cost"
    asked = "plan --model gpt3-175b --context 32768 --machine h100 --gpus 512 --batch 64".split()
    assert main([*asked, "--slices"]) == 0 and "16 slices of a row" in capsys.readouterr().out
    assert main([*asked, "--slices", "4"]) == 0 and "4 slices of a row" in capsys.readouterr().out


@pytest.mark.parametrize("start", [lines.megatron, lines.torchtitan])
def test_programs_without_slices_refuse_them(start):
    with pytest.raises(ValueError, match="has no token slices: leave out n"):
        start(Plan(p=2, n=2), Shape(layers=4, heads=4), 8)


def test_a_slice_costs_as_much_as_every_other():
    ends, (alpha, beta) = first_of(LONG, 4, np.arange(5)) * LONG.context, per_token(LONG)
    costs = np.diff(alpha * ends + beta * ends**2 / 2)
    assert ends[4] == LONG.context and costs == pytest.approx(np.full(4, costs.mean()))
