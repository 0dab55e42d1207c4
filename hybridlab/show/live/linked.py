"""Pictures linked with words, live: a term of a formula, or a row of a table, lights the parts of the picture that it
means; grips in the picture change the reader's choices. `linked.js` shows them.
"""

import json
from collections.abc import Callable, Sequence
from html import escape
from itertools import product
from typing import NamedTuple

from hybridlab.show.live.module import packed
from hybridlab.show.live.moving import Choice
from hybridlab.show.live.shown import Shown
from hybridlab.show.paper.still import Still

KNOB = 32, 22  # pixels: the width and the height of a grip


class Panel(NamedTuple):
    """The picture for one value of each choice.

    svg    with data-term on the parts that a term lights, and with grips
    words  as HTML, with data-lights on each term
    told   {term: the lit parts, in words}; "": the whole picture
    """

    svg: str
    words: str
    told: dict[str, str]


def linked_panel(draw: Callable[..., Panel], choices: Sequence[Choice], still: Still) -> Shown:
    """The pictures `draw(*values)` of all values together, and their static twin."""
    panels = [draw(*values) for values in product(*(one.values for one in choices))]
    shown = [{"label": one.label, "values": list(one.values), "first": one.first} for one in choices]
    lines = packed([json.dumps(one._asdict(), separators=(",", ":")) for one in panels])
    return Shown({"show": "linked", "choices": shown, "panels": lines}, still)


def grip(number: int, here: int, stops: Sequence[tuple[float, float]], sign: str) -> str:
    """A grip for the choice with this number, as SVG: at stop `here`, with a sign that says what
    it changes and where it can be dragged."""
    x, y = stops[here]
    places = " ".join(f"{one:.0f},{other:.0f}" for one, other in stops)
    wide, tall = KNOB
    shape = f'x="{x - wide / 2:.1f}" y="{y - tall / 2:.1f}" width="{wide}" height="{tall}" rx="{tall / 2}"'
    return (
        f'<g data-grip="{number}" data-stops="{places}" aria-hidden="true"><circle cx="{x:.1f}" cy="{y:.1f}" r="22" '
        f'fill="transparent"/><rect class="hl-knob" {shape}/>'
        f'<text x="{x:.1f}" y="{y + 5:.1f}" font-size="14" text-anchor="middle">{sign}</text></g>'
    )


def area(terms: str, x: float, y: float, wide: float, tall: float) -> str:
    """A frame that these terms light around a part of the picture; other terms put a veil over it."""
    return f'<rect class="hl-area" data-term="{terms}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>'


def lights(term: str, inside: str, tag: str = "mrow") -> str:
    """A term of the words, as an element of HTML or MathML."""
    return f'<{tag} data-lights="{escape(term, quote=True)}">{inside}</{tag}>'
