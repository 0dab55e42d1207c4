"""Tiles: small images on ranks, one row per rank, in columns before and after an operation.

A pixel with a larger number is darker. A slice of an image is drawn at its position in the full image.
"""

from collections.abc import Sequence

import numpy as np

from hybridlab.show.paper.sheet import captioned, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, mix

PIXEL, GAP, LEFT, TOP = 8, 14, 84, 52
WIDTH = 960  # at least; a narrower sheet would be blown up to the width of the page
ARROW = 110  # between two columns, with the name of the operation
PX = STYLE["pixels"]
GREEN = STYLE["kinds"]["message"]["fill"]


def tiles(
    columns: Sequence[Sequence[np.ndarray]], steps: Sequence[str], names: Sequence[str], summary: str, most: int = 0
) -> Still:
    """Columns of images, `columns[i][rank]`, two-dimensional; `steps[i]` is written between columns i and i + 1.

    names  above the columns
    most   the number that is black, with a scale below that says so; 0: the largest that occurs, and no scale

    >>> held = [[np.eye(2)], [np.eye(2) * 3]]
    >>> tiles(held, ["times 3"], ["before", "after"], "one rank, its numbers times 3")
    <picture one rank, its numbers times 3>
    """
    side = columns[0][0].shape[0]
    darkest = most or max(float(image.max()) for column in columns for image in column) or 1.0
    out, x, bottom = [], float(LEFT), TOP
    for number, (column, name) in enumerate(zip(columns, names)):
        wide = PIXEL * max(side, column[0].shape[1])
        out.append(words(x + wide / 2, TOP - 16, name, PX["axis"], "middle", **{"font-weight": "600"}))
        for rank, image in enumerate(column):
            y = TOP + rank * (PIXEL * side + GAP)
            out += _image(image, rank, x, y, side, darkest)
            bottom = y + PIXEL * side
        x += wide
        if number < len(steps):
            out += _arrow(x, (TOP + bottom) / 2 if len(column) > 1 else TOP + PIXEL * side / 2, steps[number])
            x += ARROW
    middle = TOP + PIXEL * side / 2 + 5
    ranks = range(len(columns[0]))
    out += [words(LEFT - 12, middle + r * (PIXEL * side + GAP), f"rank {r}", PX["axis"], "end") for r in ranks]
    width = max(x + 24, WIDTH)
    if most:  # below the words
        out += _scale(most, bottom + 40 + PX["line"] * len(wrap(summary, WIDTH - 48, PX["caption"])))
    fill = (WIDTH - 48) / (width - 48)
    return captioned(width, bottom + 30, " → ".join(names), summary, out, fill=fill, foot=30 if most else -6)


def _shade(value, darkest):
    """The colour of a number: the larger, the darker; 0 has the colour of the background."""
    ground = STYLE["light"]["bubble"]
    return mix(ground, STYLE["ink"], 0.25 + 0.75 * value / darkest) if value else ground


def _scale(most, y):
    """The meaning of the shades: a square for every integer."""
    for value in range(most + 1):
        x = LEFT + 56 * value
        edge = f'stroke="{STYLE["grid"]}"'
        yield f'<rect x="{x}" y="{y - 13:g}" width="16" height="16" fill="{_shade(value, most)}" {edge}/>'
        yield words(x + 22, y, f"{value}", PX["caption"])


def _image(image, rank, x, y, side, darkest):
    """One image: its background, and for each number that occurs one path with all its pixels."""
    rows, columns = image.shape
    part = columns < side
    here = x + PIXEL * columns * rank if part else x
    edge = f'stroke="{STYLE["grid"]}"'
    out = [f'<rect x="{x}" y="{y}" width="{PIXEL * side}" height="{PIXEL * side}" fill="none" {edge}/>'] if part else []
    ground = STYLE["light"]["bubble"]
    out.append(f'<rect x="{here}" y="{y}" width="{PIXEL * columns}" height="{PIXEL * rows}" fill="{ground}" {edge}/>')
    for value in np.unique(image[image != 0]).tolist():
        at = np.argwhere(image == value).tolist()
        d = "".join(f"M{here + PIXEL * j:g} {y + PIXEL * i:g}h{PIXEL}v{PIXEL}h-{PIXEL}z" for i, j in at)
        out.append(f'<path fill="{_shade(value, darkest)}" d="{d}"/>')
    if columns > side:  # several full images side by side
        cuts = range(side, columns, side)
        out += [
            f'<path d="M{here + PIXEL * c} {y}v{PIXEL * rows}" stroke="{STYLE["paper"]}" stroke-width="2"/>'
            for c in cuts
        ]
    return out


def _arrow(x, y, name):
    """A green arrow over the space between two columns, with a name in two lines at most."""
    lines = wrap(name, ARROW - 16, PX["smallest"])
    shaft = f"M{x + 14:g} {y:g}h{ARROW - 36}m-9 -7l9 7l-9 7"
    out = [f'<path d="{shaft}" fill="none" stroke="{GREEN}" stroke-width="3"/>']
    for i, line in enumerate(reversed(lines)):
        out.append(words(x + ARROW / 2 - 4, y - 14 - 15 * i, line, PX["smallest"], "middle"))
    return out
