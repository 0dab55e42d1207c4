"""The static twin: a picture as SVG, which shows without a kernel, without JavaScript, on paper and on GitHub.

It is drawn from the same boxes as all other pictures. It has explicit colours and a light background, so that it is
readable on a dark page too. The same timelines always give the same text.
"""

import zlib
from dataclasses import replace

import numpy as np

from hybridlab.core.when.timeline import Timeline
from hybridlab.show.paper.sheet import prose_width, sheet, short, words, wrap
from hybridlab.show.paper.style import STYLE, dashed
from hybridlab.show.timelines.boxes import boxes
from hybridlab.show.timelines.drawn import LEFT, RIGHT, Boxes
from hybridlab.show.timelines.grid import MANY, grid, png
from hybridlab.show.timelines.noted import strokes, texts

PX = STYLE["pixels"]


def svg(*timelines: Timeline, width: int = 960, title: str | None = None) -> str:
    """The picture of one timeline, or of several as `draw` lays them out, as SVG text."""
    return page(boxes(*timelines), width, title)


def animated(timeline: Timeline, width: int = 960, title: str | None = None) -> str:
    """A moving picture: a cursor sweeps over the timeline and boxes appear, again and again.

    It is complete and does not move if the reader asked for less motion or the page shows no animations.
    """
    return page(boxes(timeline), width, title, moving=True)


def page(picture: Boxes, width: float = 960, title: str | None = None, moving: bool = False, more=None) -> str:
    """Boxes as SVG text: legend, lanes, axis and captions around them.

    more  more(top, bottom, lane, scale) -> (elements, bottom): draws more above and below the boxes, in pixels
    """
    lane = picture.lane_pixels
    scale = (width - LEFT - RIGHT) / picture.width
    head, y = _head(picture, width, title)
    plot = [*_headings(picture, y, lane, scale), *_lane_labels(picture, y, lane, scale)]
    axis, bottom = _axis(picture, y, y + picture.height * lane, scale)
    added, bottom = more(y, bottom, lane, scale) if more else ([], bottom)
    caption, height = _caption(() if picture.small else picture.captions, bottom, width)
    name = f"h{zlib.crc32(repr((picture.captions, width, moving)).encode()):08x}"
    drawn = _many(picture, y, lane, scale) if len(picture) > MANY else _few(picture, y, lane, scale, name)
    curtain = _curtain(picture, y, lane, width) if moving else []
    noted = _notes(picture, y, lane, scale)
    body = [*_hatches(picture, name), *head, *axis, *drawn, *noted, *curtain, *plot, *added, *caption]
    return sheet(width, height, title or _name(picture), picture.summary, body)


def _name(picture):
    return picture.captions[0].split(":")[0] if len(picture.captions) == 1 else f"{len(picture.captions)} timelines"


def _head(picture, width, title):
    """The title, and the legend: swatches with names, in as many lines as they need."""
    out, y, x = [], 12.0, float(LEFT)
    if title:
        out.append(words(LEFT, y + PX["heading"], title, PX["heading"], **{"font-weight": "600"}))
        y += PX["heading"] + 14
    for name, look in picture.legend:
        needs = 24 + prose_width(name, 1.15 * PX["caption"]) + 20
        if x + needs > width - RIGHT and x > LEFT:
            x, y = float(LEFT), y + 24
        tall = {"message": (6, 8), "arrived": (8, 3)}.get(look.kind, (0, 15))
        dots = f" {dashed('absent box')}" if look.dotted else ""
        edge = look.edge if look.dotted or look.chunk else STYLE["muted"] if look.kind == "bubble" else ""
        pen = f' stroke="{edge}"' if edge else ""  # one of the fill's colour would be lighter in the dark (`theme`)
        place = f'x="{short(x)}" y="{short(y + tall[0])}" width="18" height="{tall[1]}"'
        out.append(f'<rect {place} fill="{look.fill}"{pen}{dots}/>')
        if look.hatch:
            stripes = f"M{short(x)} {short(y + 9)}l9 -9m9 0l-15 15m6 0l9 -9"
            out.append(f'<path d="{stripes}" stroke="{look.hatch}" stroke-width="2"/>')
        out.append(words(x + 24, y + 13, name, PX["caption"]))
        x += needs
    return out, y + 30


def _headings(picture, y, lane, scale):
    """Names of timelines, and in small pictures their numbers: after the name, or under it if there are columns."""
    out, below = [], len(picture.axes) > 1
    for one in picture.headings:
        x, middle = LEFT + one.x * scale, y + one.y * lane
        out.append(words(x, middle - 3 if below else middle + 6, one.text, PX["heading"], **{"font-weight": "600"}))
        if one.told:
            told = (x, middle + 15) if below else (x + prose_width(one.text, 1.3 * PX["heading"]) + 12, middle + 5)
            out.append(words(*told, one.told, PX["box"], fill=STYLE["muted"]))
    return out


def _lane_labels(picture, y, lane, scale):
    """The names of lanes, as many as fit."""
    return [
        words(LEFT + one.x * scale - 10, y + (one.top + 0.5) * lane + 5, one.label, PX["axis"], "end", fill=_ink(one))
        for one in picture.named_lanes
    ]


def _ink(lane):
    return STYLE["muted"] if lane.label == "measured" else STYLE["ink"]


def _axis(picture, top, bottom, scale):
    out = [words(LEFT - 10, bottom + 21, picture.unit, PX["axis"], "end")]
    for tick, x in ((tick, LEFT + (axis + tick) * scale) for axis in picture.axes for tick in picture.ticks):
        out.append(f'<path d="M{short(x)} {short(top - 4)}V{short(bottom + 4)}" stroke="{STYLE["grid"]}"/>')
        out.append(words(x, bottom + 21, f"{tick:g}", PX["axis"], "middle"))
    return out, bottom + 30


def _caption(captions, y, width):
    out = []
    for line in captions:
        for part in wrap(line, width - 24 - RIGHT, PX["caption"]):
            y += PX["caption"] + 6
            out.append(words(24, y, part, PX["caption"], fill=STYLE["muted"]))
        y += 4
    return out, y + 12


def _notes(picture, top, lane, scale):
    """Braces, outlines and their text, which has a light rim so that it is readable on the lines of the axis."""
    rim = {"stroke": STYLE["paper"], "stroke-width": "4", "paint-order": "stroke"}
    pen = f'fill="none" stroke="{STYLE["ink"]}" stroke-linejoin="round"'
    out = []
    for line, note in zip(strokes(picture.notes, scale, lane), picture.notes):
        at = " ".join(f"{short(LEFT + x * scale)},{short(top + y * lane)}" for x, y in line)
        out.append(f'<polyline {pen} stroke-width="{2.5 if note.outline else 1.5}" points="{at}"/>')
    for one in texts(picture.notes, picture.length, scale, lane):
        x, y = LEFT + one.x * scale, top + one.y * lane + one.size * 0.36
        weight = {"font-weight": "600" if one.bold else "400"}
        out.append(words(x, y, one.text, short(one.size), "middle", **rim | weight))
    return out


def _hatches(picture, name):
    """Diagonal stripes for the looks that have them, under names that no other picture uses."""
    stripes = [
        f'<pattern id="{name}-{number}" width="8" height="8" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="8" height="8" fill="{look.fill}"/>'
        f'<rect width="2.5" height="8" fill="{look.hatch}"/></pattern>'
        for number, look in enumerate(picture.looks)
        if look.hatch
    ]
    return [f"<defs>{''.join(stripes)}</defs>"] if stripes else []


def _few(picture, top, lane, scale, name):
    """One path per look and edge, one rectangle in it per box; then the labels, grouped by colour."""
    x0, x1 = LEFT + picture.x0 * scale, LEFT + picture.x1 * scale
    y0, y1 = top + picture.y0 * lane, top + picture.y1 * lane
    size, labels = picture.labels(scale, lane)
    out = []
    for number, look in enumerate(picture.looks):
        mine = np.flatnonzero((picture.look == number) & (x1 > x0)).tolist()
        fill = f"url(#{name}-{number})" if look.hatch else look.fill
        dots = f" {dashed('absent')}" if look.dotted else ""
        edges = picture.edges(mine, scale)
        for edge in dict.fromkeys(edges):
            d = "".join(_rectangle(x0[i], x1[i], y0[i], y1[i]) for i, its in zip(mine, edges) if its == edge)
            out.append(f'<path fill="{fill}" stroke="{edge}"{dots} d="{d}"/>')
        text = "".join(
            f'<text x="{short((x0[i] + x1[i]) / 2)}" y="{short((y0[i] + y1[i]) / 2 + size * 0.36)}">{labels[i]}</text>'
            for i in mine
            if labels[i]
        )
        if text:
            out.append(f'<g fill="{look.text}" font-size="{size}" font-weight="500" text-anchor="middle">{text}</g>')
    return out


def _many(picture, top, lane, scale):
    """Many boxes as one image at the screen's resolution, without edges and labels. The bubbles are under it, since an
    image has one colour for light pages and for dark ones.
    """
    wide, tall = picture.width * scale, picture.height * lane
    idle = np.isin(picture.look, [number for number, one in enumerate(picture.looks) if one.kind == "bubble"])
    busy = {name: getattr(picture, name)[~idle] for name in ("x0", "x1", "y0", "y1", "look")}
    pixels = grid(replace(picture, **busy), columns=max(1, round(wide)), rows=max(1, round(tall)))
    grey = [_rectangle(*(LEFT + x * scale for x in its[:2]), *(top + y * lane for y in its[2:]))
            for its in zip(*(getattr(picture, name)[idle].tolist() for name in ("x0", "x1", "y0", "y1")))]  # fmt: skip
    where = f'x="{LEFT}" y="{short(top)}" width="{short(wide)}" height="{short(tall)}"'
    under = [f'<path fill="{STYLE["light"]["bubble"]}" d="{"".join(grey)}"/>'] if grey else []
    return [*under, f'<image {where} preserveAspectRatio="none" href="{png(pixels)}"/>']


def _curtain(picture, top, lane, width):
    """A light curtain with a cursor on its edge, which slides off to the right. Without animation it hides nothing."""
    wide, beat = width - LEFT - RIGHT, 12
    top, tall = short(top - 4), short(picture.height * lane + 8)
    return [
        f"<style>@keyframes sweep{{0%{{transform:translateX(-{wide}px)}}85%,100%{{transform:none}}}}"
        f".curtain{{animation:sweep {beat}s linear infinite}}"
        "@media (prefers-reduced-motion:reduce){.curtain{animation:none}}</style>",
        f'<g class="curtain"><rect x="{width - RIGHT + 1}" y="{top}" width="{wide}" height="{tall}" '
        f'fill="{STYLE["paper"]}"/><rect x="{width - RIGHT}" y="{top}" width="2" height="{tall}"/></g>',
    ]


def _rectangle(x0, x1, y0, y1):
    return f"M{short(x0)} {short(y0)}H{short(x1)}V{short(y1)}H{short(x0)}z"
