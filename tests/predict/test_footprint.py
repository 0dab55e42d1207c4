"""Bytes on a device: ZeRO's table, what is live against the schedules, and what a footprint is made of."""

import itertools

import numpy as np
import pytest

import hybridlab as hl
from hybridlab.core.what import catalog
from hybridlab.core.where.layout import Layout, Param
from hybridlab.predict.bytes.activations import kept_for
from hybridlab.predict.bytes.memory import MIXED, model_states
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.by_schedule import schedule_of
from hybridlab.predict.plans.footprint import footprint, in_flight, left_behind, live, states
from hybridlab.predict.plans.heaviest import weights
from hybridlab.predict.plans.partition import dealt
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.software import programs

ROWS = published("zero_memory_7p5B_formula")
STAGES = ("baseline_GB", "Pos_GB", "Pos_g_GB", "Pos_g_p_GB")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['dp_degree']} copies")
def test_zeros_table_to_the_printed_digit(row):
    for stage, column in enumerate(STAGES):
        ours = states(1e9 * row["params_billion"], stage, row["dp_degree"]).total / 1e9
        assert ours == pytest.approx(row[column], abs=0.0051)


def test_the_four_numbers_of_the_paper():
    sizes = [states(7.5e9, stage, 64).total / 1e9 for stage in range(4)]
    assert [f"{size:.1f}" for size in sizes] == ["120.0", "31.4", "16.6", "1.9"]


@pytest.mark.parametrize("stage", range(3))
def test_states_are_those_of_a_real_layout(stage):
    """Up to stage 2; in stage 3 our layouts keep no half-precision share, see `predict.bytes.memory`."""
    param = Param("all", (4096,), partial=("dp",), owners=8 if stage else 1, rest=stage)
    layout = Layout(hl.Mesh(dp=8), (param,))
    ours, exact = states(4096, stage, 8), model_states(layout, 0, MIXED)
    assert (ours.weights, ours.gradients, ours.optimizer) == tuple(exact[k] for k in ("value", "gradient", "optimizer"))


# --- live ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 8])
def test_what_is_live_under_1f1b_is_the_schedules(p):
    for m in (1, 2, 3, 5, 8, 12):
        assert live(p, m) == hl.simulate(hl.schedule("1f1b", ranks=p, microbatches=m)).peak_live[0], (p, m)


@pytest.mark.slow
@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("v", [2, 3, 4])
def test_what_is_live_interleaved_is_the_schedules(p, v):
    """The first rank holds most, and v chunks make a microbatch."""
    for m in (p, 2 * p, 3 * p, 4 * p):
        peak = hl.simulate(hl.schedule("interleaved", ranks=p, microbatches=m, chunks=v)).peak_live
        assert live(p, m, v) == peak[0] / v == max(peak) / v, (p, m, v)


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_blocks_in_flight_are_the_schedules_also_in_unequal_chunks(p, v):
    """On each rank but the last, whose last chunk is short: there the scores are counted at the same time."""
    for blocks, rounds in itertools.product((11, 13, 22, 30), (1, 2, 3)):
        m, stages = rounds * p, dealt(blocks, p * v)
        for r, program in enumerate(schedule_of(Plan(p=p, v=v), m).computing[:-1]):
            held = itertools.accumulate({"F": 1, "B": -1}[one.kind] * stages[one.stage] for one in program)
            assert in_flight(sum(stages[r::p]), p, m, v, place=r) == max(held), (blocks, m, r)


def test_many_at_once_are_each_of_them():
    p, m, v = np.array([1, 4, 4, 8]), np.array([3, 8, 8, 8]), np.array([1, 1, 2, 4])
    assert live(p, m, v).tolist() == [live(*one) for one in zip(p, m, v)]


# --- the whole footprint ------------------------------------------------------------------------------------------

GPT3 = catalog.model("gpt3-175b").shape


def test_one_device_holds_the_model_and_one_microbatch():
    one = footprint(GPT3, Plan(p=1, t=1, b=1), batch=4)
    each, again = kept_for(GPT3, 1)
    scores = 4 * GPT3.context * GPT3.vocabulary
    assert one.total == 16 * GPT3.parameters + GPT3.layers * each + again + scores


@pytest.mark.parametrize("p, t", [(1, 1), (2, 1), (4, 8), (12, 8)])
def test_no_rank_holds_less_than_its_share_of_the_weights(p, t):
    assert weights(GPT3, Plan(p=p, t=t)) >= GPT3.parameters / (p * t)


def test_placing_is_not_training():
    """The lecture's 350 GB over 8 cards, and what training keeps of the same model."""
    whole = states(175e9)
    assert whole.weights / 8 / 1e9 == 43.75 < 80
    assert (whole.total / 1e9, whole.total / 8 / 1e9) == (2800, 350)
    assert whole.most == "optimizer"


def test_each_way_to_save_saves():
    plain = dict(p=8, t=8, b=2)
    base = footprint(GPT3, Plan(**plain), 64)
    for more in (dict(recompute=1), dict(recompute=2), dict(sequence=1)):
        assert footprint(GPT3, Plan(**plain, **more), 64).activations < base.activations, more
    assert footprint(GPT3, Plan(**plain, d=4, zero=1), 64).optimizer == base.optimizer / 4


@pytest.mark.parametrize(
    "sizes, said",
    [({"offload": 2.0}, "offload=2.0"), ({"p": 0}, "p=0"), ({"v": 0}, "v=0"), ({"redone": 5.0}, "redone")],
)
def test_memory_refuses_numbers_that_no_plan_has(sizes, said):
    with pytest.raises(ValueError, match=f"{said}.* is not possible: give a number from"):
        hl.memory("gpt3-175b", 96, **sizes)


@pytest.mark.parametrize("batch", [0, -8])
def test_memory_refuses_an_empty_batch(batch):
    with pytest.raises(ValueError, match=f"batch={batch} is out of range"):
        hl.memory("gpt3-175b", batch)


def test_what_is_copied_to_the_host_is_what_is_saved():
    """Also in 8 bits, and if only some blocks are recomputed."""
    from hybridlab.predict.plans import performance

    shape, machine = hl.catalog.model("llama3-70b").shape, hl.catalog.machine("gb200")
    for precision, redone in itertools.product(("bf16", "fp8"), (0.0, 0.5, 1.0)):
        software, plan = programs("megatron-2025", precision), Plan(recompute=2, redone=redone, offload=1.0)
        nothing = performance.Work(*[0.0] * len(performance.Work._fields))
        one, _ = performance._with_host(shape, plan, machine, software, nothing, nothing)
        assert one.pointwise * machine.host == pytest.approx(left_behind(shape, plan, software))
