"""Published runs with context and expert parallelism beside their predictions, to which nothing was fitted."""

import statistics

import pytest

from hybridlab.predict.papers.long_and_sparse import GPU_HOURS, deepseek, runs
from hybridlab.predict.papers.published import published

RUNS = runs()
WORST, MEAN = 0.25, 0.12  # relative; the programs are of 2024, the three fitted numbers of 2021


def named(one):
    return f"{one.name}-{one.shape.context}-{one.plan.devices}"


@pytest.mark.parametrize("one", RUNS, ids=named)
def test_each_run_is_near_what_was_printed(one):
    told = f"{one.step().total:.2f} s for {one.seconds} s" if one.seconds else ""
    print(f"{named(one)}: predicted {one.predicted():.0f}, printed {one.printed:.0f} TFLOP/s {told}")
    assert abs(one.predicted() / one.printed - 1) < WORST


def test_on_the_whole_they_are_nearer_than_the_worst():
    off = [abs(one.predicted() / one.printed - 1) for one in RUNS]
    print(f"mean size of the error {statistics.mean(off):.1%}, largest {max(off):.1%}")
    assert statistics.mean(off) < MEAN


def test_without_a_fixed_time_for_each_block_sparse_models_are_nearer():
    """The launch was fitted to programs that wait for each kernel's launch; these do not. Mixtral 8x22B gains most."""
    (one,) = (one for one in RUNS if one.name == "mixtral-8x22b")
    from hybridlab.predict.plans.rates import FITTED

    without = one.predicted(FITTED._replace(launch=0))
    assert abs(without / one.printed - 1) < abs(one.predicted() / one.printed - 1) < WORST


def test_a_long_context_costs_little_on_sixteen_times_as_many_ranks_along_cp():
    """Llama 3 405B: 400 TFLOP/s at 8 192 positions, 380 at 131 072 with cp = 16. Ours do not fall: within a tenth."""
    short, long = (one for one in RUNS if one.name == "llama3-405b" and one.plan.devices == 16384)
    assert long.shape.context == 16 * short.shape.context and long.plan.cp == 16 * short.plan.cp
    printed, predicted = long.printed / short.printed, long.predicted() / short.predicted()
    print(f"long over short: printed {printed:.2f}, predicted {predicted:.2f}")
    assert abs(predicted - printed) < 0.1
    assert long.step().context / long.step().total < 0.06


def test_deepseek_v3_lies_between_an_all_to_all_that_shows_and_one_that_is_hidden():
    """Shown, it would take nearly twice as long as printed; hidden, a little less."""
    shown, hidden = deepseek()
    print(f"GPU hours for a trillion tokens: shown {shown:,.0f}, hidden {hidden:,.0f}, printed {GPU_HOURS:,.0f}")
    assert 0.8 * GPU_HOURS < hidden < GPU_HOURS < shown < 2 * GPU_HOURS


def test_every_row_of_the_table_is_read():
    assert len(RUNS) == len(published("long_and_sparse_h100"))
    assert {one.plan.cp for one in RUNS} >= {1, 2, 16} and {one.plan.ep for one in RUNS} >= {1, 2, 8}
