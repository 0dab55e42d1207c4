"""The lecture of 75 minutes, from docs/lecture.toml and the notebooks: its plan in docs/lecturers.md, and its deck."""

import tomllib
from functools import cache
from html import escape
from itertools import accumulate
from typing import NamedTuple

from tools import sheet, slides
from tools.course import HOUSE, books

DATA = HOUSE / "docs" / "lecture.toml"
TITLE = "Pipeline and hybrid parallelism"
HEADING = "## A lecture of 75 minutes\n"
INTRO = """\
`make editions` writes its deck, `build/editions/lecture.html`: on each slide a question, a picture of the course and
one sentence. In the deck, <kbd>c</kbd> also shows the code, <kbd>s</kbd> your notes, and <kbd>t</kbd> starts the
clock: the minutes spent, and the minute at which the slide should end.
"""


class Beat(NamedTuple):
    """One slide: minutes, question, the cell with its picture, answer, notes for the presenter."""

    minutes: int
    ask: str
    cell: str
    say: str
    tell: str


@cache
def beats() -> tuple[Beat, ...]:
    """The slides in their order."""
    return tuple(Beat(**one) for one in tomllib.loads(DATA.read_text(encoding="utf-8"))["beat"])


def ends() -> list[int]:
    """The minute at which each slide should end."""
    return list(accumulate(beat.minutes for beat in beats()))


@cache
def found(cell: str) -> tuple:
    """(the notebook's name, the cell, the heading of its section, its anchor) of the cell with this id.

    raises  ValueError if no notebook has it
    """
    for name, book in books().items():
        for i, one in enumerate(book.cells):
            if one.id == cell:
                return name, one, *slides.heading(book.cells, i)
    raise ValueError(f"cell={cell!r} is invalid: no notebook has it. Correct docs/lecture.toml.")


def section() -> str:
    """The plan: a row for each slide, with its minutes, its section and its notes."""
    rows = ["| minutes | ask | show | say | notes |", "|---|---|---|---|---|"]
    for beat, end in zip(beats(), ends()):
        name, _, heading, anchor = found(beat.cell)
        link = f"[{name}: {heading}](../notebooks/{name}.ipynb#{anchor})"
        rows.append(f"| {end - beat.minutes}–{end} | {beat.ask} | {link} | {beat.say} | {beat.tell} |")
    return "\n".join([HEADING, INTRO, *rows, "\n"])


def deck() -> str:
    """The slides as one HTML file."""
    agenda = "".join(f"<li>{escape(beat.ask)}</li>" for beat in beats())
    about = f'<p>{ends()[-1]} minutes, {len(beats())} questions</p>\n<ol class="agenda">{agenda}</ol>'
    title = f'<section>\n<div class="beat"><h1>{TITLE}</h1>\n{about}</div>\n</section>'
    shown = [_slide(beat, end) for beat, end in zip(beats(), ends())]
    names = [TITLE, *(escape(beat.ask) for beat in beats())]
    return sheet.staged(TITLE, [title, *shown], names, "→: next · ←: back · c: code · s: notes · t: clock · + −: size")


def _slide(beat, end):
    _, cell, *_ = found(beat.cell)
    source, picture = sheet.parts(cell, live=True)
    parts = [f"<h2>{escape(beat.ask)}</h2>", picture, f'<p class="say">{escape(beat.say)}</p>']
    shown = "\n".join(f'<div class="beat">{part}</div>' for part in parts)
    hidden = f'<div class="source">{source}</div>\n<aside class="notes">{escape(beat.tell)}</aside>'
    return f'<section data-end="{end}">\n{shown}\n{hidden}\n</section>'
