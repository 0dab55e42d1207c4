"""From a slide to its answer: the page docs/slides.md, from docs/slides.toml and the recaps of the notebooks."""

import tomllib
from functools import cache

from tools.course import HOUSE, Row, books, recap

DATA = HOUSE / "docs" / "slides.toml"
INTRO = """\
# Slide says, we predict, your machine measured

Every notebook ends with a table. For each statement of a slide, the table gives our prediction and our measurement.
This page collects the rows of all notebooks, deck by deck: find your slide by its title, read its row, and open the
notebook. The notebook's cells check the column "measured" on the machine that runs them. The decks use some other
names: inter-layer is our pipeline parallelism, intra-layer is our tensor parallelism, and on some slides a mini-batch
is our microbatch. *`make pages` makes this page from the notebooks; change it there.*
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
    lines += ["| slide | it says | we predict | your machine measured | notebook |", "|---|---|---|---|---|"]
    for row in slides()["row"]:
        if letter in row["slides"]:
            first = f"**{'; '.join(row['slides'][letter])}** · {row['subject']}"
            for said, predicted, measured, name in _answers(row):
                lines.append(f"| {first} | {said} | {predicted} | {measured} | {name} |")
                first = ""
    return "\n".join([*lines, ""])


def _answers(row):
    """The recap rows that answer a row of the table. The first line also names the notebooks without a recap row."""
    found, plain = [], []
    for name, answer in row["answers"].items():
        rows = [one for one in _recap(name) if one.name in answer.get("recap", ())]
        found += [(_said(one), one.predicted, one.measured, link(name)) for one in rows]
        plain += [] if rows else [link(name)]
    (said, predicted, measured, name), *rest = found or [("", "", "", "")]
    return [(said, predicted, measured, ", ".join(filter(None, [name, *plain]))), *rest]


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
    lines = ["## On no slide", "", f"These notebooks answer no slide: {', '.join(map(link, others))}.", ""]
    lines += ["| about | papers say | we predict | your machine measured | notebook |", "|---|---|---|---|---|"]
    for name, row in unasked():
        lines.append(f"| {row.name} | {row.said} | {row.predicted} | {row.measured} | {link(name)} |")
    return "\n".join([*lines, ""])
