"""What others read of a run: HolisticTraceAnalysis its traces, TensorBoard its curves."""

import subprocess
import sys

import pytest

import hybridlab as hl

COSTS = hl.Costs(F=0.02, B=0.04)


def own_breakdown(timeline, rank):
    """(the span of a rank's actions, its time in compute actions), in microseconds, over all steps."""
    spans = [one for one in timeline.spans if one.rank == rank]
    lengths = [timeline.step(number).length for number in range(timeline.steps)]
    at = lambda one, moment: sum(lengths[: one.step]) + moment
    first, last = min(at(one, one.begin) for one in spans), max(at(one, one.end) for one in spans)
    return 1e6 * (last - first), 1e6 * sum(one.end - one.begin for one in spans if one.lane == "compute")


def test_holistic_trace_analysis_finds_the_idle_time_of_a_measured_run(tmp_path):
    """Idle to us is whatever is no compute action; to it, what is no message either."""
    from hta.trace_analysis import TraceAnalysis

    measured = hl.run(hl.schedule("1f1b", ranks=3, microbatches=4), steps=2, costs=COSTS)
    files = {rank: str(tmp_path / f"rank-{rank}.json") for rank in range(3)}
    for rank, file in files.items():
        measured.to_chrome(file, rank=rank)
    read = TraceAnalysis(trace_files=files)
    found = read.get_temporal_breakdown(visualize=False).set_index("rank")
    for rank in range(3):
        whole, busy = own_breakdown(measured, rank)
        row = found.loc[rank]
        assert row["kernel_time(us)"] == pytest.approx(whole, rel=0.01)
        assert row["compute_time(us)"] == pytest.approx(busy, rel=0.01)
        theirs = (row["idle_time(us)"] + row["non_compute_time(us)"]) / row["kernel_time(us)"]
        assert theirs == pytest.approx(1 - busy / whole, abs=0.01) and 0.05 < theirs < 0.9
    overlap = read.get_comm_comp_overlap(visualize=False)
    assert sorted(overlap["rank"]) == [0, 1, 2]  # so it knows messages as messages


def test_tensorboard_reads_the_curves_of_a_training_and_of_the_run_that_goes_on(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    heard = []
    more = dict(
        batch=8, progress=False, warmup=2, anneal="linear", rate=0.01, on_event=lambda _, event: heard.append(event)
    )
    places = {"checkpoint": tmp_path / "run", "log": tmp_path / "curves"}
    losses = hl.train(hl.Mesh(pp=2), steps=3, **more, **places)["losses"]
    losses += hl.train(hl.Mesh(dp=2), steps=5, **more, **places, resume=True)["losses"]
    read = EventAccumulator(str(tmp_path / "curves"))
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == ["loss", "rate", "tokens_per_second"]
    of = lambda name: [(one.step, one.value) for one in read.Scalars(name)]
    assert [step for step, _ in of("loss")] == list(range(5))
    assert [value for _, value in of("loss")] == pytest.approx(losses, rel=1e-6)
    assert [value for _, value in of("rate")] == pytest.approx([0.005, 0.01, 0.01, 0.02 / 3, 0.01 / 3], rel=1e-6)
    said = [event["tokens_per_second"] for event in heard if "loss" in event]
    assert [value for _, value in of("tokens_per_second")] == pytest.approx(said, rel=1e-6)


def test_the_command_has_it_too(tmp_path):
    words = ["train", "--pp", "2", "--steps", "1", "--log", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "hybridlab", *words], check=True, capture_output=True)
    assert [file for file in tmp_path.iterdir() if file.name.startswith("events.out.tfevents")]
