"""Cuts: matrices in a row, drawn to scale, with the slices on the ranks, and signs between them.

A slice has its own shade and shows the numbers of its ranks. A replicated matrix has one shade. A matrix of which
every rank holds a partial sum is a pile of cards. A sign is green and filled where something is sent.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import BLACK, STYLE, WEIGHT, dashed, ink_on, look, mix

WIDTH, SIDE, TOP, TALLEST = 960, 24, 118, 320
BETWEEN = 74  # from one line to the next
CARD = (6, 14)  # pixels from one card of a pile to the next: right, up
TIGHT, SPACE = 26, 10  # the width of "·" and "=", with space on both sides; the space on each side of another sign
SLOT = 50  # the least width of a matrix
PX = STYLE["pixels"]
NARROW = 0.53 * PX["smallest"]  # width of a letter below a sign
GREEN, MUTED, PAPER = STYLE["kinds"]["message"]["fill"], STYLE["muted"], STYLE["paper"]
FILLS = {"weight": WEIGHT, "forward": look("F").fill, "backward": look("B").fill}
LIGHTEST, DARKEST = 0.82, 0.15  # how far the shades of the first and of the last rank move towards white


class Slice(NamedTuple):
    """A part of a matrix, rows and columns from … to, and the ranks that hold it."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    ranks: tuple[int, ...]


class Matrix(NamedTuple):
    """A matrix of rows and columns, cut into slices; with `piled`, every rank has a partial sum of the full matrix.

    kind   "weight"; for activations "forward", for gradients "backward"
    lines  columns at which a tick is drawn: the boundaries of heads
    """

    name: str
    rows: int
    columns: int
    slices: tuple[Slice, ...]
    kind: str = "weight"
    piled: bool = False
    lines: tuple[int, ...] = ()


class Sign(NamedTuple):
    """A sign between two matrices: "·", "=", or a name in a frame, filled where something is sent; `note` is below."""

    text: str
    note: str = ""
    lit: bool = False

    @property
    def framed(self) -> bool:
        """Whether it is in a frame: any sign but one of arithmetic."""
        return self.text not in "·=,"


def cuts(
    lines: Sequence[Sequence[Matrix | Sign]],
    ranks: int,
    title: str,
    told: str,
    backward: bool = False,
    also: Sequence[Sequence[Matrix | Sign]] = (),
) -> Still:
    """The picture of matrices and signs in lines (a matrix in each), all to one scale; `told` is the picture in words.

    also  the lines of a picture with which this one is compared: it has the same scale

    >>> half = [Slice((0, 2), (2 * r, 2 * r + 2), (r,)) for r in range(2)]
    >>> cuts([[Matrix("A", 2, 4, tuple(half))]], 2, "a matrix", "A on 2 ranks, cut by columns")
    <picture A on 2 ranks, cut by columns>
    """
    scale = min(_scale(line, ranks) for line in (*lines, *also))
    out, top = [heading(SIDE, 34, title), *_way(backward)], TOP
    for line in lines:
        tall = max(_size(part, scale, ranks)[1] for part in line)
        out += _line(line, top + tall / 2, scale, ranks)
        top += tall + BETWEEN
    return captioned(WIDTH, top - 8, title, told, out, SIDE)


def _line(parts, middle, scale, ranks):
    x = float(SIDE)
    for part in parts:
        yield from _sign(part, x, middle) if isinstance(part, Sign) else _matrix(part, x, middle, scale, ranks)
        x += _size(part, scale, ranks)[0]


def in_words(ranks: Sequence[int]) -> str:
    """Ranks by their numbers, neighbours as one range.

    >>> in_words((3,)), in_words((0, 1, 2, 3)), in_words((0, 2))
    ('3', '0–3', '0, 2')
    """
    if len(ranks) > 1 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}–{ranks[-1]}"
    return ", ".join(map(str, ranks))


def shade(kind: str, rank: int, ranks: int) -> str:
    """The fill of one rank's slice; the first rank has the lightest.

    >>> shade("weight", 0, 2), shade("weight", 1, 2)
    ('#DEDEDE', '#656565')
    """
    share = rank / (ranks - 1) if ranks > 1 else 0
    return mix(FILLS[kind], PAPER, LIGHTEST + (DARKEST - LIGHTEST) * share)


def _scale(parts, ranks):
    """Pixels per element: the first scale, by halving, at which all parts fit, none of them too tall for a page."""
    low, high = 0.0, TALLEST / max(part.rows for part in parts if isinstance(part, Matrix))
    for _ in range(30):
        middle = (low + high) / 2
        fits = sum(_size(part, middle, ranks)[0] for part in parts) <= WIDTH - 2 * SIDE
        low, high = (middle, high) if fits else (low, middle)
    return low


def _size(part, scale, ranks):
    """The width and height that a part takes."""
    if isinstance(part, Matrix):
        wide, tall = _drawn(part, scale, ranks)
        return max(wide, SLOT), tall
    return max(
        _frame_width(part), NARROW * max(map(len, part.note.split()), default=0)
    ) + 2 * SPACE if part.framed else TIGHT, 0


def _drawn(matrix, scale, ranks):
    """The width and height of a matrix itself, with all cards of a pile."""
    more = ranks - 1 if matrix.piled else 0
    return scale * matrix.columns + CARD[0] * more, scale * matrix.rows + CARD[1] * more


def _frame_width(sign):
    return max(34, 18 + 9 * len(sign.text))


def _way(backward):
    """The long arrow under the title names the pass. Lines are read from left to right, in the backward too."""
    colour, name = FILLS["backward" if backward else "forward"], "backward: gradients" if backward else "forward"
    left, right = SIDE, WIDTH - SIDE
    yield f'<path d="M{left} 64H{right}m-9 -6l9 6l-9 6" fill="none" stroke="{colour}" stroke-width="3"/>'
    yield words(left, 54, "numbers in blocks: ranks", PX["smallest"], fill=MUTED)
    yield words(right, 52, name, PX["axis"], "end")


def _sign(sign, x, middle):
    if not sign.framed:
        yield words(x + TIGHT / 2, middle + 6, sign.text, PX["heading"], "middle")
        return
    wide, ink = _frame_width(sign), PAPER if sign.lit else STYLE["ink"]
    edge = f'stroke="{GREEN if sign.lit else MUTED}" stroke-width="2"' + ("" if sign.lit else f" {dashed('absent')}")
    fill = mix(GREEN, BLACK, 0.25) if sign.lit else PAPER
    centre = x + _size(sign, 0, 1)[0] / 2
    left = centre - wide / 2
    yield f'<rect x="{left:.1f}" y="{middle - 17:.1f}" width="{wide}" height="34" rx="17" fill="{fill}" {edge}/>'
    yield words(centre, middle + 6, sign.text, PX["caption"], "middle", fill=ink, **{"font-weight": "600"})
    for i, line in enumerate(sign.note.split("\n")):
        yield words(centre, middle + 35 + 14 * i, line, PX["smallest"], "middle", fill=MUTED)


def _matrix(matrix, x, middle, scale, ranks):
    wide, tall = _drawn(matrix, scale, ranks)
    x, y = x + max(SLOT - wide, 0) / 2, middle - tall / 2
    yield words(x + wide / 2, y - 9, matrix.name, PX["axis"], "middle", **{"font-weight": "600"})
    unsaid = ""
    if matrix.piled:
        yield from _pile(matrix, x, y, scale, ranks)
    else:
        yield from _slices(matrix, x, y, scale, ranks)
        unsaid = "" if _fit(matrix, scale, ranks) else _in_short(matrix.slices)
    for i, line in enumerate([f"{matrix.rows}×{matrix.columns}", unsaid]):
        yield words(x + wide / 2, y + tall + 17 + 15 * i, line, PX["smallest"], "middle", fill=MUTED)


def _slices(matrix, x, y, scale, ranks):
    """The slices, ticks at the boundaries of heads, and the numbers of the ranks where they fit."""
    fit, tall = _fit(matrix, scale, ranks), scale * matrix.rows
    for one in matrix.slices:
        (left, right), (top, bottom) = ([scale * end for end in ends] for ends in (one.columns, one.rows))
        fill = shade(matrix.kind, (ranks - 1) / 4 if len(one.ranks) == ranks else one.ranks[0], ranks)
        yield _box(x + left, y + top, right - left, bottom - top, fill)
        if fit:
            yield _number(x + (left + right) / 2, y + (top + bottom) / 2 + 4, _held_by(one, ranks), fill)
    for column in matrix.lines:
        ticks = f"M{x + scale * column:.1f} {y:.1f}v{tall / 4:.1f}"
        yield f'<path d="{ticks}" stroke="{PAPER}" stroke-width="1"/>'


def _held_by(one, ranks):
    return "all" if len(one.ranks) == ranks > 1 else in_words(one.ranks)


def _fit(matrix, scale, ranks):
    """Whether every slice is large enough for its numbers."""
    wide = lambda one: scale * (one.columns[1] - one.columns[0]) >= 7 * len(_held_by(one, ranks)) + 1
    tall = lambda one: scale * (one.rows[1] - one.rows[0]) >= PX["smallest"] - 1
    return all(wide(one) and tall(one) for one in matrix.slices)


def _in_short(slices):
    """The ranks of the slices in order, for slices too small to show them."""
    held = [in_words(one.ranks) for one in slices]
    return ", ".join(held) if len(held) < 4 else f"{held[0]} … {held[-1]}"


def _pile(matrix, x, y, scale, ranks):
    """A card for each rank, the first on top; of each other card only a strip with its rank is visible."""
    wide, tall = scale * matrix.columns, scale * matrix.rows
    for rank in reversed(range(ranks)):
        fill = shade(matrix.kind, rank, ranks)
        left, top = x + CARD[0] * rank, y + CARD[1] * (ranks - 1 - rank)
        yield _box(left, top, wide, tall, fill)
        across, down = (wide - 9, 11.5) if rank else (wide / 2, tall / 2 + 5)
        yield _number(left + across, top + down, str(rank), fill)


def _box(x, y, wide, tall, fill):
    size = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
    return f'<rect {size} fill="{fill}" stroke="{PAPER}" stroke-width="1"/>'


def _number(x, y, text, fill):
    return words(x, y, text, PX["smallest"], "middle", fill=ink_on(fill), **{"font-weight": "600"})
