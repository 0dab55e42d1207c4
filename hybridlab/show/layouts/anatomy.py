"""The anatomy of memory: horizontal bars of weights, gradients, optimizer state and activations, compared with the size
of a GPU.

Colours and stripes are those of `show.layouts.memory_bars`; activations, which no bar there has, are light blue with
dots.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.show.layouts.memory_bars import PARTS, size
from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import HATCH_ON_LIGHT, STYLE, dashed, mix

WIDTH, LEFT, LABELS, RIGHT = 960, 24, 236, 96  # pixels; the space for names on the left and for sums on the right
BAR, ROW, TOP = 34, 66, 110
PX, PAPER = STYLE["pixels"], STYLE["paper"]
LOOKS = {name: (colour, path) for name, colour, path in PARTS.values()}
LOOKS["activations"] = (STYLE["curves"][0], "M2 2h2v2h-2z")


class Bar(NamedTuple):
    """One bar: a name, a second line under it, and bytes: weights, gradients, optimizer state, activations."""

    name: str
    below: str
    bytes: Sequence[float]


def anatomy(
    bars: Sequence[Bar], title: str, told: str, card: float | None = None, longest: float | None = None
) -> Still:
    """Bars of bytes, one below the other, on one scale.

    card     memory of one card in bytes: a line, and an outline around every bar that is longer
    longest  bytes at which a bar is cut off, with a mark: all bars keep one scale, or a part larger than the card
             could seem to fit on it; None: all are drawn to their ends
    told     the picture in words

    >>> anatomy([Bar("rank 0", "", (1, 1, 2, 3))], "One rank", "7 bytes", card=8)
    <picture 7 bytes>
    """
    most = 1.04 * min(max(card or 0, *(sum(bar.bytes) for bar in bars)), longest or math.inf)
    scale, ground = (WIDTH - LABELS - RIGHT) / most, TOP + ROW * len(bars)
    out = [stripes(), heading(LEFT, 34, title), *_legend(bars)]
    if card:
        out += _card(card, LABELS + card * scale, ground)
    for number, bar in enumerate(bars):
        out += _bar(bar, TOP + ROW * number, scale, card)
    return captioned(WIDTH, ground + (34 if card else 14), title, told, out, LEFT, fill=0.9)


def stripes() -> str:
    """The stripes on the colours: patterns `part-0` and so on, in the order of LOOKS."""
    patterns = []
    for number, (colour, path) in enumerate(LOOKS.values()):
        if path:
            ink = mix(colour, PAPER, HATCH_ON_LIGHT) if number < 3 else STYLE["ink"]
            pen = f'fill="{ink}"' if "z" in path else f'stroke="{ink}" stroke-width="2"'
            box = 'width="9" height="9" patternUnits="userSpaceOnUse"'
            patterns.append(f'<pattern id="part-{number}" {box}><path d="{path}" {pen}/></pattern>')
    return f"<defs>{''.join(patterns)}</defs>"


def _legend(bars):
    out, x = [], LEFT
    for number, name in enumerate(LOOKS):
        if any(sum(bar.bytes[number : number + 1]) for bar in bars):
            out += [*_part(number, x, 52, 20, 16), words(x + 28, 65, name, PX["caption"])]
            x += 28 + 0.5 * PX["caption"] * len(name) + 26
    return out


def _part(number, x, y, wide, tall):
    """A box in the colour of one part, with its stripes."""
    colour, path = list(LOOKS.values())[number]
    place = f'x="{x:.2f}" y="{y:g}" width="{wide:.2f}" height="{tall:g}"'
    return [f'<rect {place} fill="{colour}"/>'] + ([f'<rect {place} fill="url(#part-{number})"/>'] if path else [])


def _bar(bar, y, scale, card):
    out = [words(LABELS - 14, y + (15 if bar.below else 22), bar.name, PX["axis"], "end")]
    if bar.below:
        out.append(words(LABELS - 14, y + 33, bar.below, PX["smallest"] + 1, "end", fill=STYLE["muted"]))
    ends = [LABELS + scale * sum(bar.bytes[:number]) for number in range(len(bar.bytes) + 1)]
    longer = ends[-1] > WIDTH - RIGHT + 0.01
    cut = [min(end, WIDTH - RIGHT) for end in ends]
    for number, (x, after) in enumerate(zip(cut, cut[1:])):
        out += _part(number, x, y, after - x, BAR) if after > x else []
    total, end = sum(bar.bytes), cut[-1]
    if card and total > card:
        place = f'x="{LABELS - 2}" y="{y - 2:g}" width="{end - LABELS + 4:.2f}" height="{BAR + 4}"'
        out.append(f'<rect {place} fill="none" stroke="{STYLE["error"]}" stroke-width="3"/>')
    if longer:
        torn = f"M{end - 14:g} {y - 6:g}l8 {BAR / 2 + 6:g}l-8 {BAR / 2 + 6:g}"
        out.append(f'<path d="{torn}" fill="none" stroke="{PAPER}" stroke-width="6"/>')
        out.append(words(end + 10, y + 39, "cut off", PX["smallest"] + 1, fill=STYLE["muted"]))
    halo = {"font-weight": "600", "stroke": PAPER, "stroke-width": "6", "paint-order": "stroke"}
    return [*out, words(end + 10, y + 22, size(total), PX["axis"], **halo)]


def _card(card, x, ground):
    """The line that marks the memory of one card."""
    pen = f'stroke="{STYLE["ink"]}" stroke-width="2" {dashed("limit")}'
    name = f"one card: {size(card)}"
    side, anchor = (-6, "end") if x > WIDTH - RIGHT - 100 else (0, "middle") if x > LABELS + 70 else (6, "start")
    return [
        f'<path d="M{x:.1f} {TOP - 16}V{ground - 12}" {pen}/>',
        words(x + side, ground + 8, name, PX["axis"], anchor),
    ]
