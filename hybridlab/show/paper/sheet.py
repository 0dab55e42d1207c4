"""A sheet: an SVG with its title and description, and its text: headings, captions, round ticks.

Every static picture is a sheet; most are `captioned`.
"""

from html import escape

import numpy as np

from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE

PX = STYLE["pixels"]


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
    """A text in lines of at most about `width` pixels."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if prose_width(longer, size) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def prose_width(text, size):
    """The width of running text, which is narrower than labels of digits and capitals."""
    return 0.5 * size * len(text)


def words(x: float, y: float, text: str, size: float, anchor: str = "start", **more: str) -> str:
    """One line of text; `more` holds other attributes."""
    rest = "".join(f' {name}="{value}"' for name, value in more.items())
    return f'<text x="{short(x)}" y="{short(y)}" font-size="{size}" text-anchor="{anchor}"{rest}>{escape(text)}</text>'


def heading(x: float, y: float, text: str, size: float = PX["heading"]) -> str:
    """One line of text in bold."""
    return words(x, y, text, size, **{"font-weight": "600"})


def captioned(
    width: float, y: float, title: str, told: str, body: list[str], left: float = 24, fill: float = 1, foot: float = 0
) -> Still:
    """A sheet with its words below the drawing.

    y     the y of the first line of the words;  left  margin of the lines, on the left and on the right
    fill  the largest part of the width between the margins that a line may fill
    foot  pixels below the last line, in addition to the usual ones

    >>> captioned(400, 60, "Two ranks", "rank 0 waits for rank 1", [])
    <picture rank 0 waits for rank 1>
    """
    lines = [line for part in told.split("\n") for line in wrap(part, fill * (width - 2 * left), PX["caption"])]
    below = [words(left, y + PX["line"] * i, line, PX["caption"], fill=STYLE["muted"]) for i, line in enumerate(lines)]
    return Still(sheet(width, y + PX["line"] * len(lines) + foot, title, told, [*body, *below]), told)


def sheet(width: float, height: float, title: str, summary: str, body: list[str]) -> str:
    """A complete SVG: a light background, a title, a description in words, and the drawing.

    It is as wide as its column, up to `width`: at a fixed width, a narrow page would cut it off.
    """
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {short(width)} {short(height)}" '
            f'width="100%" style="max-width:{short(width)}px;height:auto" font-family="{escape(STYLE["font"])}" '
            f'fill="{STYLE["ink"]}">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(summary)}</desc>",
            f'<rect width="{short(width)}" height="{short(height)}" rx="6" fill="{STYLE["paper"]}"/>',
            *body,
            "</svg>\n",
        ]
    )


def short(number):
    """A coordinate to a tenth of a pixel, in the fewest characters."""
    return f"{number:.1f}".rstrip("0").rstrip(".")
