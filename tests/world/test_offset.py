"""Clocks of several machines: times that come home stand on one axis, whatever each machine counts from."""

import time

import pytest

import hybridlab as hl
from hybridlab.runtime.emulated import EmulatedWork
from hybridlab.scheduling.lower import lower
from hybridlab.training import run
from hybridlab.world.talk import offset
from hybridlab.world.talk.clock import HostClock

pytestmark = pytest.mark.ranks
SECOND, MILLISECOND = 10**9, 10**6


def elsewhere(comm):
    """As if each rank were on a machine of its own, started a second after the one before."""
    true = time.perf_counter_ns
    time.perf_counter_ns = lambda: true() - comm.rank * SECOND
    time.perf_counter = lambda: time.perf_counter_ns() / SECOND
    HostClock.mark = staticmethod(time.perf_counter_ns)
    offset.machine = lambda: comm.rank


def test_ranks_on_several_machines_agree_on_the_time():
    schedule, costs = lower(hl.schedule("1f1b", ranks=3, microbatches=4)), hl.Costs(F=0.004, B=0.008)

    def played(comm):
        elsewhere(comm)
        return run._run_emulated(comm, schedule, EmulatedWork(costs, latency=0.002), False, 3, False, None)

    with hl.ranks(hl.Mesh(pp=3)) as pool:
        homes = pool.run(played)
    assert homes[0]["offset"] == 0
    assert [abs(home["offset"] - rank * SECOND) < MILLISECOND for rank, home in enumerate(homes)] == [True] * 3

    def length(offsets):
        moved = [home | {"offset": one} for home, one in zip(homes, offsets)]
        return run._timeline(schedule, moved, hl.Mesh(pp=3), "emulated", skip=1).length

    true = length([rank * SECOND for rank in range(3)])
    assert abs(length([home["offset"] for home in homes]) - true) < 0.002
    assert true < 0.5, "a message says when it left: by its own clock it is a second late"
    assert length([0, 0, 0]) > true + 1, "the clocks were not shifted"


def test_on_one_machine_nobody_is_asked():
    def alone(comm):
        return offset.offset(comm), [row["op"] for row in comm.ledger.rows()]

    with hl.ranks(3) as pool:
        assert pool.run(alone) == [(0, ["all_gather"])] * 3


def test_only_those_on_another_machine_ask():
    def two_and_one(comm):
        offset.machine = lambda: comm.rank // 2
        offset.offset(comm)
        return sum(row["op"] == "send" for row in comm.ledger.rows())

    with hl.ranks(3) as pool:
        assert pool.run(two_and_one) == [offset.ASKED, 0, offset.ASKED]
