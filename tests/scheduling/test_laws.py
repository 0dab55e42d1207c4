"""What no schedule may do, looked at in its lists: a stale version, a receive too many, tied sums that come sooner."""

from collections import Counter
from dataclasses import replace

import pytest

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.lower import lower
from hybridlab.scheduling.pipedream import pipedream, pipedream_2bw
from hybridlab.scheduling.registry import schedule, schedules
from hybridlab.scheduling.sums import sooner, with_sums


@pytest.mark.parametrize("ranks, window, microbatches", [(2, 2, 8), (3, 3, 12), (3, 4, 12), (4, 6, 18)])
def test_of_two_buffered_weights_every_window_uses_those_of_one_update_before(ranks, window, microbatches):
    """Version k is there when k windows have been updated; a window begins before the one in front of it has ended."""
    for program in pipedream_2bw(ranks, microbatches, window).program:
        updates = 0
        for action in program:
            if action.kind in ("F", "B"):
                assert action.version == max(0, action.microbatch // window - 1) <= updates
            if action.kind == "OPT":
                assert action.version == updates
                updates += 1
        assert updates == microbatches // window


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_stashed_version_is_the_newest_that_its_stage_has(ranks):
    for program in pipedream(ranks, 8).program:
        updates, used = 0, {}
        for action in program:
            if action.kind == "F":
                assert action.version == updates
                used[action.microbatch] = updates
            if action.kind == "B":
                assert action.version == used[action.microbatch]
            updates += action.kind == "OPT"


@pytest.mark.parametrize("name", sorted(schedules()))
def test_every_receive_has_one_send_and_every_value_that_crosses_travels_once(name):
    """Counted by what crosses: an input of every stage from the one before, a gradient back."""
    made = schedule(name, ranks=4, microbatches=8)
    sent, received, needed = Counter(), Counter(), Counter()
    for action in (part for program in lower(made).program for one in program for part in one.each):
        if action.kind.startswith(("SEND", "RECV")):
            table = sent if action.kind.startswith("SEND") else received
            table[action.kind[-1], action.stage, action.microbatch, action.replica] += 1
    rank = {home: place for home, place in made.place.items()}
    for action in (part for program in made.program for one in program for part in one.each):
        for kind, way, other in (("F", "F", -1), ("B", "B", 1), ("I", "B", 1)):
            home = action.stage + other, action.replica
            if action.kind == kind and home in rank and rank[home] != rank[action.stage, action.replica]:
                needed[way] += 1
    assert sum(sent.values()) == sum(received.values())
    if not made.breaks:  # a stage that several take from sends to each of them
        assert sum(received.values()) == sum(needed.values()) and max(received.values()) == 1


def test_the_sum_of_tied_stages_stays_behind_all_others():
    """Ranks that hold one of them would else sum other stages with each other."""
    made = replace(Schedule.from_csv("0F0,1F0,1B0,0B0\n2F0,3F0,3B0,2B0"), tied=((0, 3),))
    for program, own in zip(sooner(with_sums(made, everywhere=True)).program, (1, 2)):
        kinds = [(action.kind, action.stage) for action in program]
        assert kinds.index(("REDUCE_GRAD", own)) == kinds.index(("B", own)) + 1
        assert kinds[-1] == ("REDUCE_GRAD", {1: 0, 2: 3}[own])


def test_the_copies_of_a_stage_are_listed_once_for_all_of_them(monkeypatch):
    asked = []
    listed = Flow.copies
    monkeypatch.setattr(Flow, "copies", lambda self, stage: asked.append(stage) or listed(self, stage))
    many = schedule("1f1b", ranks=2, microbatches=2, dp=32)
    plain = many.with_programs([[one for one in its if one.kind != "REDUCE_GRAD"] for its in many.program])
    asked.clear()
    summed = with_sums(plain)
    assert summed == many and asked == [0, 1]
