"""Answers: checked at once, with what is right, what is off, and the next hint."""

import html
from dataclasses import dataclass

from hybridlab.labs.exercises import answers_file
from hybridlab.labs.exercises.student import task as asked
from hybridlab.labs.exercises.written import write

GREEN, ORANGE, BLUE = "#1e8752", "#c45500", "#0072b2"  # right, not yet, asked; legible on white and on black

_attempts: dict[str, int] = {}


@dataclass(frozen=True)
class Reply:
    """What an answer gets: right or not, one sentence, and the next hint if it is not."""

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
    """The reply to one answer; every wrong one brings the next hint, the last stays. The answer is kept (`record`).

    raises  ValueError when there is no such task

    >>> answer("naive.utilisation", 0.75)
    Not yet: That is the idle share. The question is the busy one.
    Hint: Only one GPU works at a time, and the work is shared equally.
    >>> answer("naive.utilisation", 1 / 4)
    Right: 0.25.
    """
    exercise = asked(task)
    right, sentence = exercise.check(value)
    _keep(task, right, value)
    if right:
        _attempts.pop(task, None)
        return Reply(True, sentence)
    _attempts[task] = _attempts.get(task, 0) + 1
    return Reply(False, sentence, exercise.hints[min(_attempts[task], len(exercise.hints)) - 1])


def _keep(task: str, right: bool, value):
    """Add an answer to the record; a wrong one does not replace a right one."""
    with answers_file.changing() as kept:
        before = kept["tasks"].get(task, {"right": False, "tries": 0, "answer": None})
        stays = before["right"] and not right
        kept["tasks"][task] = {
            "right": right or before["right"],
            "tries": before["tries"] + 1,
            "answer": before["answer"] if stays else write(value),
        }


class Question(str):
    """What a task asks: text, which a notebook sets as prose."""

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        return framed(BLUE, html.escape(self))


def question(task: str) -> Question:
    """What a task asks; with the numbers of this student, where they vary."""
    return Question(asked(task).question)


def framed(colour: str, body: str) -> str:
    """HTML behind a bar of this colour; its line breaks stay."""
    style = f"border-left:4px solid {colour};padding:4px 10px;margin:4px 0;white-space:pre-line"
    return f'<div style="{style}">{body}</div>'
