"""Schedules played by real processes."""

from types import SimpleNamespace

import pytest
from few import one_in

import hybridlab as hl
from hybridlab.runtime.emulated import EmulatedWork
from hybridlab.scheduling.lower import lower
from hybridlab.training import run

pytestmark = pytest.mark.ranks
QUICK = hl.Costs(F=0.004, B=0.008)


@pytest.mark.parametrize("name, dp", one_in(2, [("naive", 1), ("gpipe", 1), ("1f1b", 1), ("1f1b", 2)]))
def test_ranks_play_the_schedule_that_was_drawn(kept, name, dp):
    s = hl.schedule(name, ranks=3, microbatches=4, dp=dp)
    real = hl.run(s, costs=QUICK, steps=2)
    assert real.schedule.computing == s.computing and (real.steps, real.unit) == (2, "s")
    ideal = hl.simulate(s, QUICK)
    assert real.peak_live == ideal.peak_live
    assert ideal.length <= real.length < 3 * ideal.length
    assert 0 < real.origin["post"] < 0.1, "seconds in which a rank posts a message"
    sums = [one for step in range(2) for one in real.step(step).spans if one.action.kind == "REDUCE_GRAD"]
    assert (len(sums) > 0) == (dp > 1) and all(one.begin < one.end for one in sums)
    for step in range(2):
        began = {(span.rank, span.index): span for span in real.step(step).spans}
        for span in began.values():
            assert span.begin <= span.end
            for value in real.flow.takes[real.flow.program[span.rank] + span.index]:
                maker = real.flow.maker[value]
                if maker >= 0 and real.lane[maker] == 0 == real.lane[real.flow.program[span.rank] + span.index]:
                    rank = real.flow.rank[maker]
                    assert began[rank, maker - real.flow.program[rank]].end <= span.begin


def test_a_real_model_runs_and_tells_its_loss_and_messages(kept):
    s = hl.schedule("1f1b", ranks=2, microbatches=3)
    real = hl.run(s, work="model", model=hl.Shape(layers=2, width=16, heads=2, context=8), steps=2)
    assert len(real.loss) == 2 and real.loss[1] < real.loss[0]
    sent = [row for row in real.ledger if row["op"] == "isend" and row["bytes"] == 2 * 8 * 16 * 4]
    steps = 3  # two measured, one before
    assert len([row for row in sent if row["source"].startswith("player")]) >= 2 * 3 * steps
    assert real.origin["latency"][0] > 0 and real.origin["kind"] == "measured"


def test_a_measured_run_can_be_saved_and_predicted(tmp_path):
    real = hl.run(hl.schedule("gpipe", ranks=2, microbatches=2), costs=QUICK, steps=1)
    real.save(tmp_path / "real.json")
    again = hl.Timeline.load(tmp_path / "real.json")
    ideal = hl.simulate(again.schedule, hl.Costs.measured(again), rendezvous=True)
    assert again.metrics() == real.metrics() and set(ideal.gap(again)) >= {"length", "waiting", "bubble_fraction"}


@pytest.mark.parametrize("driven", [False, True])
def test_a_live_run_tells_of_every_action_and_its_step(kept, driven):
    s, heard = hl.schedule("1f1b", ranks=2, microbatches=2), []
    hear = lambda rank, event: heard.append((rank, event))
    real = hl.run(s, costs=QUICK, live=True, driven=driven, on_event=hear)
    told = [(event["step"], rank) for rank, event in heard if "index" in event]
    assert sorted(told) == sorted((step, rank) for step in range(4) for rank in range(2) for _ in range(4))
    assert all(event["begin"] < event["end"] for _, event in heard if "index" in event)
    assert [(rank, event["step"]) for rank, event in heard if "index" not in event] == [(0, step) for step in range(4)]
    if not driven:
        named = [str(real.schedule.program[rank][event["index"]]) for rank, event in heard if "index" in event]
        assert sorted(named) == sorted(4 * [str(action) for program in s.program for action in program])


def test_a_step_begins_when_all_ranks_have_ended_the_one_before(kept):
    """The last rank has weight halves to do long after the first rank is through."""
    s, costs = hl.schedule("zb_h1", ranks=2, microbatches=1), hl.Costs(F=0.004, I=0.004, W=(0, 0.1))
    real = hl.run(s, costs=costs)
    assert real.steps == 3 and all(0.108 <= real.step(step).length < 0.15 for step in range(3))


def test_a_rank_by_itself_is_never_idle(kept):
    real = hl.run(hl.schedule("gpipe", ranks=1, microbatches=2), costs=hl.Costs(F=0.01, B=0.02))
    assert real.origin["latency"] == [0] and 0.06 <= real.length and real.bubble_fraction < 0.1


def test_gathers_run_beside_computing_as_predicted(kept):
    """A rank with a pipeline of its own, its weights gathered one stage ahead: real gathers, on a lane of their own."""
    looped = hl.schedule("looped_bfs", ranks=1, microbatches=2, chunks=3, dp=2)
    costs = hl.Costs(F=0.02, B=0.04, gather=0.015, reduce=0.02)
    runs = [hl.run(hl.sharded(looped, active), costs=costs, steps=2) for active in (1, 2)]
    shares = [real.bubble_fraction for real in runs]
    predicted = [hl.simulate(hl.sharded(looped, active), costs).bubble_fraction for active in (1, 2)]
    assert predicted[1] < predicted[0] - 0.05
    assert all(abs(share - expected) < 0.05 for share, expected in zip(shares, predicted))
    beside = [span for span in runs[1].spans if span.action.kind in ("UNSHARD", "REDUCE_GRAD")]
    assert all(span.end - span.begin < 0.06 for span in beside), "each ends when it is over, not when it is waited for"


def test_every_row_of_an_emulated_run_says_what_it_is_for(kept):
    run = hl.run(hl.schedule("gpipe", ranks=2, microbatches=2), work="emulated")
    assert {row["purpose"] for row in run.ledger if row["bytes"]} == {"messages", "report"}


def test_of_several_driven_steps_the_one_of_median_length_is_given(monkeypatch):
    """Nobody knows their order beforehand, so each step is a timeline of its own."""
    from hybridlab.training import run as running

    lengths = iter((3, 1, 5, 2, 4))
    monkeypatch.setattr(running, "measured", lambda *about, **more: SimpleNamespace(length=next(lengths)))
    given = hl.run(hl.schedule("gpipe", ranks=2, microbatches=2), work="emulated", driven=True, steps=5)
    assert given.length == 3


def test_whether_the_device_saw_messages_come_is_said():
    work = lower(hl.schedule("1f1b", ranks=2, microbatches=2)), EmulatedWork(QUICK)
    with hl.ranks(hl.Mesh(pp=2)) as pool:
        homes = pool.run(run._run_emulated, *work, False, 1, False, None)
    for seen in (False, True):
        real = run._timeline(work[0], [home | {"seen": seen} for home in homes], hl.Mesh(pp=2), "emulated")
        assert real.origin.get("seen", False) is seen
