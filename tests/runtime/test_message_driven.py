"""Pipelining without a written order, its ranks threads of this process: what each does, how much is under way, when.

That it trains as one device does, on real ranks, is for `test_runtime`.
"""

import queue
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

import hybridlab as hl
from hybridlab.runtime.emulated import EmulatedWork
from hybridlab.runtime.message_driven import MessageDriven, as_done
from hybridlab.world.talk.clock import HostClock

THREE = hl.schedule("1f1b", ranks=3, microbatches=5)
NOTHING = hl.Costs(F=0, B=0)


class Mail:
    """A rank that is a thread: as much of a Comm as message-driven pipelining uses. Messages take `seconds`."""

    def __init__(self, rank, boxes, seconds=0.0):
        self.rank, self.boxes, self.seconds, self.greeted = rank, boxes, seconds, None

    def greet(self, pairs, device):
        self.greeted = list(pairs)

    def clock(self, device):
        return HostClock()

    def settle(self):
        """Nothing is left to a device."""

    def isend(self, x, to, tag):
        there = time.monotonic() + self.seconds
        self.boxes[self.rank, to, tag].put((there, x.clone()))
        return Letter(lambda: time.sleep(max(0.0, there - time.monotonic())))

    def irecv(self, x, source, tag):
        def come():
            there, value = self.boxes[source, self.rank, tag].get(timeout=10)
            time.sleep(max(0.0, there - time.monotonic()))
            return x.copy_(value)

        return Letter(come)

    def iall_reduce(self, x, axis):
        return Letter(lambda: x)

    def open(self, *groups):
        """Every group is one of friends."""


class Letter:
    """A message; `over` waits for it, and so does `wait`."""

    def __init__(self, over):
        self.over = self.wait = over


class Boxes(defaultdict):
    """Where messages lie, by (from, to, tag)."""

    def __init__(self):
        super().__init__(queue.SimpleQueue)


def played(schedule=THREE, costs=NOTHING, seconds=0.0, steps=1, **more):
    """(the players, what `step` returned to each), rank by rank."""
    boxes = Boxes()
    for pair in [(a, b, tag) for a in range(schedule.ranks) for b in range(schedule.ranks) for tag in range(9)]:
        boxes[pair]  # made before threads look for them

    def act(rank):
        mail, work = Mail(rank, boxes, seconds), EmulatedWork(costs, elements=1)
        work.meet(mail, schedule)
        player = MessageDriven(mail, schedule, work, **more)
        return player, [player.step() for _ in range(steps)]

    with ThreadPoolExecutor(schedule.ranks) as threads:
        return list(zip(*threads.map(act, range(schedule.ranks))))


def words(player):
    return " ".join(map(str, player.program))


def test_the_last_stage_turns_each_forward_round_at_once():
    (first, middle, last), _ = played()
    assert words(last) == " ".join(f"2RECV_F{m} 2F{m} 2B{m} 2SEND_B{m}" for m in range(5))
    for player, kinds in ((first, "F SEND_F RECV_B B"), (middle, "RECV_F F SEND_F RECV_B B SEND_B")):
        done = sorted(str(action) for action in player.program)
        assert done == sorted(f"{player.stage}{kind}{m}" for kind in kinds.split() for m in range(5))


@pytest.mark.parametrize("most", [1, 2, None])
def test_no_more_are_let_in_than_may_be_under_way(most):
    (first, *others), _ = played(in_flight=most)
    under_way = [0]
    for action in first.program:
        under_way.append(under_way[-1] + (action.kind == "F") - (action.kind == "B"))
    assert max(under_way) == (most or 3)
    if most == 1:
        assert words(first) == " ".join(f"0F{m} 0SEND_F{m} 0RECV_B{m} 0B{m}" for m in range(5))


def test_what_was_done_is_a_schedule_that_is_valid():
    players, _ = played()
    done = as_done(hl.lower(THREE), [[str(action) for action in player.program] for player in players])
    assert hl.validate(done).name == "message_driven" and hl.simulate(done).length > 0


def test_sums_come_last_and_every_action_once():
    copies = hl.lower(hl.schedule("1f1b", ranks=2, microbatches=2, dp=2))
    for player, program in zip(played(copies)[0], copies.program, strict=True):
        assert player.program[-1] == program[-1] and program[-1].kind == "REDUCE_GRAD"
        assert sorted(map(str, player.program)) == sorted(map(str, program))


def test_neighbours_greet_each_other_in_one_order_for_all():
    players, _ = played()
    assert [player.comm.greeted for player in players] == [[(0, 1), (1, 2)]] * 3


@pytest.mark.slow
def test_times_say_when_a_rank_began_to_wait_and_when_it_had_what_came():
    """Messages take 150 ms: whoever waits for one has it late, and whoever sends it goes on at once."""
    two = hl.schedule("1f1b", ranks=2, microbatches=1)
    players, steps = played(two, costs=hl.Costs(F=0.001, B=0.002), seconds=0.15)
    assert [words(player) for player in players] == ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"]
    for player, (times,) in zip(players, steps, strict=True):
        for action, (ready, begin, end, looked) in zip(player.program, times.tolist(), strict=True):
            assert ready <= begin <= end and looked <= end
            if action.kind.startswith("RECV"):
                assert end - looked > 1e8
            elif action.kind.startswith("SEND"):
                assert begin - ready < 1e8 < end - ready
            else:
                assert end - begin > {"F": 0.9e6, "B": 1.9e6}[action.kind]


def test_a_watch_hears_of_every_action_and_its_step():
    heard = []
    (first, *_), _ = played(steps=2, watch=lambda *what: heard.append(what))
    assert sorted(step for step, *_ in heard) == [0] * 30 + [1] * 30
    assert all(begin <= end for *_, begin, end in heard)


def test_what_goes_wrong_while_a_message_comes_is_told_where_the_rank_listens():
    def lost(comm, x, source, tag):
        raise OSError(f"rank {source} is gone")

    boxes = Boxes()
    mail = type("Lost", (Mail,), {"irecv": lost})(2, boxes)
    with pytest.raises(OSError, match="rank 1 is gone"):
        MessageDriven(mail, THREE, EmulatedWork(NOTHING)).step()
