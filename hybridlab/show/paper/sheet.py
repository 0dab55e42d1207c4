"""A sheet: an SVG with its title and description, and its text: headings, captions, round ticks.

Every static picture is a sheet; most are `captioned`.
"""

import re
from html import escape

import numpy as np

from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE
from hybridlab.show.paper.theme import CLASS, rules

PX = STYLE["pixels"]
ROOT = 16  # pixels of a page's letters, if its reader has not chosen others
UNIT = r"(?:[µmn]?s|[kMGT]i?B|bytes?|[GTP]FLOP/s|units?|%)(?![\w/])"
WORD = re.compile(rf"\S*\d {UNIT}\S*|\S+")
NEGATIVE = re.compile(r"(?<![\w.)\]-])-(?=\.?\d)")


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, at most `most` of them.

    >>> ticks(0, 33, 8)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
    """
    power = 10.0 ** np.floor(np.log10((high - low) / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if (high - low) / (power * factor) <= most - 1)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [round(float(i * step), 12) + 0.0 for i in np.arange(first, last + 1)]  # + 0.0: no -0


def wrap(text: str, width: float, size: float) -> list[str]:
    """A text in lines of at most about `width` pixels; a number stays with its unit.

    >>> wrap("it took 16.1 ms", 90, 15)
    ['it took', '16.1 ms']
    """
    lines = [""]
    for word in WORD.findall(text):
        longer = f"{lines[-1]} {word}".strip()
        if prose_width(longer, size) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def prose_width(text, size):
    """The width of running text; digits and capitals are wider."""
    return size * (0.5 * len(text) + 0.13 * sum(one.isdigit() or one.isupper() for one in text))


def first_to_last(begin: int, end: int) -> str:
    """The whole numbers from `begin` to just before `end`, with both ends in it.

    >>> first_to_last(10, 12), first_to_last(3, 4)
    ('10–11', '3')
    """
    return f"{begin}–{end - 1}" if end - begin > 1 else f"{begin}"


def bold_width(text: str, size: float) -> float:
    """The width of a line of bold text.

    >>> round(bold_width("reduce-scatter dp+cp+ep", 13))
    191
    """
    return 1.28 * prose_width(text, size)


def minus(text: str) -> str:
    """The text with minus signs in front of its negative numbers.

    >>> minus("1F1B by -4%, 3-5 of F-1, -0.5")
    '1F1B by −4%, 3-5 of F-1, −0.5'
    """
    return NEGATIVE.sub("−", text)


def words(x: float, y: float, text: str, size: float, anchor: str = "start", **more: str) -> str:
    """One line of text; `more` holds other attributes. A hyphen before a number becomes a minus sign."""
    rest = "".join(f' {name}="{value}"' for name, value in more.items())
    place = f'x="{short(x)}" y="{short(y)}"'
    return f'<text {place} font-size="{size}" text-anchor="{anchor}"{rest}>{escape(minus(text))}</text>'


def heading(x: float, y: float, text: str, size: float = PX["heading"]) -> str:
    """One line of text in bold."""
    return words(x, y, text, size, **{"font-weight": "600"})


def captioned(
    width: float,
    y: float,
    title: str,
    told: str,
    body: list[str],
    left: float = 24,
    fill: float = 1,
    foot: float = 0,
    below: str = "",
) -> Still:
    """A sheet with its words below the drawing.

    below the words that are drawn, if they are fewer than `told`, which describes the picture to a reader who hears it
    y     the y of the first line of the words;  left  margin of the lines, on the left and on the right
    fill  the largest part of the width between the margins that a line may fill
    foot  pixels below the last line, in addition to the usual ones

    >>> captioned(400, 60, "Two ranks", "rank 0 waits for rank 1", [])
    <picture rank 0 waits for rank 1>
    """
    lines = [
        line for part in (below or told).split("\n") for line in wrap(part, fill * (width - 2 * left), PX["caption"])
    ]
    drawn = [words(left, y + PX["line"] * i, line, PX["caption"], fill=STYLE["muted"]) for i, line in enumerate(lines)]
    return Still(sheet(width, y + PX["line"] * len(lines) + foot, title, told, [*body, *drawn]), told)


def sheet(width: float, height: float, title: str, summary: str, body: list[str]) -> str:
    """A complete SVG: a background, a title, a description in words, and the drawing; light or dark as its page.

    It is as wide as its column, up to `width`: at a fixed width, a narrow page would cut it off. A page with larger
    letters makes it larger.
    """
    ground = f'<rect width="{short(width)}" height="{short(height)}" rx="6" fill="{STYLE["paper"]}"/>'
    drawing = [ground, *body]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{CLASS}" role="img" '
            f'viewBox="0 0 {short(width)} {short(height)}" width="100%" '
            f'style="max-width:{short(width / ROOT)}rem;height:auto" font-family="{escape(STYLE["font"])}" '
            f'fill="{STYLE["ink"]}">',
            rules("".join(drawing)),
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(summary)}</desc>",
            *drawing,
            "</svg>\n",
        ]
    )


def short(number):
    """A coordinate to a tenth of a pixel, in the fewest characters."""
    return f"{number:.1f}".rstrip("0").rstrip(".")
