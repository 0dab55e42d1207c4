"""Shares: the parts of a time, as one stacked bar for each case.

The colours are those of the timelines: arithmetic is blue as a forward, communication green, waiting grey, the
optimizer dark; parts that look alike to some readers differ in their stripes.
"""

from typing import NamedTuple

from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import HATCH_ON_LIGHT, STYLE, ink_on, mix

WIDTH, LEFT, RIGHT, TOP, ROW = 960, 96, 96, 30, 34
PX, KINDS, PAPER = STYLE["pixels"], STYLE["kinds"], STYLE["paper"]
BLUE, GREEN = KINDS["F"]["fill"], KINDS["message"]["fill"]
SLANT, BACK, DOTS = "M0 9L9 0", "M0 0L9 9", "M4 4h1.5"
LEVEL, UPRIGHT, CROSS = "M0 4.5H9", "M4.5 0V9", "M0 9L9 0M0 0L9 9"


class Part(NamedTuple):
    """The look of one part: its name, its colour, stripes or none, whether it has an outline."""

    name: str
    fill: str
    stripes: str = ""
    outline: bool = False


PARTS = {  # of a step, in the order in which `predict.plans.performance.Step` has them
    "multiply": Part("GEMMs", BLUE),
    "pointwise": Part("memory-bound kernels", mix(BLUE, PAPER, 0.45)),
    "tensor": Part("tp all-reduces", GREEN, LEVEL),
    "launch": Part("kernel launches", mix(BLUE, PAPER, 0.8), DOTS),
    "context": Part("cp: keys and values", mix(GREEN, PAPER, 0.35), DOTS),
    "experts": Part("ep: tokens to experts", mix(GREEN, PAPER, 0.8), UPRIGHT),
    "head": Part("head", mix(BLUE, PAPER, 0.62), SLANT),
    "messages": Part("messages", mix(GREEN, PAPER, 0.5), BACK),
    "bubble": Part("bubble", KINDS["bubble"]["fill"], outline=True),
    "data": Part("dp all-reduce", mix(GREEN, PAPER, 0.7), CROSS),
    "optimizer": Part("optimizer", KINDS["OPT"]["fill"]),
}


def shares(bars: dict[str, dict[str, float]], title: str, told: str, unit: str = "s") -> Still:
    """Bars of equal length, divided in proportion to their parts; the sum follows each bar.

    bars  {name: {a name of PARTS: its time}};  told  the picture in words

    >>> shares({"one": {"multiply": 3.0, "bubble": 1.0}}, "A step", "a quarter of the step is idle")
    <picture a quarter of the step is idle>
    """
    used = [name for name in PARTS if any(bar.get(name) for bar in bars.values())]
    legend, top = _legend(used)
    out = [patterns(PARTS), heading(24, TOP, title), *legend]
    for place, (name, bar) in enumerate(bars.items()):
        out += _bar(name, bar, top + ROW * place, unit)
    bottom = top + ROW * len(bars) + 26
    return captioned(WIDTH, bottom, title, told, out, fill=0.88)


def patterns(parts: dict[str, Part]) -> str:
    """The stripes of some parts, for `box`."""
    out = []
    for name, part in parts.items():
        if part.stripes:
            pen = f'stroke="{mix(part.fill, STYLE["ink"], HATCH_ON_LIGHT)}" stroke-width="2"'
            tile = 'width="9" height="9" patternUnits="userSpaceOnUse"'
            out.append(f'<pattern id="share-{name}" {tile}><path d="{part.stripes}" {pen}/></pattern>')
    return f"<defs>{''.join(out)}</defs>"


def _legend(used):
    """(its elements, its lower end): as many rows as the names need."""
    out, x, y = [], 24.0, TOP + 18
    for name in used:
        wide = 26 + 0.6 * PX["caption"] * len(PARTS[name].name)
        if x + wide > WIDTH - 24:
            x, y = 24.0, y + 26
        out += [*box(name, PARTS[name], x, y, 18, 15), words(x + 25, y + 13, PARTS[name].name, PX["caption"])]
        x += wide + 20
    return out, y + 32


def _bar(name, bar, y, unit):
    """One bar: its name, its parts from left to right, its sum."""
    whole, x = sum(bar.values()), float(LEFT)
    scale = (WIDTH - LEFT - RIGHT) / whole
    out = [words(LEFT - 10, y + 19, name, PX["axis"], "end")]
    for part in PARTS:
        wide = bar.get(part, 0) * scale
        out += box(part, PARTS[part], x, y, wide, ROW - 8) if wide else []
        share = f"{bar.get(part, 0) / whole:.0%}"
        if wide > 9 * len(share) + 4:
            halo = {"stroke": PARTS[part].fill, "stroke-width": "4", "paint-order": "stroke"}
            out.append(words(x + wide / 2, y + 18, share, PX["box"], "middle", fill=ink_on(PARTS[part].fill), **halo))
        x += wide
    return [*out, words(WIDTH - 24, y + 19, f"{whole:.3g} {unit}", PX["axis"], "end")]


def box(name: str, part: Part, x: float, y: float, wide: float, tall: float) -> list[str]:
    """A rectangle in the look of a part; `name` is its key in the dictionary that `patterns` got."""
    place = f'x="{x:.1f}" y="{y:g}" width="{wide:.1f}" height="{tall:g}"'
    edge = f' stroke="{STYLE["muted"]}"' if part.outline else ""
    out = [f'<rect {place} fill="{part.fill}"{edge}/>']
    return out + ([f'<rect {place} fill="url(#share-{name})"/>'] if part.stripes else [])
