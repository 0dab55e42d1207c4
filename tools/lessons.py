"""The plans in docs/lecturers.md: a lecture, and a lesson for each notebook; from docs/lessons.toml."""

import tomllib
from functools import cache

from hybridlab.labs.exercises.all_tasks import TASKS
from tools import lecture
from tools.course import HOUSE, Book, books

DATA = HOUSE / "docs" / "lessons.toml"
HEADING = "## Lesson plans\n"
PARTS = {"hook": "Begin", "wrong": "Common wrong answers", "show": "Show", "fallback": "If it fails"}


@cache
def lessons() -> dict[str, dict[str, str]]:
    """The content of docs/lessons.toml, by notebook."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def page() -> str:
    """docs/lecturers.md with new last sections: the lecture of 75 minutes, and the lessons."""
    text = (HOUSE / "docs" / "lecturers.md").read_text(encoding="utf-8")
    plans = [plan(book) for name, book in books().items() if name in lessons()]
    own = text.partition(lecture.HEADING)[0].partition(HEADING)[0]
    return "\n".join([own + lecture.section() + HEADING, *plans])


def plan(book: Book) -> str:
    """One lesson: minutes, how to begin, wrong answers, what to show, the fallback, the exercises."""
    lines = [f"### [{book.title}](../notebooks/{book.name}.ipynb)", ""]
    further = f" and {book.further} for the rest" if book.further else ""
    reader = f"A reader takes {book.core} minutes for the core section{further}."
    lines += [f"A lecture takes {book.on_stage} minutes. {reader}", ""]
    for part, told in PARTS.items():
        lines.append(f"- **{told}.** {lessons()[book.name][part]}")
    minutes = ", ".join(f"`{task}` {'★' * TASKS[task].difficulty} {TASKS[task].minutes} min" for task in book.tasks)
    return "\n".join([*lines, f"- **Exercises.** {minutes}.", ""])
