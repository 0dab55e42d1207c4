"""What errors are worth: bars of sources that they were not computed from, votes, dates, bounds, rows of others."""

import numpy as np
import pytest

from hybridlab.predict.judged import bars, held_out, others, scores, sharded
from hybridlab.predict.judged.sc21_runs import table_1
from hybridlab.predict.judged.scores import Judged
from hybridlab.predict.plans.trust import Error


def judged(source, errors, machine="a100"):
    run = table_1()[0]._replace(source=source, machine=machine)
    return [Judged(run, error, 0.7, ()) for error in errors]


# --- bars ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", (9, 19, 20, 57))
@pytest.mark.parametrize("seed", range(3))
def test_a_conformal_bar_holds_for_one_more_row(rows, seed):
    """Of n + 1 rows, each is left out in turn; in nine of ten turns or more it is inside the bar of the others."""
    sizes = np.random.default_rng(seed).exponential(0.05, rows + 1).round(3)
    inside = [sizes[place] <= bars.error(list(np.delete(sizes, place))).nine_of_ten for place in range(rows + 1)]
    assert np.mean(inside) >= 0.9


def test_few_rows_have_their_largest_error_as_bar():
    assert bars.error([0.01, -0.5, 0.2]) == Error(0.2, 0.5)


def test_a_source_is_not_inside_its_own_bar():
    """Two sources of twenty rows: the bars of one are the errors of the other."""
    some = judged("x", [0.01] * 20) + judged("y", [0.03] * 20)
    (one,) = held_out.coverage(some).values()
    assert one == (40, 2, 0.5, 0.5)  # all of x are below the bars of y, and none of y below those of x
    assert held_out.overall({("a100", "dense"): one, ("h100", "dense"): one._replace(rows=10, half=0.0)}, 3) == (
        50, 3, 0.4, 0.5,
    )  # fmt: skip


def test_a_machine_that_no_other_source_has_gets_the_largest_bar():
    other = [one._replace(run=one.run._replace(precision="fp8")) for one in judged("x", [0.4] * 20, "h100")]
    some = judged("x", [0.01] * 20) + other + judged("y", [0.3], "v100")
    assert held_out.coverage(some)["a100", "dense"].nine_of_ten == 1  # 0.3 is inside 0.4, and not inside 0.01


def test_each_source_has_one_vote():
    assert held_out.votes(judged("x", [0.1] * 9) + judged("y", [0.3])) == pytest.approx(0.2)


# --- time ---------------------------------------------------------------------------------------------------------


def test_every_source_has_a_date_and_the_first_are_not_predicted():
    runs = [*table_1()[:2], *sharded.torchtitan()[:2]]
    found = held_out.before(runs)
    assert {run.source for run in scores.runs()} == held_out.DATES.keys()
    assert found.keys() == {"torchtitan_a100"} and found["torchtitan_a100"].rows == 2


def test_a_later_source_has_no_part_in_an_earlier_one():
    table, titan = table_1()[:2], sharded.torchtitan()[:2]
    fast = [run._replace(seconds=run.seconds / 2) for run in titan]
    assert held_out.before([*table, *titan])["torchtitan_a100"] != held_out.before([*table, *fast])["torchtitan_a100"]
    assert "megatron_sc21_table1" not in held_out.before([*table, *fast])


# --- bounds -------------------------------------------------------------------------------------------------------


def test_no_number_for_a_plan_is_nearer_than_the_ceiling():
    """Tried: all numbers between two measurements of one plan."""
    run = table_1()[0]
    least = held_out.ceiling([run._replace(seconds=one) for one in (28.9, 51.3)], lambda one: one.plan)
    tried = [max(abs(28.9 / one - 1), abs(51.3 / one - 1)) for one in np.linspace(28, 52, 2401)]
    assert least == pytest.approx(min(tried), abs=1e-4) and least <= min(tried) + held_out.NARROWEST


def test_one_row_in_ten_may_be_outside():
    run = table_1()[0]
    rows = [run._replace(seconds=seconds) for seconds in [10.0] * 9 + [99.0]]
    assert held_out.ceiling(rows, lambda one: one.plan) < 1e-5 < held_out.ceiling(rows[4:], lambda one: one.plan)
    assert held_out.ceiling(rows[4:], lambda one: one.seconds) < 1e-5


def test_constants_are_numbers_that_were_chosen():
    assert held_out.constants() == 23  # 3 shares of the peak, memory, launch; 2 of narrow; 16 of programs


def test_experts_cross_nodes_if_their_ranks_are_in_several():
    run = next(run for run in scores.runs() if run.plan.ep == 16)
    assert held_out.crosses(run) and not held_out.crosses(run._replace(machine="gb200"))
    assert not held_out.crosses(run._replace(plan=run.plan._replace(ep=8)))


# --- rows of others -----------------------------------------------------------------------------------------------

MULTI = """Parameters (billion),# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,\
tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)
3.6,64,512,8,3072,32,30,2048,2,32,1,3975.2
"""
SINGLE = """# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,\
data parallelism,pipeline parallelism,iteration time (ms)
2,16,8,1024,16,24,1024,1,1,2,372.160408
"""


@pytest.fixture
def folder(tmp_path):
    for name, text in zip(others.FILES, (MULTI, SINGLE)):
        (tmp_path / name).write_text(text.replace("\\\n", ""))
    return tmp_path


def test_vtrains_rows_are_runs(folder):
    (run,) = others.vtrain(folder / "ground_truth_multi.csv")
    assert (run.plan.t, run.plan.d, run.plan.p, run.plan.b, run.batch) == (2, 32, 1, 8, 512)
    assert run.seconds == pytest.approx(3.9752)
    assert run.shape.parameters / 1e9 == pytest.approx(3.6, rel=0.02) and run.plan.devices == 64


def test_errors_on_vtrains_rows_are_computed_again(folder):
    found = others.found(folder)
    assert [one[:3] for one in found] == [one[:3] for one in others.ASIDE] and {one.rows for one in found} == {1}
    (run,) = others.vtrain(folder / "ground_truth_single.csv", recompute="none")
    assert found[3].median == pytest.approx(abs(run.error()), abs=1e-3)
    with_it, without, hidden = (found[place].median for place in (2, 3, 4))
    assert len({with_it, without, hidden}) == 3


def test_runs_that_need_recomputation_are_counted(folder):
    """The 3.6 billion weights of the first file need more than 80 GB without it; with it, they fit."""
    (run,) = others.vtrain(folder / "ground_truth_multi.csv")
    assert run.fits and others.without_room(folder) == 1
