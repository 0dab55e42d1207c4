"""The journal: what a rank writes is what the kernel reads, once, whole, and also after the rank's death."""

import os
import signal
import threading
import time

import pytest

from hybridlab.core.where.mesh import Mesh
from hybridlab.world.talk import journal
from hybridlab.world.talk.groups import Group
from hybridlab.world.talk.journal import Journal, Pen
from hybridlab.world.talk.ledger import Ledger

TEXT = "all_reduce\n(8,)\nfloat32\nsum\n3,5\n4-21\n/home/me/lab.py:3"
HERE = journal.mask_of((0,))


@pytest.fixture
def file():
    """The open file of a journal of three ranks."""
    with journal.create(3) as made:
        yield made.fileno()


def pen_of(file, rank, run=1) -> Pen:
    pen = Pen(file, rank)
    pen.begin_run(run)
    return pen


def test_a_post_is_read_as_it_was_written_and_once(file):
    pen, reader = pen_of(file, 2), Journal(file)
    pen.post(journal.mask_of((0, 2)), 7, 32, None, None, None, TEXT, True)
    pen.post(journal.mask_of((1, 2)), 1, 8, None, 1, 0, "isend\n\n\n\n\n\nlab.py:4", False)
    first, second = reader.news(2, 1)
    about = "(8,)", "float32", "sum", None, None, None, "/home/me/lab.py:3", "3,5", "4-21"
    assert first == (2, 1, "all_reduce", (0, 2), 7, 32, *about)
    assert (second.op, second.group, second.peer, second.tag, second.root) == ("isend", (1, 2), 1, 0, None)
    assert reader.news(2, 1) == [] and reader.news(0, 1) == []
    assert reader.head(2)[:3] == (1, 2, 1)
    assert reader.post(2, 1) == first


def test_a_rank_in_another_run_has_no_news(file):
    pen, reader = pen_of(file, 0), Journal(file)
    pen.post(HERE, 1, 0, None, None, None, TEXT, False)
    assert reader.news(0, 2) == []
    pen.begin_run(2)
    assert reader.news(0, 2) == [] and reader.head(0).written == 0
    pen.post(HERE, 1, 0, None, None, None, TEXT, False)
    assert len(reader.news(0, 2)) == 1


def test_waiting_and_going_on_show_in_the_head(file):
    ledger, reader = Ledger(Mesh(dp=3), pen_of(file, 1)), Journal(file)
    group = Group("dp", (0, 1, 2), None)
    row = ledger.begin("all_reduce", group, 8, waits=False)
    assert reader.head(1).waiting == 0
    ledger.waiting(row)
    assert reader.head(1).waiting == 1
    ledger.end(row)
    assert reader.head(1).waiting == 0
    ledger.begin("barrier", group, 0)
    assert reader.head(1).waiting == 2 and [post.turn for post in reader.news(1, 1)] == [1, 2]


def test_who_takes_its_device_says_so_in_the_head_also_where_that_fails(file):
    ledger, reader = Ledger(Mesh(dp=3), pen_of(file, 1)), Journal(file)
    with pytest.raises(MemoryError), ledger.preparing():
        assert reader.head(1).preparing and not reader.head(0).preparing
        raise MemoryError
    assert not reader.head(1).preparing


def test_a_ledger_counts_turns_by_group_and_by_direction_peer_and_tag(file):
    ledger, reader = Ledger(Mesh(dp=3), pen_of(file, 0)), Journal(file)
    one, two = Group("dp", (0, 1, 2), None), Group("dp", (0, 1), None)
    for group in (one, two, one):
        ledger.begin("barrier", group, 0)
    for op, tag in [("send", 0), ("isend", 0), ("recv", 0), ("send", 1)]:
        ledger.begin(op, two, 0, peer=1, tag=tag)
    assert [post.turn for post in reader.news(0, 1)] == [1, 1, 2, 1, 2, 1, 1]


@pytest.mark.slow
def test_nothing_is_lost_when_the_reader_is_slow(file):
    """A writer that is a whole ring ahead waits."""
    pen, reader, count = pen_of(file, 0), Journal(file), 3 * journal.RING
    posts = lambda: [pen.post(HERE, number, 0, None, None, None, TEXT, False) for number in range(count)]
    writer = threading.Thread(target=posts)
    writer.start()
    time.sleep(0.1)
    assert reader.head(0).written == journal.RING
    turns = []
    while len(turns) < count:
        turns += [post.turn for post in reader.news(0, 1)]
    writer.join()
    assert turns == list(range(count))
    assert reader.post(0, 1) is None  # its place is taken


@pytest.mark.long
def test_a_number_changes_in_one_piece(file):
    """Seen half written, or zero in between, the count of posts would make the reader begin again."""
    reader, seen = Journal(file), set()
    pen = pen_of(file, 0)
    pen.wait(300)
    end = time.monotonic() + 0.5
    pid = os.fork()
    if pid == 0:
        while time.monotonic() < end:
            for number in range(1000):
                pen.wait(300 + number % 2)
        os._exit(0)
    while time.monotonic() < end:
        seen |= {reader.head(0).waiting for _ in range(1000)}
    os.waitpid(pid, 0)
    assert seen == {300, 301}


@pytest.mark.slow
def test_every_post_is_read_once_while_another_process_writes(file):
    count, reader, numbers = 20_000, Journal(file), []
    pid = os.fork()
    if pid == 0:
        pen = pen_of(file, 1)
        for number in range(count):
            pen.wait(pen.post(journal.mask_of((0, 1)), number, 0, None, None, None, TEXT, False))
            pen.wait(0)
        os._exit(0)
    end = time.monotonic() + 60
    while len(numbers) < count and time.monotonic() < end:
        numbers += [post.number for post in reader.news(1, 1)]
        assert 0 <= reader.head(1).waiting <= count
    os.waitpid(pid, 0)
    assert numbers == list(range(1, count + 1))


@pytest.mark.parametrize("field", range(7))
def test_a_text_that_is_too_long_loses_its_middle_and_no_field(file, field):
    fields = TEXT.split("\n")
    fields[field] = "start" + "x" * 1000 + "end:77"
    pen = pen_of(file, 0)
    pen.post(HERE, 1, 0, None, None, None, "\n".join(fields), False)
    (post,) = Journal(file).news(0, 1)
    found = [post.op, post.shape, post.dtype, post.how, post.lengths, post.columns, post.source]
    assert found[field].startswith("start") and found[field].endswith("end:77") and "..." in found[field]
    assert [text for place, text in enumerate(found) if place != field] == [
        f for p, f in enumerate(fields) if p != field
    ]


@pytest.mark.slow
def test_what_a_killed_process_wrote_can_be_read(file):
    pid = os.fork()
    if pid == 0:
        pen_of(file, 1).post(HERE, 1, 0, None, None, None, TEXT, True)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert Journal(file).news(1, 1)[0].op == "all_reduce" and Journal(file).head(1).waiting == 1
