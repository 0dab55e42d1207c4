"""A card: quantities one below the other, each with its name, a strip, and its numbers as text.

It is HTML, so it has the colours and the font of the page, and on a narrow page the numbers are under their strip. The
text of each line is a sentence. A screen reader reads it, and it remains if a page removes drawings and styles.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from hybridlab.show.charts import strip
from hybridlab.show.paper.sheet import minus

NO_BREAK = "\N{NO-BREAK SPACE}"
NUMBER, VERDICT, BELOW = "hl-number", "hl-verdict", "hl-below"


class Head(NamedTuple):
    """A column of numbers.

    text  its heading;  sign  the mark of its numbers on the strips, one of `strip.PENS`, or ""
    join  what separates its numbers from those before, in words
    name  its class in HTML: NUMBER, set flush right, VERDICT, or BELOW, in a line under the others without a heading
    """

    text: str
    sign: str = ""
    join: str = ", "
    name: str = NUMBER


class Line(NamedTuple):
    """One quantity: its name, its strip, and its text in each column; `said` is a single text that replaces these."""

    name: str
    drawn: str
    cells: Sequence[str] = ()
    said: str = ""


def card(title: str, heads: Sequence[Head], lines: Sequence[Line], band: str = "", below: str = "") -> str:
    """The card as HTML. Columns without any text are left out; negative numbers have minus signs.

    title  its name for a screen reader;  band  what the band of the strips is, or "";  below  a last sentence

    >>> text = card("One", [Head("predicted"), Head("measured")], [Line("a step", "", ("46 ms", "≈50 ms"))])
    >>> import re; re.sub("<style>.*?</style>|<[^>]*>", "", text)
    'predictedmeasureda step: predicted 46 ms, measured ≈50 ms'
    """
    kept = [i for i in range(len(heads)) if any(line.cells and line.cells[i] for line in lines)]
    columns = [heads[i] for i in kept]
    rows = [_heads(columns, band)] if kept else []
    for line in lines:
        texts = "".join(_texts(line, columns, [line.cells[i] for i in kept if line.cells]))
        told = f'<b>{escape(line.name)}<i>: </i></b><span class="hl-drawn">{line.drawn}</span>{texts}'
        rows.append(f'<div class="hl-line" role="listitem">{told}</div>')
    said = f"<figcaption>{escape(below)}</figcaption>" if below else ""
    listed = f'<div class="hl-lines" role="list">{"".join(rows)}</div>'
    return f'<figure class="hl-card" aria-label="{escape(title)}"><style>{_style()}</style>{listed}{said}</figure>'


def _heads(columns: Sequence[Head], band: str) -> str:
    """The first line: the legend of the marks, over their numbers. Without the style sheet it is hidden."""
    signed = lambda mark, text: f"{mark and strip.sign(mark) + NO_BREAK}{escape(text)}"
    cells = "".join(_cell(head, signed(head.sign, head.text)) for head in columns if head.name != BELOW)
    shaded = signed(band and "tolerance", band)
    return f'<div class="hl-heads" hidden="hidden" aria-hidden="true"><b></b><span>{shaded}</span>{cells}</div>'


def _texts(line: Line, heads: Sequence[Head], cells: Sequence[str]) -> Iterator[str]:
    """The cells of a line, each with its part of the sentence."""
    if line.said:
        yield f'<span class="{VERDICT}">{escape(line.said)}</span>'
    join = ""
    for head, cell in zip(heads, cells):
        if head.name == BELOW:
            yield cell and _cell(head, f"<i>{head.join}</i>{escape(head.text)}: {escape(minus(cell))}")
        else:
            yield _cell(head, f"<i>{join}{escape(head.text)} </i>{escape(minus(cell))}" if cell else "")
            join = head.join if cell else join


def _cell(head: Head, text: str) -> str:
    return f'<span class="{head.name}">{text}</span>'


@cache
def _style() -> str:
    """The style sheet, without line breaks."""
    return " ".join(Path(__file__).with_name("card.css").read_text("utf-8").split())
