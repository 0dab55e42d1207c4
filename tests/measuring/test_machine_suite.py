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
from hybridlab.predict.plans.measured import by_sums
from hybridlab.world.devices.placement import Placement

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


def sums(alpha=2e-5, rate=2e11):
    """The times of all-reduces of two ranks: each sends half of the bytes twice."""
    return [
        row(machine_suite.SUM, "s", [2 * alpha + size / rate], device="cuda", bytes=size)
        for size in machine_suite.SUMMED["cuda"]
    ]


def test_an_unknown_gpu_has_the_peak_of_its_matmuls_and_no_rate_above_it(described):
    record = of_a_gpu(*sums(), name="NVIDIA Z900", seconds=1e-6)
    record["machine"]["gpus"] *= 2
    mine = described(record)
    assert mine.peak == 7.0e14 and mine.inside == mine.across > 1e11 and mine.latency[0] == pytest.approx(2e-5)
    assert mine.share == 1 and mine.node == 2 and mine.label == "2 × NVIDIA Z900"


def test_a_link_is_that_of_by_sums_and_the_network_keeps_its_latency(described):
    """It reaches a part of its rate with a program, which the prediction takes off again."""
    mine, h200 = described(of_a_gpu(*sums())), machine("h200")
    by = by_sums("h200", 2, [*machine_suite.SUMMED["cuda"]], [one["median"] for one in sums()])
    assert mine.inside == pytest.approx(by.inside, rel=1e-3) and mine.latency[1] == h200.latency[1]
    assert mine.across == h200.across


def test_what_was_not_measured_is_not_called_so(tmp_path):
    lines = machine_suite.described(of_a_gpu(name="NVIDIA Z900")).splitlines()
    (link,) = [one for one in lines if one.startswith("inside")]
    assert link.endswith("# not measured: as fast as memory")
    assert {one.partition(" ")[0] for one in lines if "# measured on" in one} == {"peak", "bandwidth", "share"}


def test_ranks_on_cores_are_described_as_cores_next_to_a_gpu(described):
    record = of_a_gpu(seconds=10.0)
    record["machine"]["device"] = "cpu"
    mine = described(record)
    assert (mine.name, mine.like, mine.node, mine.bandwidth) == ("cpu-measured", "", 16, 2.05e12)


def test_a_node_has_as_many_gpus_as_are_here(described):
    record = of_a_gpu()
    record["machine"]["gpus"] *= 4
    assert described(record).node == 4 and described(of_a_gpu()).node == machine("h200").node


def test_other_devices_are_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(machine_suite, "placement", lambda ranks: Placement("gloo", ("mps:0",), False, ""))
    with pytest.raises(ValueError, match="measures CPUs and CUDA GPUs, not mps: give HYBRIDLAB_DEVICES=cpu"):
        next(machine_suite.rows())


@pytest.mark.ranks
def test_this_machine_is_measured_and_planned_for(tmp_path, capsys):
    assert cli.main(["measure", "--suite", "machine", "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    mine = read(said["described"])
    assert 0 < mine.share <= 1 and mine.peak > 1e9 and mine.memory > 1e8 and mine.inside > 1e6
    rates = [max(one["repetitions"]) for one in said["rows"] if one["name"].startswith(machine_suite.MATMUL)]
    assert len(rates) == 3 and mine.peak == pytest.approx(max(rates), rel=1e-3)
    tiny = hl.Shape(layers=4, width=64, heads=4, context=64)
    assert hl.plan(tiny, said["described"], gpus=mine.node, batch=4).best.step.total > 0
