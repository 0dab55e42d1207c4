"""Out of core: swaps are rows of the law, and the order of a list keeps a rank within its room, whatever durations."""

import inspect
import itertools
import math
import random
from collections import defaultdict

import numpy as np
import pytest
from random_swaps import chain, costs, room, step

import hybridlab as hl
from hybridlab.core.when import flow as flows
from hybridlab.core.when import room as rooms
from hybridlab.core.when.flow import Flow
from hybridlab.core.when.play import Stuck, play
from hybridlab.predict.bytes.live import on_device
from hybridlab.predict.time.out_of_core import AGAIN, AWAY, STAY, forwards, mixed, planned
from hybridlab.scheduling.validate import Invalid
from hybridlab.show.charts.room_over_time import room_over_time

STEP = "0F0,0SWAP_OUT0,1F0,1B0,0SWAP_IN0,0B0"
REFUSED = {
    "0F0,0SWAP_OUT0,1F0,1B0,0B0": "0B0 takes the saved tensors of 0F0, but 0SWAP_OUT0 comes before it: put 0SWAP_IN0",
    "0F0,1F0,1B0,0SWAP_IN0,0B0": "0SWAP_IN0 takes .* on the host, which is empty: put 0SWAP_OUT0 before it",
    "0F0,0SWAP_OUT0,0SWAP_OUT0,1F0,1B0,0SWAP_IN0,0B0": "0SWAP_OUT0 takes .*, but 0SWAP_OUT0 comes before it",
    "0F0,0SWAP_OUT0,1F0,1B0,0SWAP_IN0,0SWAP_IN0,0B0": "0SWAP_IN0 takes .* on the host, which is empty",
    "0F0,0SWAP_OUT0,1F0,1B0,0B0,0SWAP_IN0": "0B0 takes .*, but 0SWAP_OUT0 comes before it",
    "0F0,1F0,1B0,0B0,0SWAP_OUT0": "0SWAP_OUT0 takes .*, which 0B0 has freed: put it before 0B0, or leave it out",
    "0F0,0I0,0SWAP_OUT0,0SWAP_IN0,0W0": "0SWAP_OUT0 takes .*, which 0I0 has freed",
    "0F0,0SWAP_IN0,0SWAP_OUT0,0B0": "0SWAP_IN0 takes .* on the host, which is empty",
    "0C0,0SWAP_OUT0,0R0,0SWAP_IN0,0B0": "0SWAP_OUT0 waits for the saved tensors of 0F0, which 0R0 on rank 0 makes",
    "0F0,0SWAP_OUT0,0R0,0B0": "0F0 and 0R0 both make the saved tensors",
    "0F0#0,0SWAP_OUT0#1,0SWAP_IN0#1,0B0#0": "0SWAP_OUT0#1 takes the saved tensors of 0F0#1, which no action makes",
}


@pytest.mark.parametrize("text", REFUSED)
def test_missing_doubled_and_late_swaps_are_refused_by_name(text):
    with pytest.raises((Invalid, Stuck), match=REFUSED[text]):
        hl.validate(hl.Schedule.from_csv(text))


def test_what_is_away_is_not_held_and_what_is_back_is_let_go_once():
    s = hl.validate(hl.Schedule.from_csv(STEP))
    assert hl.simulate(s).peak_live == [1] and hl.simulate(hl.Schedule.from_csv("0F0,1F0,1B0,0B0")).peak_live == [2]
    hl.validate(hl.Schedule.from_csv("0F0,0SWAP_OUT0,0SWAP_IN0,0SWAP_OUT0,0SWAP_IN0,0I0,0W0"))


def test_a_weight_half_and_a_version_are_swapped_like_all_else():
    hl.validate(hl.Schedule.from_csv("0F0#0,0SWAP_OUT0#0,0SWAP_IN0#0,0I0#0,0W0#0"))


def test_texts_and_files_keep_swaps_and_pytorch_has_none(tmp_path):
    s = hl.Schedule.from_csv(STEP)
    s.save(tmp_path / "swaps.json")
    assert str(hl.Schedule.from_csv(s.to_csv())) == str(s) == str(hl.Schedule.load(tmp_path / "swaps.json"))
    with pytest.raises(ValueError, match="no action of kind SWAP_OUT"):
        s.to_pytorch()


# --- two engines ------------------------------------------------------------------------------------------------


def begins(text, costs, **more):
    t = hl.simulate(hl.Schedule.from_csv(text), costs, **more)
    return {str(span.action): span.begin for span in t.spans}


def test_a_copy_that_must_wait_stops_its_engine_and_not_its_rank():
    begin = begins("0F0,0SWAP_OUT0,0SWAP_IN0,1F0,1B0,0B0", hl.Costs(F=1, B=2, swap=5))
    assert begin == {"0F0": 0, "0SWAP_OUT0": 1, "0SWAP_IN0": 6, "1F0": 1, "1B0": 2, "0B0": 11}


def test_copies_of_one_way_go_one_by_one_and_the_two_ways_beside_each_other():
    begin = begins("0F0,0SWAP_OUT0,0F1,0SWAP_OUT1,0SWAP_IN0,0B0,0SWAP_IN1,0B1", hl.Costs(F=1, B=1, swap=3))
    assert begin["0SWAP_OUT1"] == 4 == begin["0SWAP_IN0"] and begin["0SWAP_IN1"] == 8


def test_letting_go_what_is_still_gathered_does_not_stop_a_rank():
    """A weight half needs no gathered weights, so one that stands behind a RESHARD does not wait for the gather."""
    text = "0UNSHARD,0F0,0I0,0F1,0I1,0RESHARD,0UNSHARD,0W0,0RESHARD,0W1,0REDUCE_GRAD"
    begin = begins(text, hl.Costs(gather=7))
    assert begin["0W0"] == 11 and begin["0W1"] == 12


@pytest.mark.parametrize("engine", ["plain", "compiled"])
def test_beside_a_rank_nothing_takes_what_the_rank_makes_later(engine):
    if engine == "compiled":
        pytest.importorskip("numba", reason="numba (the extra `fast`) is not installed")
    for text in ("0F0,0I0,0REDUCE_GRAD,0W0", "0SWAP_OUT0,0F0,0SWAP_IN0,0B0"):
        with pytest.raises(Stuck):
            hl.simulate(hl.Schedule.from_csv(text), engine=engine)


# --- room -------------------------------------------------------------------------------------------------------


def test_who_lacks_room_waits_for_the_first_swap_that_leaves_enough():
    text = "0F0,0SWAP_OUT0,1F0,1SWAP_OUT0,2F0,2B0,1SWAP_IN0,1B0,0SWAP_IN0,0B0"
    costs = hl.Costs(F=1, B=2, swap=4)
    assert begins(text, costs)["2F0"] == 2
    assert begins(text, costs, room=hl.Room(2))["2F0"] == 5  # 0SWAP_OUT0 is over
    assert begins(text, costs, room=hl.Room(1))["2F0"] == 10  # so is 1SWAP_OUT0, which 1F0 had made late
    flow = Flow(hl.Schedule.from_csv(text), hl.Room(2))
    assert {str(flow.action(i)): str(flow.action(out)) for i, out in enumerate(flow.waits_for) if out >= 0} == {
        "2F0": "0SWAP_OUT0"
    }


def test_what_cannot_fit_is_refused_and_the_sentence_says_what_to_do():
    with pytest.raises(
        Invalid, match="chain is not valid: 4F0 needs 1 more than the 4 that fit on rank 0: swap something out before"
    ):
        hl.validate(chain(6), hl.Room(4))
    with pytest.raises(Stuck, match="4F0 waits for the room on the device, which no action makes"):
        hl.simulate(chain(6), room=hl.Room(4))
    assert hl.validate(chain(6), hl.Room(6)) and hl.validate(hl.recomputed(chain(6)), hl.Room(1))
    with pytest.raises(ValueError, match="give a number of bytes or of activations"):
        hl.Room(-1)


def test_gpipe_with_two_in_place_of_eight():
    gpipe, room, costs = hl.schedule("gpipe", ranks=4, microbatches=8), hl.Room(2), hl.Costs(F=1, B=2, swap=1)
    s = hl.validate(hl.swapped(gpipe, room=room), room)
    t = hl.simulate(s, costs, room=room)
    assert hl.simulate(gpipe, costs).peak_live == [8] * 4 and t.peak_live == [2] * 4
    assert (hl.simulate(gpipe, costs).length, t.length) == (33, 34)
    assert hl.simulate(hl.validate(hl.lower(s), room), costs, room=room).length == 34


def test_a_timeline_remembers_its_room(tmp_path):
    room = hl.Room(2.75, keeps=(1, 1, 1), boundary=0.25)
    t = hl.simulate(hl.swapped(chain(3), {0}, room), hl.Costs(swap=4), room=room)
    t.save(tmp_path / "t.json")
    again = hl.Timeline.load(tmp_path / "t.json")
    assert again.room == room and again.critical_path == t.critical_path
    assert any("SWAP_OUT" in str(action) for action in t.critical_path)


def most_held(schedule, begin, end, room):
    """The most on each rank, counted from begins and ends by kinds alone, with nothing of `core.when.room`."""
    split, last = any(one.kind == "W" for program in schedule.program for one in program), schedule.stages - 1
    most, action = [], 0
    for program in schedule.program:
        changes = defaultdict(float)  # at one moment, what is let go comes first
        for one in program:
            now, over, back = (begin[action], 1), (end[action], 0), one.kind in ("B", "I")
            ends = one.kind == ("W" if split else "B")
            changes[now] += room.kept(one.stage) * (one.kind in ("F", "R", "SWAP_IN"))
            changes[over] -= room.kept(one.stage) * (ends or one.kind == "SWAP_OUT")
            forward = one.kind in ("F", "C") and one.stage < last
            changes[now] += room.boundary * (forward + (back and one.stage > 0))
            changes[over] -= room.boundary * ((ends and one.stage > 0) + (back and one.stage < last))
            action += 1
        most.append(max(itertools.accumulate(changes[when] for when in sorted(changes)), default=0.0))
    return most


def tried(count, seed=0):
    """(valid steps, those over their room, those that would be without arrows): in play and in simulation."""
    rng, valid, over, without = random.Random(seed), 0, 0, 0
    while valid < count:
        s = step(rng)
        own, c = room(rng, s), costs(rng, s.stages)
        flow = Flow(s, own)
        if flow.lacks.any():
            continue
        valid += 1
        t, free = hl.simulate(s, c, room=own), hl.simulate(s, c)
        order, now = play(flow)
        turn = np.empty(len(order))
        turn[order] = now
        held = [most_held(s, t.begin[0], t.end[0], own), most_held(s, turn, turn + 1, own)]
        over += max(map(max, held)) > own.capacity + 1e-9
        without += max(most_held(s, free.begin[0], free.end[0], own)) > own.capacity + 1e-9
        assert np.allclose([float(curve.max()) for _, curve in on_device(t)], held[0])
    return valid, over, without


@pytest.mark.slow
def test_no_random_step_holds_more_than_its_room():
    valid, over, without = tried(30)
    assert over == 0 and without > 0


@pytest.mark.soak
def test_no_random_step_holds_more_than_its_room_of_many():
    valid, over, without = tried(2000, seed=1)
    assert valid == 2000 and over == 0 and without > 100


MUTANTS = {
    "one swap too few": ("outs[known - 1] if known", "outs[known - 2] if known > 1"),
    "a rank has waited for what a copy waits for": (
        "over[action] = by_engine = known",
        "over[action] = by_rank = known",
    ),
    "nobody waits": ("most = room.capacity * (1 + EXACT)", "most = np.inf"),
    "what is copied back takes no room": ("if makes[action] and", 'if lane != "in" and makes[action] and'),
    "a copy back need not wait": ("by_engine, by_rank)", "by_engine, len(outs))"),
    "what a copy frees is free before it ends": ("                continue\n", ""),
}


def mutated(old, new):
    source = inspect.getsource(rooms.arrows)
    assert source.count(old) == 1
    there = dict(vars(rooms))
    exec(source.replace(old, new), there)
    return there["arrows"]


@pytest.mark.long
@pytest.mark.parametrize("what", MUTANTS)
def test_a_wrong_arrow_is_noticed(what, monkeypatch):
    monkeypatch.setattr(flows, "arrows", mutated(*MUTANTS[what]))
    with pytest.raises((AssertionError, Stuck)):
        for seed in range(40):
            assert tried(50, seed)[1] == 0


def faulty(rng, program):
    """One swap of a program left out, done twice, or moved behind its backward, and the kind and place of the fault."""
    at = rng.choice([i for i, one in enumerate(program) if one.kind in ("SWAP_OUT", "SWAP_IN")])
    swap = program[at]
    back = max(i for i, one in enumerate(program) if one.kind in ("B", "I", "W") and one[1:3] == swap[1:3])
    what = rng.choice(("missing", "doubled", "late"))
    if what == "doubled":
        return [*program[:at], swap, *program[at:]], swap
    rest = program[:at] + program[at + 1 :]
    return (rest if what == "missing" else [*rest[:back], swap, *rest[back:]]), swap


def refused(count, seed=0):
    rng, done = random.Random(seed), 0
    while done < count:
        s = step(rng)
        programs = [list(program) for program in s.program]
        able = [i for i, one in enumerate(programs) if any(a.kind.startswith("SWAP") for a in one)]
        if not able:
            continue
        rank = rng.choice(able)
        programs[rank], swap = faulty(rng, programs[rank])
        with pytest.raises((Invalid, Stuck)) as told:
            hl.validate(s.with_programs(programs))
        sentence = str(told.value).split("\n")[0] if told.type is Invalid else str(told.value)
        assert f"{swap.stage}F{swap.microbatch}" in sentence and "SWAP_" in sentence, sentence
        done += 1
    return done


@pytest.mark.slow
def test_any_swap_that_is_missing_doubled_or_late_is_refused_by_name():
    assert refused(30) == 30


@pytest.mark.long
def test_any_swap_that_is_missing_doubled_or_late_is_refused_by_name_of_many():
    assert refused(2000, seed=1) == 2000


# --- rewriting, and the best mixture ----------------------------------------------------------------------------


def test_stages_pairs_or_all_are_recomputed_or_swapped():
    s = hl.schedule("gpipe", ranks=1, microbatches=2)
    assert str(hl.recomputed(s)) == "rank 0: 0C0 0C1 0R0 0B0 0R1 0B1"
    assert str(hl.swapped(s, {(0, 1)})) == "rank 0: 0F0 0F1 0SWAP_OUT1 0SWAP_IN1 0B0 0B1"
    assert str(hl.swapped(s, {0}, ahead=0)) == "rank 0: 0F0 0SWAP_OUT0 0F1 0SWAP_OUT1 0SWAP_IN0 0B0 0SWAP_IN1 0B1"
    assert str(hl.swapped(hl.recomputed(s, {(0, 0)}))) == "rank 0: 0C0 0F1 0SWAP_OUT1 0R0 0SWAP_IN1 0B0 0B1"
    with pytest.raises(ValueError, match="ahead=-1"):
        hl.swapped(s, ahead=-1)


def test_fused_pairs_stay_where_one_is_swapped_and_come_apart_where_one_is_recomputed():
    s = hl.Schedule.from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1")
    assert "0SWAP_IN0 (0F1;0B0)OVERLAP_F_B 0SWAP_OUT1" in str(hl.validate(hl.swapped(s)))
    assert str(hl.validate(hl.recomputed(s, {(0, 0)}))) == "rank 0: 0C0 0F1 0R0 0B0 0B1"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb_h1", "chimera", "dualpipe", "pipedream"])
def test_every_kind_of_schedule_can_be_swapped_recomputed_and_lowered(name):
    s = hl.schedule(name, ranks=4, microbatches=8)
    room = hl.Room(max(hl.simulate(s).peak_live))
    for one in (hl.swapped(s), hl.recomputed(s), hl.swapped(s, room=room), hl.swapped(hl.recomputed(s, {0}))):
        assert hl.validate(hl.lower(hl.validate(one, room)), room)


def profile(rng, blocks):
    """A chain of unequal blocks, its room and costs."""
    keeps = tuple(rng.choice((1, 2, 3)) for _ in range(blocks))
    each = lambda low, high: tuple(rng.randint(low, high) for _ in range(blocks))
    own = hl.Room(rng.randint(max(keeps) + 2, sum(keeps)), keeps, rng.choice((0, 0.25)))
    return chain(blocks), own, hl.Costs(F=each(1, 4), B=each(2, 8), swap=each(1, 9))


def brute_force(schedule, own, costs):
    every = itertools.product((STAY, AWAY, AGAIN), repeat=len(forwards(schedule)))
    return min(mixed(schedule, choice, own, costs).length for choice in every)


@pytest.mark.slow
def test_the_plan_is_the_best_of_all_mixtures():
    case = profile(random.Random(1), 3)
    assert planned(*case).length == brute_force(*case) < math.inf


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_the_plan_is_the_best_of_all_mixtures_of_many_chains(seed):
    case = profile(random.Random(seed), 3 + seed % 3)
    assert planned(*case).length == brute_force(*case) < math.inf


def habits(schedule, own, costs):
    """(swap everything, at once or one backward early; recompute everything): the lengths."""
    eager = hl.swapped(schedule, room=own)
    fits = not Flow(eager, own).lacks.any()
    early = hl.simulate(eager, costs, room=own).length if fits else math.inf
    count = len(forwards(schedule))
    return early, *(mixed(schedule, (what,) * count, own, costs).length for what in (AWAY, AGAIN))


@pytest.mark.long
@pytest.mark.parametrize("blocks", range(4, 13))
def test_the_plan_is_never_longer_than_a_habit(blocks):
    for seed in range(3):
        case = profile(random.Random(100 * blocks + seed), blocks)
        best = planned(*case)
        assert hl.validate(best.schedule, case[1]) and best.length <= min(habits(*case))


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "chimera"])
@pytest.mark.parametrize("swap", [1, 3])
def test_nor_on_a_pipeline(name, swap):
    s, own, costs = hl.schedule(name, ranks=4, microbatches=8), hl.Room(2), hl.Costs(F=1, B=2, swap=swap)
    best = planned(s, own, costs)
    assert hl.validate(best.schedule, own) and best.length <= min(habits(s, own, costs))


@pytest.mark.slow
def test_what_never_fits_is_said():
    with pytest.raises(ValueError, match="does not fit .* even with every forward recomputed"):
        hl.fitted(chain(4), hl.Room(1, keeps=2))
    assert str(hl.fitted(chain(3), hl.Room(3))) == str(chain(3))


@pytest.mark.slow
def test_the_picture_of_what_is_held_has_the_line_of_the_room():
    own = hl.Room(2)
    t = hl.simulate(hl.swapped(chain(4), {0, 1}, own), hl.Costs(F=1, B=2, swap=1.5), room=own)
    told = room_over_time(t, title="Held")
    assert told.summary == "chain, 1 rank: the device holds at most 2 on rank 0, capacity 2"
    assert (
        "capacity of the device" in told.twin
        and "room" not in room_over_time(hl.simulate(chain(2))).twin.split("</title>")[1]
    )
    drawn = hl.draw(t)
    assert "copied to the host" in drawn.twin and "0↑" in drawn.twin and "0↓" in drawn.twin
