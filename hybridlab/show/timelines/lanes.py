"""Lanes: the sheet on which `buckets` and `tracks` draw their rows, above one axis of milliseconds.

The legend is above the rows; the axis, and each row in words, below them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hybridlab.show.paper.sheet import captioned, prose_width, ticks, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import STYLE, Look, look
from hybridlab.show.timelines.drawn import text_width

WIDTH, RIGHT = 960, 24
LOW = 20  # pixels: boxes up to this height have small letters
PX = STYLE["pixels"]
STRIPES = "lanes-stripes"


class Lanes(NamedTuple):
    """The place of the rows, from `top` to `bottom`, right of `left`, in pixels; the axis has `total` milliseconds."""

    left: int
    top: int
    bottom: int
    total: float

    def at(self, seconds: float) -> float:
        """The position of a time, in pixels from the left."""
        return self.left + seconds * 1e3 * ((WIDTH - self.left - RIGHT) / self.total)


def on_lanes(
    lanes: Lanes, title: str, legend: Sequence[tuple[str, str]], told: list[str], rows: Iterable[str]
) -> Still:
    """The full picture: `legend` names looks, `told` has the rows in words, `rows` are drawn by the caller."""
    drawn = [*_stripes(legend), *_legend(lanes, legend), *_axis(lanes), *rows]
    return captioned(WIDTH, lanes.bottom + 58, title, "\n".join(told), drawn, fill=0.9, foot=-2)


def labelled(x0: float, y: float, x1: float, tall: float, its: Look, name: str) -> Iterator[str]:
    """A box, with as much of its name as fits: the full name, its last word, or nothing."""
    yield box(x0, y, x1 - x0, tall, its)
    size = PX["box"] if tall > LOW else PX["smallest"]
    if fitting := [text for text in (name, name.split()[-1]) if text_width(text, size) + 1 <= x1 - x0]:
        yield words((x0 + x1) / 2, y + tall / 2 + size * 0.36, fitting[0], size, "middle", fill=its.text)


def box(x: float, y: float, wide: float, tall: float, its: Look) -> str:
    """A rectangle; a very narrow one has no edge of another colour."""
    edge = its.edge if wide > 3 else its.fill
    where = f'x="{x:.1f}" y="{y:.1f}" width="{max(wide, 0.4):.1f}" height="{tall:g}"'
    drawn = f'<rect {where} fill="{its.fill}" stroke="{edge}"/>'
    return drawn + (f'<rect {where} fill="url(#{STRIPES})"/>' if its.hatch else "")


def on_paper(x: float, y: float, text: str, anchor: str = "start", weight: str = "400") -> str:
    """Words with a light rim, which keeps the lines of the axis away from them."""
    rim = {"stroke": STYLE["paper"], "stroke-width": "5", "paint-order": "stroke", "font-weight": weight}
    return words(x, y, text, PX["axis"], anchor, **rim)


def _stripes(legend):
    """The diagonal stripes of looks that have them: white and translucent, so that they suit every fill."""
    if any(look(kind).hatch for kind, _ in legend):
        yield (
            f'<defs><pattern id="{STRIPES}" width="8" height="8" patternUnits="userSpaceOnUse" '
            f'patternTransform="rotate(45)"><rect width="2.5" height="8" fill="{STYLE["paper"]}" '
            'fill-opacity="0.2"/></pattern></defs>'
        )


def _legend(lanes, legend):
    x = float(lanes.left)
    for kind, name in legend:
        its, (above, tall) = look(kind), (5, 9) if kind == "message" else (0, 18)
        yield box(x, 14 + above, 26, tall, its)
        yield words(x + 34, 28, name, PX["caption"])
        x += 34 + prose_width(name, PX["caption"]) + 36


def _axis(lanes):
    for tick in ticks(0, lanes.total, 10):
        x = lanes.at(tick / 1e3)
        yield f'<path d="M{x:.1f} {lanes.top - 6}V{lanes.bottom + 4}" stroke="{STYLE["grid"]}"/>'
        if x < WIDTH - RIGHT - 90:
            yield words(x, lanes.bottom + 24, f"{tick:g}", PX["axis"], "middle")
    yield words(WIDTH - RIGHT, lanes.bottom + 24, "time, ms", PX["axis"], "end")
