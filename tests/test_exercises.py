"""Every exercise is fed right answers, the slips that it knows, other wrong ones, and nonsense.

The answers stand beside the other tests of their notebooks; each piece of nonsense is tried on every exercise.
"""

import pytest
import test_labs
import test_labs_asynchronous
import test_labs_bubbles
import test_labs_collectives
import test_labs_data_parallel
import test_labs_hybrid
import test_labs_megatron
import test_labs_pipelines
import test_labs_zero

from hybridlab import labs
from hybridlab.labs.tasks import TASKS

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("first_attempt")]  # long: many cases

FAMILIES = (
    test_labs, test_labs_pipelines, test_labs_bubbles, test_labs_asynchronous, test_labs_collectives,
    test_labs_data_parallel, test_labs_zero, test_labs_megatron, test_labs_hybrid,
)  # fmt: skip
RIGHT = [(task, given) for family in FAMILIES for task in family.RIGHT for given in family.RIGHT[task]]
WRONG = [(task, *case) for family in FAMILIES for task in family.WRONG for case in family.WRONG[task]]
NONSENSE = [*test_labs.NONSENSE, *test_labs_pipelines.NONSENSE, *test_labs_bubbles.NONSENSE]


@pytest.mark.parametrize("kind", ["RIGHT", "WRONG"])
def test_every_task_is_tried_in_one_family(kind):
    assert sorted(task for family in FAMILIES for task in getattr(family, kind)) == sorted(TASKS)


@pytest.mark.parametrize("task, given", RIGHT)
def test_right_answers_are_right(task, given):
    reply = labs.answer(task, given)
    assert reply.right and reply.sentence and not reply.hint, reply


@pytest.mark.parametrize("task, given, piece", WRONG)
def test_wrong_answers_are_told_what_is_off(task, given, piece):
    reply = labs.answer(task, given)
    assert not reply.right and piece in reply.sentence and reply.hint == TASKS[task].hints[0], reply


@pytest.mark.parametrize("task", TASKS)
def test_nonsense_is_answered_and_never_right(task):
    for given in NONSENSE:
        reply = labs.answer(task, given)
        assert not reply.right and reply.sentence and reply.hint, given
        assert "Not yet" in repr(reply) and "Not yet" in reply._repr_html_()


@pytest.mark.parametrize("task", TASKS)
def test_hints_come_one_by_one_and_the_last_stays(task):
    hints = TASKS[task].hints
    assert len(hints) >= 2
    told = [labs.answer(task, None).hint for _ in range(len(hints) + 1)]
    assert told == [*hints, hints[-1]]


@pytest.mark.parametrize("task, given", dict(RIGHT).items())
def test_after_a_right_answer_the_hints_begin_again(task, given):
    for _ in range(2):
        labs.answer(task, None)
    labs.answer(task, given)
    assert labs.answer(task, None).hint == TASKS[task].hints[0]


@pytest.mark.parametrize("task", TASKS)
def test_questions_and_hints_are_sentences(task):
    for text in (labs.question(task), *TASKS[task].hints):
        assert text[-1] in ".?" or "comm." in text, text  # a line of code for ranks ends as code does
        assert "!" not in text
