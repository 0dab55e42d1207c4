"""Calibration: a step, products or sums that somebody measured give back the rates that they were made with."""

import statistics
from dataclasses import replace

import pytest
from few import first
from hypothesis import given
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.cli.main import main
from hybridlab.core.what.catalog import machine
from hybridlab.predict.judged import megatron, sc21_runs, sharded
from hybridlab.predict.judged.scores import runs
from hybridlab.predict.plans.measured import by_products, by_step, by_sums
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.rates import FITTED, Near, Rates
from hybridlab.predict.plans.software import programs

RUNS = [run for read in (sc21_runs.table_1, megatron.dgxc, megatron.llama3, sharded.mpt) for run in read()]
MACHINES = st.sampled_from(["v100", "a100", "h100"])
SOFTWARE = st.sampled_from(["megatron-2021", "megatron-2024", "fsdp-2023"])
LINKS = st.tuples(st.floats(1e-6, 1e-4), st.floats(1e9, 1e12))


def of(run, seconds):
    return by_step(run.shape, run.machine, run.plan, run.batch, seconds, run.programs)


@pytest.mark.slow
@given(st.sampled_from(RUNS), st.floats(0.2, 0.9))
def test_a_step_gives_back_the_share_that_it_took(run, share):
    took = run.step(FITTED._replace(multiply=share)).total
    assert of(run, took).multiply == pytest.approx(share, rel=1e-6)


OTHERS = [
    (sc21_runs.table_1, "a100", 0.02, 0.05),
    (megatron.dgxc, "h100", 0.02, 0.08),
    (sharded.mpt, "h100", 0.04, 0.09),
    (sharded.mpt, "a100", 0.045, 0.13),
    (sharded.torchtitan, "a100", 0.03, 0.08),
]


@pytest.mark.slow
@pytest.mark.parametrize("read, kind, middle, nine_of_ten", first(2, OTHERS))
def test_one_row_of_a_source_predicts_the_others(read, kind, middle, nine_of_ten):
    runs = [run for run in read() if run.machine == kind and run.kind in ("dense", "context")]
    fits = [of(run, run.seconds) for run in runs]
    errors = sorted(abs(other.error(fit)) for run, fit in zip(runs, fits) for other in runs if other is not run)
    assert statistics.median(errors) < middle and errors[int(0.9 * len(errors))] < nine_of_ten


@pytest.mark.slow
@given(MACHINES, SOFTWARE, st.floats(0.05, 0.85))
def test_products_give_back_the_share_that_they_took(kind, software, share):
    sizes, rate = [(2048, 4096, 4096), (8192, 1024, 512)], share * programs(software).library * machine(kind).peak
    took = [(m, k, n, 2 * m * k * n / rate) for m, k, n in sizes]
    assert by_products(kind, took, software).multiply == pytest.approx(share)


@pytest.mark.slow
@given(MACHINES, SOFTWARE, LINKS, LINKS)
def test_sums_give_back_their_links(kind, software, inside, across):
    """First those of a node, then those of four nodes, from what the planner itself takes for sums."""
    listed, runs, sizes = machine(kind), programs(software), [1e4, 1e6, 1e8, 1e9]
    real = linked(listed, inside, across)
    rates = Rates.of(real, FITTED, runs._replace(flat=False))
    for ranks in (listed.node, 4 * listed.node):
        times = [float(rates.sum(ranks, Near(listed.node, ranks), size)) for size in sizes]
        listed = by_sums(listed, ranks, sizes, times, software)
    assert listed.inside == pytest.approx(real.inside, rel=1e-5) and listed.across == pytest.approx(
        real.across, rel=1e-5
    )
    assert listed.latency == pytest.approx(real.latency, rel=1e-3)


def linked(kind, inside, across):
    return replace(kind, inside=inside[1], across=across[1], latency=(inside[0], across[0]))


ONE = Plan(p=8, t=8, d=24, b=2, v=2, recompute=2, scatter=True)
BAD = [
    (lambda: by_step("gpt-145.6b", "a100", ONE, 2304, 5.0), "outside of matmuls we predict 7.05 s for this plan"),
    (lambda: by_step("gpt-145.6b", "a100", ONE, 2300, 24.8), "a batch of 2300 is not a multiple of b·d = 48 sequences"),
    (lambda: by_step("gpt-145.6b", "a100", ONE, 2304, float("nan")), "seconds=nan is not a time: give the seconds"),
    (lambda: by_step("gpt-145.6b", "a100", ONE._replace(p=0), 2304, 24.8), "p=0 is not possible"),
    (lambda: by_products("a100", [(4096, 4096, 4096, 1e-5)]), "a100 needs 0.000441 s at its peak"),
    (lambda: by_sums("a100", 8, [1e6], [1e-4]), "1 sizes with 1 times on 8 ranks do not determine a link"),
    (lambda: by_sums("a100", 12, [1e6, 1e8], [1e-4, 1e-3]), "12 ranks do not fill whole nodes of 8"),
    (lambda: by_sums("a100", 16, [1e6, 1e9], [1e-9, 1e-9]), "measure the link inside a node first"),
    (lambda: by_sums("a100", 8, [1e6, 1e9], [1e-3, 1e-3 / 2]), "larger tensors took no longer, so the bandwidth"),
]


def test_no_published_run_is_called_impossible():
    """Four of them were faster than our prediction without any matmul."""
    refused = []
    for run in runs():
        try:
            by_step(run.shape, run.machine, run.plan, run.batch, run.seconds, run.programs)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) == 4 and all("our prediction is too slow" in one for one in refused)


@pytest.mark.parametrize("call, piece", BAD, ids=[piece for _, piece in BAD])
def test_what_cannot_be_is_refused_in_a_sentence(call, piece):
    with pytest.raises(ValueError, match=piece):
        call()


ASKED = ["plan", "--model", "gpt-145.6b", "--gpus", "1536", "--batch", "2304", "--recompute", "full", "--zero", "0"]


@pytest.mark.slow
def test_the_command_line_takes_a_step_of_your_logs(capsys):
    took = "p=8,t=8,d=24,b=2,v=2,recompute=full,scatter=1,seconds={}"
    best = {}
    for seconds in (24.8, 49.6):
        assert main([*ASKED, "--took", took.format(seconds)]) == 0
        lines = capsys.readouterr().out.splitlines()
        best[seconds] = lines[2]
        assert lines[0].startswith("calibrated on that step: GEMMs reach 0.") and "a100" in lines[0]
    assert best[24.8] != best[49.6]
    assert main([*ASKED, "--took", took.format(15)]) == 2
    assert "% of the peak are not possible: correct the plan, the batch or the machine" in capsys.readouterr().err
    assert main([*ASKED, "--took", "p=8,t=8,d=24,b=2"]) == 2
    assert "--took has no time" in capsys.readouterr().err
    planned = hl.plan("gpt-145.6b", "a100", gpus=1536, batch=2304, recompute="full", zero=0)
    assert planned.fit == FITTED
