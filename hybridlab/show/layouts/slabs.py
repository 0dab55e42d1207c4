"""Slabs: a stack of layers that is cut between layers, through their width, and with the batch, into devices.

Each copy is a stack under its share of the batch. The slabs of a device are close together; their messages are green
and between devices: arrows between stages, rows of dots inside layers, dashes between copies.
"""

from typing import NamedTuple

from hybridlab.predict.bytes.of_cuts import COPIES, PARTS, SHAPE, STAGES, Cut
from hybridlab.show.paper.sheet import words
from hybridlab.show.paper.style import STYLE, dashed, look, mix

WIDTH, HEIGHT, LEFT, RIGHT = 960, 266, 108, 908
BAR, TOP, BOTTOM = (8, 30), 52, 232  # of the batch; of the stacks
TIGHT, STAGE_GAP, PART_GAP, COPY_GAP = 4, 22, 8, 44  # between slabs of a device, stages, parts, copies
DEEP = (7, -4)  # from the front of a slab to its back
MARGIN = 20  # left of the names of layers, where the knife between layers is
GREEN, PAPER, PX = STYLE["kinds"]["message"]["fill"], STYLE["paper"], STYLE["pixels"]
BATCH, OWN, OTHER = mix(look("F").fill, PAPER, 0.6), look("F").fill, STYLE["aside"]


class Box(NamedTuple):
    """A rectangle: its left, top, width and height."""

    x: float
    y: float
    wide: float
    tall: float


class Slabs:
    """The drawing of a cut; `own` is the stage whose device, in the first part and copy, is blue: it sends the most.

    >>> one = Slabs(Cut(p=3, t=2, d=2, batch=32))
    >>> one.own, len(one.devices), len(one.devices[0, 0, 0])
    (1, 12, 2)
    """

    def __init__(self, cut: Cut):
        self.cut, self.own = cut, int(cut.p > 2)
        gaps = [STAGE_GAP if layer % cut.layers == 0 else TIGHT for layer in range(1, SHAPE.layers)]
        self.thick = (BOTTOM - TOP - sum(gaps)) / SHAPE.layers
        self.tops = [TOP + layer * self.thick + sum(gaps[:layer]) for layer in range(SHAPE.layers)]
        self.copy = (RIGHT - LEFT - COPY_GAP * (cut.d - 1)) / cut.d
        self.part = (self.copy - PART_GAP * (cut.t - 1)) / cut.t
        self.devices = {}  # by stage, part and copy: the boxes of its slabs
        for copy in range(cut.d):
            for part in range(cut.t):
                x = LEFT + copy * (self.copy + COPY_GAP) + part * (self.part + PART_GAP)
                for layer, y in enumerate(self.tops):
                    its = self.devices.setdefault((layer // cut.layers, part, copy), [])
                    its.append(Box(x, y, self.part, self.thick))

    def drawn(self) -> list[str]:
        """The full drawing, as SVG elements; messages have the term "p", "t" or "d"."""
        out = [*self._batch(), *self._names()]
        for (stage, part, copy), boxes in self.devices.items():
            mine = (stage, part, copy) == (self.own, 0, 0)
            out += [piece for box in reversed(boxes) for piece in _slab(box, OWN if mine else OTHER)]
        return [*out, *self._blades(), *self._between_stages(), *self._inside_layers(), *self._between_copies()]

    def _names(self):
        for layer, y in enumerate(self.tops):
            yield words(LEFT - 12, y + self.thick / 2 + 5, f"layer {layer}", PX["axis"], "end")

    def _batch(self):
        """A cell for each sequence; the share of each copy, and an arrow down to it."""
        yield words(LEFT - 12, (BAR[0] + BAR[1]) / 2 + 5, "batch", PX["axis"], "end")
        cells = self.cut.batch // self.cut.d
        for copy in range(self.cut.d):
            x, wide = LEFT + copy * (self.copy + COPY_GAP), self.copy / cells
            lines = "".join(f"M{x + i * wide:.1f} {BAR[0]}v{BAR[1] - BAR[0]}" for i in range(1, cells))
            size = f'x="{x:.1f}" y="{BAR[0]}" width="{self.copy:.1f}" height="{BAR[1] - BAR[0]}"'
            yield f'<rect {size} fill="{BATCH}"/><path d="{lines}" stroke="{PAPER}"/>'
            arrow = f"M{x + self.copy / 2:.1f} {BAR[1] + 2}v12m-4 -4l4 4l4 -4"
            yield f'<path d="{arrow}" fill="none" stroke="{OTHER}" stroke-width="2"/>'

    def _between_stages(self):
        """An arrow down for activations, and one up for their gradients."""
        for (stage, _, _), boxes in self.devices.items():
            if stage + 1 < self.cut.p:
                x, y = boxes[-1].x + self.part / 2, boxes[-1].y + self.thick
                down = f"M{x - 6:.1f} {y + 2:.1f}v14m-4 -5l4 5l4 -5"
                yield _message("p", f'<path d="{down}M{x + 6:.1f} {y + 16:.1f}v-14m-4 5l4 -5l4 5"/>')

    def _inside_layers(self):
        """A dot on each part of a layer, and a line through them."""
        if self.cut.t == 1:
            return
        for copy in range(self.cut.d):
            x = LEFT + copy * (self.copy + COPY_GAP) + self.part / 2
            step = self.part + PART_GAP
            for y in self.tops:
                middle = y + self.thick / 2
                dots = "".join(
                    f'<circle cx="{x + part * step:.1f}" cy="{middle:.1f}" r="4" fill="{GREEN}" stroke="{PAPER}"/>'
                    for part in range(self.cut.t)
                )
                line = f"M{x:.1f} {middle:.1f}h{step * (self.cut.t - 1):.1f}"
                yield _message("t", f'<path d="{line}" stroke="{PAPER}" stroke-width="5"/><path d="{line}"/>{dots}')

    def _between_copies(self):
        """Dashes between the same devices of neighbouring copies, and an arrow at both ends."""
        for (_, part, copy), boxes in self.devices.items():
            if copy + 1 < self.cut.d and part == self.cut.t - 1:
                x, y = boxes[-1].x + self.part, (boxes[0].y + boxes[-1].y + self.thick) / 2
                ends = f"M{x + 10:.1f} {y - 4:.1f}l-4 4l4 4M{x + COPY_GAP - 6:.1f} {y - 4:.1f}l4 4l-4 4"
                line = f'<path d="M{x + 8:.1f} {y:.1f}h{COPY_GAP - 12}" {dashed("absent box")}/>'
                yield _message("d", f'{line}<path d="{ends}"/>')

    def _blades(self) -> list[str]:
        """The edges of the three knives: a line where each of them cuts, or next to a stack in one piece."""
        (_, y), (x, end), (z, _) = (
            places[values.index(here)]
            for places, values, here in zip(
                (self.between_layers, self.through_width, self.through_batch), (STAGES, PARTS, COPIES), self.cut
            )
        )
        lines = f"M{MARGIN} {y:.1f}H{RIGHT}", f"M{x:.1f} {end}V{TOP - 6}", f"M{z:.1f} {BAR[1]}V{BOTTOM}"
        return [f'<path d="{line}" stroke="{STYLE["control"]}" {dashed("under way")}/>' for line in lines]

    @property
    def between_layers(self) -> list[tuple[float, float]]:
        """The places of the knife between layers: below the first stage, for each number of stages."""
        cuts = [Slabs(self.cut._replace(p=stages)) for stages in STAGES]
        return [(MARGIN, one.tops[one.cut.layers - 1] + one.thick + STAGE_GAP / 2) for one in cuts]

    @property
    def through_width(self) -> list[tuple[float, float]]:
        """The places of the knife through the width of each layer: after the first part of the first copy."""
        return [(LEFT + (self.copy + PART_GAP) / parts - PART_GAP / 2, BOTTOM + 20) for parts in PARTS]

    @property
    def through_batch(self) -> list[tuple[float, float]]:
        """The places of the knife through the batch: after the share of the first copy."""
        cuts = [Slabs(self.cut._replace(d=copies)) for copies in COPIES]
        return [(LEFT + one.copy + COPY_GAP / 2, (BAR[0] + BAR[1]) / 2) for one in cuts]


def _slab(box, fill):
    """The front of a slab, its top and its right side."""
    x, y, wide, tall = box
    (right, up), shapes = DEEP, []
    top = f"M{x:.1f} {y:.1f}l{right} {up}h{wide:.1f}l{-right} {-up}z"
    side = f"M{x + wide:.1f} {y:.1f}l{right} {up}v{tall:.1f}l{-right} {-up}z"
    for shape, share in ((top, 0.35), (side, -0.3)):
        tone = mix(fill, PAPER, share) if share > 0 else mix(fill, STYLE["shadow"], -share)
        shapes.append(f'<path d="{shape}" fill="{tone}"/>')
    return [*shapes, f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{fill}"/>']


def _message(term, inside):
    return f'<g class="hl-sent" data-term="{term}" fill="none" stroke="{GREEN}" stroke-width="2.5">{inside}</g>'
