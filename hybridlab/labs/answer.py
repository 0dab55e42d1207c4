"""Answers: checked at once, with what is right, what is off, and the next hint."""

import html
from dataclasses import dataclass

from hybridlab.labs.tasks import TASKS

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
        colour, word = ("#1b7f4d", "Right") if self.right else ("#b04a00", "Not yet")
        hint = f"<br>Hint: {html.escape(self.hint)}" if self.hint else ""
        body = html.escape(self.sentence).replace("\n", "<br>")
        style = f"border-left:4px solid {colour};padding:4px 10px;margin:4px 0"
        return f'<div style="{style}"><b style="color:{colour}">{word}.</b> {body}{hint}</div>'


def answer(task: str, value) -> Reply:
    """The reply to one answer; every wrong one brings the next hint, the last stays.

    raises  ValueError when there is no such task

    >>> answer("naive.utilisation", 0.75)
    Not yet: That is the idle share. The question is the busy one.
    Hint: Only one GPU works at a time, and the work is shared equally.
    >>> answer("naive.utilisation", 1 / 4)
    Right: 0.25.
    """
    if task not in TASKS:
        raise ValueError(f"there is no exercise {task!r}: choose one of {', '.join(TASKS)}")
    right, sentence = TASKS[task].check(value)
    if right:
        _attempts.pop(task, None)
        return Reply(True, sentence)
    _attempts[task] = _attempts.get(task, 0) + 1
    hints = TASKS[task].hints
    return Reply(False, sentence, hints[min(_attempts[task], len(hints)) - 1])


def question(task: str) -> str:
    """What a task asks."""
    if task not in TASKS:
        raise ValueError(f"there is no exercise {task!r}: choose one of {', '.join(TASKS)}")
    return TASKS[task].question
