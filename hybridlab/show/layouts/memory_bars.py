"""Memory bars: the weights, gradients and optimizer state of each rank, next to the bytes that it sends.

The outline of a bar shows its size without sharding. The colours are those of the related actions: weights are blue
like the forward, gradients orange like the backward, the optimizer's state dark like the optimizer; stripes and lines
distinguish them as well.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hybridlab.show.paper.sheet import bold_width, captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import DASHES, HATCH_ON_LIGHT, STYLE, mix

WIDTH, LEFT, TOP, TALL = 960, 40, 104, 300
TRAFFIC, SPLIT = 352, 28  # the space on the right for the bytes sent, and the gap before it
BOLD_DIGIT = 0.7  # its width, in heights of its letters
MOST = 8  # columns that are drawn; if there are more, the first and the last ones
PX, KINDS = STYLE["pixels"], STYLE["kinds"]
PARTS = {  # (name, colour, stripes)
    "value": ("weights", KINDS["F"]["fill"], ""),
    "gradient": ("gradients", KINDS["B"]["fill"], "M0 9L9 0"),
    "optimizer": ("optimizer state", KINDS["OPT"]["fill"], "M0 4H9"),
}
GREEN = KINDS["message"]["fill"]
UNITS = ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))


class Column(NamedTuple):
    """One bar: its name and the bytes that a rank keeps.

    kept   {"value", "gradient", "optimizer": bytes};  below  a second line under its name
    whole  bytes of weights that are gathered and soon freed, drawn as a dotted outline on top
    """

    name: str
    kept: dict[str, float]
    below: str = ""
    whole: float = 0


class Carried(NamedTuple):
    """The bytes that a rank sends in a step for one purpose, with the operation and the number of ranks."""

    name: str
    among: int
    bytes: float


def memory_bars(
    columns: Sequence[Column], full: float, carried: Sequence[Carried], most: float, title: str, told: str
) -> Still:
    """Bars of bytes, one for each column; on the right a bar for everything that a rank sends in a step.

    full  bytes of the outline: all that a rank would keep without sharding
    most  bytes that fill the width on the right;  told  the picture in words

    >>> kept = {"value": 2e9, "gradient": 2e9, "optimizer": 3e9}
    >>> memory_bars([Column("rank 0", kept)], 16e9, [Carried("sum", 4, 3e9)], 6e9, "Stage 1", "7 of 16 GB")
    <picture 7 of 16 GB>
    """
    whole = any(column.whole for column in columns)
    room = WIDTH - 2 * LEFT - (TRAFFIC + SPLIT if carried else 0)
    out = [_patterns(), heading(LEFT, 34, title), *_legend(whole), *_bars(columns, full, room)]
    if carried:
        out += _sent(carried, most, LEFT + room + SPLIT)
    return captioned(WIDTH, TOP + TALL + 84, title, told, out, LEFT, fill=0.85)


def size(value: float) -> str:
    """A number of bytes as text, with three digits and a suitable decimal unit.

    value  bytes

    >>> size(31_406_250_000), size(273_152), size(384)
    ('31.4 GB', '273 kB', '384 B')
    """
    unit, name = next(((unit, name) for unit, name in reversed(UNITS) if value >= unit), UNITS[0])
    return f"{value / unit:.3g} {name}"


def _patterns():
    """The stripes and lines on the colours."""
    out = []
    for what, (_, colour, path) in PARTS.items():
        if path:
            pen = f'stroke="{mix(colour, STYLE["paper"], HATCH_ON_LIGHT)}" stroke-width="2"'
            box = 'width="9" height="9" patternUnits="userSpaceOnUse"'
            out.append(f'<pattern id="kept-{what}" {box}><path d="{path}" {pen}/></pattern>')
    return f"<defs>{''.join(out)}</defs>"


def _legend(whole):
    out, x, y = [], LEFT, 50
    for what, (name, _, _) in PARTS.items():
        out += [*_part(what, x, y, 20, 16), words(x + 28, y + 13, name, PX["caption"])]
        x += 28 + 0.5 * PX["caption"] * len(name) + 26
    out += [
        _outline(x, y, 20, 16, STYLE["muted"], DASHES["absent"]),
        words(x + 28, y + 13, "without sharding", PX["caption"]),
    ]
    x += 28 + 0.5 * PX["caption"] * 23 + 26
    if whole:
        out.append(_outline(x, y, 20, 16, PARTS["value"][1], DASHES["gathered"], 2))
        out.append(words(x + 28, y + 13, "gathered for compute", PX["caption"]))
    return out


def _part(what, x, y, wide, tall):
    """A box in the colour of one part, with its stripes."""
    place = f'x="{x:g}" y="{y:.2f}" width="{wide:g}" height="{tall:.2f}"'
    out = [f'<rect {place} fill="{PARTS[what][1]}"/>']
    return out + ([f'<rect {place} fill="url(#kept-{what})"/>'] if PARTS[what][2] else [])


def _outline(x, y, wide, tall, colour, dashes, thick=1):
    place = f'x="{x:g}" y="{y:.2f}" width="{wide:g}" height="{tall:.2f}"'
    return f'<rect {place} fill="none" stroke="{colour}" stroke-width="{thick}" stroke-dasharray="{dashes}"/>'


def _shown(columns):
    """The columns that are drawn, and None where some are left out."""
    return columns if len(columns) <= MOST else [*columns[: MOST - 3], None, *columns[-2:]]


def _bars(columns, full, room):
    out, labels, crowded, ground, shown = [], [], False, TOP + TALL, _shown(columns)
    step = min(room / len(shown), 0.7 * TALL)
    wide = min(0.72 * step, 0.4 * TALL)
    for i, column in enumerate(shown):
        middle = LEFT + step * (i + 0.5)
        if column is None:
            out.append(words(middle, ground - TALL / 2, "…", PX["heading"], "middle"))
            continue
        out += _bar(column, middle - wide / 2, wide, full, ground)
        label, above, letters = _label(column, wide, full, ground)
        crowded = crowded or BOLD_DIGIT * letters * max(map(len, label.split("\n"))) > step - 8
        labels.append((middle, above, label, letters))
        small = PX["axis"] if step > 7.5 * len(column.name) else PX["smallest"]
        out.append(words(middle, ground + 22, column.name, small, "middle"))
        if column.below:
            out.append(words(middle, ground + 42, column.below, PX["smallest"], "middle", fill=STYLE["muted"]))
    out += _sizes(labels, crowded)
    return [*out, f'<path d="M{LEFT} {ground}h{step * len(shown):g}" stroke="{STYLE["muted"]}"/>']


def _sizes(labels, crowded):
    """The size over each bar. If sizes would touch, there is one for all if they are equal; else every second one is
    higher.
    """
    halo = {"font-weight": "600", "stroke": STYLE["paper"], "stroke-width": "4", "paint-order": "stroke"}
    if crowded and len({(above, label) for _, above, label, _ in labels}) == 1:
        middle = (labels[0][0] + labels[-1][0]) / 2
        labels = [(middle, labels[0][1], f"{labels[0][2]} on each", PX["caption"])]
    for i, (x, above, label, letters) in enumerate(labels):
        higher = 17 * (crowded and len(labels) > 1 and i % 2)
        for line, text in enumerate(reversed(label.split("\n"))):
            yield words(x, above - higher - 17 * line, text, letters, "middle", **halo)


def _label(column, wide, full, ground):
    """(the total of a column, in a second line what is gathered, their position, the height of their letters)."""
    told, small = size(sum(column.kept.values())), PX["smallest" if wide < 58 or column.whole else "caption"]
    more = f"+ {size(column.whole)}"
    told += f"\n{more}" if column.whole and bold_width(more, small) <= wide else ""
    y = ground - (sum(column.kept.get(what, 0) for what in PARTS) + column.whole) * TALL / full
    return told, y - 8 if y > ground - TALL + 4 else ground - TALL - 8, small


def _bar(column, x, wide, full, ground):
    out, y, scale = [_outline(x, ground - TALL, wide, TALL, STYLE["muted"], DASHES["absent"])], ground, TALL / full
    for what in PARTS:
        tall = column.kept.get(what, 0) * scale
        y -= tall
        out += _part(what, x, y, wide, tall) if tall else []
    if column.whole:
        y -= column.whole * scale
        out.append(_outline(x, y, wide, column.whole * scale, PARTS["value"][1], DASHES["gathered"], 2))
    return out


def _sent(carried, most, x):
    """The bytes that a rank sends: a green bar for each operation, one after another, and their sum."""
    out = [words(x, TOP - 8, "sent by a rank in a step", PX["caption"], **{"font-weight": "600"})]
    y, at, scale = TOP + 6, 0.0, TRAFFIC / most
    for one in carried:
        out.append(words(x, y + 16, f"{one.name}, {one.among} ranks", PX["caption"]))
        out.append(words(x + TRAFFIC, y + 16, size(one.bytes), PX["caption"], "end"))
        out.append(f'<rect x="{x:g}" y="{y + 25}" width="{TRAFFIC}" height="16" fill="{STYLE["light"]["bubble"]}"/>')
        place = f'x="{x + at * scale:.2f}" y="{y + 25}" width="{one.bytes * scale:.2f}" height="16"'
        out.append(f'<rect {place} fill="{GREEN}"/>')
        at, y = at + one.bytes, y + 58
    bold = {"font-weight": "600"}
    out.append(words(x, y + 18, "together", PX["caption"], **bold))
    return [*out, words(x + TRAFFIC, y + 18, size(at), PX["caption"], "end", **bold)]
