"""Answers: each is checked at once; the reply has the result and the next hint."""

import ast
import html
import inspect
import re
import textwrap
import time
import types
from dataclasses import dataclass

from hybridlab.labs.exercises import answers_file
from hybridlab.labs.exercises.failures import hints_for
from hybridlab.labs.exercises.plain import submitted
from hybridlab.labs.exercises.played import played
from hybridlab.labs.exercises.student import task as asked
from hybridlab.labs.exercises.task import Task
from hybridlab.labs.exercises.written import has_code, read, unwritten, write
from hybridlab.show.paper.style import REPLIES

QUICK = 5.0  # seconds of a check that is done twice
GREEN, ORANGE, BLUE = REPLIES.values()

_given: dict[str, list[str]] = {}  # the hints that each task has given


@dataclass(frozen=True)
class Reply:
    """The reply to an answer: whether it is right, one sentence, and the next hint if it is not."""

    right: bool
    sentence: str
    hint: str = ""

    def __repr__(self):
        return (
            ("Right: " if self.right else "Not yet: ") + self.sentence + (f"\nHint: {self.hint}" if self.hint else "")
        )

    def _repr_html_(self):
        colour, word = (GREEN, "Right") if self.right else (ORANGE, "Not yet")
        hint = f"\nHint: {self.hint}" if self.hint else ""
        return framed(colour, f'<b style="color:{colour}">{word}.</b> {html.escape(self.sentence + hint)}')


def answer(task: str, value) -> Reply:
    """The reply to one answer. Every wrong answer shows the next hint, first the hints about the mistake; the last one
    stays. The answer is stored (`record`).

    The reply to a right answer says so if the answer cannot be handed in. An empty answer (None, a function with ... in
    it, an unfinished game) does not count as a try and brings no hint; nor does a task's unchanged starter.

    raises  ValueError when there is no such task

    >>> answer("naive.utilisation", None)
    Not yet: replace None with your answer, then run the cell again.
    >>> answer("naive.utilisation", 0.75)
    Not yet: That is the idle fraction. The question is the busy one.
    Hint: Only one GPU works at a time, and the work is divided equally.
    >>> answer("naive.utilisation", 1 / 4)
    Right: 0.25.
    """
    exercise, value = asked(task), submitted(value)
    if told := empty(value):
        half = getattr(exercise.check, "half", None)  # replies to one half of an answer in two parts
        return Reply(False, half and half(value) or told)
    begin = time.monotonic()
    right, sentence = exercise.check(value)
    took = time.monotonic() - begin
    if type(value) is type(exercise.starter) and value == exercise.starter:
        return Reply(right, sentence)
    written = _graded(exercise, write(value)) if right and took < QUICK else write(value)
    _keep(task, right, written)
    if right:
        _given.pop(task, None)
        reason = unwritten(written)
        return Reply(True, f"{sentence} But labs.export leaves it out: {reason}." if reason else sentence)
    given, hints = _given.setdefault(task, []), hints_for(exercise, sentence)
    given.append(next((hint for hint in hints if hint not in given), hints[-1]))
    return Reply(False, sentence, given[-1])


def _graded(exercise: Task, written):
    """A right answer in writing; code is checked again from its source alone, as `hybridlab grade` does it."""
    right, told = exercise.check(read(written)) if has_code(written) else (True, "")
    return written if right else {"unwritten": f"from its source alone it is not right: {told.rstrip('.')}"}


def _keep(task: str, right: bool, written):
    """Add an answer to the record; a wrong one does not replace a right one, nor one that cannot be handed in."""
    with answers_file.changing() as kept:
        before = kept["tasks"].get(task, {"right": False, "tries": 0, "answer": None})
        stays = before["right"] and (not right or (unwritten(written) and not unwritten(before["answer"])))
        kept["tasks"][task] = {
            "right": right or before["right"],
            "tries": before["tries"] + 1,
            "answer": before["answer"] if stays else written,
        }


def empty(value) -> str:
    """The missing part of an answer, or of a game, in a sentence; "" if it is complete.

    >>> def body(comm):
    ...     if comm.rank:
    ...         ...  # yours
    >>> empty(0.5), empty((1, None))
    ('', 'replace None with your answer, then run the cell again.')
    >>> empty(body)
    'replace ... with your code, then run the cell again.'
    """
    if isinstance(value, list | tuple | dict):
        value = value.values() if isinstance(value, dict) else value
        return next(filter(None, map(empty, value)), "")
    if value is None:
        return "replace None with your answer, then run the cell again."
    if isinstance(value, types.FunctionType | type) and _has_dots(value):
        return "replace ... with your code, then run the cell again."
    return played(value)[1]


def _has_dots(definition) -> bool:
    """Whether a statement of a function, or of a class, is the three dots."""
    if isinstance(definition, type):  # for a class of a notebook, Python knows only the lines of its methods
        plain = (getattr(one, "__func__", one) for one in vars(definition).values())  # a static method's function
        return any(_has_dots(one) for one in plain if isinstance(one, types.FunctionType))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(definition)))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(isinstance(one, ast.Expr) and getattr(one.value, "value", None) is ... for one in ast.walk(tree))


class Question(str):
    """The text of a question, which a notebook shows as prose; names and code in it are between backticks.

    >>> Question("`have` is a list.")
    have is a list.
    """

    def __repr__(self):
        return self.replace("`", "")

    def _repr_html_(self):
        return framed(BLUE, re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(self)))


def question(task: str) -> Question:
    """The question of a task, with this student's own numbers if they vary."""
    return Question(asked(task).question)


def framed(colour: str, body: str) -> str:
    """HTML after a bar of this colour; its line breaks stay."""
    style = f"border-left:4px solid {colour};padding:4px 10px;margin:4px 0;white-space:pre-line"
    return f'<div style="{style}">{body}</div>'
