"""The compiled simulator: the same ticks as the plain one, for every schedule, link and option."""

import importlib
import itertools
import random
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_swaps import costs, room, step

import hybridlab as hl
from hybridlab.core.when import play as playing
from hybridlab.core.when.flow import Flow
from hybridlab.scheduling.registry import GENERATORS

pytestmark = pytest.mark.slow  # many cases

pytest.importorskip("numba", reason="numba (the extra `fast`) is not installed: the plain simulator runs alone")

NAMES = list(GENERATORS)
MODES = [
    dict(link=link, rendezvous=rendezvous, post=post)
    for link in ("directed", "pair", "rank", "compute")
    for rendezvous in (False, True)
    for post in ("program", "early")
]
TUPLES = hl.Costs(F=(1, 2, 1, 3), I=(1, 1, 2, 1), W=1, fused=2, reduce=1, bytes=(2, 1, 4, 3), bandwidth=2, post=0.5)


def made(name, ranks, microbatches, dp=1):
    """That schedule, or None where it cannot be."""
    try:
        return hl.schedule(name, ranks=ranks, microbatches=microbatches, dp=dp)
    except ValueError:
        return None


def outcome(schedule, costs, engine, **modes):
    """All times in one array, or the message of the error."""
    try:
        t = hl.simulate(schedule, costs, engine=engine, **modes)
    except ValueError as error:
        return str(error)
    return np.concatenate([t.ready, t.begin, t.end])


def assert_same(schedule, costs=None, **modes):
    plain, compiled = (outcome(schedule, costs, engine, **modes) for engine in ("plain", "compiled"))
    assert type(plain) is type(compiled), (schedule, modes, plain, compiled)
    assert np.array_equal(plain, compiled), (schedule, costs, modes)
    return plain


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_has_the_same_ticks(name):
    sizes = itertools.product((1, 2, 4), (1, 4, 8), (1, 2))
    found = [s for s in itertools.starmap(lambda p, m, dp: made(name, p, m, dp), sizes) if s]
    assert found
    for s, modes in zip(found, itertools.cycle(MODES)):
        assert_same(s, hl.Costs(F=2, I=1, W=3, latency=0.5, reduce=1))
        assert_same(hl.lower(s), hl.Costs(F=2, I=1, W=3, latency=0.5, post=0.25, reduce=1), **modes)


@given(
    st.sampled_from(NAMES),
    st.integers(1, 5),
    st.integers(1, 8),
    st.integers(1, 2),
    st.lists(st.one_of(st.integers(0, 5), st.decimals(0, 5, places=3).map(float)), min_size=7, max_size=7),
    st.sampled_from(MODES),
)
@settings(max_examples=60)
def test_random_costs_links_and_options(name, p, m, dp, costs, modes):
    if s := made(name, p, m, dp):
        f, i, w, latency, post, reduce, handshake = costs
        every = range(len(s.edges))
        of_edges = {
            "latency": tuple(latency * n for n in every),
            "handshake": tuple(handshake / (n + 1) for n in every),
        }
        for one in (s, hl.lower(s)):
            assert_same(one, hl.Costs(F=f, I=i, W=w, post=post, reduce=reduce, **of_edges), **modes)


@pytest.mark.parametrize("modes", MODES, ids=lambda modes: "-".join(map(str, modes.values())))
def test_costs_per_stage_bytes_per_edge_and_crowded_links(modes):
    for name, dp in (("1f1b", 1), ("zb_h1", 2), ("chimera", 1), ("gpipe", 3)):
        s = made(name, 4, 8, dp)
        for one in (s, hl.lower(s)):
            assert_same(one, TUPLES, **modes)
    assert_same(hl.lower(made("gpipe", 4, 8)), hl.Costs(F=1, B=2, latency=7), **modes)


@pytest.mark.long
def test_random_steps_with_swaps_engines_and_room():
    rng = random.Random(0)
    for _ in range(300):
        s = step(rng)
        limits, durations = (None, room(rng, s)), costs(rng, s.stages)
        for one in (s, hl.lower(s)):
            assert_same(one, durations, room=rng.choice(limits), **rng.choice(MODES))


def test_gathered_weights_beside_swaps():
    for name, active in itertools.product(("gpipe", "interleaved", "zb_v", "zb_interleaved"), (1, 2)):
        s = hl.sharded(hl.swapped(made(name, 4, 8, 2), ahead=2), active)
        for one in (s, hl.lower(s)):
            assert_same(one, hl.Costs(F=2, I=1, W=3, gather=5, swap=4, reduce=3, latency=0.5), room=hl.Room(3))


def test_skips_ties_fused_pairs_and_gathered_weights():
    chain = hl.Schedule.from_csv("0F0,0B0\n1F0,1B0\n2F0,2B0")
    skipping = chain.with_programs(list(chain.program), skips=((0, 2),))
    tied = hl.Schedule.from_csv("0F0,0B0,0REDUCE_GRAD,0OPT\n1F0,1B0,1REDUCE_GRAD,1OPT")
    tied = tied.with_programs(list(tied.program), tied=((0, 1),))
    fused = hl.Schedule.from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1")
    sharded = hl.Schedule.from_csv("0UNSHARD,0F0,0RESHARD,0UNSHARD,0B0,0RESHARD,0REDUCE_GRAD,0OPT")
    for s in (skipping, hl.lower(skipping), tied, hl.lower(tied), fused, sharded):
        assert_same(s, hl.Costs(F=1, B=2, fused=2, latency=0.5, reduce=3, optimizer=1))


@pytest.mark.parametrize(
    "text",
    [
        "0F0,0B0\n1B0,1F0",
        "0F0,0B0,0F0",
        "0F0,0B0\n1F0,1W0",
        "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0",
        "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0,1RECV_F0",
    ],
)
def test_who_is_stuck_is_told_alike(text):
    for modes in ({}, {"link": "compute"}):
        plain = assert_same(hl.Schedule.from_csv(text), **modes)
        assert isinstance(plain, str) == ("waits on itself" in str(plain))


def test_a_large_schedule_and_its_lowered_form():
    s = hl.schedule("interleaved", ranks=16, microbatches=64, chunks=4)
    assert len(s.rows) == 8192
    assert_same(s, hl.Costs(F=1, B=2, latency=0.25))
    assert_same(hl.lower(s), hl.Costs(F=1, B=2, latency=0.25))


@pytest.mark.parametrize("name, dp", [("interleaved", 1), ("chimera", 2), ("zb_v", 1), ("pipedream", 1)])
def test_machine_code_plays_the_same_rounds(name, dp, monkeypatch):
    made_once = hl.schedule(name, ranks=4, microbatches=8, dp=dp)
    calls, fast = [], playing.fast
    monkeypatch.setattr(playing, "fast", lambda *given: calls.append(1) or fast(*given))
    for s in (made_once, hl.lower(made_once)):
        flow, both = Flow(s), []
        for large in (len(s.rows) + 1, 0):
            monkeypatch.setattr(playing, "LARGE", large)
            both.append(playing.play(flow))
        assert all(np.array_equal(*pair) for pair in zip(*both))
    assert len(calls) == 2


def test_large_schedules_take_machine_code_and_small_ones_do_not(monkeypatch):
    simulator = importlib.import_module("hybridlab.predict.time.simulate")
    taken, compiled = [], simulator._compiled
    monkeypatch.setattr(simulator, "_compiled", lambda *given: taken.append(1) or compiled(*given))
    s = hl.schedule("1f1b", ranks=2, microbatches=2)
    hl.simulate(s)
    assert not taken
    monkeypatch.setattr(simulator, "LARGE", 1)
    assert hl.simulate(s).length == 9 and taken


def test_without_numba_the_plain_engine_runs_and_compiled_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert playing.machine_code.__wrapped__(playing.longest_path) is None  # past its memory
    compiled = importlib.import_module("hybridlab.predict.time.compiled")
    monkeypatch.setattr(compiled, "AVAILABLE", False)
    with pytest.raises(ValueError, match=r"hybridlab\[fast\]"):
        hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2), engine="compiled")
    monkeypatch.setattr(importlib.import_module("hybridlab.predict.time.simulate"), "LARGE", 1)
    assert hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2)).length == 9


def test_all_who_wait_for_one_value_go_on_when_it_is_made():
    """Ranks 2 and 0 wait for what rank 1 makes, and rank 3 waits for what rank 2 makes from it."""
    takes_at, takes = np.array([0, 1, 1, 2, 3]), np.array([0, 0, 1])
    makes_at, makes = np.array([0, 0, 1, 2, 2]), np.array([0, 1])
    program, alone = np.arange(5), np.full(4, -1)
    times = np.zeros((3, 4), np.int64)
    lists = (takes_at, takes, makes_at, makes, np.full(2, -1), program, alone, np.zeros(0, np.int64))
    assert playing.longest_path(*lists, np.array([1, 5, 2, 3]), np.array([0]), *times)
    assert times[1].tolist() == [5, 0, 5, 7] and times[2].tolist() == [6, 5, 7, 10]


def test_several_who_wait_for_one_value_are_a_chain():
    """Ranks 3, 2 and 1 come before rank 0, which makes what they all take."""
    takes_at, takes = np.array([0, 0, 1, 2, 3]), np.array([0, 0, 0])
    makes_at, makes = np.array([0, 1, 1, 1, 1]), np.array([0])
    times = np.zeros((3, 4), np.int64)
    lists = (takes_at, takes, makes_at, makes, np.full(1, -1), np.arange(5), np.full(4, -1), np.zeros(0, np.int64))
    assert playing.longest_path(*lists, np.array([4, 1, 2, 3]), np.array([0]), *times)
    assert times[1].tolist() == [0, 4, 4, 4] and times[2].tolist() == [4, 5, 6, 7]


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="engine='warp'"):
        hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2), engine="warp")
