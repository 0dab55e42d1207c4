"""Reports for a teacher, from the rows of a class: a CSV, one page for each student, statistics of each exercise."""

import csv
import html
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hybridlab.core import files
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.grade import Row

WORDS = {True: "right", False: "not right", None: "cannot be repeated"}
HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>{0}</title>'
HEAD += "<style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}"
HEAD += "td,th{{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0}}</style><h1>{0}</h1>"
FORMULA = re.compile(r"(^|[;,|] *)([=+\-@\t\r])")  # a spreadsheet runs a cell that begins with one of these


def chosen(assignment: str | None) -> tuple[str, ...]:
    """The exercises of an assignment: notebooks and exercises, separated by commas; None: all.

    assignment  as "11_gpipe", "gpipe, 1f1b" or "gpipe.engine"

    raises  ValueError for a name that is neither

    >>> chosen("naive.slots, start.swap")
    ('start.swap', 'naive.slots')
    """
    if assignment is None:
        return tuple(TASKS)
    names = [name.strip() for name in assignment.split(",")]
    found = {name: [task for task in TASKS if _is_of(task, name)] for name in names}
    if unknown := [name for name, tasks in found.items() if not tasks]:
        books = dict.fromkeys(task.partition(".")[0] for task in TASKS)
        raise ValueError(
            f"assignment={unknown[0]!r} is invalid: no exercise has this name. Choose from {', '.join(books)}, or one "
            f"exercise as {next(iter(TASKS))}."
        )
    wanted = {task for tasks in found.values() for task in tasks}
    return tuple(task for task in TASKS if task in wanted)


def _is_of(task: str, name: str) -> bool:
    number, _, rest = name.partition("_")
    return name == task or task.partition(".")[0] in (name, rest if number.isdigit() else name)


def as_csv(rows: Sequence[Row], tasks: Sequence[str]) -> str:
    """A line per submission: file, student, number of right answers, each exercise (1, 0 or empty), its problem."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["file", "student", "right", "of", *tasks, "problem"])
    for row in rows:
        marks = [int(row.tasks[task][0] is True) if task in row.tasks else "" for task in tasks]
        write([*map(_cell, (row.file, row.student)), row.right, len(tasks), *marks, _cell(row.problem)])
    return out.getvalue()


def write_csv(path: str | Path, rows: Sequence[Row], tasks: Sequence[str]):
    """Write the CSV.

    raises  ValueError if the file cannot be written
    """
    files.put(path, as_csv(rows, tasks))


def _cell(text: str) -> str:
    """A text, changed so that no spreadsheet runs it: any separator may end a cell.

    >>> _cell("=1+1"), _cell("Ada"), _cell("Ada; =1+1"), _cell("a-b")
    ("'=1+1", 'Ada', "Ada; '=1+1", 'a-b')
    """
    return FORMULA.sub(r"\1'\2", text)


def write_pages(folder: str | Path, rows: Sequence[Row], tasks: Sequence[str]) -> list[Path]:
    """A page for each submission, named after its file: its exercises, the verdict and the reply of each.

    raises  ValueError if the folder cannot be written
    """
    into = files.folder(folder)
    pages = {into / f"{row.file.removesuffix('.json')}.html": page(row, tasks) for row in rows}
    for file, text in pages.items():
        files.put(file, text)
    return list(pages)


def page(row: Row, tasks: Sequence[str]) -> str:
    """The page of one submission."""
    safe = html.escape
    head = HEAD.format(safe(row.student or row.file))
    said = [f"<p>{row.right} of {len(tasks)} right.</p>"] + [f"<p>{safe(row.problem)}</p>"] * bool(row.problem)
    lines = [
        f"<tr><td>{task}</td><td>{WORDS[row.tasks[task][0]] if task in row.tasks else 'not answered'}</td>"
        f"<td>{safe(row.tasks[task][1]) if task in row.tasks else ''}</td></tr>"
        for task in tasks
    ]
    table = "<table><tr><th>exercise</th><th>verdict</th><th>reply</th></tr>"
    return "\n".join([head, *said, table, *lines, "</table></html>\n"])


def statistics(rows: Sequence[Row], tasks: Sequence[str]) -> dict[str, dict]:
    """{exercise: number of answers, number of right ones, the most frequent reply to wrong ones and its count}."""
    return {task: _of_task(task, rows) for task in tasks}


def _of_task(task: str, rows: Sequence[Row]) -> dict:
    replies = [row.tasks[task] for row in rows if task in row.tasks]
    wrong = Counter(reply for right, reply in replies if right is not True)
    (most, times), *_ = wrong.most_common(1) or [("", 0)]
    right = sum(one is True for one, _ in replies)
    return {"answered": len(replies), "right": right, "most frequent wrong reply": most, "times": times}


def told(found: dict[str, dict]) -> str:
    """The statistics as lines, the exercise with the fewest right answers first; those with no answer are omitted."""
    asked = {task: one for task, one in found.items() if one["answered"]}
    wide = max(map(len, asked), default=0)
    order = sorted(asked, key=lambda task: asked[task]["right"] / asked[task]["answered"])
    return "\n".join(f"{task:<{wide}}  {_line(asked[task])}" for task in order)


def _line(one: dict) -> str:
    often = f"; {one['times']} × {' '.join(one['most frequent wrong reply'].split())[:90]}" if one["times"] else ""
    return f"{one['right']:>3} of {one['answered']} right{often}"
