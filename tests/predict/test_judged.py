"""Published runs as predictions: rows are complete, a source never calibrates itself, the page is the record's."""

import json
from dataclasses import replace

import pytest

from hybridlab.predict.judged import megatron, sc21_runs, scores, sharded
from hybridlab.predict.judged.calibrated import share, shares, without
from hybridlab.predict.judged.explained import why
from hybridlab.predict.judged.others import PEERS
from hybridlab.predict.judged.scores import Judged, pairs, spread
from hybridlab.predict.papers.published import published
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import FITTED
from tools import scoreboard

RECORD = json.loads(scoreboard.RECORD.read_text("utf-8"))


# --- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table, read, left_out",
    [
        ("dgxc_h100", megatron.dgxc, 0),
        ("llama3_405b", megatron.llama3, 0),
        ("moe_folding", megatron.folding, 0),
        ("llm_foundry", sharded.mpt, 0),
        ("torchtitan_a100", sharded.torchtitan, 0),
        ("megatron_sc21_table1", sc21_runs.table_1, 0),
        ("megatron_sc21_table2", sc21_runs.table_2, 0),
        ("sc21_figure_readings", sc21_runs.figures, 0),
        ("megatron_bridge", megatron.bridge, sum(bool(megatron.left_out(row)) for row in published("megatron_bridge"))),
    ],
)
def test_every_row_is_read(table, read, left_out):
    assert len(read()) == len(published(table)) - left_out
    assert {run.source for run in read()} == {table}


@pytest.mark.parametrize("run", [run for table in scores.TABLES for run in table()], ids=str)
def test_every_plan_makes_sense(run):
    """Equal microbatches, experts shared out equally, and as much memory as the device has, give or take a tenth."""
    assert run.batch == run.plan.microbatches(run.batch) * run.plan.b * run.plan.d * run.plan.ep
    assert run.shape.experts % run.plan.expert_ways == 0 and run.shape.heads % run.plan.t == 0 and run.seconds > 0


def test_weights_are_those_that_are_printed():
    """Of MPT: without biases, so ours are a little more."""
    for run, row in zip(sharded.mpt(), published("llm_foundry")):
        assert 0 <= run.shape.parameters / row["NumParams"] - 1 < 0.004


def test_speeds_are_those_that_are_printed():
    for run, row in zip(megatron.dgxc(), published("dgxc_h100")):
        assert run.tokens * run.plan.devices == pytest.approx(row["tokens_per_s"], rel=0.01)
    for run, row in zip(sharded.torchtitan(), published("torchtitan_a100")):
        assert run.tokens == pytest.approx(row["wps_per_gpu"])


# --- calibration ----------------------------------------------------------------------------------------------------


def test_a_share_is_found_again():
    run = sc21_runs.table_1()[3]
    fit = FITTED._replace(multiply=0.61)
    assert share([run._replace(seconds=run.step(fit).total)]) == pytest.approx(0.61, abs=1e-6)


def test_no_source_calibrates_itself():
    found = {("a100", "x"): 0.7, ("a100", "y"): 0.8, ("h100", "x"): 0.5, ("h100", "z"): 0.6}
    assert without("x", "a100", found) == (FITTED._replace(multiply=0.8), ["a100: y"])
    assert without("y", "a100", found)[0].multiply == 0.7 and without("w", "a100", found)[0].multiply == 0.75
    assert without("x", "b200", found) == (FITTED._replace(multiply=0.6), ["h100: z"])  # nobody else ran there
    for row in RECORD["rows"]:
        assert all(not said.endswith(f": {row['source']}") for said in row["calibrated_on"]) and row["calibrated_on"]


@pytest.mark.slow
def test_shares_are_of_dense_rows_in_16_bits():
    every = [*megatron.dgxc(), *megatron.folding(), *megatron.mixtral()]
    assert shares(every).keys() == {("h100", "dgxc_h100")}


# --- order ----------------------------------------------------------------------------------------------------------


def test_pairs_are_alternatives_and_judged_by_their_speed():
    run = sc21_runs.table_1()[0]
    other = run._replace(plan=Plan(t=2, d=16, b=16, recompute=2), seconds=1.5 * run.seconds)
    (one,) = pairs([Judged(run, 0.0, 0.7, ()), Judged(other, 0.0, 0.7, ())])
    assert (one.faster, one.slower, one.right) == (run, other, True)
    (wrong,) = pairs([Judged(run, 0.0, 0.7, ()), Judged(other, 0.6, 0.7, ())])
    assert not wrong.right
    for changed in (
        {"seconds": 1.05 * run.seconds},
        {"machine": "h100"},
        {"shape": replace(run.shape, layers=30)},
        {"plan": Plan(d=64, b=16)},
    ):
        assert not pairs([Judged(run, 0.0, 0.7, ()), Judged(other._replace(**changed), 0.0, 0.7, ())])
    assert not pairs([Judged(run, 0.0, 0.7, ()), Judged(run, 0.0, 0.7, ())])


def test_a_spread_counts_sizes():
    assert spread([Judged(None, error, 0.7, ()) for error in (-0.4, 0.1, 0.2)])[:2] == (3, 0.2)


def test_rows_are_grouped_by_what_their_runs_say():
    one, other = scores.runs()[:2]
    every = [Judged(one, 0.1, 0.7, ()), Judged(one, -0.3, 0.7, ()), Judged(other._replace(batch=-1), 0.2, 0.7, ())]
    assert scores.by(every, "batch") == {one.batch: spread(every[:2]), -1: spread(every[2:])}


# --- the record and its page ----------------------------------------------------------------------------------------


def test_the_page_is_the_records():
    assert scoreboard.PAGE.read_text("utf-8") == scoreboard.page(RECORD)


MISSED = (
    "experts rows, 90th percentile",
    "rows whose experts are on several nodes, median error",
    "vTrain, 64 to 512 A100s, median error",
    "vTrain, 2 to 8 A100s of one node, median error",
)


def test_every_target_is_told_with_its_aim():
    told = {one["what"]: one for one in RECORD["targets"]}
    assert len(told) == 24 and all({"found", "goal", "met"} <= one.keys() for one in told.values())
    assert tuple(what for what, one in told.items() if not one["met"]) == MISSED


def test_a_goal_that_is_missed_is_marked():
    (line,) = (line for line in scoreboard.page(RECORD).splitlines() if line.startswith(f"| {MISSED[0]}"))
    assert line.endswith("| **missed** |")


@pytest.mark.parametrize("place", [0, 12, 60, 100, 200, 240, 300])
def test_the_public_call_and_the_formula_give_the_same_error(place):
    """Also for rows that do not fit: the call gets memory for any plan."""
    run = scores.runs()[place]
    fit = FITTED._replace(multiply=0.61)
    assert run.called(fit) == pytest.approx(run.error(fit), rel=1e-12)
    assert run.called() != pytest.approx(run.error(fit), rel=1e-3)


def test_the_record_has_the_errors_of_the_formula():
    """`make scoreboard` asks the public call, and `judged` the formula."""
    assert [row["error"] for row in RECORD["rows"]] == pytest.approx([one.error for one in scores.judged()], abs=1e-6)
    assert scores.judged(lambda run, fit: fit.multiply)[0].error == scores.judged()[0].share


def test_rows_that_do_not_fit_are_those_that_the_call_refuses():
    llama = [run for run in scores.runs() if run.source == "llama3_405b"]
    for run in llama:
        with pytest.raises(ValueError, match="no plan fits into"):
            run.planned()
    assert sum(one["refused"] for one in RECORD["seen"][:-1]) == RECORD["seen"][-1]["refused"] == 13


def test_the_worst_ten_are_explained():
    worst = sorted(RECORD["rows"], key=lambda row: -abs(row["error"]))[:10]
    assert all(row["why"] != "not known" for row in worst) and len(PEERS) == 7
    assert why(sc21_runs.table_1()[0]) == "not known"


@pytest.mark.long
def test_the_record_is_current():
    assert scoreboard.main(["--check"]) == 0
