"""One layer: its parts in forward order, and where each message is sent: above in the forward, below in the backward.

Messages that carry weights or gradients are below everything, in the order of a step. Colours are those of the axes.
"""

from hybridlab.core.layer import ONCE, PHASES, Layer, Travel
from hybridlab.show.layouts.grid_of_ranks import AXES
from hybridlab.show.layouts.memory_bars import size
from hybridlab.show.paper.sheet import bold_width, heading, prose_width, sheet, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import DASHES, STYLE, WEIGHT, dashed, ink_on, look, mix

WIDTH, SIDE, TOP, LINE = 1100, 20, 92, 22  # pixels
BOX, GAP = 1.0, 0.55  # widths of a part and of a place between two, before they are scaled
TALL, PILL, LEVEL, BETWEEN = 46, 42, 52, 8  # pixels: a part, a message, from one level of messages to the next
WIDEST = 16 + prose_width(max((PHASES[phase] for phase in ONCE), key=len), STYLE["pixels"]["caption"])
PX, PAPER, INK, MUTED = STYLE["pixels"], STYLE["paper"], STYLE["ink"], STYLE["muted"]
CHIP = PX["smallest"] + 3  # letters of a message; a page makes the picture smaller
PALE = mix(look("F").fill, PAPER, 0.85)  # of the parts of a layer
GROUPS = AXES | {"ep": ("along ep", STYLE["curves"][0], DASHES["along ep"])}
CAPTION = "Bytes as in the ledger: the full tensor of an operation, before it is scattered or after it is gathered."
NAMES = {"isend": "send", "send": "send"}  # others as they are, with a hyphen


def one_layer(layer: Layer, title: str | None = None) -> Still:
    """The picture of a layer on a rank.

    >>> from hybridlab.core.where.mesh import Mesh
    >>> g = Travel("forward", 0, "all_reduce", "tp", 1, 4096)
    >>> one_layer(Layer("bfloat16", Mesh(tp=2), 0, ("out",), 64, (g,)))
    <picture One layer on rank 0 of tp=2, bfloat16. Forward: all-reduce along tp at out, 4.1 kB.>
    """
    unit = (WIDTH - 2 * SIDE) / (BOX * len(layer.parts) + GAP * (len(layer.parts) + 1))
    spot = lambda place: SIDE + unit * (GAP / 2 + (BOX + GAP) / 2 * (2 * place + 1))
    above, up = _messages(layer, "forward", spot)
    below, down = _messages(layer, "backward", spot)
    y = TOP + LEVEL * up
    out = [heading(SIDE, 32, title or f"One layer on rank {layer.rank}: {_mesh(layer)}"), *_legend(layer)]
    out += _drawn(above, y - BETWEEN - PILL, -LEVEL, y, spot)
    out += _drawn(below, y + TALL + BETWEEN, LEVEL, y + TALL, spot)
    out += _chain(layer, y, unit, spot)
    low = y + TALL + LEVEL * down + 34
    chips, bottom = _weights(layer, low)
    for line, text in enumerate([f"The job: {layer.job}.", CAPTION]):
        chips.append(words(SIDE, bottom + 32 + LINE * line, text, PX["caption"], fill=MUTED))
    out += chips
    return Still(sheet(WIDTH, bottom + 50 + LINE, "one layer", told(layer), out), told(layer))


def told(layer: Layer) -> str:
    """The picture in words."""
    said = [f"One layer on rank {layer.rank} of {_mesh(layer)}, {layer.job}."]
    for phase in PHASES:
        its = [
            f"{_name(one)} along {one.axis} at {layer.where(one.place)}, {size(one.bytes)}" for one in _of(layer, phase)
        ]
        said += [f"{phase.capitalize()}: {'; '.join(its)}."] if its else []
    return " ".join(said)


def _mesh(layer):
    return " × ".join(f"{axis}={length}" for axis, length in layer.mesh.axes.items())


def _of(layer, phase) -> list[Travel]:
    return [one for one in layer.travels if one.phase == phase]


def _name(one: Travel) -> str:
    name = NAMES.get(one.op, one.op.replace("_", "-"))
    return f"{one.count} × {name}" if one.count > 1 else name


def _messages(layer, phase, spot):
    """([(level, x, message)], levels): in each level, no two messages overlap."""
    ends, found = [], []
    for one in sorted(_of(layer, phase), key=lambda one: one.place or 0):
        wide = _wide(one)
        x = min(max(spot(one.place), SIDE + wide / 2), WIDTH - SIDE - wide / 2)
        level = next((number for number, end in enumerate(ends) if end + 6 <= x - wide / 2), len(ends))
        ends[level : level + 1] = [x + wide / 2]
        found.append((level, x, one))
    return found, len(ends)


def _wide(one):
    return 20 + max(bold_width(f"{_name(one)} {one.axis}", CHIP), prose_width(size(one.bytes), CHIP))


def _drawn(messages, first, step, edge, spot):
    """Messages and the lines to their places; `first` is the top of the messages nearest to the parts, `edge` the edge
    of the parts.
    """
    for level, _, one in messages:
        pen = f'stroke="{_colour(one)}" stroke-width="2" {dashed("gathered")}'
        yield f'<path d="M{spot(one.place):.1f} {edge:.1f}V{first + step * level + PILL / 2:.1f}" fill="none" {pen}/>'
    for level, x, one in messages:
        yield from _pill(x, first + step * level, one)


def _colour(one):
    return GROUPS.get(one.axis.split("+")[0], ("", MUTED, ""))[1]


def _pill(x, y, one):
    wide, colour = _wide(one), _colour(one)
    place = f'x="{x - wide / 2:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{PILL}" rx="9"'
    fill, edge = (PAPER, colour) if colour in (INK, MUTED) else (colour, PAPER)
    yield f'<rect {place} fill="{fill}" stroke="{edge}" stroke-width="2"/>'
    ink = ink_on(fill)
    yield words(x, y + 17, f"{_name(one)} {one.axis}", CHIP, "middle", fill=ink, **{"font-weight": "600"})
    yield words(x, y + 34, size(one.bytes), CHIP, "middle", fill=ink)


def _chain(layer, y, unit, spot):
    """The parts, and the arrows of the forward between them."""
    middle, half = y + TALL / 2, unit * BOX / 2
    ends = [SIDE, *(spot(number) for number in range(len(layer.parts))), WIDTH - SIDE]
    for number, (a, b) in enumerate(zip(ends, ends[1:])):
        begin, end = a + (half if number else 0), b - (half if number < len(layer.parts) else 0)
        pen = f'fill="none" stroke="{look("F").fill}" stroke-width="2.5"'
        yield f'<path d="M{begin + 2:.1f} {middle}H{end - 3:.1f}m-6 -5l6 5l-6 5" {pen}/>'
    for number, name in enumerate(layer.parts):
        place = f'x="{spot(number) - half:.1f}" y="{y}" width="{2 * half:.1f}" height="{TALL}" rx="4"'
        yield f'<rect {place} fill="{PALE}" stroke="{look("F").fill}" stroke-width="1.5"/>'
        letters = {"fill": ink_on(PALE), "font-weight": "600"}
        yield words(spot(number), middle + 5, name, PX["smallest"] + 1, "middle", **letters)


def _legend(layer):
    x = SIDE
    for axis in (axis for axis, length in layer.mesh.axes.items() if length > 1):
        name, colour, _ = GROUPS.get(axis, (f"along {axis}", MUTED, ""))
        fill = PAPER if colour in (INK, MUTED) else colour
        yield f'<rect x="{x}" y="50" width="18" height="14" rx="4" fill="{fill}" stroke="{colour}"/>'
        text = name if axis in name else f"{name} ({axis})"
        yield words(x + 25, 62, text, PX["caption"])
        x += 52 + round(7.3 * len(text))
    yield words(WIDTH - SIDE, 62, "above: forward · below: backward", PX["caption"], "end", fill=MUTED)


def _weights(layer, y):
    """(elements, bottom): the weights of the layer, and the messages that carry them or their gradients."""
    name = f"weights here: {size(layer.weights)}"
    wide = 26 + 7.4 * len(name)
    out = [f'<rect x="{SIDE}" y="{y}" width="{wide:.1f}" height="{PILL}" rx="4" fill="{WEIGHT}"/>']
    out.append(words(SIDE + wide / 2, y + PILL / 2 + 5, name, PX["axis"], "middle", fill=ink_on(WEIGHT)))
    row, labels = y - LEVEL, SIDE + wide + 16
    for phase in (phase for phase in ONCE if _of(layer, phase)):
        x, row = labels + WIDEST, row + LEVEL
        out.append(words(labels, row + PILL / 2 + 5, PHASES[phase], PX["caption"], fill=MUTED))
        for one in _of(layer, phase):
            if x + _wide(one) > WIDTH - SIDE:
                x, row = labels + WIDEST, row + PILL + BETWEEN
            out += _pill(x + _wide(one) / 2, row, one)
            x += _wide(one) + 10
    return out, max(row, y) + PILL
