"""A student's progress: `labs.progress()` shows it by notebook, `labs.reset()` deletes it."""

import html
from typing import NamedTuple

from hybridlab.labs.exercises import answers_file
from hybridlab.labs.exercises.all_tasks import TASKS

HEADING = ("notebook", "right", "of", "minutes left", "open")


class Progress(NamedTuple):
    """The tasks that were answered right, and those that were tried; shows as a table."""

    right: frozenset[str]
    tried: frozenset[str]

    @property
    def rows(self) -> list[tuple]:
        """(notebook, number of right answers, number of exercises, minutes and names of open ones; ~ was tried)."""
        return [self._row(name, its) for name, its in by_notebook().items()]

    def _row(self, notebook, tasks):
        left = [task for task in tasks if task not in self.right]
        names = " ".join(task.partition(".")[2] + "~" * (task in self.tried) for task in left)
        return notebook, len(tasks) - len(left), len(tasks), sum(TASKS[task].minutes for task in left), names

    @property
    def _sum(self):
        _, right, of, minutes, _ = zip(*self.rows)
        return "all", sum(right), sum(of), sum(minutes), "(~ tried)" if self.tried - self.right else ""

    def __repr__(self):
        lines = [HEADING, *self.rows, self._sum]
        wide = [max(len(str(line[i])) for line in lines) for i in range(4)]
        told = (
            f"{book:<{wide[0]}}  " + "  ".join(f"{one:>{w}}" for one, w in zip(more, wide[1:])) for book, *more in lines
        )
        return "\n".join(f"{left}  {line[4]}".rstrip() for left, line in zip(told, lines))

    def _repr_html_(self):
        cells = lambda line, tag: "".join(f"<{tag}>{html.escape(str(one))}</{tag}>" for one in line)
        head, *body = [HEADING, *self.rows, self._sum]
        rows = "".join(f"<tr>{cells(line, 'td')}</tr>" for line in body)
        return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{rows}</tbody></table>"


def by_notebook() -> dict[str, list[str]]:
    """{notebook: its tasks}, in the order of the course.

    >>> by_notebook()["00_start"]
    ['start.all_reduce', 'start.swap']
    """
    books = {}
    for name, task in TASKS.items():
        books.setdefault(task.notebook, []).append(name)
    return dict(sorted(books.items()))


def progress() -> Progress:
    """The exercises that have been answered on this machine, by notebook."""
    tasks = {name: one for name, one in answers_file.read()["tasks"].items() if name in TASKS}
    return Progress(frozenset(name for name, one in tasks.items() if one["right"]), frozenset(tasks))


def reset(task: str | None = None) -> None:
    """Delete the answers to one task, or to all tasks; the hints start again. The student stays the same.

    raises  ValueError when there is no such task
    """
    from hybridlab.labs.exercises.answer import _given

    if task is not None and task not in TASKS:
        raise ValueError(f"there is no exercise {task!r}: choose one of {', '.join(TASKS)}")
    with answers_file.changing() as kept:
        forgotten = [task] if task else [*kept["tasks"], *_given]
        for name in forgotten:
            kept["tasks"].pop(name, None)
            _given.pop(name, None)
