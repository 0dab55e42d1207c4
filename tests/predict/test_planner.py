"""The planner: the space is whole, the best is the best of all, its formulas agree with the schedules, and what the
lectures conclude comes out. One-line mutants of the formulas are caught."""

import json
import math
import re
import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from few import first
from hypothesis import example, given, settings
from hypothesis import strategies as st
from one_line import change

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.what.catalog import MODELS, Machine, machine, model
from hybridlab.predict.bytes.activations import FULL, NONE, RECOMPUTE, SELECTIVE, kept
from hybridlab.predict.bytes.context import GATHER, RING, USP
from hybridlab.predict.papers import sc21
from hybridlab.predict.plans import by_schedule, heaviest, performance, time_of_gradients
from hybridlab.predict.plans import footprint as footprints
from hybridlab.predict.plans import rates as of_machines
from hybridlab.predict.plans import space as spaces
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.plan import Plan, check_plan, named
from hybridlab.predict.plans.planner import plan
from hybridlab.predict.plans.rates import Near, Rates
from hybridlab.predict.plans.refusals import NEAR, _rows

A100 = machine("a100")
PAPER = {"zero": 0, "recompute": "full", "sequence": False}  # what SC'21's programs could do
SMALL = Machine("small", "nodes of 4 for tests", 4, 1e12, 3e6, 1e11, 1e10, 1e9, (1e-6, 1e-5), {})
TOY = hl.Shape(layers=6, width=48, heads=6, context=16, vocabulary=64)


# --- the space --------------------------------------------------------------------------------------------------

shapes = st.builds(
    lambda routed, **sizes: hl.Shape(width=24, context=8, experts=routed[0], chosen=routed[1], **sizes),
    layers=st.integers(1, 6),
    heads=st.sampled_from((0, 1, 2, 4, 6)),
    routed=st.sampled_from(((1, 1), (1, 1), (4, 1), (6, 2))),
)


def legal(shape, devices, batch, grids=False, contexts=False, experts=False, **found):
    """Every plan that `check_plan` lets through, tried one by one, with all switches that make a difference."""
    ways = [n for n in range(1, devices + 1) if devices % n == 0]
    sizes = [ways] * 3 + [ways if asked else [1] for asked in (grids, contexts, experts)]
    for p, t, d, x, cp, ep in (some for some in product(*sizes) if math.prod(some) == devices):
        cuts = [(False, False)] + [(True, False)] * (t > 1) + [(False, True)] * (t > 1 and p > 1)
        meetings = product(range(4), ways, (False, True)) if cp > 1 and shape.heads else [(0, 1, False)]
        meetings = [(how, u, zigzag) for how, u, zigzag in meetings if zigzag or how != USP]  # never quicker without
        folds = (False, True) if experts and t * cp > 1 and shape.experts > 1 else (False,)
        switches = list(product(meetings, range(2 if ep > 1 else 1), folds))
        counts = range(1, batch + 1), range(1, shape.layers + 1)
        for b, v, ((attend, u, zigzag), dispatch, fold) in product(*counts, switches):
            axes = {"x": x, "cp": cp, "attend": attend, "ulysses": u, "zigzag": zigzag, "ep": ep, "dispatch": dispatch}
            axes["fold"] = fold
            axes |= found
            if not lawful(Plan(p, t, d, b, v, **axes), shape, batch):
                continue
            for how, zero, cut in product(range(len(RECOMPUTE)), range(4 if d * cp * ep > 1 else 1), cuts):
                if how == SELECTIVE and (found.get("fused") or attend in (RING, USP) or not shape.heads):
                    continue  # no scores are kept
                if any(cut) and not lawful(Plan(p, t, d, b, v, how, zero, *cut, **axes), shape, batch):
                    continue  # the positions do not divide
                for z in range(d if grids and zero == 3 else 1):
                    if z != 1 and (z == 0 or d % z == 0):
                        yield Plan(p, t, d, b, v, how, zero, *cut, z=z, **axes)


def lawful(one, shape, batch):
    try:
        return bool(check_plan(one, shape, batch))
    except ValueError:
        return False


def every(found):
    return [found.one(place) for place in range(len(found.p))]


def the_space_is_what_is_legal(shape, devices, batch, *asked, **found):
    wanted = list(legal(shape, devices, batch, *asked, **found))
    found = every(spaces.chosen(*spaces.grid(shape, devices, batch, *asked, **found)))
    assert len(found) == len(set(found)) == len(wanted)
    assert set(found) == set(wanted)


asked_for = st.tuples(st.booleans(), st.booleans(), st.booleans())  # grids, contexts, experts
conditions = st.builds(dict, skew=st.sampled_from((0.0, 0.8)), fused=st.booleans())


def effective(shape, found):
    """The conditions that have an effect on this model."""
    return {name: value for name, value in found.items() if name != "skew" or shape.experts > 1}


def columns(one):
    """Every number of a result, or array of numbers, in nested tuples."""
    return [column for part in one for column in columns(part)] if isinstance(one, tuple) else [one]


@given(shape=shapes, devices=st.integers(1, 8), batch=st.integers(1, 6), axes=asked_for, found=conditions)
@example(hl.Shape(layers=1, width=24, context=8, heads=6), 6, 1, (False, True, False), {})
@settings(max_examples=60)
@pytest.mark.long
def test_the_space_is_every_plan_that_is_legal(shape, devices, batch, axes, found):
    the_space_is_what_is_legal(shape, devices, batch, *axes, **found)


@pytest.mark.parametrize(
    "one, same",
    [
        (Plan(p=2, t=1, d=2, sequence=True), Plan(p=2, t=1, d=2)),
        (Plan(p=2, t=1, d=2, scatter=True), Plan(p=2, t=1, d=2)),
        (Plan(p=1, t=2, d=2, scatter=True), Plan(p=1, t=2, d=2)),
        (Plan(p=2, t=2, d=1, sequence=True, scatter=True), Plan(p=2, t=2, d=1, sequence=True)),
        *((Plan(p=2, t=2, d=1, zero=stage), Plan(p=2, t=2, d=1)) for stage in (1, 2, 3)),
    ],
)
def test_what_the_space_leaves_out_makes_no_difference(one, same):
    for of in (lambda plan: performance.step(TOY, plan, 8, SMALL), lambda plan: footprints.footprint(TOY, plan, 8)):
        assert tuple(map(float, of(one))) == tuple(map(float, of(same)))


def test_no_space_is_empty_arrays():
    nothing = spaces.space(hl.Shape(layers=4), devices=5, batch=4)
    assert [len(field) for field in nothing] == [0] * len(Plan._fields)


# --- the best of all --------------------------------------------------------------------------------------------


@pytest.mark.long
@given(
    shape=shapes,
    devices=st.integers(1, 8),
    batch=st.integers(1, 8),
    memory=st.floats(2e5, 4e6),
    axes=asked_for,
    found=conditions,
)
@settings(max_examples=40)
def test_the_best_is_the_best_of_plans_tried_one_by_one(shape, devices, batch, memory, axes, found):

    kind, tried = replace(SMALL, memory=memory), []
    grids, contexts, experts = axes
    asked = {"grids": grids, "contexts": contexts, "experts": experts} | effective(shape, found)
    for one in legal(shape, devices, batch, **asked):
        seconds = float(performance.step(shape, one, batch, kind).total)
        needs = float(footprints.footprint(shape, one, batch).total)
        if needs <= footprints.ROOM * memory:
            tried.append((seconds, needs))
    if not tried:
        with pytest.raises(ValueError, match="no plan fits|needs ≥|no p·t·"):
            plan(shape, kind, devices, batch, **asked)
        return
    best = plan(shape, kind, devices, batch, **asked).best
    assert math.isclose(best.step.total, min(tried)[0], rel_tol=1e-12)
    assert best.memory.total <= footprints.ROOM * memory


@pytest.mark.parametrize(
    "name, gpus, batch, more",
    [
        ("gpt-18.4b", 32, 64, {}),
        ("llama3-8b", 16, 32, {}),
        ("mixtral-8x7b", 32, 16, {}),
        ("llama3-8b", 16, 4, {"contexts": True, "fused": True}),
        ("mixtral-8x7b", 8, 4, {"contexts": True, "experts": True, "skew": 0.7}),
    ],
)
@pytest.mark.long
def test_many_plans_at_once_are_what_each_is_alone(name, gpus, batch, more):
    shape = model(name).shape
    found = spaces.chosen(*spaces.grid(shape, gpus, batch, **more))
    at_once = [performance.pieces(shape, found, batch, A100), performance.step(shape, found, batch, A100),
               footprints.footprint(shape, found, batch)]  # fmt: skip
    for place in range(0, len(found.p), 101):
        one = found.one(place)
        alone = [performance.pieces(shape, one, batch, A100), performance.step(shape, one, batch, A100),
                 footprints.footprint(shape, one, batch)]  # fmt: skip
        for mine, its in zip(alone, at_once):
            for name, a, b in zip(mine._fields, mine, its):
                b = [np.broadcast_to(column, len(found.p))[place] for column in columns(b)]
                assert np.allclose(np.array(columns(a), float), np.array(b, float), rtol=1e-12, atol=0), (
                    name,
                    str(one),
                )
    rates = performance.throughput(shape, found, batch, A100)
    assert np.isclose(rates[0], performance.throughput(shape, found.one(0), batch, A100), rtol=1e-12)


@pytest.mark.slow
def test_the_front_is_what_nobody_beats():
    planned = plan("gpt-18.4b", "a100", gpus=64, batch=64)
    front = planned.front
    assert front[0] == planned.best and len(front) > 5
    on_it = {(one.step.total, one.memory.total) for one in front}
    times, sizes = planned.seconds[planned.fits], planned.bytes[planned.fits]
    for seconds, size in on_it:
        assert not ((times <= seconds) & (sizes <= size) & ((times < seconds) | (sizes < size))).any()
    assert [one.step.total for one in front] == sorted(one.step.total for one in front)
    beaten = [not any(s <= a and m <= b for s, m in on_it) for a, b in zip(times, sizes)]
    assert not any(beaten), "whoever is not on the front is beaten by somebody on it"


def test_the_top_are_the_quickest_and_each_sizes_once():
    planned = plan("gpt-18.4b", "a100", gpus=64, batch=64)
    top = planned.top(10)
    assert [one.step.total for one in top] == sorted(one.step.total for one in top) and len(top) == 10
    assert len({one.plan[:5] for one in top}) == 10 and top[0] == planned.best


def test_what_does_not_fit_is_counted_by_what_weighs_most():
    planned = plan("gpt-39.1b", "a100", gpus=64, batch=64)
    assert sum(planned.rejected.values()) == int((~planned.fits).sum()) > 0
    assert set(planned.rejected) == set(footprints.Footprint._fields)


# --- why --------------------------------------------------------------------------------------------------------

GPT3 = plan("gpt3-175b", "a100", gpus=1024, batch=1536, **PAPER)


@pytest.mark.parametrize(
    "sizes, said",
    [
        ({"t": 5}, "t=5 is impossible: p·t·d must be 1024"),
        ({"p": 4, "t": 4, "d": 4}, "p=4, t=4, d=4 is impossible: p·t·d must be 1024"),
        ({"t": 64, "p": 1}, "t=64, p=1 is impossible: t = 64 must divide the 96 heads: choose it from 1, 2, 3"),
        ({"p": 64}, "p=64 is impossible: p·v = 64 must divide the model's 96 layers"),
        ({"d": 1024}, "d=1024 is impossible: b·d = 1024 must divide the batch of 1536"),
        ({"b": 5}, "b=5 is impossible: b·d = 5 must divide the batch of 1536"),
        ({"p": 1}, "p=1 does not fit: at least 93 GB on one device, most of it optimizer, and 76 of 80 GB may be used"),
        ({"t": 16}, "; its tensor groups leave the node of 8: tp all-reduces +"),
        ({"b": 8}, "; its best plan has t=16, which leaves the node of 8: tp all-reduces +"),
        ({"b": 32}, "b=32 does not fit: at least 82 GB on one device, most of it activations"),
        ({"v": 1}, " s: the pipeline bubble +"),
    ],
)
def test_why_names_the_number(sizes, said):
    sentence = GPT3.why(**sizes)
    assert said in sentence and sentence.startswith(", ".join(f"{name}={size}" for name, size in sizes.items()))


GRID = plan("gpt-1.7b", "a100", gpus=64, batch=64, grids=True)


@pytest.mark.parametrize(
    "sizes, said",
    [
        ({"x": 3}, "x=3 is impossible: p·t·x·d must be 64"),
        ({"t": 3}, "t=3 is impossible: p·t·x·d must be 64"),
        ({"p": 1, "t": 8, "x": 2, "d": 2}, "p=1, t=8, x=2, d=2 is impossible: p·t·x·d must be 64"),
        ({"p": 1, "t": 16, "d": 1}, "p=1, t=16, d=1 is impossible: t = 16 must divide the 24 heads"),
        ({"z": 3}, "z=3 is impossible: z must divide d, which divides 64"),
        ({"z": 3, "d": 8}, "z=3, d=8 is impossible: z must divide d, which is 8"),
        ({"z": 2, "zero": 1, "d": 8}, "z = 2 cannot shard the weights over d = 8 replicas: give zero=3"),
    ],
)
def test_why_speaks_of_x_and_z_on_a_grid(sizes, said):
    assert said in GRID.why(**sizes)


def test_why_of_a_losing_plan_has_both_steps():
    other, best = GPT3.only(t=16).best, GPT3.best
    sentence = GPT3.why(t=16)
    assert f"{other.step.total / best.step.total - 1:.0%} slower" in sentence
    assert f"{other.step.total:.2f} s in place of {best.step.total:.2f} s" in sentence


FREE = plan("gpt-39.1b", "a100", gpus=512, batch=1536)


@pytest.mark.parametrize("planned, sizes", [(GPT3, dict(t=16)), (GPT3, dict(t=2)), (GPT3, dict(p=8)), (GPT3, dict(v=1)),
                                            (GPT3, dict(b=1)), (FREE, dict(zero=0)), (FREE, dict(p=4))])  # fmt: skip
def test_why_adds_up_to_the_whole_difference(planned, sizes):
    """The seconds of all terms, as printed, are the difference of the two steps, as printed."""
    sentence = planned.why(**sizes)
    mine, its = map(float, re.search(r"([\d.]+) s in place of ([\d.]+) s", sentence).groups())
    changes = [float(one) for one in re.findall(r" ([+-][\d.]+) s", sentence)]
    assert len(changes) > 1 and sum(changes) == pytest.approx(mine - its, abs=1e-9)
    assert abs(changes[-1]) < max(map(abs, changes[:-1])), "what is not named is not the reason"


def test_why_of_the_best_says_so():
    best = GPT3.best
    assert GPT3.why(**best.plan._asdict()).endswith(f"is the best: {best}")


@pytest.mark.long
def test_every_factorisation_gets_a_sentence():
    for p, t in product(spaces.divisors(64), repeat=2):
        sentence = plan("gpt-161b", "a100", 64, 128, **PAPER).why(p=p, t=t)
        assert any(word in sentence for word in ("impossible", "does not fit", "slower", "is the best")), sentence


# --- what cannot be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked, said",
    [
        (("gpt3-175b", "a100", 8, 96), "needs ≥ 35 GPUs of 80 GB: weights, gradients and Adam's state of 174.6"),
        (("gpt3-175b", "h200", 8, 96), "needs ≥ 20 GPUs of 141 GB"),
        (("gpt3-175b", "a100", 36, 96), "no plan fits into 95% of 80 GB: the smallest, p=1 t=12 d=3 b=1"),
        (("gpt-1.7b", "a100", 7, 64), "no p·t·d = 7 divides this model and batch: t must divide 24 heads, p 24 layers"),
        (("gpt-1.7b", "a100", 0, 64), "gpus=0 is out of range: give 1 or more"),
        (("gpt-1.7b", "a100", 8, 0), "batch=0 is out of range"),
        (("gpt-0b", "a100", 8, 8), "there is no model 'gpt-0b'"),
        (("gpt-1.7b", "b100", 8, 8), "there is no machine 'b100'"),
    ],
)
def test_the_impossible_is_told_what_is_missing(asked, said):
    with pytest.raises(ValueError) as error:
        plan(*asked)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"x": 7}, "no p·t·x·d = 64 divides this model and batch with x=7: t must divide 24 heads, p 24 layers "
                   "(stages=True also searches unequal stages), x a width of 2304, d a batch of 64; choose a number"),
        ({"z": 3}, "x a width of 2304, d a batch of 64, z d; choose"),
    ],
)  # fmt: skip
def test_on_a_grid_x_and_z_are_told_too(given, said):
    with pytest.raises(ValueError) as error:
        plan("gpt-1.7b", "a100", 64, 64, **given)
    assert said in str(error.value)


def test_a_field_that_a_plan_has_not_is_refused():
    with pytest.raises(ValueError, match="a plan has no 'q': choose from p, t, d"):
        GPT3.why(q=1)
    with pytest.raises(ValueError, match="recompute='some' is not known"):
        plan("gpt-1.7b", "a100", 8, 64, recompute="some")


# --- the formulas against the schedules -------------------------------------------------------------------------


def the_live_count_is_the_schedules(p, m, v):
    timeline = hl.simulate(by_schedule.schedule_of(Plan(p=p, b=1, v=v), batch=m))
    assert footprints.live(p, m, v) * v == timeline.peak_live[0] == max(timeline.peak_live)


@pytest.mark.parametrize("p", (1, 2, 3, 4, 8))
@pytest.mark.long
def test_live_is_the_peak_of_the_real_schedule(p):
    for m in (1, 2, 3, 5, 8, 16):
        the_live_count_is_the_schedules(p, m, 1)
    for v, rounds in product((2, 3, 5), (1, 2, 5)) if p > 1 else ():
        the_live_count_is_the_schedules(p, rounds * p, v)


def without_the_end(one):
    """Seconds of a step without the sum over copies and the optimizer, which `by_schedule` leaves out."""
    return one.step.total - one.step.data - one.step.optimizer


@pytest.mark.parametrize(
    "name, gpus, batch, more",
    [
        ("gpt-39.1b", 512, 1536, {}),
        ("gpt-161b", 64, 128, {}),
        ("llama3-70b", 256, 128, {"contexts": True, "fused": True}),
        ("mixtral-8x22b", 256, 512, {"experts": True, "fused": True}),
    ],
)
@pytest.mark.long
def test_the_real_schedule_takes_what_the_formula_says(name, gpus, batch, more):
    planned = plan(name, "a100", gpus, batch, **more)
    top = planned.top(20)
    played = [by_schedule.by_schedule(planned.shape, one.plan, batch, A100).length for one in top]
    for one, length in zip(top, played):
        assert abs(length / without_the_end(one) - 1) < 0.01, str(one.plan)
    whole = [length + one.step.total - without_the_end(one) for one, length in zip(top, played)]
    for i, j in product(range(len(top)), repeat=2):
        if top[i].step.total * 1.01 < top[j].step.total:
            assert whole[i] < whole[j], "plans more than the tolerance apart keep their order"


# --- what the lectures conclude ---------------------------------------------------------------------------------

PUBLISHED = [*sc21.table(), *(sc21.figure(number)[-1] for number in (12, 13, 16))]  # and 175B, 161B, 91B
SEVERAL_NODES = [row for row in PUBLISHED if row.shape.parameters * 16 > footprints.ROOM * A100.node * A100.memory]
each_large = pytest.mark.parametrize("row", SEVERAL_NODES, ids=lambda row: f"{row.shape.parameters / 1e9:.0f}B")


def of(row, **given):
    return plan(row.shape, A100, row.plan.devices, row.batch, **given)


def test_every_large_gpt_of_the_catalog_is_looked_at():
    large = [one for one in MODELS.values() if one.name.startswith("gpt") and one.shape.parameters > 39e9]
    assert {one.shape for one in large} == {row.shape for row in SEVERAL_NODES}


@each_large
def test_takeaway_1_tensor_inside_a_node_and_stages_across(row):
    """Zhang: tensor parallelism within a server, pipeline parallelism to scale to several."""
    planned = of(row, **PAPER)
    best = planned.best.plan
    assert 1 < best.t <= A100.node < best.p * best.t and best.p > 1
    beyond = planned.only(t=16)
    if len(beyond.order):
        assert beyond.best.step.total > 1.05 * planned.best.step.total
        assert "leave the node of 8" in planned.why(t=16)


@each_large
def test_takeaway_1_holds_with_all_choices_of_today_too(row):
    assert of(row).best.plan.t <= A100.node


@each_large
def test_takeaway_2_model_parallel_by_memory_then_copies(row):
    """Zhang: model parallelism by the size of memory, data parallelism to scale. Nearly: the largest number of copies
    that fits leaves no room for larger microbatches; the best is never less than half of it."""
    planned = of(row, **PAPER)
    best = planned.best.plan
    most = int(planned.space.d[planned.fits].max())
    assert best.d <= most <= 2 * best.d
    chain = [d for d in spaces.divisors(best.d) if planned.only(d=d).fits.any()]
    times = [planned.only(d=d).best.step.total for d in chain]
    assert times == sorted(times, reverse=True), "more copies, less time, up to the best"


@pytest.mark.slow
def test_takeaway_2_is_exact_for_most_of_the_table():
    exact = [of(row, **PAPER) for row in sc21.table()]
    exact = [int(one.space.d[one.fits].max()) == one.best.plan.d for one in exact]
    assert sum(exact) >= 6


def test_data_parallelism_ends_at_the_batch():
    shape = model("gpt-1.7b").shape
    assert max(plan(shape, A100, 64, 64).space.d) == 64 and max(plan(shape, A100, 64, 32).space.d) == 32
    with pytest.raises(ValueError, match="d a batch of 32"):
        plan(shape, A100, 64, 32, t=1, p=1)


@pytest.mark.parametrize("batch", (32, 128))
def test_the_161b_figure_peaks_where_t_and_p_are_8(batch):
    rows = [row for row in sc21.figure(13) if row.batch == batch]
    assert max(rows, key=lambda row: row.predicted()).plan[:2] == (8, 8)


@pytest.mark.parametrize(
    "gpus, batch, fixed, devices, batches",
    [
        (65, 64, {}, (64, 72), (65,)),
        (31, 30, {}, (30, 32), (31,)),
        (64, 64, {"p": 7}, (), ()),
        (7, 64, {"d": 5}, (), ()),
        (64, 100, {"d": 16}, (), (96, 112)),
        (64, 100, {"p": 4, "t": 2, "b": 2}, (80,), (96, 112)),
    ],
)
def test_the_nearest_legal_numbers_of_devices_and_batches_are_named(gpus, batch, fixed, devices, batches):
    with pytest.raises(ValueError, match="choose a number of gpus") as refused:
        plan("gpt-1.7b", A100, gpus, batch, **fixed)
    such = f", such as {' or '.join(map(str, devices))}" if devices else ""
    other = f", or a batch of {' or '.join(map(str, batches))}" if batches else ""
    assert str(refused.value).endswith(f"){such}{other}")
    for one in devices:
        assert plan("gpt-1.7b", A100, one, batch, **fixed).best.plan.devices == one
    for one in batches:
        assert plan("gpt-1.7b", A100, gpus, one, **fixed).best.batch == one
    nearer = range(*batches) if len(batches) == 2 else range(batch - NEAR, batch)
    assert not any(_legal(gpus, one, fixed) for one in nearer if one not in (*batches, batch))


def _legal(gpus, batch, fixed) -> bool:
    return any(len(one.places) for one in spaces.grid(model("gpt-1.7b").shape, gpus, batch, given=fixed)[1])


def test_what_is_shown_of_all_plans_is_the_five_quickest():
    found = plan("gpt-1.7b", A100, 64, 64)
    assert list(found._from_the_fastest()) == found.order.tolist()  # sorted in parts, as if sorted at once
    first, *rows, last, assumed = repr(found).splitlines()
    assert first == f"{len(found.seconds)} legal plans, {int(found.fits.sum())} of them fit; the quickest:"
    assert rows == [f"  {one}" for one in found.top(5)] and last.startswith(f"Predictions err by {found.error}")
    said = "2,048 tokens in a sequence, megatron-2021 in bf16, unfused attention, AdamW, GEMMs at 72% of the peak"
    assert assumed.startswith(f"Assumed: {said}")
    assert last.endswith(f"the first {len(found.ties)} are as good as equal") and len(found.ties) > 1
    alone = found.only(t=found.best.plan.t, p=found.best.plan.p, d=found.best.plan.d, zero=0)
    assert len(alone.ties) > 1 or repr(alone).splitlines()[-2].endswith("none is as good as the first")
    none = found.only(p=3)
    assert repr(none) == f"0 legal plans, none of them fits: {none.nothing}" and none.nothing


# --- the command line -------------------------------------------------------------------------------------------


def asked(capsys, *arguments):
    code = main(["plan", *arguments, "--json"])
    return code, capsys.readouterr()


def found_error():
    return plan("gpt3-175b", "a100", gpus=1024, batch=1536, zero=0).error


@pytest.mark.slow
def test_the_command_answers_with_all_keys(capsys):
    code, said = asked(capsys, *"--model gpt3-175b --gpus 1024 --batch 1536 --zero 0 --tokens 300e9 --price 2".split())
    answer = json.loads(said.out.splitlines()[-1])
    assert code == 0 and {"best", "front", "rejected"} <= answer.keys()
    wanted = {"p", "t", "d", "b", "v", "recompute", "step_seconds", "tflops_per_gpu", "memory_gb", "days"}
    assert wanted <= answer["best"].keys() and answer["best"]["zero"] == 0
    assert answer["best"]["p"] * answer["best"]["t"] * answer["best"]["d"] == 1024
    steps = 300e9 / (1536 * 2048)
    assert math.isclose(answer["best"]["days"], steps * answer["best"]["step_seconds"] / 86400, rel_tol=1e-9)
    hours = 24 * 1024 * answer["best"]["days"]
    assert answer["best"]["gpu_hours"] == pytest.approx(hours) and answer["best"]["cost"] == pytest.approx(2 * hours)
    line = next(line for line in said.out.splitlines() if "tokens take" in line)
    assert line.endswith(f"{hours:,.0f} GPU-hours, which cost {2 * hours:,.0f} at 2 each ({found_error()})")
    assert answer["front"][0]["step_seconds"] == answer["best"]["step_seconds"]


@pytest.mark.slow
def test_the_command_keeps_to_the_memory_that_may_be_used(capsys):
    asked = ["plan", "--model", "gpt-39.1b", "--gpus", "64", "--batch", "64", "--json"]
    held = []
    for more in ([], ["--memory", "30e9"]):
        assert main([*asked, *more]) == 0
        held.append(json.loads(capsys.readouterr().out.splitlines()[-1])["best"]["memory_gb"])
    assert held[1] <= 30 < held[0] <= 76


@pytest.mark.slow
def test_the_command_knows_pods_and_what_leads_out_of_them(capsys):
    asked = ["plan", "--model", "gpt-39.1b", "--gpus", "256", "--batch", "256", "--json"]
    took = []
    for more in ("", "--pod 64", "--pod 64 --oversubscription 16"):
        assert main([*asked, *more.split()]) == 0
        took.append(json.loads(capsys.readouterr().out.splitlines()[-1])["best"]["step_seconds"])
    assert took[0] == took[1] < took[2]
    pods = replace(A100, pod=64, oversubscription=16.0)
    assert took[2] == plan("gpt-39.1b", pods, 256, 256).best.facts["step_seconds"]


@pytest.mark.parametrize("ratio", ["0.5", "inf"])
def test_links_out_of_a_pod_are_no_wider_than_those_in_it(ratio, capsys):
    assert main(["plan", "--gpus", "64", "--batch", "64", "--pod", "64", "--oversubscription", ratio]) != 0
    assert "is not a valid ratio: give 1 or more, such as 7" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_plans_on_grids(capsys):
    line = "--model gpt-1.7b --machine a100 --gpus 32 --batch 64"
    best = {}
    for more in ("", " --grids", " --x 2 --owners 4"):
        code, said = asked(capsys, *(line + more).split())
        best[more] = json.loads(said.out.splitlines()[-1])["best"]
        assert code == 0
    assert best[" --grids"]["step_seconds"] <= best[""]["step_seconds"] and best[""]["x"] == 1
    fixed = best[" --x 2 --owners 4"]
    assert fixed["x"] == 2 and fixed["z"] == 4 and fixed["p"] * fixed["t"] * fixed["x"] * fixed["d"] == 32


@pytest.mark.long
def test_the_command_plans_along_the_sequence_and_with_experts(capsys):
    line = "--model llama3-8b --machine h100 --gpus 64 --batch 8 --context 65536 --fused"
    best = {}
    for more in (" --with-cp", " --cp 8 --attend ring --zigzag", " --cp 8 --attend gather"):
        code, said = asked(capsys, *(line + more).split())
        best[more] = json.loads(said.out.splitlines()[-1])["best"]
        assert code == 0 and best[more]["fused"] is True
    assert min(best.values(), key=lambda one: one["step_seconds"]) == best[" --with-cp"]
    ring = best[" --cp 8 --attend ring --zigzag"]
    assert (ring["cp"], ring["attend"], ring["zigzag"]) == (8, "ring", True)
    line = "--model mixtral-8x7b --machine h100 --gpus 64 --batch 256 --context 4096 --with-ep --skew 0.5"
    code, said = asked(capsys, *line.split(), "--ep", "8", "--dispatch", "all_to_all", "--why", "ep=8")
    answer = json.loads(said.out.splitlines()[-1])
    assert code == 0 and answer["best"]["ep"] == 8 and answer["best"]["skew"] == 0.5 and "is the best" in answer["why"]


def test_the_command_says_what_is_missing(capsys):
    code, said = asked(capsys, *"--model gpt3-175b --machine a100 --gpus 8 --batch 96".split())
    assert code == 2 and "needs ≥ 35 GPUs of 80 GB" in said.err and "Traceback" not in said.err


# --- mutants ----------------------------------------------------------------------------------------------------
# Each is one line of a formula, changed; each must break one of these laws, which say the same in another way.


def gpt(**sizes):
    return Plan(**{"p": 1, "t": 1, "d": 1, "b": 1, "recompute": FULL} | sizes)


def idle_is_the_schedules():
    for sizes in ({"p": 4}, {"p": 4, "v": 2}, {"p": 8, "v": 3}):
        one = gpt(**sizes)
        formula = performance.step(SHAPE, one, 8, A100)
        played = by_schedule.by_schedule(SHAPE, one, 8, A100).length + float(formula.data + formula.optimizer)
        assert abs(played / float(formula.total) - 1) < 0.02


def live_is_the_schedules():
    for p, m, v in ((4, 8, 1), (4, 2, 1), (4, 8, 2), (8, 16, 3)):
        the_live_count_is_the_schedules(p, m, v)


def every_operation_takes_its_time():
    """What all devices multiply, in FLOP, is what arithmetic says."""
    for how, name in enumerate(RECOMPUTE):
        for sizes in ({}, {"t": 8}, {"p": 4, "t": 2, "d": 2}, {"x": 4, "t": 2}):
            one = gpt(recompute=how, **sizes)
            work = flops(SHAPE, 8, name)
            spent = float(performance.step(SHAPE, one, 8, A100).multiply) * one.devices * A100.peak
            done = work.blocks + one.x * work.attention  # along x attention is done by all
            assert math.isclose(spent * performance.FITTED.multiply, done, rel_tol=1e-9)


def every_kept_byte_is_read_and_written():
    """Pointwise work without recomputation: each kept byte twice in the forward, four times in the backward."""
    spent = float(performance.step(SHAPE, gpt(recompute=NONE), 8, A100).pointwise) * A100.bandwidth
    assert math.isclose(spent * performance.FITTED.memory, 6 * 8 * SHAPE.layers * kept(SHAPE, 1).total, rel_tol=1e-9)


def gradients_are_summed_once_around_the_ring():
    """16 copies of one device each, over two nodes: 7/8 inside twice, then two nodes exchange their eighths."""
    size, d = 2 * SHAPE.parameters, 16
    expected = 2 * 7 / 8 * size / A100.inside + size / 8 / A100.across + 14 * A100.latency[0] + 2 * A100.latency[1]
    for batch in (16, 64):
        spent = float(performance.step(SHAPE, gpt(d=d), batch, A100).data)
        assert math.isclose(spent, expected, rel_tol=1e-6), "once in a step, whatever the batch"


def sums_along_tp_cost_the_link_that_they_use():
    stream, (near, far) = 2 * SHAPE.context * SHAPE.width, A100.latency
    inside = 2 * 7 / 8 * stream / A100.inside + 14 * near
    for t, one_sum in ((8, inside), (16, inside + stream / 8 / A100.across + 2 * far)):
        spent = performance.step(SHAPE, gpt(t=t), 8, A100).tensor
        assert math.isclose(float(spent), 6 * 8 * SHAPE.layers * one_sum, rel_tol=1e-9)


def what_leaves_a_pod_shares_its_links():
    """Flows counted one by one: each group has as many rings as ranks in a node, and each ring leaves a pod once."""
    pods = replace(A100, pod=64, oversubscription=16.0)
    for one in (Plan(t=8, d=32), Plan(t=2, d=128), Plan(t=8, p=4, d=8), Plan(t=16, d=16), Plan(d=16, p=64)):
        rates = Rates.of(pods, performance.FITTED)
        for axis in ("t", "d", "p"):
            ways, near = getattr(one, axis), rates.near(one, axis)
            if ways == 1:
                continue
            stride = {"t": 1, "d": one.t, "p": one.t * one.d}[axis]
            groups = [
                [first + stride * i for i in range(ways)] for first in range(one.devices) if first // stride % ways == 0
            ]
            rings = 1 if axis == "p" else near.node  # hops go one by one
            leaving = sum(rings for group in groups if {0} < {rank // 64 for rank in group} and group[0] < 64)
            slower = max(1.0, leaving / (64 / 16))
            found = rates.ring(ways, near, rings).beta / rates.across.beta
            assert math.isclose(float(found), slower, rel_tol=1e-12), (str(one), axis)
    half = rates.seconds("all_to_all", 128, Near(8, 64), 1e9)
    assert math.isclose(float(half), 16 * 1e9 / 2 / pods.across), "half of it crosses, over a sixteenth of the links"
    slow, fast = (float(performance.step(SHAPE, gpt(p=2, d=64), 64, kind).messages) for kind in (pods, A100))
    hop = 2 * SHAPE.context * SHAPE.width / A100.across
    assert math.isclose(slow - fast, 2 * (16 - 1) * hop, rel_tol=1e-9), "a stage fills the pod"


def a_pod_that_sends_as_fast_as_its_devices_is_none():
    for one in (gpt(t=8, d=32, zero=3), gpt(p=4, d=64), gpt(x=16, d=4), gpt(cp=32, attend=GATHER)):
        assert performance.step(SHAPE, one, 64, A100) == performance.step(SHAPE, one, 64, replace(A100, pod=64))
        # in which nothing leaves its pod
        small = replace(A100, pod=4096, oversubscription=9.0)
        assert performance.step(SHAPE, one, 64, A100) == performance.step(SHAPE, one, 64, small)


def sums_along_x_are_those_of_the_layer():
    """Eight ranks along x in one node: what a block sends for 8 microbatches, once more forward where it is redone."""
    tokens, near = SHAPE.context, A100.latency[0]
    one_sum = lambda size: 2 * 7 / 8 * size / A100.inside + 14 * near
    h, f = 2 * tokens * SHAPE.width, 2 * tokens * SHAPE.inside
    forward, backward = 3 * one_sum(h) + one_sum(f) + 4 * one_sum(4 * tokens), one_sum(h) + one_sum(f)
    backward += 4 * one_sum(4 * tokens)
    for how, forwards in ((NONE, 1), (FULL, 2)):
        spent = performance.step(SHAPE, gpt(x=8, recompute=how), 8, A100).tensor
        assert math.isclose(float(spent), 8 * SHAPE.layers * (forwards * forward + backward), rel_tol=1e-9)


def some_copies_share_and_the_others_add():
    """ZeRO 3 among 8 of 16 copies: gathers and sums stay in the node, and the eighths cross to the other one."""
    spent = float(performance.step(SHAPE, gpt(d=16, zero=3, z=8), 16, A100).data)
    size = 2 * SHAPE.parameters
    inside = 7 / 8 * size / A100.inside + 7 * A100.latency[0]
    across = size / 8 / A100.across + 2 * A100.latency[1]
    assert math.isclose(spent, inside + across, rel_tol=1e-6), "the gathers hide, one sum and one exchange remain"
    held = [footprints.footprint(SHAPE, gpt(d=16, zero=3, z=z), 16).weights for z in (8, 16, 0)]
    assert math.isclose(held[0], 2 * held[1]) and held[1] == held[2]


def messages_cross_every_boundary_twice():
    one = performance.step(SHAPE, gpt(p=16, v=2), 16, A100)
    hop = 2 * SHAPE.context * SHAPE.width / A100.across + A100.latency[1]
    assert math.isclose(float(one.messages), 16 * 2 * 2 * hop, rel_tol=1e-9)


def every_weight_is_held():
    assert math.isclose(float(heaviest.weights(SHAPE, Plan())), SHAPE.parameters)
    assert math.isclose(4 * float(heaviest.weights(SHAPE, Plan(x=4))), SHAPE.parameters), "x cuts norms too"
    eight = 8 * float(heaviest.weights(SHAPE, Plan(t=8)))
    assert abs(eight - SHAPE.parameters - 7 * SHAPE.layers * SHAPE.block.whole) < 1, "norms are on all of them"


def sharers_update_what_they_share():
    few, all_of_them = (performance.step(SHAPE, gpt(d=16, zero=3, z=z), 16, A100).optimizer for z in (2, 0))
    assert math.isclose(float(few), 8 * float(all_of_them))


def states_are_the_papers():
    found = [float(footprints.states(7.5e9, stage, 64).total) / 1e9 for stage in range(4)]
    assert [round(one, 1) for one in found] == [120.0, 31.4, 16.6, 1.9]


def spaces_are_whole():
    for shape, devices, batch in ((hl.Shape(layers=4), 8, 8), (hl.Shape(layers=6, heads=2), 12, 6)):
        the_space_is_what_is_legal(shape, devices, batch)


SHAPE = model("gpt-39.1b").shape
LAWS = (
    idle_is_the_schedules,
    live_is_the_schedules,
    every_operation_takes_its_time,
    every_kept_byte_is_read_and_written,
    gradients_are_summed_once_around_the_ring,
    sums_along_tp_cost_the_link_that_they_use,
    what_leaves_a_pod_shares_its_links,
    a_pod_that_sends_as_fast_as_its_devices_is_none,
    sums_along_x_are_those_of_the_layer,
    some_copies_share_and_the_others_add,
    messages_cross_every_boundary_twice,
    every_weight_is_held,
    sharers_update_what_they_share,
    states_are_the_papers,
    spaces_are_whole,
)
MUTANTS = [  # (where, what stands there, what a mutant has, the law that it breaks)
    (performance, "(plan.p - 1) * messages) / (plan.v * plan.n)", "(plan.p - 1) * messages)", idle_is_the_schedules),
    (performance, "(whole - length(busy)", "(whole", idle_is_the_schedules),
    (performance, "read) / (plan.t * plan.x)", "read)", every_operation_takes_its_time),
    (performance, "read) / (plan.t * plan.x)", "read) / plan.t", every_operation_takes_its_time),
    (performance, "(2 + full * (1 - software.early * _last(shape))) * matrices", "2 * matrices",
     every_operation_takes_its_time),
    (performance, "(2 + again + tiles / 2) * core", "2 * core", every_operation_takes_its_time),
    (performance, "(2 + full) * between", "(1 + full) * between", every_kept_byte_is_read_and_written),
    (time_of_gradients, "half(VALUE, sharers)", "half(1, sharers)",
     gradients_are_summed_once_around_the_ring),
    (time_of_gradients, "np.where(plan.z, others, 0.0)", "0.0", some_copies_share_and_the_others_add),
    (time_of_gradients, "width * weights / sharers", "width * weights",
     some_copies_share_and_the_others_add),
    (performance, "plan.zero > 0, sharers, 1", "plan.zero > 0, plan.d, 1", sharers_update_what_they_share),
    (performance, "forwards * sums(one.forward)", "sums(one.forward)", sums_along_x_are_those_of_the_layer),
    (performance, "backwards * sums(one.backward)", "0", sums_along_x_are_those_of_the_layer),
    (footprints, "plan.sharers, plan.updaters, every)", "(plan.d, plan.d), plan.updaters, every)",
     some_copies_share_and_the_others_add),
    (performance, "m * its_head, m * messages, bubble, data,", "m * its_head, m * messages, bubble, m * data,",
     gradients_are_summed_once_around_the_ring),
    (performance, 'rates.near(plan, "t"), _stream', 'rates.near(plan, "t")._replace(node=plan.t), _stream',
     sums_along_tp_cost_the_link_that_they_use),
    (of_machines, "* rings / near.pod", "* rings", what_leaves_a_pod_shares_its_links),
    (of_machines, "* rings / near.pod", "/ near.pod", what_leaves_a_pod_shares_its_links),
    (of_machines, "leaves = ways > near.pod", "leaves = ways > near.node",
     a_pod_that_sends_as_fast_as_its_devices_is_none),
    (of_machines, "(ways - near.pod) / ways", "near.pod / ways / 2", what_leaves_a_pod_shares_its_links),
    (performance, 'rates.ring(plan.p, rates.near(plan, "p"))', "rates.across", what_leaves_a_pod_shares_its_links),
    (performance, "pairs, along = (shape.heads > 0) + _inner_pairs", "pairs, along = _inner_pairs",
     sums_along_tp_cost_the_link_that_they_use),
    (performance, "messages = 2 * plan.v * plan.n * hop", "messages = 2 * hop", messages_cross_every_boundary_twice),
    (performance, "np.where(plan.devices > rates.node, far, near)", "np.where(plan.devices > rates.node, near, near)",
     messages_cross_every_boundary_twice),
    (footprints, "p - behind + n - 1))", "m * n))", live_is_the_schedules),
    (footprints, "2 * (p - behind - 1) + (v - 1) * group_of", "(p - behind - 1) + (v - 1) * group_of",
     live_is_the_schedules),
    (heaviest, "alone * one.mlp) / t + one.whole", "alone * one.mlp + one.whole) / t", every_weight_is_held),
    (footprints, "zip((3, 2, 1), among)", "zip((3, 1, 2), among)", states_are_the_papers),
    (spaces, "else divisors(shape.layers // p)", "else divisors(shape.layers)", spaces_are_whole),
    (spaces, "if batch % (d * ep) == 0", "if d == 1", spaces_are_whole),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_hold(law):
    law()


@pytest.mark.slow
@pytest.mark.parametrize("where, line, other, law", MUTANTS, ids=[one[2] for one in MUTANTS])
def test_every_mutant_breaks_its_law(where, line, other, law, monkeypatch):
    change(monkeypatch, where, line, other)
    with pytest.raises(AssertionError):
        law()


def test_named_plans_round_trip():
    assert named({"recompute": "selective", "t": 2}) == Plan(t=2, recompute=1)


ALL = {"grids": True, "contexts": True, "experts": True, "stages": True}


@pytest.mark.parametrize("slab", first(2, [1000, 10**9, 1]))
def test_a_grid_in_parts_has_the_same_plans(monkeypatch, slab):
    ask = lambda: plan("mixtral-8x7b", "h100", gpus=16, batch=16, **ALL)
    usual = ask()
    monkeypatch.setattr(spaces, "SLAB", slab)
    found = ask()
    assert len(found.seconds) > 1000 and all(
        np.array_equal(getattr(found, name), getattr(usual, name)) for name in ("places", "seconds", "bytes")
    )


@pytest.mark.slow
def test_all_switches_at_once_need_little_memory():
    """Of 5 million plans: their numbers, and the formulas of one part of them; an answer sorts few of them."""
    tracemalloc.start()
    found = plan("mixtral-8x7b", "h100", gpus=1024, batch=1024, **ALL)
    assert str(found.best) in repr(found)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.seconds) > 3e6 and most < 170e6


def test_the_rows_that_divide_a_batch_follow_from_the_given_sizes():
    assert _rows(32, {"p": 2, "t": 2, "ep": 2}) == 4 * 2  # four copies, each of two ranks with experts
    assert _rows(32, {"p": 2, "t": 2, "ep": 2, "b": 3}) == 4 * 2 * 3
    assert _rows(32, {"p": 4, "t": 2, "cp": 2}) == 2
    assert _rows(32, {"ep": 4}) == 4  # the number of copies is open
    assert _rows(32, {"d": 8, "b": 2}) == 8 * 2
