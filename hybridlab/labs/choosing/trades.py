"""Notebook 41: the effects of a larger t, the plans for SC'21's table, and plans that run on this machine."""

import html
import math
import re
import statistics
import textwrap
from dataclasses import dataclass

from hybridlab.core.what.shape import Shape
from hybridlab.labs.choosing.plan_explorer import explorer
from hybridlab.predict.papers import sc21
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.planner import Planned, plan
from hybridlab.show.charts.chart import Axis, Curve, chart

__all__ = ["explorer"]  # next to the names of this file, those that the notebook takes from the explorer

SLIDES = {"zero": 0, "recompute": "full", "sequence": False}  # the options of the programs that the slides describe
SHAPE, BATCH = Shape(layers=4, width=64, heads=4, context=64), 16  # the model that two ranks of this machine train
POINTS = {
    "d = 2": Plan(d=2, b=1),
    "p = 2": Plan(p=2, b=1),
    "t = 2": Plan(t=2, b=1),
    "t = 2, b = 16": Plan(t=2, b=16),
}


def in_lines(sentence: str, indent: int = 4) -> str:
    """A sentence in lines that fit into a notebook; a number stays on the line of its unit.

    >>> print(in_lines("- " + "1 s, " * 20 + "1 s of 2 s"))
    - 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s, 1 s,
        1 s, 1 s of 2 s
    """
    close = re.sub(r"(\d) (s|GB|bytes)\b", "\\1\N{NO-BREAK SPACE}\\2", sentence)
    lines = textwrap.fill(close, 98, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\N{NO-BREAK SPACE}", " ")


@dataclass(frozen=True)
class Sentences:
    """Sentences that show themselves, one below the other."""

    told: tuple[str, ...]

    def __repr__(self):
        return "\n".join(in_lines(f"- {one}") for one in self.told)

    def _repr_html_(self):
        return f"<ul>{''.join(f'<li>{html.escape(one)}</li>' for one in self.told)}</ul>"


def reasons(planned: Planned, *asked: dict) -> Sentences:
    """Why each of these choices is not the best of all plans: `planned.why` of each.

    >>> reasons(plan("gpt-1.7b", "a100", 8, 64), dict(t=5), dict(d=3))
    - t=5 is impossible: p·t·d must be 8
    - d=3 is impossible: p·t·d must be 8
    """
    return Sentences(tuple(planned.why(**sizes) for sizes in asked))


def refusals(*asked: dict) -> Sentences:
    """The planner's answers to requests, given as arguments of `plan`: the best plan, or why there is none."""
    return Sentences(tuple(map(_answer, asked)))


def _answer(asked: dict) -> str:
    try:
        return f"best: {plan(**asked).best}"
    except ValueError as error:
        return str(error)


def ways_worth(width: int, rate: float, link: float, allowed: float = 0.1) -> float:
    """The largest t with which tp all-reduces inside a node take at most this fraction of the GEMMs' time.

    rate  FLOP/s that GEMMs reach;  link  bytes/s inside the node

    >>> round(ways_worth(20480, 0.7249 * 312e12, 300e9), 1)
    11.9
    """
    return 1 + 4 * allowed * width * link / rate


def trade(batch: int = 32):
    """161B on 64 GPUs as in figure 13, over t: bubble and tp all-reduces as fractions of a step."""
    rows = sorted((row for row in sc21.figure(13) if row.batch == batch), key=lambda row: row.plan.t)
    ways, steps = [row.plan.t for row in rows], [row.step for row in rows]
    idle, sums = [float(one.idle) for one in steps], [float(one.tensor / one.total) for one in steps]
    both, places = [a + b for a, b in zip(idle, sums)], list(range(len(ways)))
    best = both.index(min(both))
    least = [f"{one:.0%}" if place == best else "" for place, one in enumerate(both)]
    drawn = [
        Curve("bubble, idle / total", places, idle, 5, "solid", "circle"),
        Curve("tp all-reduces", places, sums, 2, "dash", "square"),
        Curve("both", places, both, 3, "dot", "diamond", least),
    ]
    told = f"161B on 64 GPUs, batch {batch}: from t = {ways[0]} to {ways[-1]} the bubble falls from {idle[0]:.0%} to "
    told += f"{idle[-1]:.0%} of the step, tp all-reduces grow from {sums[0]:.0%} to {sums[-1]:.0%}; "
    told += f"both together are least at t = {ways[best]}"
    marks = {place: f"t = {row.plan.t}, p = {row.plan.p}" for place, row in enumerate(rows)}
    x = Axis("ways of tensor parallelism t, stages p", -0.3, len(ways) - 0.7, marks=marks)
    y = Axis("share of the step", -0.03, 0.6, "{:.0%}")
    return chart(drawn, x, y, f"Bubble against all-reduces over t: 161B on 64 GPUs, batch {batch}", told)


def rows_planned(**given) -> list[tuple[str, Planned]]:
    """SC'21's table: for each row its label, and all plans for its model, devices and batch; the arguments are those of
    `plan`.
    """
    return [
        (f"{row.shape.parameters / 1e9:.1f}B", plan(row.shape, sc21.A100, row.plan.devices, row.batch, **given))
        for row in sc21.table()
    ]


def most_copies(planned: Planned) -> int:
    """The largest d of a plan that fits."""
    return int(planned.space.d[planned.fits].max())


def chosen_and_printed() -> tuple[tuple, list[tuple]]:
    """SC'21's table: the plans of our planner under the limits of its programs, and those of its authors.

    Returns the names of the columns, and the rows.
    """
    heads = "model", "GPUs", "p · t · d, planned", "largest d that fits", "p · t · d, printed"
    size = lambda one: f"{one.p} · {one.t} · {one.d}"
    return heads, [
        (label, planned.devices, size(planned.best.plan), most_copies(planned), size(row.plan))
        for (label, planned), row in zip(rows_planned(**SLIDES), sc21.table())
    ]


def side_by_side(predicted: dict[str, float], measured: dict[str, list[float]]):
    """Seconds of a step, predicted and measured, over the plans in the order of the prediction; a logarithmic axis."""
    names = sorted(predicted, key=predicted.get)
    places = list(range(len(names)))
    foreseen, middle = ([one * 1e3 for one in its] for its in (
        [predicted[name] for name in names], [statistics.median(measured[name]) for name in names]))  # fmt: skip
    each = [(place, one * 1e3) for place, name in enumerate(names) for one in measured[name]]
    plain = (
        Curve("each measured step", *zip(*each), 0, "", "circle-open"),
        Curve("measured, the median", places, middle, 1, "", "square"),
        Curve("predicted", places, foreseen, 3, "", "diamond"),
    )
    drawn = [one._replace(y=[math.log10(ms) for ms in one.y]) for one in plain]
    told = [f"{name}: {a:.0f} and {b:.0f}" for name, a, b in zip(names, foreseen, middle)]
    x = Axis("plan for two ranks", -0.3, len(names) - 0.7, marks=dict(zip(places, names)))
    low, high = min(min(one.y) for one in drawn) - 0.1, max(max(one.y) for one in drawn) + 0.1
    marks = {math.log10(ms): str(ms) for ten in range(6) for ms in (10**ten, 2 * 10**ten, 5 * 10**ten)}
    y = Axis("ms a step (log scale)", low, high, marks={at: ms for at, ms in marks.items() if low < at < high})
    figure = chart(drawn, x, y, "The same batch under four plans", f"ms predicted and measured: {'; '.join(told)}")
    for trace, one in zip(figure.data, plain):  # a pointer reads milliseconds, not their logarithms
        trace.update(customdata=list(one.y), hovertemplate="%{customdata:.0f} ms")
    return figure
