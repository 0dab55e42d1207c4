"""What is under way beside the compute: who is told that it is over, and how often."""

from hybridlab.modes.under_way import Sum, Sums
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
