"""What is under way beside the compute: who is told that it is over, and how often."""

from types import SimpleNamespace

import pytest

from hybridlab.runtime.copies import Streamed
from hybridlab.runtime.pending import Sum, Sums
from hybridlab.world.talk.clock import HostClock


class Over:
    """A message that is over at once; it notes a mark of its own."""

    def wait(self):
        return "x"

    def when_over(self, note, clock):
        note("its own")


def test_each_sum_tells_its_end_and_where_there_is_none_the_end_is_now():
    taken, noted = [], []
    Sums([Sum(Over(), taken.append)]).when_over(noted.append, HostClock())
    assert noted == ["its own"]
    Sums().when_over(noted.append, HostClock())
    assert len(noted) == 2 and noted[1] != "its own"


def test_a_sum_is_taken_once():
    taken = []
    sums = Sums([Sum(Over(), taken.append)])
    sums.wait()
    sums.wait()
    assert taken == ["x"]


@pytest.mark.parametrize("how", ["wait", "over"])
def test_who_waits_for_a_copy_by_a_stream_waits_for_what_it_loads_too_and_once(how):
    done = []
    noted = lambda name: lambda: done.append(name)
    end = SimpleNamespace(wait=noted("the stream"), synchronize=noted("the host"))
    copy = Streamed(SimpleNamespace(over=noted("the load")), begin=None, end=end)
    who = "the stream" if how == "wait" else "the host"
    getattr(copy, how)()
    getattr(copy, how)()
    assert done == [who, "the load", who]
