"""Links: what a message takes on each edge, measured where some edges are slow."""

import time

import pytest

import hybridlab as hl
from hybridlab.predict.time.costs import Costs
from hybridlab.runtime.links import HOLD, SHORT, _Meeting, edge_links, pairs_of
from hybridlab.world.talk.message import Message

SLOW, RATE = 0.03, 4e6  # seconds of a message without its bytes, bytes per second


def test_an_edge_joins_the_ranks_of_its_stages_in_every_copy():
    schedule = hl.schedule("1f1b", ranks=3, microbatches=4)
    assert pairs_of(schedule, [0, 1, 2]) == {0: [(0, 1)], 1: [(1, 2)]}
    looped = hl.schedule("interleaved", ranks=2, microbatches=2, chunks=2)
    assert pairs_of(looped, [5, 3]) == {0: [(3, 5)], 1: [(3, 5)], 2: [(3, 5)]}
    folded = hl.schedule("zb_v", ranks=2, microbatches=4)
    assert pairs_of(folded, [0, 1]) == {0: [(0, 1)], 1: [], 2: [(0, 1)]}, "the fold stays on its rank"
    two_ways = hl.schedule("chimera", ranks=4, microbatches=4)
    assert pairs_of(two_ways, range(4)) == {0: [(0, 1), (2, 3)], 1: [(1, 2)], 2: [(0, 1), (2, 3)]}


class Late(Message):
    """A message that arrives some seconds later."""

    def __init__(self, message, seconds: float):
        super().__init__(None)
        self.message, self.seconds = message, seconds

    def over(self):
        found = self.message.over()
        time.sleep(self.seconds)
        return found


def slow_where(comm, pair):
    """Let messages between two ranks take longer: each of them, and each of their bytes."""
    receive, other = comm.irecv, {*pair} - {comm.rank}

    def late(x, source):
        message = receive(x, source)
        return Late(message, SLOW + x.nbytes / RATE) if {source} == other else message

    comm.irecv = late


@pytest.mark.ranks
def test_only_the_slow_edge_is_slow_and_its_bytes_and_handshake_are_told_apart():
    size = 40 * SHORT

    def measured(comm):
        slow_where(comm, (1, 2))
        return edge_links(comm, {0: [(0, 1)], 1: [(1, 2)]}, [size, size, 0])

    with hl.ranks(3) as pool:
        every = pool.run(measured)
    assert every[0] == every[1] == every[2]
    links = Costs(**{name: tuple(one) for name, one in every[0].items()})
    assert links.latency[0] < SLOW < links.latency[1] < 3 * SLOW
    assert links.handshake[0] < SLOW / 3 < links.handshake[1] < 3 * SLOW  # the sender is as late as a request
    assert (SLOW + size / RATE) / 2 < links.of_message(1) < 2 * (SLOW + size / RATE) and links.of_message(0) < SLOW
    assert links.of_message(2) == 0


@pytest.mark.ranks
def test_a_rank_that_comes_late_does_not_lengthen_the_link():
    late = 0.5

    def held(comm):
        meeting = _Meeting(comm, near=0, far=1, device="cpu")
        time.sleep(late * comm.rank)
        meeting.meet()
        return meeting.hold

    with hl.ranks(2) as pool:
        near, far = pool.run(held)
    assert HOLD <= near == far < late / 2


@pytest.mark.ranks
def test_a_run_predicts_with_the_link_of_each_edge():
    real = hl.run(hl.schedule("1f1b", ranks=3, microbatches=2), costs=hl.Costs(F=0.004, B=0.008), steps=1)
    assert len(real.origin["latency"]) == len(real.origin["handshake"]) == 3 and "bandwidth" not in real.origin
    assert min(real.origin["latency"][:2]) > 0 == real.origin["latency"][2]
    assert hl.Costs.measured(real).latency == tuple(real.origin["latency"])
