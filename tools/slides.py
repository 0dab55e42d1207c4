"""From a slide to its answer: the page docs/slides.md, from docs/slides.toml and the recaps of the notebooks."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache

from tools import sheet
from tools.course import HOUSE, Row, books, recap

DATA = HOUSE / "docs" / "slides.toml"
INTRO = """\
# The slide says, we predict, your machine measures

Every notebook ends with a table. For each statement of a slide, the table gives our prediction and our measurement.
This page collects the rows of all notebooks, deck by deck: find your slide by its title, read its row, and open the
notebook. The notebook's cells check the column "measured" on the machine that runs them. The decks use some other
names: inter-layer is our pipeline parallelism, intra-layer is our tensor parallelism, and on some slides a mini-batch
is our microbatch. The column *show this* links to the section, and gives a line of code to run. *`make pages` makes
this page from the notebooks: change them, not this page.*
"""


@cache
def slides() -> dict:
    """The content of docs/slides.toml."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def link(name: str) -> str:
    """A link to a notebook; only its name if it does not exist yet.

    >>> link("11_gpipe"), link("99_nothing")
    ('[11_gpipe](../notebooks/11_gpipe.ipynb)', '99_nothing (to come)')
    """
    return f"[{name}](../notebooks/{name}.ipynb)" if name in books() else f"{name} (to come)"


def page() -> str:
    """The text of docs/slides.md."""
    parts = [INTRO, _errata()]
    parts += [_deck(letter, deck) for letter, deck in slides()["decks"].items()]
    parts.append(_claims())
    return "\n".join([*parts, _beyond()])


def _named(deck):
    by = f"{deck['by']}, " if deck["by"] else ""
    return f"{by}*{deck['title']}*{', ' + deck['remark'] if 'remark' in deck else ''}"


def _errata():
    lines = ["## Errata", "", "| deck | slide | prints | read | notebook |", "|---|---|---|---|---|"]
    for one in slides()["erratum"]:
        lines.append(f"| {one['deck']} | {one['slide']} | {one['prints']} | {one['read']} | {link(one['notebook'])} |")
    return "\n".join([*lines, ""])


def _deck(letter, deck):
    lines = [f"## {letter} · {_named(deck)}", ""]
    lines += [
        "| slide | it says | we predict | your machine measured | show this | notebook |",
        "|---|---|---|---|---|---|",
    ]
    for row in slides()["row"]:
        if letter in row["slides"]:
            first, show = f"**{'; '.join(row['slides'][letter])}** · {row['subject']}", _show(row)
            for said, predicted, measured, name in _answers(row):
                lines.append(f"| {first} | {said} | {predicted} | {measured} | {show} | {name} |")
                first = show = ""
    return "\n".join([*lines, ""])


def _answers(row):
    """The recap rows that answer a row of the table. The first line also names the notebooks without a recap row."""
    found, plain = [], []
    for name, answer in row["answers"].items():
        rows = [one for one in _recap(name) if one.name in answer.get("recap", ())]
        found += [(_said(one), one.predicted, one.measured, link(name)) for one in rows]
        plain += [] if rows else [link(name)]
    told = (row.get("says", ""), row.get("predict", ""), row.get("measured", ""), "")
    (said, predicted, measured, name), *rest = found or [told]
    return [(said, predicted, measured, ", ".join(filter(None, [name, *plain]))), *rest]


# --- the exact section ----------------------------------------------------------------------------------------

HEADING = re.compile(r'<h\d id="([^"]*)">')
SHOWN = re.compile(r"[a-z]\w*\.[\w.]+\(.*\)")  # a line that shows something
SILENT = "labs.answer", "labs.question", "labs.reveal", ".stop("
PASSING = "The question", "Recap"
LONGEST_LINE = 72
Place = tuple[str, str, str]  # the heading of a section, its anchor, one line to run or ""


@cache
def place(name: str, *phrases: str) -> Place:
    """The section of a notebook that shows one of these phrases best: first one with a line to run.

    The question and the recap only name a subject, so they come last. JupyterLab and the site have the same anchor.

    raises  ValueError where the notebook says none of them

    >>> place("11_gpipe", "Fewer stages")
    ('A smaller bubble', 'A-smaller-bubble', 'hl.draw(two, eight)')
    """
    cells = books()[name].cells
    at = [i for i, cell in enumerate(cells) if any(_plain(phrase) in _plain(_all(cell)) for phrase in phrases)]
    if not at:
        raise ValueError(f"phrases={phrases!r} is invalid: {name} says none. Correct them in docs/slides.toml.")
    sections = {_heading(cells, i): None for i in at}
    return min((_place(cells, start) for start in sections), key=lambda one: (one[0] in PASSING, not one[2]))


def _heading(cells, i: int) -> int:
    """The cell with the heading of the section of cell i."""
    return next((k for k in range(i, -1, -1) if _is_heading(cells[k])), 0)


def heading(cells, i: int) -> tuple[str, str]:
    """(the heading, its anchor) of the section of cell i."""
    first = cells[_heading(cells, i)].source
    return first.partition("\n")[0].lstrip("# ").split("  ★")[0], HEADING.findall(sheet.text(first))[0]


def _place(cells, start: int) -> Place:
    end = next((i for i in range(start + 1, len(cells)) if _is_heading(cells[i])), len(cells))
    title, anchor = heading(cells, start)
    name = title if start else PASSING[0]  # the title of a notebook is no section
    return name, anchor, next((line for cell in cells[start:end] for line in _shown(cell)), "")


def _is_heading(cell) -> bool:
    return cell.cell_type == "markdown" and re.match(r"##+ ", cell.source) is not None


def _shown(cell) -> Iterator[str]:
    """The last line of a code cell, if it shows something and is short."""
    line = cell.source.rpartition("\n")[2]
    if cell.cell_type == "code" and SHOWN.fullmatch(line) and len(line) <= LONGEST_LINE and cell.outputs:
        if not any(one in line for one in SILENT):
            yield line


def _all(cell) -> str:
    """All that a cell shows."""
    outputs = cell.get("outputs", ())
    told = [one.get("text", "") or str(one.get("data", {}).get("text/plain", "")) for one in outputs]
    return " ".join([cell.source, *told])


def _plain(text: str) -> str:
    return " ".join(text.replace("*", "").split()).lower()


def _show(row) -> str:
    """The sections that answer a row, each with a line to run."""
    places = [(name, *place(name, *answer["must"])) for name, answer in row["answers"].items() if name in books()]
    return "; ".join(_linked(*one) for one in places)


def _linked(name, title, anchor, line) -> str:
    run = f" `{line.replace('|', chr(92) + '|')}`" if line else ""
    return f"[{title}](../notebooks/{name}.ipynb#{anchor}){run}"


def _claims() -> str:
    """The claims that slides make in passing, with the answers of the course."""
    lines = ["## Claims in passing", "", "| deck | slide | claims | answer | show this |", "|---|---|---|---|---|"]
    for one in slides()["claim"]:
        where = _linked(one["notebook"], *place(one["notebook"], one["phrase"]))
        lines.append(f"| {one['deck']} | {one['slide']} | {one['claims']} | {one['answer']} | {where} |")
    return "\n".join([*lines, ""])


def _recap(name):
    return recap(books()[name]) if name in books() else []


def _said(row):
    return f"{row.name}: {row.said}" if row.said not in ("", row.name) else row.name


def unasked() -> list[tuple[str, Row]]:
    """(notebook, recap row) for every recap row that belongs to no slide."""
    answers = [answer for row in slides()["row"] for answer in row["answers"].items()]
    asked = {(name, one) for name, answer in answers for one in answer.get("recap", ())}
    return [(name, row) for name, book in books().items() for row in recap(book) if (name, row.name) not in asked]


def _beyond():
    asked = {name for row in slides()["row"] for name in row["answers"]}
    others = dict.fromkeys([*(name for name in books() if name not in asked), *slides()["beyond"]])
    lines = [
        "## Appendix: on no slide",
        "",
        f"These notebooks have no corresponding slide: {', '.join(map(link, others))}.",
        "",
    ]
    lines += ["| about | papers say | we predict | your machine measured | notebook |", "|---|---|---|---|---|"]
    for name, row in unasked():
        lines.append(f"| {row.name} | {row.said} | {row.predicted} | {row.measured} | {link(name)} |")
    return "\n".join([*lines, ""])
