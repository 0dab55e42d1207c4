"""The exercises of notebooks 00, 01 and 10: that they are worth asking."""

import pytest

from hybridlab import labs
from hybridlab.labs.naive.tasks import LAYER_TIMES

pytestmark = pytest.mark.usefixtures("first_attempt")


def test_an_unknown_task_is_refused():
    for ask in (labs.question, lambda task: labs.answer(task, 1)):
        with pytest.raises(ValueError, match="there is no exercise 'no.such': choose one of start.all_reduce"):
            ask("no.such")


def test_the_balancing_exercises_are_worth_asking():
    """The even cut is not the best one on three stages, and on four the mean cannot be reached."""
    even = labs.answer("naive.balance", [len(part) for part in ((0, 1, 2), (3, 4, 5), (6, 7))])
    assert not even.right and sum(LAYER_TIMES) / 4 == 30
    assert not labs.answer("naive.bottleneck", 30).right
