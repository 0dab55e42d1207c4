"""Notebook 11: sweeps of partitions and microbatches on real ranks, and torchgpipe's; activation recomputation."""

import html
import math

import torch

import hybridlab as hl
from hybridlab.labs.comparison import Compared, Comparison, compare
from hybridlab.measuring.saved import Saved
from hybridlab.predict.papers.published import published
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.paper.figure import Figure
from hybridlab.training.models.transformer import Transformer
from hybridlab.training.stages import cut, stages_of

PARTITIONS, MICROBATCHES = (1, 2, 4, 8), (1, 4, 32)
CELLS = [(m, n) for m in MICROBATCHES for n in PARTITIONS if n > 1 or m == 1]  # on one rank, m has no effect
WHOLE = 0.08  # seconds that one microbatch's forward takes through the whole model
REFERENCE = (1, 2)  # one microbatch on two partitions, the unit of the published table
COLOURS = (5, 1, 2)

Speeds = dict[tuple[int, int], float]  # {(microbatches, partitions): throughput relative to the reference}


def sweep(whole: float = WHOLE) -> dict[tuple[int, int], hl.Timeline]:
    """{(microbatches, partitions): measured}: one model, cut for more and more ranks, with emulated work."""
    return {(m, n): _run(n, m, whole / n) for m, n in CELLS}


def _run(ranks, microbatches, forward):
    schedule = hl.schedule("gpipe", ranks=ranks, microbatches=microbatches)
    return hl.run(schedule, costs=hl.Costs(F=forward, B=2 * forward), steps=1)


def speeds(real: dict[tuple[int, int], hl.Timeline]) -> Speeds:
    """Microbatches per second, divided by those of the reference."""
    rate = {(m, n): m / t.length for (m, n), t in real.items()}
    return {key: one / rate[REFERENCE] for key, one in rate.items()}


def formula() -> Speeds:
    """The throughputs without messages, by formula: n·m / (m+n-1), which includes only the filling and emptying of the
    pipeline.

    >>> formula()[4, 4]
    2.2857142857142856
    """
    return {(m, n): n * m / (m + n - 1) for m, n in CELLS}


def printed(column: str = "speedup_torchgpipe") -> Speeds:
    """The published speed-ups of AmoebaNet-D (18, 256): torchgpipe's, or "speedup_gpipe_paper".

    >>> printed()[32, 8]
    4.953
    """
    rows = published("torchgpipe_amoebanet_speed")
    return {(row["microbatches_m"], row["partitions_n"]): row[column] for row in rows}


def against_formula(mine: Speeds) -> Comparison:
    """Each throughput of the sweep compared with the formula; the tolerance is a quarter.

    >>> against_formula(formula()).rows[-1].row[:4]
    ('m = 32, 8 partitions', '', '6.56', '≈6.56')
    """
    cells = {key: speed for key, speed in formula().items() if key[1] > 1}
    return compare(
        *(Compared(f"m = {m}, {n} partitions", right, mine[m, n], "{:.2f}", 0.25) for (m, n), right in cells.items())
    )


class Published:
    """The formula, and published values of torchgpipe and GPipe: throughput by microbatches and partitions."""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The rows, head first: source, m, then one number for each number of partitions."""
        tables = {"formula": formula(), "torchgpipe": printed(), "GPipe": printed("speedup_gpipe_paper")}
        numbers = [
            (name, f"m = {m}", *(f"{speeds[m, n]:.2f}" for n in PARTITIONS[1:]))
            for name, speeds in tables.items()
            for m in MICROBATCHES
        ]
        return [("partitions", "", *map(str, PARTITIONS[1:])), *numbers]

    def __repr__(self):
        return "\n".join(f"{name:10}  {m:6}  " + "  ".join(f"{one:>4}" for one in rest) for name, m, *rest in self.rows)

    def _repr_html_(self):
        line = lambda cells, tag: "".join(f"<{tag}>{html.escape(one)}</{tag}>" for one in cells)
        head, *body = self.rows
        below = "".join(f"<tr>{line(row, 'td')}</tr>" for row in body)
        return f"<table><thead><tr>{line(head, 'th')}</tr></thead><tbody>{below}</tbody></table>"


def picture(mine: Speeds, others: Speeds) -> Figure:
    """Throughput over partitions, one colour for each m: emulated here (lines), published by torchgpipe (dashed)."""
    curves, told = [], []
    for m, colour in zip(MICROBATCHES, COLOURS):
        for name, speeds, dash, marker in (
            (f"m = {m}, emulated here", mine, "solid", "circle"),
            (f"m = {m}, published by torchgpipe", others, "dash", "square-open"),
        ):
            at = {n: speeds[m, n] for n in PARTITIONS if (m, n) in speeds}
            ends = [""] * (len(at) - 1) + [f"m = {m}"] if speeds is mine else []
            curves.append(Curve(name, [math.log2(n) for n in at], list(at.values()), colour, dash, marker, ends))
        told.append(f"m = {m}, 8 partitions: {mine[m, 8]:.1f} emulated, {others[m, 8]:.1f} published")
    x = Axis("partitions", -0.1, 3.3, marks={math.log2(n): str(n) for n in PARTITIONS})
    y = Axis("throughput: m = 1 on 2 partitions is 1", 0, 1.05 * max(max(curve.y) for curve in curves))
    title = "Model parallelism (m = 1) and pipeline, emulated and published"
    return chart(curves, x, y, title, f"Throughput over partitions: {'; '.join(told)}")


def sizes(shape: hl.Shape, batch: int, ranks: int = 2) -> dict[int, hl.Timeline]:
    """{sequences in a microbatch: timeline of a real model}, with one batch cut into ever larger pieces."""
    cuts = [b for b in range(1, batch + 1) if batch % b == 0]
    schedules = {b: hl.schedule("gpipe", ranks=ranks, microbatches=batch // b) for b in cuts}
    real = {b: hl.run(s, work="model", model=shape, batch=batch, steps=4) for b, s in schedules.items()}
    return {b: min((t.step(i) for i in range(t.steps)), key=lambda step: step.length) for b, t in real.items()}


def valley(real: dict[int, hl.Timeline]) -> Figure:
    """The length of a step, and its busy time, for each size of a microbatch; measured by `sizes`."""
    at = [math.log2(b) for b in real]
    step = [1e3 * t.length for t in real.values()]
    busy = [1e3 * sum(t.busy) / len(t.busy) for t in real.values()]
    curves = [
        Curve("length of a step", at, step, 5, "solid", "circle"),
        Curve("of it busy, mean of the ranks", at, busy, 1, "dash", "square"),
    ]
    x = Axis("sequences in a microbatch b", -0.1, at[-1] + 0.1, marks={math.log2(b): str(b) for b in real})
    best = min(real, key=lambda b: real[b].length)
    told = f"Length of a step over b: {step[0]:.0f} ms at first, {min(step):.0f} at b = {best}, {step[-1]:.0f} at last"
    y = Axis("time, ms", 0, 1.05 * max(step))
    return chart(curves, x, y, "Length of a step over the size of a microbatch", told)


def bottom(real: dict[int, hl.Timeline]) -> str:
    """The position of the shortest step, in words: at the smallest or largest size, or in between."""
    best = min(real, key=lambda b: real[b].length)
    where = "at an end" if best in (min(real), max(real)) else "between the ends"
    return f"the shortest step is {where}"


# --- activation recomputation --------------------------------------------------------------------------------------


def again(recompute: str, ranks: int = 4, microbatches: int = 8) -> hl.Schedule:
    """GPipe in torchgpipe's order: the last microbatch's backward comes first, so that `except_last` does not recompute
    it."""
    options = {"backward": "lifo", "recompute": recompute}
    schedule = hl.schedule("gpipe", ranks=ranks, microbatches=microbatches, **options)
    return schedule.renamed(f"gpipe, recompute {recompute}")


def left_behind(shape: hl.Shape, sequences: int, ranks: int = 2) -> tuple[int, int]:
    """(bytes that a microbatch's forward saves on the last rank, bytes of its input), counted on a rank."""
    with hl.ranks(1) as pool:
        return pool.run(_left_behind, shape, sequences, ranks)[0]


def _left_behind(comm, shape, sequences, ranks):
    model, dtype = Transformer(shape), torch.float32
    module = model.made(0, dtype)
    stage = stages_of(model, module, cut(shape, ranks), model.between(sequences, dtype))[-1]
    entered = torch.randn(sequences, shape.context, shape.width, requires_grad=True)
    targets = torch.zeros(sequences, shape.context, dtype=torch.long)
    with Saved(module.parameters()) as left:
        model.loss(stage(entered), targets)
    return left.peak, entered.nbytes
