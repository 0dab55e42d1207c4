"""Read the course from its notebooks: their first cells and their tables.

The pages about the course (tools/landing.py, tools/slides.py) and its editions take all their facts from here.
"""

import pathlib
import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import nbformat

from hybridlab.labs.exercises.all_tasks import TASKS

HOUSE = pathlib.Path(__file__).resolve().parent.parent
FOLDER = HOUSE / "notebooks"
BORDER = re.compile(r"(?<!\\)\|")  # of a cell in a markdown table; a \| inside a cell is text
TASK = re.compile(r"labs\.answer\(\s*[\"']([^\"']+)[\"']")


@dataclass(frozen=True)
class Book:
    """The description of one notebook, from its own cells.

    name      of its file, without the ending;  title  with its number
    goal      one sentence;  objectives  what a reader can do afterwards;  sources  the slides and papers it cites
    core, further  minutes of its two parts for a reader alone, with their exercises;  on_stage  in a lecture
    needs     the notebooks to read before it, first things first
    tasks     its exercises by name, in order;  core_tasks  those of its core;  cells  all of it
    """

    name: str
    title: str
    goal: str
    objectives: tuple[str, ...]
    core: int
    further: int
    on_stage: int
    needs: tuple[str, ...]
    sources: str
    tasks: tuple[str, ...]
    cells: tuple

    @property
    def minutes(self) -> int:
        return self.core + self.further

    @property
    def number(self) -> str:
        return self.name[:2]

    @property
    def core_tasks(self) -> tuple[str, ...]:
        return _tasks(split(self.cells)["Core"])

    @property
    def plain(self) -> str:
        """The title without the stars that make a letter slanted: for a place that shows no markdown."""
        return self.title.replace("*", "")

    @property
    def short(self) -> str:
        """The title without number and subtitle, plain. A comma after a slanted letter belongs to a list of letters."""
        return re.split(r":|(?<!\*),", self.title.partition(" · ")[2])[0].replace("*", "")

    @property
    def prose(self) -> str:
        """All text, each run of spaces and line breaks as one space."""
        return " ".join(" ".join(cell.source.split()) for cell in self.cells if cell.cell_type == "markdown")


@cache
def books() -> dict[str, Book]:
    """Every notebook of the course by name, in order; raises ValueError where its front or its end lacks a part."""
    return {path.stem: _book(path) for path in sorted(FOLDER.glob("*.ipynb"))}


def _book(path):
    cells = tuple(nbformat.read(path, as_version=4).cells)
    title, times = cells[0].source.split("\n\n")[:2]
    parts = dict(re.findall(r"\*\*(\w+)\.\*\*[ ]?(.*?)(?=\n\n)", _about(cells), flags=re.DOTALL))
    missing = [part for part in ("Goal", "Objectives", "Sources") if part not in parts]
    if missing or "**Core**" not in times:
        raise ValueError(f"{path.name} lacks {', '.join(missing) or 'the minutes of its core, under its title'}")
    core, further, stage = (_number(what, times) for what in ("**Core**", "**further**", "in a lecture:"))
    asked = sum(TASKS[task].minutes for task in _tasks(split(cells)["Core"]))
    return Book(
        name=path.stem,
        title=title.removeprefix("# "),
        goal=" ".join(parts["Goal"].split()),
        objectives=tuple(" ".join(line.split()).rstrip(",.") for line in re.split(r"\n- ", parts["Objectives"])[1:]),
        core=core,
        further=further,
        on_stage=stage or max(core - asked, 10),
        needs=tuple(dict.fromkeys(re.findall(r"\]\((\w+)\.ipynb\)", times))),
        sources=" ".join(parts["Sources"].split()),
        tasks=_tasks(cells),
        cells=cells,
    )


def split(cells) -> dict[str, list]:
    """The cells of a notebook's two parts. *Further* is from its heading to the recap; all other cells are *Core*."""
    parts, where = {"Core": [], "Further": []}, "Core"
    for cell in cells:
        heading = cell.source.partition("\n")[0]
        where = {"# Further": "Further", "# Core": "Core", "## Recap": "Core"}.get(heading, where)
        parts[where].append(cell)
    return parts


def _about(cells) -> str:
    """The folded text at the end."""
    return cells[-1].source.partition("<summary>About this notebook</summary>")[2]


def _number(word, text) -> int:
    """The number after a word; 0 if there is none."""
    found = re.search(rf"{re.escape(word)} (\d+)", text)
    return int(found[1]) if found else 0


def _tasks(cells) -> tuple[str, ...]:
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    return tuple(dict.fromkeys(TASK.findall(code)))


def tables(text: str) -> list[list[list[str]]]:
    """The markdown tables of a text, each a list of rows of cells, head first, the line of dashes left out.

    >>> tables("so:\\n\\n| a | b |\\n|---|---|\\n| 1 | |\\n")
    [[['a', 'b'], ['1', '']]]
    """
    found, inside = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            found.append([])
        inside = True
        cells = [cell.strip() for cell in BORDER.split(line.strip())[1:-1]]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found[-1].append(cells)
    return found


class Row(NamedTuple):
    """One row of a recap: its subject, the statement and its source, our prediction, the measurement."""

    name: str
    by: str
    said: str
    predicted: str
    measured: str


def recap(book: Book) -> list[Row]:
    """The rows of a notebook's table *they say, we predict, measured*, without its head; [] if it has none.

    If the table has no column of names, the statement is the name too; if there is no statement, `by` and `said` are
    "".
    """
    closing = "\n".join(cell.source for cell in book.cells if cell.source.startswith("## Recap"))
    for head, *rows in tables(closing):
        if "we predict" in head:
            ours = head.index("we predict")
            by = head[ours - 1]
            return [Row(row[0], by, row[ours - 1] if by else "", row[ours], row[ours + 1]) for row in rows]
    return []
