"""Every edition of the course, from the notebooks as they are committed.

    python -m tools.editions    all of them, into build/editions

    student      the notebooks as they are, with the pages that they link to: to hand out
    instructor   after each exercise its solution, why, hints, usual wrong answers, minutes; as notebook and as page
    slides       one HTML file for each notebook; a heading begins a slide, one key for each beat; explorers move
    lecture      one deck of 75 minutes from pictures of the whole course: lecture.html
    print        one HTML page for each notebook, to read and to print

All HTML opens from disk and fetches nothing.
"""

import copy
import pathlib
import shutil
from html import escape

import nbformat

from hybridlab.labs.exercises.all_solutions import SOLUTIONS
from hybridlab.labs.exercises.all_tasks import TASKS
from hybridlab.labs.exercises.solution import Cell
from tools import lecture, sheet
from tools.course import FOLDER, HOUSE, TASK, Book, books

PAGES = {"slides": "slides", "print": "page to print", "instructor": "page with solutions"}


def notes(task: str) -> str:
    """The instructor's notes on an exercise, as Markdown."""
    its, solution = TASKS[task], SOLUTIONS[task]
    stars = "★" * its.difficulty
    lines = [f"**Solution of `{task}`** {stars} {its.minutes} minutes. {its.objective}", "", solution.why]
    lines += ["", "**Hints.** " + " ".join(f"({number}) {hint}" for number, hint in enumerate(its.hints, 1))]
    lines += ["", "**Common wrong answers**, each with a part of its reply:", ""]
    for wrong, reply in solution.wrong:
        lines.append(f"- {_shown(wrong)} → *{reply}*")
    return "\n".join(lines)


def _shown(answer):
    """An answer on one line: a value as Python writes it, a set in order; a cell with its lines joined."""
    value = f"{{{', '.join(sorted(map(repr, answer)))}}}" if isinstance(answer, set) else repr(answer)
    text = answer if isinstance(answer, Cell) else value
    return "`" + " ⏎ ".join(line.strip() for line in text.splitlines() if line.strip()).replace("`", "'") + "`"


def instructor(book: Book) -> list:
    """The cells of the instructor's edition: each exercise cell is followed by notes and by the cell that solves it."""
    cells = []
    for cell in copy.deepcopy(book.cells):
        cells.append(cell)
        if "exercise" not in cell.metadata.get("tags", ()):
            continue
        cell.outputs, cell.execution_count = [], None
        for task in dict.fromkeys(TASK.findall(cell.source)):
            solved = SOLUTIONS[task].with_numbers(TASKS[task].numbers)
            told = nbformat.v4.new_markdown_cell(notes(task), id=f"{cell.id}-notes", metadata={"tags": ["solution"]})
            cells += [told, nbformat.v4.new_code_cell(solved, id=f"{cell.id}-solved", metadata={"tags": ["solution"]})]
    return cells


def build(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write all editions into a new folder; the files that were written."""
    for kind in PAGES:
        (folder / kind).mkdir(parents=True)
    student = folder / "student"
    for name in ("notebooks", "docs", "examples", "bench", "results"):
        shutil.copytree(HOUSE / name, student / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    for path in (*HOUSE.glob("*.md"), HOUSE / "LICENSE"):
        shutil.copyfile(path, student / path.name)
    for name, book in books().items():
        solved = instructor(book)
        _write(folder / "slides" / f"{name}.html", sheet.slides(book.plain, book.cells))
        _write(folder / "print" / f"{name}.html", sheet.printable(book.plain, book.cells))
        _write(folder / "instructor" / f"{name}.html", sheet.printable(f"{book.plain}, with solutions", solved))
        notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4) | {"cells": solved}
        _write(folder / "instructor" / f"{name}.ipynb", nbformat.writes(nbformat.from_dict(notebook)))
    _write(folder / "lecture.html", lecture.deck())
    _write(folder / "index.html", _index())
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _write(path, text):
    path.write_text(text, encoding="utf-8")


def _index():
    columns = {told: f"{kind}/{{}}.html" for kind, told in PAGES.items()}
    columns |= {"notebook": "student/notebooks/{}.ipynb", "notebook with solutions": "instructor/{}.ipynb"}
    rows = [f"<tr>{''.join(f'<th>{told}</th>' for told in ('', 'minutes in a lecture', *columns))}</tr>"]
    for name, book in books().items():
        links = "".join(f'<td><a href="{place.format(name)}">open</a></td>' for place in columns.values())
        rows.append(f"<tr><td>{escape(book.plain)}</td><td>{book.on_stage}</td>{links}</tr>")
    deck = f'<p><a href="lecture.html">{lecture.TITLE}</a>: a lecture of {lecture.ends()[-1]} minutes.</p>'
    return sheet.page("The course", "\n".join(["<h1>The course</h1>", deck, "<table>", *rows, "</table>"]))


def main():
    folder = HOUSE / "build" / "editions"
    shutil.rmtree(folder, ignore_errors=True)
    files = build(folder)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{len(files)} files, {size:.0f} MB: open {folder / 'index.html'}")


if __name__ == "__main__":
    main()
