"""The published evaluation of Megatron-LM: what its formulas give, and what the performance model says of each figure.

Narayanan et al. 2021, arXiv:2104.04473. The model is fitted on table 1; the figures and table 2 are tests of it. What
it misses is written down here as well, with the number.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from hybridlab.core.what.catalog import machine, model
from hybridlab.predict.bytes.activations import FULL, NONE
from hybridlab.predict.papers import sc21
from hybridlab.predict.papers.published import published
from hybridlab.predict.papers.sc21 import Row, errors, figure, fitted, table
from hybridlab.predict.plans import performance
from hybridlab.predict.plans.arithmetic import DAY, flops, training_seconds, training_seconds_exact, utilisation
from hybridlab.predict.plans.footprint import footprint
from hybridlab.predict.plans.performance import FITTED

A100 = machine("a100")
PRINTED = published("megatron_sc21_table1")
TABLE = [pytest.param(row, printed, id=f"{printed['params_billion']}B") for row, printed in zip(table(), PRINTED)]
the_errors = cache(errors)


# --- table 1: formulas ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row, printed", TABLE)
def test_parameters_are_the_label(row, printed):
    """Within 0.5 % from 7.5B on. The labels 1.7 and 3.6 are rounded from 1.65 and 3.56, so they say no more."""
    formula, label = row.shape.parameters / 1e9, printed["params_billion"]
    assert round(formula, 1 if label < 1000 else 0) == label
    assert abs(formula / label - 1) <= (0.005 if label >= 7.5 else 0.05 / label)


@pytest.mark.parametrize("row, printed", TABLE)
def test_the_papers_formula_counts_our_parameters(row, printed):
    """P = 12 l h² (1 + 13/12h + (V+s)/12lh): all but the last norm, 2 h weights, which the paper leaves out."""
    l, h, V, s = row.shape.layers, row.shape.width, row.shape.vocabulary, row.shape.context
    assert row.shape.parameters - 2 * h == pytest.approx(12 * l * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * l * h)))


@pytest.mark.parametrize("row, printed", TABLE)
def test_devices_times_rate_is_the_aggregate(row, printed):
    assert row.plan.devices == printed["gpus"]
    assert printed["gpus"] * printed["tflops_per_gpu"] / 1e3 == pytest.approx(printed["aggregate_pflops"], rel=0.004)


@pytest.mark.parametrize("row, printed", TABLE)
def test_the_share_of_the_peak_to_the_printed_digit(row, printed):
    assert round(100 * printed["tflops_per_gpu"] / (A100.peak / 1e12)) == printed["pct_peak"]


@pytest.mark.parametrize("row, printed", TABLE)
def test_what_is_printed_is_hfu(row, printed):
    """The printed rate counts the forward that is done twice. Without it, as MFU, a quarter is gone."""
    seconds = flops(row.shape, row.batch, "full").total / (row.plan.devices * row.printed * 1e12)
    of = (row.shape, row.batch, seconds, row.plan.devices, A100.peak)
    assert utilisation(*of, "full") == pytest.approx(row.printed * 1e12 / A100.peak)
    assert 0.74 < utilisation(*of) / utilisation(*of, "full") < 0.77


# --- training time ----------------------------------------------------------------------------------------------

GPT3, TRILLION = model("gpt3-175b").shape, model("gpt-1t").shape


def days(tokens, parameters, devices, rate):
    return training_seconds(tokens, parameters, devices, rate) / DAY


def test_34_days():
    """8TP/(nX) with 175 billion gives 33.9. All operations, attention and head too, are 2.4 % more: 34.7."""
    assert days(300e9, 175e9, 1024, 140e12) == pytest.approx(33.9, abs=0.05)
    assert training_seconds_exact(300e9, GPT3, 1024, 140e12) / DAY == pytest.approx(34.7, abs=0.05)


def test_84_days():
    """8TP/(nX) with a round trillion gives 83.2, not 84, and no rounding of X = 163 mends that.

    With the 1008 billion of table 1's last row it gives 83.9, which is printed as 84; all operations give 85.0.
    """
    round_one = [days(450e9, 1e12, 3072, rate) for rate in (163.5e12, 163e12, 162.5e12)]
    assert round_one[1] == pytest.approx(83.2, abs=0.05) and max(round_one) < 83.5
    assert days(450e9, TRILLION.parameters, 3072, 163e12) == pytest.approx(83.9, abs=0.05)
    assert training_seconds_exact(450e9, TRILLION, 3072, 163e12) / DAY == pytest.approx(85.0, abs=0.05)


def test_288_years_imply_a_rate():
    """6TP gives 34.7 TFLOP/s of one V100, 8TP 46.2: 28 % and 37 % of its peak."""
    seconds = 288 * 365.25 * DAY
    rates = [factor * 300e9 * 175e9 / seconds for factor in (6, 8)]
    assert [round(rate / 1e12, 1) for rate in rates] == [34.7, 46.2]
    assert [round(100 * rate / machine("v100").peak) for rate in rates] == [28, 37]


def test_superlinear():
    """96 times the devices do 114 times the work as printed, 113 times as predicted."""
    first, last = table()[0], table()[-1]
    assert last.plan.devices / first.plan.devices == 96
    assert PRINTED[-1]["aggregate_pflops"] / PRINTED[0]["aggregate_pflops"] == pytest.approx(114.1, abs=0.05)
    assert 96 * last.predicted() / first.predicted() == pytest.approx(112.7, abs=0.1)


# --- the fit ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_numbers_in_use_are_the_fit_on_table_1():
    for mine, used in zip(fitted(), FITTED):
        assert mine == pytest.approx(used, rel=1e-4)
    assert len(FITTED) == 3


@pytest.mark.long
def test_every_row_as_seen_is_close():
    found = the_errors()
    assert found.means[0] == pytest.approx(0.0108, abs=0.0005)
    assert max(map(abs, found.seen)) < 0.035


@pytest.mark.long
def test_rows_that_were_left_out_are_within_2_percent_on_average():
    """1.6 % on average, 3.8 % at worst (39.1B). One rate for all rows, the baseline, is off by 6.8 %."""
    found = the_errors()
    _, left_out, constant = found.means
    assert left_out <= 0.02 and left_out == pytest.approx(0.0158, abs=0.0005)
    assert max(map(abs, found.left_out)) == pytest.approx(0.038, abs=0.001)
    assert constant == pytest.approx(0.068, abs=0.001)


def test_table_2_which_nothing_was_fitted_on():
    """Its v is not printed; with figure 12's v = 4 the three rows of GPT-3 are off by 4.6, 3.1 and 0.2 %."""
    printed = {384: 153, 768: 149, 1536: 141}
    rows = [Row(GPT3, gpt3(4, True, d=n // 96), 1536, rate) for n, rate in printed.items()]
    off = [row.predicted() / row.printed - 1 for row in rows]
    assert off == pytest.approx([-0.046, -0.031, 0.002], abs=0.002)


def gpt3(chunks, scatter, d=1):
    return performance.Plan(p=12, t=8, d=d, b=1, v=chunks, recompute=FULL, scatter=scatter)


# --- the figures ------------------------------------------------------------------------------------------------
# Each is a function without arguments, so that the mutants below can be held against it.


def rates(number, **fields):
    """Predicted TFLOP/s of a figure's rows whose plans (or batch) have these fields, in print order."""
    found = [row for row in figure(number) if all(_of(row, name) == value for name, value in fields.items())]
    assert found
    return [row.predicted() for row in found]


def _of(row, name):
    return row.batch if name == "batch" else getattr(row.plan, name)


def falls(values):
    return all(later < earlier for earlier, later in pairwise(values))


def the_table_is_met():
    """As fitted, the rows of table 1 come out within 3.5 %, 1.1 % on average."""
    off = [abs(row.predicted() / row.printed - 1) for row in table()]
    assert max(off) < 0.035 and np.mean(off) < 0.012


def the_161b_case_peaks_at_t_p_8():
    """Figure 13, at both batch sizes: fewer stages send tensors across nodes, more of them are idle."""
    for batch in (32, 128):
        rows = [row for row in figure(13) if row.batch == batch]
        best = max(rows, key=Row.predicted)
        assert (best.plan.t, best.plan.p) == (8, 8)


def tensor_parallelism_beyond_a_node_loses():
    """Figure 13 with few stages: t = 16 and 32 lose to 8; and the time that grows is that of the tp all-reduces."""
    for batch in (32, 128):
        rows = {row.plan.t: row for row in figure(13) if row.batch == batch}
        assert rows[32].predicted() < rows[16].predicted() < 0.95 * rows[8].predicted()
        assert rows[32].step.tensor > 3 * rows[8].step.tensor
        assert rows[32].step.bubble < rows[8].step.bubble


def throughput_falls_with_p():
    """Figure 14, 5.9B: copies instead of stages, at every batch size; the more so the fewer microbatches there are.

    By our count, from p = 2 to 32 by a third: 34 % at B = 32, 35 % at B = 512.
    """
    for batch in (32, 128, 512):
        found = rates(14, batch=batch)
        assert falls(found) and found[-1] < 0.7 * found[0]


def throughput_falls_with_t():
    """Figure 15, 5.9B, at every batch size; a node of 8 is the steepest step."""
    for batch in (32, 128, 512):
        found = rates(15, batch=batch)
        assert falls(found)
        assert found[3] < 0.65 * found[2], "t = 16 leaves the node"


def weak_scaling_is_better_with_a_large_batch():
    """Figure 11: from p = 1 to 8 the small batch loses 48 % of its rate, the large one 10 %."""
    small, large = rates(11, batch=8), rates(11, batch=128)
    assert falls(small) and falls(large)
    assert small[-1] / small[0] == pytest.approx(0.52, abs=0.02)
    assert large[-1] / large[0] == pytest.approx(0.90, abs=0.02)


def the_interleaved_gap_closes():
    """Figure 12: 52 % more at B = 12, 11 % more at B = 60."""
    gaps = [with_v / one - 1 for with_v, one in zip(rates(12, v=4), rates(12, v=1))]
    assert falls(gaps) and gaps[-1] > 0
    assert [gaps[0], gaps[-1]] == pytest.approx([0.52, 0.11], abs=0.02)


def without_scatter_the_default_wins_at_large_batches():
    """Section 5.3.2 says so, "not shown": interleaving sends v times as much. By our count from B = 120 to 240 on."""
    rate = lambda chunks, batch: Row(GPT3, gpt3(chunks, False), batch, 0).predicted()
    assert rate(4, 120) > rate(1, 120) and rate(4, 240) < rate(1, 240)


def scatter_gather_gains():
    """Figure 18: ours is 6 % at every batch size; the paper measured up to 11 %.

    A miss: we let every device have the printed 25 GB/s when all of a node send at once, unhindered.
    """
    gains = [one / plain - 1 for one, plain in zip(rates(18, scatter=True), rates(18, scatter=False))]
    assert len(gains) == 5 and all(0.058 < gain < 0.065 for gain in gains)


def the_right_microbatch():
    """Figure 16, 91B on (t, p) = (8, 8): the paper says that 2 is best for this model.

    At B = 128 so do we. At B = 512 we call 2 and 4 equal, 4 ahead by less than 0.1 %: a miss, if a narrow one.
    """
    small, large = rates(16, batch=128), rates(16, batch=512)
    assert np.argmax(small) == 1 and small[3] < 0.85 * small[1]
    assert abs(large[2] / large[1] - 1) < 0.001 and large[0] < large[1] > large[3]


def a_larger_microbatch_fills_one_device():
    """Figure 7, one device: from b = 1 to 16 by 22 %; the paper draws up to 1.3 times."""
    found = rates(7)
    assert not any(later <= earlier for earlier, later in pairwise(found))
    assert found[-1] / found[0] == pytest.approx(1.22, abs=0.02)


def sequences_per_second(how):
    return {row.batch: row.batch / row.step.total for row in figure(17) if row.plan.recompute == how}


def recomputation_pays_at_large_batches():
    """Figure 17, 145B: a quarter less at equal batches ("up to 33 %"); 2.0 times what was best without ("up to 2×")."""
    without, full = sequences_per_second(NONE), sequences_per_second(FULL)
    for batch, rate in without.items():
        assert full[batch] / rate == pytest.approx(0.75, abs=0.01)
    assert max(full.values()) / max(without.values()) == pytest.approx(2.0, abs=0.05)


FIGURES = [
    the_table_is_met, the_161b_case_peaks_at_t_p_8, tensor_parallelism_beyond_a_node_loses, throughput_falls_with_p,
    throughput_falls_with_t, weak_scaling_is_better_with_a_large_batch, the_interleaved_gap_closes,
    without_scatter_the_default_wins_at_large_batches, scatter_gather_gains, the_right_microbatch,
    a_larger_microbatch_fills_one_device, recomputation_pays_at_large_batches,
]  # fmt: skip


@pytest.mark.parametrize("claim", FIGURES)
def test_the_figure(claim):
    claim()


def test_without_recomputation_memory_ends_the_batch():
    """Figure 17's curve without recomputation ends at B = 8. There we count 43 GB; from B = 16 on 66 GB, and no more.

    A miss: by our count it would still fit into 80 GB. With recomputation 24 GB are enough for any batch.
    """
    row = next(row for row in figure(17) if row.plan.recompute == NONE)
    bytes_at = {
        (how, batch): footprint(row.shape, row.plan._replace(recompute=how), batch).total / 1e9
        for how, batch in ((NONE, 8), (NONE, 16), (NONE, 256), (FULL, 256))
    }
    assert bytes_at[NONE, 8] == pytest.approx(43, abs=1) and bytes_at[NONE, 16] == pytest.approx(66, abs=1)
    assert bytes_at[NONE, 256] == bytes_at[NONE, 16] < A100.memory / 1e9
    assert bytes_at[FULL, 256] == pytest.approx(24, abs=1)


# --- mutants ----------------------------------------------------------------------------------------------------
# Each is the model with one thing wrong, and breaks a claim about a figure or the table.

MUTANTS = {
    "the pipeline is never idle": (lambda step, *of: step(*of)._replace(bubble=0), the_161b_case_peaks_at_t_p_8),
    "chunks do not shrink the bubble": (
        lambda step, shape, plan, *of: (one := step(shape, plan, *of))._replace(bubble=one.bubble * plan.v),
        the_interleaved_gap_closes,
    ),
    "all devices are one node": (
        lambda step, shape, plan, batch, kind, fit: step(shape, plan, batch, _one_node(kind), fit),
        tensor_parallelism_beyond_a_node_loses,
    ),
    "scatter/gather saves nothing": (
        lambda step, shape, plan, *of: step(shape, plan._replace(scatter=False), *of),
        scatter_gather_gains,
    ),
    "what is done twice takes no time": (
        lambda step, shape, plan, *of: step(shape, plan._replace(recompute=NONE), *of),
        recomputation_pays_at_large_batches,
    ),
    "chunks send no more": (
        lambda step, shape, plan, *of: (one := step(shape, plan, *of))._replace(messages=one.messages / plan.v),
        without_scatter_the_default_wins_at_large_batches,
    ),
    "a block costs nothing to start": (lambda step, *of: step(*of)._replace(launch=0), the_table_is_met),
    "tp all-reduces cost nothing": (lambda step, *of: step(*of)._replace(tensor=0), throughput_falls_with_t),
    "copies need no sum": (lambda step, *of: step(*of)._replace(data=0), the_table_is_met),
    "the last stage has no head": (lambda step, *of: step(*of)._replace(head=0), the_table_is_met),
    "idle for the batch, not once": (
        lambda step, shape, plan, batch, *of: (one := step(shape, plan, batch, *of))._replace(
            bubble=one.bubble * plan.microbatches(batch) / 8
        ),
        weak_scaling_is_better_with_a_large_batch,
    ),
    "a microbatch of any size is as efficient": (
        lambda step, shape, plan, *of: (one := step(shape, plan, *of))._replace(launch=one.launch * plan.b),
        a_larger_microbatch_fills_one_device,
    ),
}  # fmt: skip


def _one_node(kind):
    from dataclasses import replace

    return replace(kind, node=4096)


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_breaks_its_claim(name, monkeypatch):
    wrong, claim = MUTANTS[name]
    right = performance.step

    def mutant(shape, plan, batch, kind, fit=FITTED, software=None):
        return wrong(right, shape, plan, batch, kind, fit)

    for user in (performance, sc21):
        monkeypatch.setattr(user, "step", mutant)
    with pytest.raises(AssertionError):
        claim()
