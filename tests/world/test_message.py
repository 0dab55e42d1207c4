"""Messages without a network: who waits for what, the host or the device; and who greets whom, in which order."""

import random
import sys
import threading
import time
from collections import deque
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.devices.placement import placement
from hybridlab.world.talk import door, network
from hybridlab.world.talk.clock import HostClock, clock_of
from hybridlab.world.talk.comm import Comm
from hybridlab.world.talk.groups import Group
from hybridlab.world.talk.ledger import Ledger
from hybridlab.world.talk.message import WATCHERS, Message, StreamMessage


class Work:
    """An operation of the device: `wait` is told to the stream and returns at once, the device ends it later."""

    def __init__(self):
        self.told, self.over = 0, threading.Event()

    def wait(self):
        self.told += 1

    def is_completed(self):
        return self.over.is_set()


@pytest.fixture
def ledger():
    return Ledger(Mesh(dp=2))


def begun(ledger, **more):
    return ledger.begin("irecv", Group("dp", (0, 1), None), 8, waits=False, **more)


def test_the_device_waits_and_the_host_goes_on(ledger):
    work, row = Work(), begun(ledger)
    message = StreamMessage(lambda: "here", work, None, ledger, row)
    assert not message.done()
    assert message.wait() == message.wait() == "here" and work.told == 1
    assert not message.done() and ledger.end_ns[row] == 0


@pytest.mark.slow
def test_a_host_that_must_know_waits_for_the_device(ledger):
    work, row = Work(), begun(ledger)
    message = StreamMessage(lambda: "here", work, None, ledger, row)
    threading.Timer(0.05, work.over.set).start()
    begin = time.monotonic()
    assert message.over() == message.over() == "here" and message.done()
    assert time.monotonic() - begin > 0.04 and work.told == 1
    assert ledger.end_ns[row] - ledger.begin_ns[row] > 40e6


def test_while_the_host_waits_it_says_for_what():
    said = []
    pen = SimpleNamespace(post=lambda *_: 7, wait=said.append)
    ledger = Ledger(Mesh(dp=2), pen)
    work = Work()
    message = StreamMessage(lambda: None, work, None, ledger, begun(ledger))
    message.wait()
    assert said == []  # the host does not wait
    work.is_completed = lambda: said == [7] or pytest.fail("it waits and has not said for what")
    message.over()
    assert said == [7, 0]


def test_who_asks_for_the_hosts_time_of_a_devices_message_gets_it_from_a_thread(ledger):
    work, noted = Work(), []
    message = StreamMessage(lambda: None, work, None, ledger, begun(ledger))
    message.when_over(noted.append)
    assert not noted
    begin = time.perf_counter_ns()
    work.over.set()
    until(lambda: noted)
    assert noted[0] > begin


def test_what_the_host_knows_to_be_over_is_marked_at_once(ledger):
    """A sum of several packs is marked when its last one starts; the host may know by then that the first is over."""
    work, noted, clock = Work(), [], SimpleNamespace(sees=True, mark=lambda: "now", aside=None)
    message = StreamMessage(lambda: None, work, None, ledger, begun(ledger))
    work.over.set()
    message.over()
    message.when_over(noted.append, clock)
    assert noted == ["now"]


def until(true):
    end = time.monotonic() + 5
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    assert true()


def test_threads_that_wait_are_used_again():
    def wait_in_turn(count):
        for _ in range(count):
            over = threading.Event()
            WATCHERS.put(over.set)
            assert over.wait(5)
            until(lambda: WATCHERS._idle)

    wait_in_turn(1)
    before = threading.active_count()
    wait_in_turn(20)
    assert threading.active_count() == before


def test_several_threads_wait_at_a_time():
    gate, here = threading.Event(), []
    for number in range(3):
        WATCHERS.put(lambda number=number: (here.append(number), gate.wait(5)))
    until(lambda: sorted(here) == [0, 1, 2])
    gate.set()


def test_what_nobody_waits_for_is_over():
    noted = []
    Message(lambda: None).when_over(noted.append, HostClock())
    assert len(noted) == 1


def test_the_host_tells_the_time_of_a_cpu():
    clock = clock_of(torch.device("cpu"), streams=False)
    first, second = clock.mark(), clock.mark()
    assert clock.read(first) <= clock.read(second) <= time.perf_counter_ns() and not clock.sees


# ---- the ledger of tensors on a device


def test_a_tensor_of_the_device_may_be_written_by_its_backend(ledger, capsys):
    """gloo's own writes count as changes there; the CPU's tensors are watched, and let go when they have left."""
    for device, told in (("meta", False), ("cpu", True)):
        x = torch.empty(2, device=device)
        row = begun(ledger, x=x)
        x.add_(1)
        ledger.end(row)
        assert ("was changed before wait()" in capsys.readouterr().err) == told
    assert not ledger._lent


def test_the_journal_says_where_a_tensor_lies():
    texts = []
    pen = SimpleNamespace(post=lambda *about: texts.append(about[6]) or 1, wait=lambda number: None)
    ledger = Ledger(Mesh(dp=2), pen)
    for device in ("cpu", "meta"):
        begun(ledger, x=torch.empty(2, device=device))
    assert [text.split("\n")[2] for text in texts] == ["float32", "float32 on meta"]


# ---- greetings

RANKS = 6


class Greeting(Comm):
    """A door of a rank with a GPU, which notes whom it greets."""

    def __init__(self, rank, gpus=RANKS):
        self.rank, self._greeted, self.order, self.purpose = rank, set(), [], ""
        self._placed = placement(RANKS, gpus=gpus)

    def for_purpose(self, purpose):
        assert purpose == "report"
        return self

    def isend(self, x, to, tag=0):
        return SimpleNamespace(over=lambda: self.order.append(tuple(sorted((self.rank, to)))))

    def irecv(self, x, source, tag=0):
        return SimpleNamespace(over=lambda: None)


def ends(orders) -> bool:
    """Whether hosts that stand still until the other has come get through their lists."""
    at, moved = [0] * len(orders), True
    while moved:
        moved = False
        fronts = [order[place] if place < len(order) else None for order, place in zip(orders, at)]
        for low, high in {front for front in fronts if front}:
            if fronts[low] == fronts[high] == (low, high):
                at[low], at[high], moved = at[low] + 1, at[high] + 1, True
    return all(place == len(order) for order, place in zip(orders, at))


PAIRS = st.sets(st.tuples(st.integers(0, RANKS - 1), st.integers(0, RANKS - 1)).filter(lambda pair: pair[0] != pair[1]))
GPU = SimpleNamespace(type="cuda")


@pytest.fixture
def on_the_host(monkeypatch):
    """What a greeting sends lies on the host, since there is no GPU here."""
    monkeypatch.setattr(door, "torch", SimpleNamespace(zeros=lambda *_, **__: torch.zeros(1)))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PAIRS, PAIRS)
def test_greetings_never_wait_for_each_other(on_the_host, first, second):
    doors = [Greeting(rank) for rank in range(RANKS)]
    for one in doors:
        one.greet(first, GPU)
        one.greet(second, GPU)
    assert ends([one.order for one in doors])
    met = {pair for one in doors for pair in one.order}
    assert met == {tuple(sorted(pair)) for pair in first | second}
    assert all(len(set(one.order)) == len(one.order) for one in doors)  # nobody twice


def test_pairs_in_an_order_of_their_own_would_wait():
    assert not ends([[(0, 1), (0, 2)], [(1, 2), (0, 1)], [(0, 2), (1, 2)]])


@pytest.mark.parametrize("gpus, device", [(RANKS, torch.device("cpu")), (1, GPU)], ids=["on the host", "by gloo"])
def test_where_messages_are_no_work_for_the_device_nobody_is_greeted(gpus, device):
    one = Greeting(0, gpus)
    one.greet([(0, 1)], device)
    assert one.order == []


def test_a_door_that_is_made_says_nothing_and_its_lanes_are_the_devices_alone(monkeypatch):
    """rank 0 alone opens a mesh of one, for a reference: a group for all would wait for the others for ever."""
    opened = []
    monkeypatch.setattr(network, "new_group", lambda *ranks, **more: opened.append((ranks, more.get("backend"))))
    monkeypatch.setattr(network, "all_reduce", None)
    Comm(Mesh(world=1), 0, placed=placement(1, gpus=1))
    assert opened == []
    Comm(Mesh(world=2), 0, placed=placement(2, gpus=2))
    assert opened == [((), "cuda:nccl")] * 2


class Slow(deque):
    """Between looking at the first and taking it, another thread has its turn."""

    def popleft(self):
        time.sleep(1e-5)
        return super().popleft()


@pytest.fixture
def impatient():
    """Threads take turns after a microsecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.slow
def test_several_threads_post_and_each_message_ends_once(impatient):
    """Receivers post from threads of their own, and who posts ends what is over: never what nobody has waited for."""
    one = Comm.__new__(Comm)
    one._streaming, one._turn, ended, wrong = Slow(), threading.Lock(), [], []
    one.ledger = SimpleNamespace(end_ns=[], waiting=lambda row: None, end=ended.append, dropped=lambda *_: None)
    one._placed, tensor = placement(2, gpus=2), SimpleNamespace(device=torch.device("cuda"))

    def post(first):
        me = threading.get_ident()
        for row in range(first, first + 2000):
            work = SimpleNamespace(until=time.perf_counter() + random.random() * 2e-5, waited=False)
            work.is_completed = lambda work=work: time.perf_counter() >= work.until
            work.wait = lambda: me == threading.get_ident() or wrong.append("not its own")
            try:
                message = one._started(work, row, tensor, lambda: None)
                time.sleep(1e-5)
                message.wait()
                message.over()
            except Exception as error:
                wrong.append(repr(error))

    threads = [threading.Thread(target=post, args=(first,)) for first in (0, 10_000, 20_000)]
    for step in ("start", "join"):
        for thread in threads:
            getattr(thread, step)()
    assert not wrong and len(ended) == len(set(ended)) == 6000
