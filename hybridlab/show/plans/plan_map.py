"""The map of plans: one cell for each p and t that divide n devices, coloured by the speed of its best plan.

A cell shows the best of all plans with its sizes: p stages, t ways of tensor parallelism, d = n / (p·t) copies. Its
number is its throughput relative to the best plan. Plans within the prediction error of the best look like the best. If
nothing fits, the cell is grey and hatched and shows the memory that the smallest plan needs, and its largest part; if
the batch is not divisible, it is dotted. A ring marks a published run, with its measured relative throughput.

Relatives: `predict.plans.planner`, the explorer in `labs.choosing.plan_explorer`, notebook 41.
"""

import math
from typing import NamedTuple

import numpy as np

from hybridlab.predict.judged.run import Run
from hybridlab.predict.judged.scores import published_of
from hybridlab.predict.plans.footprint import Footprint, footprint
from hybridlab.predict.plans.planner import Planned
from hybridlab.predict.plans.space import divisors
from hybridlab.show.paper.sheet import captioned, heading, words
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import FIXED, STYLE, TOO_LARGE, dashed, ink_on, mix

WIDTH, LEFT, TOP, RIGHT = 960, 92, 148, 24
WIDEST, TALLEST, WITH_RINGS, ALL_ROWS = 118.0, 52.0, 64.0, 500.0  # pixels: of a cell, also if some have three lines;
# of all rows together
TWO_LINES, THREE_LINES = (58.0, 36.0), 60.0  # pixels: a cell of this size has two lines; of this height, three
PALEST, TINT = 0.2, 0.05  # the share of the best throughput with the palest colour; every cell that fits has some blue
PX, INK, PAPER, MUTED = STYLE["pixels"], STYLE["ink"], STYLE["paper"], STYLE["muted"]
BOLD = 0.59  # width of a letter of a title, as a part of its height
QUICK, GREY, BEST = STYLE["kinds"]["F"]["fill"], STYLE["light"]["bubble"], STYLE["kinds"]["B"]["fill"]
SHORT = {"weights": "weights", "gradients": "gradients", "optimizer": "optimizer", "activations": "activ."}


class Cell(NamedTuple):
    """One p and t, and the best plan with them.

    place  of the plan in the space: the fastest plan that fits, else the smallest; None if no plan is legal
    share  the share of the best plan's throughput; 0 if none fits;  bytes  memory of the plan;  most  its largest part
    equal  whether its distance from the best is within the prediction error
    """

    p: int
    t: int
    d: int
    place: int | None
    share: float
    bytes: float
    most: str
    equal: bool = False

    @property
    def state(self) -> str:
        """ "fits", "too large" or "illegal"."""
        return "illegal" if self.place is None else "fits" if self.share else "too large"


def cells(planned: Planned) -> list[Cell]:
    """A cell for each pair (p, t): p divides the layers, t the heads, and p·t the devices.

    >>> from hybridlab.predict.plans.planner import plan
    >>> some = cells(plan("gpt-161b", "a100", gpus=64, batch=128, zero=0, recompute="full"))
    >>> [(one.p, one.t, one.d) for one in some if one.share == 1], sorted({one.state for one in some})
    ([(8, 8, 1)], ['fits', 'too large'])
    """
    best = planned.best.step.total
    quickest = _first_of_each(planned, planned.order)
    places = _first_of_each(planned, np.argsort(planned.bytes, kind="stable")) | quickest
    found = []
    for p in divisors(math.gcd(planned.devices, planned.shape.layers)):
        for t in divisors(math.gcd(planned.devices // p, planned.shape.heads or 1)):
            place = places.get((p, t))
            share = best / planned.seconds[place] if (p, t) in quickest else 0.0
            found.append(_cell(planned, p, t, place, float(share)))
    return found


def _first_of_each(planned, order) -> dict[tuple[int, int], int]:
    """{(p, t): the place of the first plan with these sizes in `order`}."""
    p, t = planned.space.p[order], planned.space.t[order]
    _, first = np.unique(p * (1 + planned.devices) + t, return_index=True)
    return {(int(p[i]), int(t[i])): int(order[i]) for i in first}


def _cell(planned, p, t, place, share):
    d = planned.devices // (p * t)
    if place is None:
        return Cell(p, t, d, None, 0.0, 0.0, "")
    if share:
        return Cell(p, t, d, place, share, float(planned.bytes[place]), "", planned.as_good(planned.seconds[place]))
    needs = Footprint(*map(float, footprint(planned.shape, planned.one(place), planned.batch)))
    return Cell(p, t, d, place, 0.0, needs.total, needs.most)


def plan_map(planned: Planned, title: str = "") -> Still:
    """The map of all factorisations of a `planner.Planned`; each cell is a group of class hl-cell, data-p and data-t.

    planned  the result of `hl.plan`
    title    above the picture

    >>> from hybridlab.predict.plans.planner import plan
    >>> plan_map(plan("gpt-161b", "a100", gpus=64, batch=128, zero=0, recompute="full", sequence=False), "161B")
    <picture 161B: 27 factorisations of 64 devices, 6 of them with a plan that fits, 21 too large, ...
    """
    every, runs = cells(planned), _quickest_of_each(published_of(planned))
    frame = _Frame(every, WITH_RINGS if runs else TALLEST)
    told = in_words(planned, every, title, runs)
    best = planned.best.step.total
    rings = {sizes: _Ring(best / run.seconds, _of_run(run)) for sizes, run in runs.items()}
    body = [_hatch(), *_head(title, planned.error.median, bool(rings)), *_labels(frame)]
    body += [line for one in every for line in _drawn(one, frame, rings.get((one.p, one.t)))]
    body += _node(frame, planned.machine.node)
    return captioned(
        WIDTH, frame.bottom + 35, title or "plans", told, body, fill=0.88, foot=-5, below=_best(planned, every)
    )


def _quickest_of_each(runs: list[Run]) -> dict[tuple[int, int], Run]:
    """{(p, t): the fastest run with these sizes}."""
    return {(run.plan.p, run.plan.t): run for run in sorted(runs, key=lambda run: -run.seconds)}


def _of_run(run: Run) -> str:
    """A run in words; it says so if its time was read off a figure."""
    read = f" (read off {run.note})" if run.note.startswith("figure") else ""
    return f"p={run.plan.p} t={run.plan.t} b={run.plan.b} {run.seconds:.1f} s{read}, predicted {run.step().total:.1f} s"


def in_words(planned: Planned, every: list[Cell], title: str, runs: dict[tuple[int, int], Run]) -> str:
    """The map in one line; `runs` are published runs by (p, t)."""
    count = {state: sum(one.state == state for one in every) for state in ("fits", "too large", "illegal")}
    name = f"{title}: " if title else ""
    told = [
        f"{name}{len(every)} factorisations of {planned.devices} devices, {count['fits']} of them with a plan that "
        f"fits, {count['too large']} too large, {count['illegal']} not possible with this batch",
        _best(planned, every),
    ]
    told += [f"Published: {'; '.join(map(_of_run, runs.values()))}"] * bool(runs)
    return ". ".join(told)


def _best(planned, every):
    """The best plan, and those that are as good: the words below the map, which shows the others."""
    equal = [f"p={one.p} t={one.t}" for one in every if one.equal and one.share < 1]
    told = [f"Best: {planned.best!r}"]
    told += [f"Equally good, within the ±{planned.error.median:.0%} of a prediction: {', '.join(equal)}"] * bool(equal)
    return ". ".join(told)


class _Ring(NamedTuple):
    """A published run: its measured share of the best plan's throughput, and its description."""

    share: float
    told: str


class _Frame:
    """The position of each p and t on the sheet."""

    def __init__(self, every, tallest):
        self.ways, self.stages = ({one[i] for one in every} for i in (1, 0))
        self.ways, self.stages = sorted(self.ways), sorted(self.stages)
        self.wide = min(WIDEST, (WIDTH - LEFT - RIGHT) / len(self.ways))
        self.tall = min(tallest, ALL_ROWS / len(self.stages))
        self.bottom = TOP + self.tall * len(self.stages)
        self.right = LEFT + self.wide * len(self.ways)
        self.roomy = self.wide >= TWO_LINES[0] and self.tall >= TWO_LINES[1]

    def at(self, p, t):
        return LEFT + self.wide * self.ways.index(t), TOP + self.tall * self.stages.index(p)


def _hatch():
    return (
        '<defs><pattern id="too-large" width="9" height="9" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="9" height="9" fill="{GREY}"/>'
        f'<rect width="2" height="9" fill="{TOO_LARGE["stripes"]}"/></pattern></defs>'
    )


def _head(title, error, rings):
    """The title, and the legend of colours, outlines and, where there are any, rings."""
    fitting = (WIDTH - 48) / (BOLD * len(title) or 1)
    out = [heading(24, 32, title, min(PX["heading"], round(fitting, 1)))]
    x = 24
    for share in (PALEST, 0.4, 0.6, 0.8, 1.0):
        out.append(f'<rect x="{x}" y="46" width="34" height="18" fill="{_colour(share)}" stroke="{STYLE["grid"]}"/>')
        x += 34
    out.append(words(x + 8, 60, f"{PALEST:.0%} to 100% of the best", PX["caption"]))
    x += 216
    looks = (
        (f'fill="{PAPER}" stroke="{BEST}" stroke-width="5"', f"best ± {error:.0%}", x, 46),
        (f'fill="url(#too-large)" stroke="{MUTED}"', "does not fit: memory needed, largest part", x + 134, 46),
        (f'fill="none" stroke="{MUTED}" {dashed("too small")}', "batch too small", 24, 73),
    )
    for look, name, left, top in looks:
        out.append(f'<rect x="{left}" y="{top}" width="26" height="18" {look}/>')
        out.append(words(left + 34, top + 14, name, PX["caption"]))
    if rings:
        said = "published: measured throughput, relative to the best predicted"
        out += [_ring(213, 82, INK), words(228, 87, said, PX["caption"])]
    return out


def _ring(x, y, ink):
    own = f' class="{FIXED}"' if ink != INK else ""  # as the text next to it
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="none" stroke="{ink}" stroke-width="2"{own}/>'


def _labels(frame):
    out, bold = [], {"font-weight": "600"}
    for t in frame.ways:
        x, _ = frame.at(frame.stages[0], t)
        out.append(words(x + frame.wide / 2, TOP - 9, f"t = {t}", PX["axis"], "middle", **bold))
    for p in frame.stages:
        _, y = frame.at(p, frame.ways[0])
        out.append(words(LEFT - 12, y + frame.tall / 2 + 5, f"p = {p}", PX["axis"], "end", **bold))
    return out


def _node(frame, node):
    """A line after the last t that stays inside a node."""
    inside = [t for t in frame.ways if t <= node]
    if len(inside) == len(frame.ways):
        return []
    x = LEFT + frame.wide * len(inside)
    line = f'<path d="M{x:.1f} {TOP - 40}V{frame.bottom + 6:.1f}" stroke="{INK}" stroke-width="3"/>'
    return [line, words(x + 8, TOP - 30, f"→ larger than a node of {node}", PX["caption"], **{"font-weight": "600"})]


def _drawn(one: Cell, frame, ring: _Ring | None):
    """A cell as a group that a page may find by its p and t."""
    x, y = frame.at(one.p, one.t)
    box = f'x="{x + 2:.1f}" y="{y + 2:.1f}" width="{frame.wide - 4:.1f}" height="{frame.tall - 4:.1f}"'
    yield f'<g class="hl-cell" data-p="{one.p}" data-t="{one.t}">'
    published = f"; published, {ring.told}" if ring else ""
    yield f"<title>p={one.p} t={one.t} d={one.d}: {_said(one)}{published}</title>"
    fill, ink = _colour(1.0 if one.equal else one.share), INK
    match one.state:
        case "illegal":
            yield f'<rect {box} fill="{PAPER}" stroke="{MUTED}" {dashed("too small")}/>'
        case "too large":
            yield f'<rect {box} fill="url(#too-large)" stroke="{TOO_LARGE["edge"]}"/>'
        case "fits":
            ink = ink_on(fill)
            pen = f'stroke="{BEST}" stroke-width="5"' if one.equal else f'stroke="{STYLE["grid"]}"'
            yield f'<rect {box} fill="{fill}" {pen}/>'
    middle, lower = x + frame.wide / 2, y + frame.tall / 2
    first, second = _text(one)
    more = {"fill": ink, "font-weight": "600"}
    rise = 11 if ring and frame.tall >= THREE_LINES else 0  # of the two lines, for a third one below them
    yield words(middle, lower + (-2 - rise if frame.roomy and second else 5), first,
                PX["caption" if one.share else "box"], "middle", **more)  # fmt: skip
    if frame.roomy and second:
        yield words(middle, lower + 15 - rise, second, PX["smallest"] + 1, "middle", fill=ink)
    if rise and frame.roomy:
        yield _ring(middle - 16, lower + 17, ink)
        yield words(middle - 6, lower + 22, f"{ring.share:.0%}", PX["smallest"] + 1, fill=ink)
    elif ring:
        yield _ring(x + frame.wide - 12, y + 12, ink)
    yield "</g>"


def _text(one: Cell) -> tuple[str, str]:
    """The two lines of a cell."""
    match one.state:
        case "fits":
            return f"{one.share:.0%}", f"d = {one.d}"
        case "too large":
            return f"{one.bytes / 1e9:.0f} GB", SHORT[one.most]
    return "", ""


def _said(one: Cell) -> str:
    match one.state:
        case "fits":
            return f"{one.share:.0%} of the best throughput, {one.bytes / 1e9:.0f} GB"
        case "too large":
            return f"does not fit, {one.bytes / 1e9:.0f} GB at least, most of it {one.most}"
    return "the batch is not divisible"


def _colour(share: float) -> str:
    """White to blue, from the palest share to 1."""
    return mix(PAPER, QUICK, max((share - PALEST) / (1 - PALEST), TINT))
