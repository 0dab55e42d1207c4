"""Tiles: small images on ranks, one row per rank, in columns before and after an operation.

The numbers of an image name the ranks that have added to a pixel: rank r adds 2ʳ. A pixel has the colour of its rank;
in a sum, the rows of pixels have the colours of its ranks in turn. A slice of an image is drawn at its position in the
full image.
"""

from collections.abc import Sequence

import numpy as np

from hybridlab.show.paper.sheet import captioned, prose_width, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE

PIXEL, GAP, LEFT, TOP = 8, 14, 84, 52
WIDTH = 960  # at least; a narrower sheet would be blown up to the width of the page
ARROW = 140  # between two columns, with the name of the operation
KEY = 34  # the height of the legend
PX, GROUND = STYLE["pixels"], STYLE["tiles"]
GREEN, ALIKE = STYLE["kinds"]["message"]["fill"], STYLE["control"]
HUES = STYLE["ranks"]
MOST = len(HUES)


def tiles(columns: Sequence[Sequence[np.ndarray]], steps: Sequence[str], names: Sequence[str], summary: str) -> Still:
    """Columns of images, `columns[i][rank]`, two-dimensional; `steps[i]` is written between columns i and i + 1.

    names  above the columns

    A number is the sum of 2ʳ over the ranks r that have added to it. A number that is the same on every rank is 2 to
    the number of ranks, and is grey.

    >>> held = [[np.eye(2), 2 * np.eye(2)], [3 * np.eye(2)] * 2]
    >>> tiles(held, ["sum"], ["before", "after"], "two ranks, and the sum on both")
    <picture two ranks, and the sum on both>
    """
    ranks, side = len(columns[0]), columns[0][0].shape[0]
    out, x, bottom = [], float(LEFT), TOP
    for number, (column, name) in enumerate(zip(columns, names)):
        wide = PIXEL * max(side, column[0].shape[1])
        out.append(words(x + wide / 2, TOP - 16, name, PX["axis"], "middle", **{"font-weight": "600"}))
        for rank, image in enumerate(column):
            y = TOP + rank * (PIXEL * side + GAP)
            out += _image(image, rank, x, y, side, ranks)
            bottom = y + PIXEL * side
        x += wide
        if number < len(steps):
            out += _arrow(x, (TOP + bottom) / 2 if len(column) > 1 else TOP + PIXEL * side / 2, steps[number])
            x += ARROW
    middle = TOP + PIXEL * side / 2 + 5
    out += [words(LEFT - 12, middle + r * (PIXEL * side + GAP), f"rank {r}", PX["axis"], "end") for r in range(ranks)]
    out += _key(
        {int(value) for column in columns for image in column for value in np.unique(image)}, ranks, bottom + 20
    )
    width = max(x + 24, WIDTH)
    return captioned(
        width, bottom + KEY + 28, " → ".join(names), summary, out, fill=(WIDTH - 48) / (width - 48), foot=-6
    )


def added(value: int, ranks: int) -> list[int]:
    """The ranks that have added to a number; none have, if it is the same on every rank.

    >>> added(5, ranks=4), added(16, ranks=4)
    ([0, 2], [])
    """
    return [rank for rank in range(ranks) if value < 1 << ranks and value >> rank & 1]


def _colours(value, ranks, height):
    """The colour of each row of pixels."""
    if not value:
        return [GROUND] * height
    who = added(int(value), ranks)
    return [HUES[who[row % len(who)] % MOST] if who else ALIKE for row in range(height)]


def _key(values, ranks, y):
    """The legend: a square for each rank that occurs, and stripes for a sum."""
    once = [(f"rank {rank}", 1 << rank) for rank in range(ranks) if any(rank in added(one, ranks) for one in values)]
    sums = max((one for one in values if len(added(one, ranks)) > 1), key=lambda one: len(added(one, ranks)), default=0)
    more = [("a sum: stripes of its ranks", sums)] * bool(sums)
    more += [("the same on every rank", 1 << ranks)] * any(one >= 1 << ranks for one in values)
    x, tall = float(LEFT), 4 * (ranks if ranks > 2 else 4)
    for name, value in once + more:
        colours = _colours(value, ranks, tall // 4)
        one = len(set(colours)) == 1  # in one piece, without a seam
        for row, colour in enumerate(colours[:1] if one else colours):
            yield f'<rect x="{x:g}" y="{y + 4 * row:g}" width="18" height="{tall if one else 4}" fill="{colour}"/>'
        yield words(x + 25, y + 13, name, PX["caption"])
        x += 25 + prose_width(name, 1.1 * PX["caption"]) + 22


def _image(image, rank, x, y, side, ranks):
    """One image: its background, and for each colour that occurs one path with all its pixels."""
    rows, columns = image.shape
    part = columns < side
    here = x + PIXEL * columns * rank if part else x
    edge = f'stroke="{STYLE["grid"]}"'
    out = [f'<rect x="{x}" y="{y}" width="{PIXEL * side}" height="{PIXEL * side}" fill="none" {edge}/>'] if part else []
    out.append(f'<rect x="{here}" y="{y}" width="{PIXEL * columns}" height="{PIXEL * rows}" fill="{GROUND}" {edge}/>')
    drawn = {}
    for i, j in np.argwhere(image != 0).tolist():
        colour = _colours(image[i, j], ranks, rows)[i]
        drawn.setdefault(colour, []).append(f"M{here + PIXEL * j:g} {y + PIXEL * i:g}h{PIXEL}v{PIXEL}h-{PIXEL}z")
    out += [f'<path fill="{colour}" d="{"".join(d)}"/>' for colour, d in drawn.items()]
    if columns > side:  # several full images side by side
        cuts = range(side, columns, side)
        out += [
            f'<path d="M{here + PIXEL * c} {y}v{PIXEL * rows}" stroke="{STYLE["paper"]}" stroke-width="2"/>'
            for c in cuts
        ]
    return out


def _arrow(x, y, name):
    """A green arrow over the space between two columns, with a name in two lines at most."""
    lines = wrap(name, ARROW - 16, PX["box"])
    shaft = f"M{x + 14:g} {y:g}h{ARROW - 36}m-9 -7l9 7l-9 7"
    out = [f'<path d="{shaft}" fill="none" stroke="{GREEN}" stroke-width="3"/>']
    for i, line in enumerate(reversed(lines)):
        out.append(words(x + ARROW / 2 - 4, y - 14 - 17 * i, line, PX["box"], "middle"))
    return out
