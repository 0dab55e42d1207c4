"""Measurements on GPUs as points, one per row: those of others are hollow; our predictions are filled, and have bars.

A panel has its own axis, which contains its bars and is logarithmic if its values differ by more than a factor of
twelve; an arrow is a bar without an upper end. The lines below a panel say how it is predicted. A ratio to something
else is drawn as a line from the other, which is 1.
"""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from hybridlab.predict.judged.on_gpus import BLOCK, FORMULA, LIMIT, NONE, PLAN, SCHEDULE, Panel
from hybridlab.predict.judged.points import Point
from hybridlab.show.charts.chart import Axis, Frame
from hybridlab.show.paper.sheet import heading, prose_width, sheet, short, ticks, words, wrap
from hybridlab.show.paper.still import Still
from hybridlab.show.paper.style import MARKS, STYLE

WIDTH, MARGIN, PX = 960, 24, STYLE["pixels"]
LEFT, RIGHT, MEASURED, PREDICTED = 350, 735, 820, WIDTH - MARGIN  # of the plot; ends of the columns of numbers
ROW, FOOT, GAP, LINE, FINE = 28, 26, 26, 17, PX["smallest"] + 1
OTHER = re.compile(r" (?:over (?:that of )?|against )(.+)")  # in words: what a ratio compares with
FAR = 12  # the ratio from which an axis is logarithmic
INK, MUTED, BLUE = STYLE["ink"], STYLE["muted"], STYLE["kinds"]["F"]["fill"]
STEM = f'stroke="{INK}" stroke-width="4"'
FULL, BAR = f'fill="{BLUE}" stroke="{BLUE}" stroke-width="0"', 3  # a mark has the colour of lines: lighter in the dark
LEGEND = {"measured": "measured", PLAN: "our prediction", LIMIT: "a limit"}
HOW = {
    PLAN: "Predicted by hl.plan.",
    BLOCK: "A block is predicted by the model of hl.plan, which was fitted to whole steps, so without a bar.",
    SCHEDULE: "Predicted by hl.simulate.",
    FORMULA: "Predicted by a formula from data sheets, so without a bar.",
    LIMIT: "A limit counts the slowest resource only, and nothing that waits for it.",
    NONE: "Without our prediction: the source does not print the sizes that a prediction needs.",
}


def on_gpus(title: str, panels: Sequence[Panel], own: Sequence[Panel] = ()) -> Still:
    """The panels one below the other; `own` are those of this course's records, at the end.

    >>> one = Panel("NCCL", "8 × A100", "2023", "a page", "bandwidth", "GB/s", "", FORMULA, (Point("1 GiB", 195, 300),))
    >>> on_gpus("A message on GPUs", [one])
    <picture A message on GPUs. NCCL, 8 × A100: 1 GiB 195 GB/s measured, 300 predicted. Our largest error: +54 % at \
1 GiB.>
    """
    kinds = {"measured"} | {LIMIT if one.how == LIMIT else PLAN for one in panels if one.errors}
    out, y = [heading(MARGIN, 32, title), *_legend(kinds)], 98.0
    for panel in panels:
        body, y = _panel(panel, y, _note(panel))
        out += body
    if largest := _largest(panels):
        out.append(words(MARGIN, y, largest, PX["caption"]))
        y += PX["line"]
    ours, y = _own(own, y)
    said = " ".join(filter(None, (f"{title}.", *map(_in_words, panels), largest)))
    return Still(
        sheet(WIDTH, y, title, said, [*out, *ours]), said + "".join(f"\nOurs: {_in_words(one)}" for one in own)
    )


def _own(own, y):
    """The panels of this course's records, in a group with a class that the comparison of notebooks leaves out."""
    if not own:
        return [], y
    out, y = ['<g class="elsewhere">'], y + GAP
    for panel in own:
        body, y = _panel(panel, y, "")
        out += body
    return [*out, "</g>"], y


# --- words --------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """A value of a panel, as it is printed.

    >>> number(10152.7), number(1.004), number(0.8)
    ('10,153', '1.00', '0.80')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.{2 if value < 10 else 1}f}"


def _in_words(panel: Panel) -> str:
    return f"{panel.system}, {panel.machine}: {'; '.join(_told(one, panel.unit) for one in panel.points)}."


def _told(one: Point, unit: str) -> str:
    return f"{one.name} {number(one.measured)} {unit} measured" + (
        f", {number(one.predicted)} predicted" if one.predicted is not None else ""
    )


def _note(panel: Panel) -> str:
    """How a panel is predicted, and how many of its points are within their bars."""
    bars = [(*one.bar, one.measured) for one in panel.points if one.bar]
    said = [HOW[panel.how]]
    if bars:
        inside = sum(low <= measured <= high for low, high, measured in bars)
        said.append(f"Nine of ten {panel.runs} are within such bars; here {inside} of {len(bars)}.")
    if any(high == math.inf for _, high, _ in bars):
        said.append("An arrow is a bar without an upper end.")
    if panel.how == PLAN and any(one.predicted is None for one in panel.points):
        said.append("Without a mark: hl.plan finds that the plan does not fit into memory.")
    return " ".join(said)


def _largest(panels) -> str:
    """The largest error of our predictions in a sentence; "" without one."""
    predicted = [one for panel in panels if panel.how != LIMIT for one in panel.points if one.predicted is not None]
    if not predicted:
        return ""
    most = max(predicted, key=lambda one: abs(one.error))
    return f"Our largest error: {100 * most.error:+.0f} % at {most.name}.".replace(": -", ": −")


# --- the drawing --------------------------------------------------------------------------------------------------


def _legend(kinds) -> Iterator[str]:
    x = MARGIN
    for kind, name in LEGEND.items():
        if kind in kinds:
            yield from _marks(x + 12, 56, None, kind)
            yield words(x + 34, 61, name, PX["caption"])
            x += 60 + prose_width(name, PX["caption"])


def _marks(x, y, ends, kind) -> Iterator[str]:
    """One mark at a place, with the ends of its bar or None."""
    if kind == "measured":
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{INK}" stroke-width="2"/>'
    elif kind == LIMIT:
        yield f'<path d="M{x:.1f} {y - 9:.1f}v18" stroke="{MUTED}" stroke-width="3"/>'
    else:
        if ends:
            yield f'<path d="M{ends[0]:.1f} {y:.1f}H{ends[1]:.1f}" stroke="{BLUE}" stroke-width="{BAR}"/>'
        yield f'<path d="{MARKS["diamond"]}" {FULL} transform="translate({x:.1f} {y:.1f}) scale(0.85)"/>'


def _panel(panel: Panel, y: float, note: str) -> tuple[list[str], float]:
    """(its elements with the note below them, where the next one begins)."""
    said = ", ".join(filter(None, (panel.machine, panel.when)))
    out = [heading(MARGIN, y, panel.system, PX["axis"]), words(MARGIN, y + 20, said, PX["caption"])]
    source = f"{panel.source} ({panel.sure})" if panel.sure else panel.source
    fine, below = _fine(source, y + 39)
    out += fine
    top = below + 22
    out += _heads(panel, top - 12)
    frame = Frame(_axis(panel), Axis("", 0, 1), top, ROW * len(panel.points), LEFT, RIGHT)
    for value, name in frame.x.ticks.items():
        x, _ = frame.at(value, 0)
        pen = INK if value == 1 and _compares(panel) else STYLE["grid"]
        out.append(f'<path d="M{x:.1f} {frame.top:g}V{frame.bottom:g}" stroke="{pen}"/>')
        out.append(words(x, frame.bottom + 17, name, PX["smallest"], "middle", fill=MUTED))
    out += chain.from_iterable(_row(panel, one, frame, top + ROW * (i + 0.5)) for i, one in enumerate(panel.points))
    fine, below = _fine(note, frame.bottom + FOOT + 14)
    return [*out, *fine], below + GAP


def _fine(text: str, y: float) -> tuple[list[str], float]:
    """(lines of small print from y on, the height below them)."""
    lines = wrap(text, 0.9 * (WIDTH - 2 * MARGIN), FINE) if text else []
    drawn = [words(MARGIN, y + LINE * i, line, FINE, fill=MUTED) for i, line in enumerate(lines)]
    return drawn, y + LINE * len(lines)


def _heads(panel: Panel, y: float) -> Iterator[str]:
    yield words(LEFT, y, f"{panel.what}, {panel.unit}", FINE, fill=MUTED)
    yield words(MEASURED, y, "measured", FINE, "end", fill=MUTED)
    if panel.errors:
        yield words(PREDICTED, y, "limit" if panel.how == LIMIT else "predicted", FINE, "end", fill=MUTED)


def _axis(panel: Panel) -> Axis:
    values = [*(one.measured for one in panel.points), *(one.predicted for one in panel.points if one.predicted)]
    values += [end for one in panel.points for end in one.bar or () if end < math.inf]
    low, high = min(values), max(values)
    if _compares(panel):
        return _from_one(high, _other(panel))
    if high < FAR * low:
        return Axis("", 0, _round(high), write="{:,g}", most=6)
    powers = [10.0**k * factor for k in range(-3, 7) for factor in (1, 3)]
    inside = {power: f"{power:,g}" for power in powers if 0.8 * low <= power <= 1.2 * high}
    return Axis("", 0.75 * low, 1.3 * high, marks=inside, log=True)


def _round(high: float) -> float:
    """The first tick of an axis from zero that is clearly beyond a value.

    >>> _round(4.1), _round(1.14), _round(2.99)
    (5.0, 1.5, 4.0)
    """
    step = ticks(0, high, 6)[1]
    return round(step * math.ceil(1.02 * high / step), 9)


def _compares(panel: Panel) -> bool:
    """Whether its values are measured ratios to something else, which is 1."""
    return panel.how == NONE and panel.unit == "×"


def _other(panel: Panel) -> str:
    """The thing to which the ratios of a panel compare; "" if the source names none."""
    found = OTHER.search(panel.what) or OTHER.search(panel.system)
    return found[1] if found else ""


def _from_one(high: float, other: str) -> Axis:
    """An axis from zero whose tick at 1 says what is there; ticks that its text would cover are left out."""
    end, name = _round(max(high, 1)), f"1: {other}" if other else "1"
    half = (prose_width(name, PX["smallest"]) / 2 + 16) * end / (RIGHT - LEFT)
    far = (value for value in ticks(0, end, 6) if abs(value - 1) > half)
    return Axis("", 0, end, marks={1: name} | {value: f"{value:g}" for value in far})


def _row(panel: Panel, one: Point, frame: Frame, y: float) -> Iterator[str]:
    yield words(MARGIN, y + 5, one.name, PX["axis"])
    place = lambda value: frame.at(min(value, frame.x.high), 0)[0]
    yield words(MEASURED, y + 5, number(one.measured), PX["axis"], "end")
    if one.predicted is not None:
        yield from _marks(place(one.predicted), y, one.bar and [*map(place, one.bar)], panel.how)
        if one.bar and one.bar[1] == math.inf:
            yield f'<path d="M{RIGHT} {y - 6:.1f}l10 6l-10 6z" {FULL}/>'
        yield words(PREDICTED, y + 5, number(one.predicted), PX["axis"], "end")
    at = place(one.measured)
    if _compares(panel):
        yield f'<path d="M{place(1):.1f} {y:.1f}H{at + math.copysign(8, 1 - one.measured):.1f}" {STEM}/>'
    yield from _marks(at, y, None, "measured")
    yield f'<path d="M{MARGIN} {short(y + ROW / 2)}H{WIDTH - MARGIN}" stroke="{STYLE["grid"]}" opacity="0.5"/>'
