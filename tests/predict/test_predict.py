"""The simulator, its costs, and the timeline."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridlab as hl
from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lanes import LANES

S = dict(ranks=4, microbatches=8)


def spans(t):
    return {(span.rank, str(span.action)): (span.begin, span.end) for span in t.spans}


def test_the_lecture_example():
    t = hl.simulate(hl.schedule("gpipe", **S), hl.Costs(F=1, B=2))
    assert (t.length, round(t.bubble_fraction, 3), t.bubble_overhead) == (33, 0.273, 0.375)
    assert spans(t)[3, "3F0"] == (3, 4) and spans(t)[0, "0B7"] == (31, 33)
    assert t.summary == (
        "gpipe, 4 ranks, 8 microbatches, predicted: length 33 units, idle/total 27.3%, idle/ideal 37.5%, "
        "activations held at most 8 on every rank"
    )


def test_a_message_costs_its_latency_and_its_bytes():
    s = hl.schedule("gpipe", ranks=2, microbatches=1)
    assert hl.simulate(s, hl.Costs(F=1, B=2, latency=0.25)).length == 6.5
    assert hl.simulate(s, hl.Costs(F=1, B=2, bytes=8, bandwidth=4)).length == 10
    lowered = hl.simulate(hl.lower(s), hl.Costs(F=1, B=2, latency=0.25))
    assert lowered.length == 6.5 and spans(lowered)[1, "1RECV_F0"] == (1, 1.25) == spans(lowered)[0, "0SEND_F0"]


def test_one_lane_carries_one_message_at_a_time():
    s = hl.lower(hl.schedule("gpipe", ranks=2, microbatches=2))
    t = spans(hl.simulate(s, hl.Costs(F=1, B=2, latency=5)))
    assert t[0, "0SEND_F0"] == (1, 6) and t[0, "0SEND_F1"] == (6, 11)


def test_rendezvous_waits_for_the_receive_to_be_posted():
    s = hl.Schedule.from_csv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                             "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1")  # fmt: skip
    costs = hl.Costs(F=1, B=2, latency=1)
    buffered, waiting, early = (
        spans(hl.simulate(s, costs, **how)) for how in ({}, {"rendezvous": True}, {"rendezvous": True, "post": "early"})
    )
    assert buffered[1, "1RECV_F1"] == (2, 3) and waiting[1, "1RECV_F1"] == (5, 6) and early == buffered


def test_each_edge_has_its_own_link():
    s, each = hl.schedule("gpipe", ranks=3, microbatches=1), {"latency": (1, 5, 0), "bandwidth": (2, 4, 1)}
    for one in (s, hl.lower(s)):
        t = hl.simulate(one, hl.Costs(F=1, B=2, bytes=8, **each))
        assert t.length == 3 + 6 + 2 * (1 + 8 / 2) + 2 * (5 + 8 / 4)
    sent = spans(t)
    assert sent[1, "1RECV_F0"] == (1, 6) and sent[2, "2RECV_F0"] == (7, 14)


def test_a_late_receive_asks_for_its_message_first():
    """Rank 1 posts the receive of microbatch 1 at 5; its sender, which has it at 2, knows of that 3 later."""
    s = hl.Schedule.from_csv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                             "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1")  # fmt: skip
    costs = hl.Costs(F=1, B=2, latency=1, handshake=(3, 0))
    waiting, buffered, early = (
        spans(hl.simulate(s, costs, **how)) for how in ({"rendezvous": True}, {}, {"rendezvous": True, "post": "early"})
    )
    assert waiting[1, "1RECV_F0"] == (3, 4), "posted at 0, known at 3"
    assert waiting[1, "1F0"] == (4, 5) and waiting[1, "1RECV_F1"] == (10, 11), "posted at 7"
    assert waiting[0, "0F1"] == (1, 2), "a rank goes on while it waits to be heard"
    plain = hl.simulate(s, hl.Costs(F=1, B=2, latency=1))
    assert buffered == early == spans(plain)


def test_posting_takes_time_on_the_rank():
    s = hl.lower(hl.schedule("gpipe", ranks=2, microbatches=1))
    assert hl.simulate(s, hl.Costs(F=1, B=2, post=0.5)).length == 6 + 2 * 0.5  # the two sends on the path
    assert hl.simulate(hl.schedule("gpipe", ranks=2, microbatches=1), hl.Costs(F=1, B=2, post=0.5)).length == 6


def test_costs_per_stage_and_the_slowest_stage_rules():
    t = hl.simulate(hl.schedule("1f1b", **S), hl.Costs(F=(1, 1, 3, 1), B=(2, 2, 6, 2)))
    assert t.busy == [24, 24, 72, 24]
    assert t.length >= 72 and {span.rank for span in t.critical_path} == {0, 1, 2, 3}


@pytest.mark.long
@given(st.lists(st.decimals(0, 50, places=3), min_size=3, max_size=3), st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=40)
def test_the_critical_path_has_no_holes_and_its_length_is_the_length(costs, p, m):
    f, i, w = map(float, costs)
    t = hl.simulate(hl.lower(hl.schedule("1f1b", ranks=p, microbatches=m)), hl.Costs(F=f, I=i, W=w, latency=0.125))
    path = t.critical_path
    assert path[0].begin == 0 and path[-1].end == pytest.approx(t.length)
    assert all(before.end == pytest.approx(after.begin) for before, after in zip(path, path[1:]))


def test_a_message_on_the_critical_path_is_its_send():
    t = hl.simulate(hl.lower(hl.schedule("gpipe", ranks=2, microbatches=1)), hl.Costs(F=1, B=2, latency=0.5))
    assert [str(span.action) for span in t.critical_path] == ["0F0", "0SEND_F0", "1F0", "1B0", "1SEND_B0", "0B0"]


def test_a_message_waits_for_those_on_its_own_link_only():
    """Rank 1 hears from both neighbours. Its gradient leaves late, after an activation of the other link has come."""
    t = hl.simulate(hl.lower(hl.schedule("1f1b", ranks=3, microbatches=3)), hl.Costs(F=1, B=2, latency=8))
    names = [str(action) for program in t.schedule.program for action in program]
    made, sent, beside = map(names.index, ("2B0", "2SEND_B0", "0SEND_F2"))
    late = np.where(t.begin >= t.begin[0, sent], round(10 / t.tick), 0)
    t = replace(t, begin=t.begin + late, end=t.end + late)
    assert t.end[0, made] < t.end[0, beside] < t.begin[0, sent]
    assert t.waited_for[sent] == made


@pytest.mark.long
@given(
    st.integers(1, 5),
    st.integers(1, 7),
    st.sampled_from(["naive", "gpipe", "1f1b"]),
    st.integers(1, 5),
    st.integers(1, 5),
)
@settings(max_examples=40)
def test_no_two_actions_of_a_rank_overlap_and_idle_adds_up(p, m, name, f, b):
    t = hl.simulate(hl.schedule(name, ranks=p, microbatches=m), hl.Costs(F=f, B=b))
    for r in range(p):
        own = [span for span in t.spans if span.rank == r]
        assert all(before.end <= after.begin for before, after in zip(own, own[1:]))
        assert all(span.ready <= span.begin for span in own)
    assert sum(t.busy) + t.bubble_fraction * p * t.length == pytest.approx(p * t.length)


def test_decimal_costs_stay_exact():
    t = hl.simulate(hl.schedule("1f1b", ranks=8, microbatches=24), hl.Costs(F=18.522, I=18.086, W=9.337, latency=0.601))
    assert t.tick == 0.001 and t.busy[0] == pytest.approx(24 * (18.522 + 18.086 + 9.337), abs=1e-9)


@pytest.mark.parametrize(
    "costs, says",
    [
        (dict(F=-1), "F=-1 is not a valid duration"),
        (dict(bytes=8), "without a bandwidth"),
        (dict(bandwidth=0), "lets no message arrive"),
        (dict(B=float("nan")), "B=nan"),
        (dict(B=2, W=3), "shorter than its half W=3: give a longer B"),
        (dict(B=(4, 2), I=3), "shorter than its half I=3"),
        (dict(B=(4, 2), I=(1, 1, 1)), r"the costs have different lengths, \{'I': 3, 'B': 2\}"),
    ],
)  # fmt: skip
def test_impossible_costs_are_refused(costs, says):
    with pytest.raises(ValueError, match=says):
        hl.Costs(**costs)


@pytest.mark.parametrize(
    "given, halves",
    [
        ({}, (1, 1)),
        ({"B": 0.04}, (0.02, 0.02)),
        ({"B": (2, 6)}, (1, 1)),
        ({"B": 3, "W": 1}, (2, 1)),
        ({"B": (3, 5), "I": (2, 1)}, (2, 1)),
        ({"I": 4}, (4, 1)),
        ({"B": 2, "I": 5, "W": 6}, (5, 6)),
    ],
)
def test_halves_of_a_backward_that_are_not_given_follow_from_it(given, halves):
    costs = hl.Costs(**given)
    assert (costs.of("I", 0), costs.of("W", 0)) == halves
    assert costs.of("B", 0) == (sum(halves) if "B" not in given else np.atleast_1d(given["B"])[0])


def test_a_split_backward_takes_as_long_as_a_whole_one():
    """Also in ticks: a half of B has a digit more than B has."""
    of = lambda name: hl.simulate(hl.schedule(name, ranks=1, microbatches=4), hl.Costs(F=0.02, B=0.05)).length
    assert of("zb_h1") == of("1f1b") == pytest.approx(0.28)


def test_an_unknown_option_is_refused():
    with pytest.raises(ValueError, match="late"):
        hl.simulate(hl.schedule("1f1b", **S), post="late")
    with pytest.raises(ValueError, match="not measured"):
        hl.Costs.measured(hl.simulate(hl.schedule("1f1b", **S)))


def test_saved_and_loaded_a_timeline_is_the_same(tmp_path):
    t = hl.simulate(hl.lower(hl.schedule("1f1b", ranks=2, microbatches=3, dp=2)), hl.Costs(F=1, B=2, reduce=1))
    t.save(tmp_path / "t.json")
    again = hl.Timeline.load(tmp_path / "t.json")
    assert list(again.spans) == list(t.spans) and again.metrics() == t.metrics() and again.summary == t.summary


@pytest.mark.parametrize("content", ["{", '{"format": "other"}', "[]", "\xff\xfe", "[" * 200_000, "9" * 9999])
def test_loading_something_else_says_so(tmp_path, content):
    (tmp_path / "t.json").write_bytes(content.encode("latin1"))
    with pytest.raises(ValueError, match="is not a saved hybridlab timeline"):
        hl.Timeline.load(tmp_path / "t.json")


@pytest.mark.parametrize(
    "change, says",
    [
        ({"version": 99}, "format version 99, but this hybridlab reads 2: update hybridlab"),
        ({"version": 1}, "format version 1, but this hybridlab reads 2: save it again"),
        ({"version": None}, "format version None, but this hybridlab reads 2"),
        ({"schedule": None}, "this JSON is not a saved hybridlab schedule"),
        ({"schedule": {"format": "hybridlab.schedule", "version": 1}}, "no lists of actions under 'program'"),
        ({"begin": None}, "timeline is damaged at 'begin'"),
        ({"end": [[1, 2]]}, "timeline is damaged at 'end'"),
        ({"end": [[1] * 63]}, "timeline is damaged at 'end'"),
        ({"end": [[1] * 64] * 2}, "timeline is damaged at 'end'"),
        ({"end": [[0.5] * 64]}, "timeline is damaged at 'end'"),
        ({"end": [[1] * 64, [1]]}, "timeline is damaged at 'end'"),
        ({"end": [[10**30] * 64]}, "timeline is damaged at 'end'"),
        ({"ready": [], "begin": [], "end": []}, "timeline is damaged at 'ready'"),
        ({"tick": "1"}, "timeline is damaged at 'tick'"),
        ({"origin": []}, "timeline is damaged at 'origin'"),
        ({"loss": 3}, "timeline is damaged at 'loss'"),
        ({"ledger": None}, "timeline is damaged at 'ledger'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_damaged_timeline_ends_in_one_sentence(change, says, tmp_path):
    saved = hl.simulate(hl.schedule("1f1b", **S)).to_dict()
    assert hl.Timeline.from_dict(saved).length == 33
    (tmp_path / "t.json").write_text(json.dumps(saved | change))
    with pytest.raises(ValueError, match=says) as caught:
        hl.Timeline.load(tmp_path / "t.json")
    assert "\n" not in str(caught.value)


def test_every_part_that_a_saved_timeline_lacks_is_named():
    saved = hl.simulate(hl.schedule("1f1b", **S)).to_dict()
    for name in saved:
        with pytest.raises(ValueError, match="timeline|schedule") as caught:
            hl.Timeline.from_dict({key: value for key, value in saved.items() if key != name})
        assert "\n" not in str(caught.value)


def test_chrome_trace_has_one_event_per_action(tmp_path):
    t = hl.simulate(hl.schedule("1f1b", **S))
    t.to_chrome(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 64
    assert {event["pid"] for event in events} == {0, 1, 2, 3}


def test_chrome_trace_says_of_each_action_what_the_timeline_knows(tmp_path):
    t = hl.simulate(hl.lower(hl.schedule("1f1b", **S)), hl.Costs(F=1, B=2, latency=0.5))
    t.to_chrome(tmp_path / "trace.json")
    spans = [one for one in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if one["ph"] == "X"]
    for event, span in zip(spans, t.spans, strict=True):
        assert (event["name"], event["cat"], event["pid"]) == (str(span.action), span.action.kind, span.rank)
        assert (event["ts"], event["dur"]) == (1000 * span.begin, 1000 * (span.end - span.begin))
        assert event["args"] == {"step": span.step, "index": span.index, "ready": span.ready}
        assert event["tid"] == LANES.index(span.lane)  # a thread for each lane


def test_the_law_is_applied_once_to_each_schedule(monkeypatch):
    made, make = [], Flow.__init__
    monkeypatch.setattr(
        Flow, "__init__", lambda flow, schedule, room: made.append(schedule) or make(flow, schedule, room)
    )
    plain = hl.validate(hl.schedule("zb_h1", ranks=3, microbatches=5))
    lowered = hl.lower(plain)
    t = hl.simulate(lowered)
    assert t.peak_live == [3, 3, 3] and t.critical_path and hl.traffic(plain)
    assert hl.check_rendezvous(lowered) is lowered
    assert made == [plain, lowered]  # traffic lowers once more, and what it gets is known


def test_gap_compares_runs_of_one_program_only():
    one, other = (hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=m)) for m in (2, 3))
    with pytest.raises(ValueError, match="1f1b and 1f1b are different schedules"):
        one.gap(other)
    slower = hl.simulate(hl.lower(hl.schedule("1f1b", ranks=2, microbatches=2)), hl.Costs(F=2, B=4))
    assert one.gap(slower)["length_ratio"] == 2 and one.gap(slower)["bubble_fraction"] == 0


def test_a_typical_step_is_the_one_of_median_length():
    import numpy as np

    t = hl.simulate(hl.schedule("gpipe", ranks=1, microbatches=1), hl.Costs(F=1, B=2))
    three = hl.Timeline(t.schedule, *(np.concatenate([c * 5, c, c * 2]) for c in (t.ready, t.begin, t.end)), t.lane)
    assert (three.steps, three.typical, three.length, three.step(0).length) == (3, 2, 6, 15)
