"""The machine suite: the file that it writes has what was measured, and `hl.plan` takes it."""

import json

import pytest

import hybridlab as hl
from hybridlab.cli import main as cli
from hybridlab.core.what.catalog import machine
from hybridlab.core.what.machines import read
from hybridlab.measuring import machine_suite
from hybridlab.measuring.row import row
from hybridlab.predict.judged import blocks
from hybridlab.predict.papers.published import published

(H200,) = [one for one in published(blocks.TABLE) if (one["width"], one["t"], one["b"]) == (8192, 1, 1)]


def of_a_gpu(*more, name="NVIDIA H200", seconds=(H200["forward_ms"] + H200["backward_ms"]) / 1e3):
    """A record of one GPU: its block as we measured it."""
    rows = [
        row(f"{machine_suite.MATMUL} 2048 × 8192 × 32768", "FLOP/s", [7.0e14], device="cuda"),
        row(machine_suite.BLOCK, "s", [seconds], device="cuda"),
        row(machine_suite.COPY, "B/s", [4.1e12], device="cuda"),
    ]
    facts = {"device": "cuda", "gpus": [[name, 150109880320]], "cores": 16, "machine": "x86_64", "memory": 1.3e11}
    return {"machine": facts | {"when": "2026-11-27T19:00:00+00:00", "torch": "2.11.0"}, "rows": [*rows, *more]}


@pytest.fixture
def described(tmp_path):
    def made(record):
        (tmp_path / "one.toml").write_text(machine_suite.described(record), "utf-8")
        return read(tmp_path / "one.toml")

    return made


def test_a_known_gpu_keeps_its_data_sheet_and_gets_what_was_measured(described):
    mine, h200 = described(of_a_gpu()), machine("h200")
    assert (mine.peak, mine.inside, mine.node) == (h200.peak, h200.inside, h200.node)
    assert (mine.name, mine.memory, mine.bandwidth) == ("h200-measured", 150109880320, 4.1e12)
    assert mine.share == pytest.approx(0.70, abs=0.015) and mine.sources["share"].endswith("one.toml")
    took = blocks.predicted(blocks.shard(8192, 64, 1), 1, mine)
    assert 1e3 * (took.forward + took.backward) == pytest.approx(H200["forward_ms"] + H200["backward_ms"], rel=1e-3)


def test_an_unknown_gpu_has_the_peak_of_its_matmuls_and_no_rate_above_it(described):
    link = {"name": machine_suite.SUM, "device": "cuda", "alpha": 2e-5, "beta": 1 / 2e11}
    mine = described(of_a_gpu(link, name="NVIDIA Z900", seconds=1e-6))
    assert (mine.peak, mine.inside, mine.across, mine.latency) == (7.0e14, 2e11, 2e11, (2e-5, 2e-5))
    assert mine.share == 1 and mine.node == 1


@pytest.mark.ranks
def test_this_machine_is_measured_and_planned_for(tmp_path, capsys):
    assert cli.main(["measure", "--suite", "machine", "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    mine = read(said["described"])
    assert 0 < mine.share <= 1 and mine.peak > 1e9 and mine.memory > 1e8 and mine.inside > 1e6
    rates = [one["median"] for one in said["rows"] if one["name"].startswith(machine_suite.MATMUL)]
    assert len(rates) == 3 and mine.peak == pytest.approx(max(rates), rel=1e-3)
    tiny = hl.Shape(layers=4, width=64, heads=4, context=64)
    assert hl.plan(tiny, said["described"], gpus=mine.node, batch=4).best.step.total > 0
