"""A Chrome trace: the fields that Perfetto reads, by phase; arrows inside their slices; a counter that adds up."""

import itertools
import json
from collections import Counter, defaultdict
from numbers import Real

import pytest

import hybridlab as hl
from hybridlab.predict.launch.traced import traced

FIELDS = {  # by phase: fields that the format asks for, beside name, ph, pid and tid
    "X": {"cat", "ts", "dur"},
    "M": {"args"},
    "s": {"cat", "ts", "id"},
    "f": {"cat", "ts", "id", "bp"},
    "C": {"ts", "args"},
}
META = {
    "process_name": "name",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}
COSTS = hl.Costs(F=1, B=2, latency=0.25)
SCHEDULES = {
    "1f1b": hl.lower(hl.schedule("1f1b", ranks=4, microbatches=6)),
    "zb_v": hl.lower(hl.schedule("zb_v", ranks=2, microbatches=5)),
    "chimera": hl.lower(hl.schedule("chimera", ranks=4, microbatches=4)),
    "without messages": hl.schedule("gpipe", ranks=3, microbatches=4),
    "swapped": hl.lower(hl.swapped(hl.schedule("gpipe", ranks=2, microbatches=4), room=hl.Room(capacity=2))),
}


def trace_of(timeline, tmp_path, rank=None):
    timeline.to_chrome(tmp_path / "trace.json", rank=rank)
    return json.loads((tmp_path / "trace.json").read_text())


@pytest.fixture(params=SCHEDULES)
def told(request, tmp_path):
    """(a timeline, its trace by phase)."""
    timeline = hl.simulate(SCHEDULES[request.param], COSTS)
    phases = defaultdict(list)
    for event in trace_of(timeline, tmp_path)["traceEvents"]:
        phases[event["ph"]].append(event)
    return timeline, phases


def test_each_event_has_the_fields_of_its_phase(told):
    """And no others: what a viewer does not know, it may read as something else."""
    for phase, events in told[1].items():
        for event in events:
            assert {"name", "ph", "pid", "tid"} | FIELDS[phase] == event.keys() - {"args"} | (FIELDS[phase] & {"args"})
            assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
            assert all(isinstance(event[name], Real) and event[name] >= 0 for name in ("ts", "dur") if name in event)
    assert all(list(event["args"]) == [META[event["name"]]] for event in told[1]["M"])
    assert all(list(map(type, event["args"].values())) == [int] for event in told[1]["C"])


def test_processes_and_threads_have_names(told):
    timeline, phases = told
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in phases["M"] if one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in phases["X"]} == names.keys()
    assert {names[one["pid"], one["tid"]] for one in phases["X"] if one["cat"] in "FBIW"} == {"compute"}
    processes = [one["args"]["name"] for one in phases["M"] if one["name"] == "process_name"]
    assert processes == [f"rank {rank}" for rank in range(timeline.schedule.ranks)]


def test_an_arrow_leads_from_inside_each_send_to_inside_its_receive(told):
    timeline, phases = told
    kinds = Counter(one["cat"] for one in phases["X"])
    assert len(phases["s"]) == len(phases["f"]) == kinds["SEND_F"] + kinds["SEND_B"]
    within = lambda arrow: [
        one
        for one in phases["X"]
        if (one["pid"], one["tid"]) == (arrow["pid"], arrow["tid"])
        and one["ts"] <= arrow["ts"] <= one["ts"] + one["dur"]
    ]
    ends = {one["id"]: one for one in phases["f"]}
    assert len(ends) == len(phases["f"])
    for begin in phases["s"]:
        end = ends[begin["id"]]
        sent, received = [one["name"] for one in within(begin)], [one["name"] for one in within(end)]
        assert begin["ts"] <= end["ts"] and begin["pid"] != end["pid"] and begin["name"] in sent
        assert any("RECV" in name for name in received) and end["bp"] == "e"


def test_the_counter_is_never_below_nothing_ends_there_and_has_the_peak(told):
    timeline, phases = told
    by_rank = defaultdict(list)
    for one in phases["C"]:
        by_rank[one["pid"]].append((one["ts"], one["args"]["held"]))
    for rank, its in by_rank.items():
        assert [at for at, _ in its] == sorted(at for at, _ in its)
        assert min(held for _, held in its) >= 0 and its[-1][1] == 0
        assert max(held for _, held in its) == timeline.peak_live[rank]
    assert len(by_rank) == timeline.schedule.ranks


@pytest.mark.ranks
def test_steps_of_a_measured_run_follow_each_other(kept, tmp_path):
    measured = hl.run(hl.schedule("1f1b", ranks=2, microbatches=3), steps=3, costs=hl.Costs(F=0.002, B=0.004))
    spans = [one for one in trace_of(measured, tmp_path)["traceEvents"] if one["ph"] == "X"]
    by_step = [[one for one in spans if one["args"]["step"] == step] for step in range(3)]
    for before, after in itertools.pairwise(by_step):
        assert max(one["ts"] + one["dur"] for one in before) <= min(one["ts"] for one in after) + 1e-6


def test_one_rank_alone_is_a_trace_as_of_torchs_profiler(tmp_path):
    """Which our own reader of such traces reads: what is no message there is the time in compute actions."""
    timeline = hl.simulate(SCHEDULES["1f1b"], COSTS)
    for rank in range(4):
        trace = trace_of(timeline, tmp_path, rank)
        assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": 4}
        assert {one["pid"] for one in trace["traceEvents"]} == {rank}
        found = traced(trace)
        assert found.rank == rank and found.seconds["other kernels"] == pytest.approx(timeline.busy[rank] / 1e3)
    with pytest.raises(ValueError, match="there is no rank 4: 1f1b has 4, counted from 0"):
        timeline.to_chrome(tmp_path / "trace.json", rank=4)
