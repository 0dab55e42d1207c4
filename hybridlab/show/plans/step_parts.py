"""The parts of a training step, one after another on an axis of time: predicted above, measured below and lighter.

The colours are those of every timeline: forward blue, backward orange, the optimizer dark.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hybridlab.show.paper.sheet import captioned, heading, ticks, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import MEASURED, STYLE, ink_on, mix

WIDTH, LABELS, RIGHT, TOP, BAR, ROW = 960, 120, 40, 84, 40, 58
PX, KINDS, PAPER = STYLE["pixels"], STYLE["kinds"], STYLE["paper"]
LOOKS = {  # colour of each part of a step
    "read": STYLE["grid"],
    "forward": KINDS["F"]["fill"],
    "loss": STYLE["curves"][0],
    "backward": KINDS["B"]["fill"],
    "update": KINDS["OPT"]["fill"],
}
NARROW = 3  # pixels: the least width of a part, so that it is visible


class Row(NamedTuple):
    """One bar: its name, seconds of each part in their order, and whether it was measured."""

    name: str
    seconds: Mapping[str, float]
    measured: bool = True


def step_parts(rows: Sequence[Row], title: str, told: str) -> Still:
    """Steps, one below the other, on one time axis; `told` is the picture in words.

    >>> step_parts([Row("a step", {"forward": 0.02, "backward": 0.04})], "One step", "backward: 40 ms")
    <picture backward: 40 ms>
    """
    longest = 1e3 * max(sum(row.seconds.values()) for row in rows)
    scale, ground = (WIDTH - LABELS - RIGHT) / longest, TOP + ROW * len(rows)
    out = [heading(24, 34, title), *_legend(rows)]
    for tick in ticks(0, longest, 9):
        x = LABELS + tick * scale
        out.append(f'<path d="M{x:.1f} {TOP - 6}V{ground - 8}" stroke="{STYLE["grid"]}"/>')
        out.append(words(x, ground + 12, f"{tick:g}", PX["axis"], "middle"))
    out.append(words(WIDTH - RIGHT, ground + 34, "time, ms", PX["axis"], "end"))
    for number, row in enumerate(rows):
        out += _bar(row, TOP + ROW * number, scale)
    return captioned(WIDTH, ground + 58, title, told, out, fill=0.9, foot=-2)


def _legend(rows):
    out, x = [], 24
    for name, colour in LOOKS.items():
        if any(name in row.seconds for row in rows):
            out.append(f'<rect x="{x:g}" y="50" width="20" height="16" fill="{colour}"/>')
            out.append(words(x + 28, 63, name, PX["caption"]))
            x += 28 + 0.5 * PX["caption"] * len(name) + 26
    return out


def _bar(row, y, scale):
    out, x = [words(LABELS - 14, y + BAR / 2 + 5, row.name, PX["axis"], "end")], LABELS
    for name, seconds in row.seconds.items():
        full = LOOKS[name]
        fill = mix(full, PAPER, MEASURED) if row.measured else full
        wide = max(1e3 * seconds * scale, NARROW)
        edge = full if row.measured else PAPER
        out.append(f'<rect x="{x:.2f}" y="{y:g}" width="{wide:.2f}" height="{BAR}" fill="{fill}" stroke="{edge}"/>')
        if wide > 9 * len(name):
            out.append(words(x + wide / 2, y + BAR / 2 + 5, name, PX["box"], "middle", fill=ink_on(fill)))
        x += 1e3 * seconds * scale
    return out
