"""The lecture of 75 minutes, from docs/lecture.toml and the notebooks: its plan in docs/lecturers.md, and its deck."""

import copy
import re
import tomllib
from functools import cache
from html import escape, unescape
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


CAPTION = re.compile(
    r'(<text x="[\d.]+" y="([\d.]+)" font-size="([\d.]+)" text-anchor="start" fill="#\w+">([^<]*)</text>\s*)+</svg>'
)
LINE = re.compile(r'<text x="[\d.]+" y="([\d.]+)" font-size="([\d.]+)"[^>]*>([^<]*)</text>')


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


def bare(svg: str, told: str) -> str:
    """A picture without its caption, which the slide's sentence replaces, so that the rest is larger.

    told  the picture in words, as its cell has them
    """
    tail = CAPTION.search(svg)
    lines = LINE.findall(tail[0]) if tail else []
    words = " ".join(told.split())
    if not lines or not all(unescape(text) in words for *_, text in lines):
        return svg
    top = float(lines[0][0]) - float(lines[0][1]) - 6
    height = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', svg)[1]
    return (svg[: tail.start()] + "</svg>").replace(f' {height}"', f' {top:g}"').replace(f'"{height}"', f'"{top:g}"')


def _slide(beat, end):
    _, cell, *_ = found(beat.cell)
    cell = copy.deepcopy(cell)
    for data in (one.data for one in cell.outputs if "image/svg+xml" in one.get("data", {})):
        data["image/svg+xml"] = bare(data["image/svg+xml"], data.get("text/plain", ""))
    source, picture = sheet.parts(cell, live=True)
    title, said = f"<h2>{escape(beat.ask)}</h2>", f'<p class="say">{escape(beat.say)}</p>'
    shown = "\n".join(f'<div class="{name}">{part}</div>' for name, part in
                      (("beat", title), ("beat picture", picture), ("beat", said)))  # fmt: skip
    hidden = f'<div class="source">{source}</div>\n<aside class="notes">{escape(beat.tell)}</aside>'
    return f'<section data-end="{end}">\n{shown}\n{hidden}\n</section>'
