"""Theme: how a picture that is drawn for white paper looks on dark paper.

A picture keeps the colours of its attributes, which every program can show. Rules of CSS replace some of them where
the colour scheme of its surroundings is dark: that of JupyterLab, of the site, or of the reader's system. Paper, ink
and grid change (`style.IN_THE_DARK`). Fills of boxes stay, and with them the black or white text on them
(`style.ink_on`); coloured lines and letters get lighter where they need it.
"""

import re
from functools import cache

from hybridlab.show.paper.style import BLACK, FIXED, IN_THE_DARK, STYLE, WHITE, contrast, mix

CLASS = "hl-picture"
LEGIBLE = 4.5  # the contrast that WCAG 2 asks for of text; with the 3 of other things, lines are dull in a hall
ELEMENT = re.compile(r"<(\w+)([^>]*)>")
COLOUR = re.compile(r' (fill|stroke)="(#[0-9A-Fa-f]{6})"')
WORDS = ":is(text, g)"  # a group has the ink of its texts
LINES, BOXES = f":not(text, g, .{FIXED})", ":not(text, g, pattern *)"  # white stripes belong to the fill under them


@cache
def in_the_dark(colour: str) -> str:
    """The colour on dark paper; a hue is lightened until it is legible there.

    >>> in_the_dark("#1A1A1A"), in_the_dark("#E69F00"), in_the_dark("#0072B2")
    ('#F0F0F0', '#E69F00', '#2E8BC0')
    """
    if colour in IN_THE_DARK:
        return IN_THE_DARK[colour]
    lighter = (mix(colour, WHITE, step / 50) for step in range(51))
    return next(one for one in lighter if contrast(one, IN_THE_DARK[STYLE["paper"]]) >= LEGIBLE)


def both(colour: str) -> str:
    """The colour for a light page and for a dark one, as a value of CSS."""
    return f"light-dark({colour}, {in_the_dark(colour)})"


def rules(drawing: str) -> str:
    """The style element of a drawing: a rule for each colour that changes."""
    lines = ["svg:root { color-scheme: light dark }", f".{CLASS} {{ fill: {both(STYLE['ink'])} }}"]
    return "<style>" + "\n".join(lines + sorted(set(map(_rule, _used(drawing))) - {""})) + "</style>"


def _used(drawing):
    for tag, attributes in ELEMENT.findall(drawing):
        colours = dict(COLOUR.findall(attributes))
        yield from ((tag, *one) for one in colours.items())
        if tag != "text" and len(colours) == 2 and colours["fill"] == colours["stroke"]:
            yield tag, "mark", colours["fill"]


def _rule(used):
    """The rule for one colour of one kind of element, or "" if it stays."""
    tag, what, colour = used
    if what == "mark":  # it is filled as the line on which it lies
        where, stays = "", colour in (*IN_THE_DARK, BLACK)
        what, which = "fill", f'[fill="{colour}"][stroke="{colour}"]'
    else:
        which = f'[{what}="{colour}"]'
        if tag in ("text", "g"):
            where, stays = WORDS, colour in (WHITE, BLACK) if what == "fill" else colour not in IN_THE_DARK
        elif what == "fill":
            where, stays = BOXES if colour == WHITE else LINES, colour not in IN_THE_DARK
        else:
            where, stays = LINES, colour == BLACK
    if stays or in_the_dark(colour) == colour:
        return ""
    return f".{CLASS} {where}{which} {{ {what}: {both(colour)} }}"
