"""Connections: who has not met is connected by a thread, when all have come, and no rank stands still for it."""

import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import hybridlab as hl
from hybridlab.core.where.mesh import Mesh
from hybridlab.world.talk import connections
from hybridlab.world.talk.connections import Connections, Late
from hybridlab.world.talk.ledger import Ledger
from hybridlab.world.talk.message import StreamMessage

LANE = SimpleNamespace(group_name="lane")


class Device:
    """A device whose streams do nothing, and a thread that has the time it needs."""

    def __init__(self, monkeypatch):
        self.store, self.posted, self.streams = dist.HashStore(), [], []
        stream = SimpleNamespace(record_event=lambda: len(self.posted))
        accelerator = SimpleNamespace(current_stream=lambda device: stream, set_device_index=lambda index: None)
        monkeypatch.setattr(connections.torch, "accelerator", accelerator)
        monkeypatch.setattr(connections.torch, "Stream", self.stream)
        monkeypatch.setattr(connections, "_get_default_store", lambda: self.store)

    def stream(self, device, priority):
        self.streams.append(priority)
        return nullcontext(SimpleNamespace(wait_event=lambda event: None))


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


def work(over=True):
    return SimpleNamespace(wait=lambda: None, is_completed=lambda: over)


def test_a_first_operation_is_posted_by_a_thread_once_all_have_come_and_the_next_ones_by_their_rank(device):
    here, there = Connections(0), Connections(1)
    ledger, threads = Ledger(Mesh(world=2)), []

    def post(number):
        threads.append(threading.current_thread())
        device.posted.append(number)
        return work()

    where = ledger, LANE, (0, 1), SimpleNamespace(index=0)
    first, second = (here.post(*where, lambda number=number: post(number)) for number in (1, 2))
    time.sleep(0.05)
    assert device.posted == [] and not first.is_completed() and not first.posted.done()
    there.post(*where, work)
    second.wait()
    assert device.posted == [1, 2] and first.is_completed()
    while not here.made:
        time.sleep(0.001)
    assert not isinstance(here.post(*where, lambda: post(3)), Late)
    assert device.posted == [1, 2, 3] and threads[-1] is threading.current_thread() is not threads[0]
    assert set(device.streams) == {-2}


def test_what_a_thread_cannot_post_is_told_where_it_is_waited_for(device):
    def fails():
        raise RuntimeError("NCCL says no")

    late = Connections(0).post(Ledger(Mesh(world=1)), LANE, (0,), SimpleNamespace(index=0), fails)
    while not late.is_completed():
        time.sleep(0.001)
    with pytest.raises(RuntimeError, match="NCCL says no"):
        late.wait()


def test_a_rank_prepares_from_the_moment_when_all_have_come(device):
    """Before, somebody is late, which may be a hang."""
    told, go = [], threading.Event()
    pen = SimpleNamespace(prepare=told.append)
    here, there, ledger = Connections(0), Connections(1), Ledger(Mesh(world=2), pen)
    late = here.post(ledger, LANE, (0, 1), SimpleNamespace(index=0), lambda: go.wait() and work())
    time.sleep(0.05)
    assert told == []
    there.post(Ledger(Mesh(world=2)), LANE, (0, 1), SimpleNamespace(index=0), work)
    while not told:
        time.sleep(0.001)
    assert told == [1] and not late.posted.done()
    go.set()
    while not here.made:
        time.sleep(0.001)
    assert told == [1, 0]


def test_a_mark_of_an_operation_is_made_when_it_is_posted_and_keeps_nobody():
    late, marks = Late(), []
    clock = SimpleNamespace(sees=True, aside=lambda wait: (wait(), late.posted.done()))
    message = StreamMessage(lambda: None, late, torch.zeros(1), SimpleNamespace(end_ns=[]), 0)
    message.when_over(marks.append, clock)
    assert marks == []
    late.is_here(work())
    message.when_over(marks.append, clock)
    assert marks == [(None, False), (None, True)]  # the first one before anybody can see that it is posted
    message._work = None


@pytest.mark.ranks
@pytest.mark.parametrize("axes, opened", [({"pp": 4}, 1), ({"dp": 2, "pp": 2}, 3), ({"cp": 4}, 1)])
def test_by_gloo_there_are_groups_of_axes_and_no_lanes(axes, opened):
    """Of two axes: all ranks, and those of each axis that a rank is in; of one axis that is the same."""

    def count(comm):
        comm.greet([(0, 1), (2, 3)], comm.device)
        return len(dist.distributed_c10d._world.pg_map), len(comm.ledger), len(comm._connections.made)

    with hl.ranks(Mesh(**axes)) as pool:
        assert pool.run(count) == [(opened, 0, 0)] * 4
