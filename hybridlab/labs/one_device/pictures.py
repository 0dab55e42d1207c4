"""The pictures of notebook 02: a step by its parts, networks and accelerators, the anatomy of memory, the roofline."""

import html
import math
from pathlib import Path
from typing import NamedTuple

import hybridlab as hl
from hybridlab.core.what.catalog import MACHINES
from hybridlab.core.what.frameworks import FRAMEWORKS
from hybridlab.labs.comparison import Compared, Comparison, compare
from hybridlab.labs.one_device.memory import placing, training
from hybridlab.measuring.one_device import Parts, Product
from hybridlab.predict.bytes import saved
from hybridlab.predict.plans.arithmetic import product
from hybridlab.predict.plans.footprint import Footprint
from hybridlab.show.charts.chart import Axis, Curve, chart
from hybridlab.show.layouts.anatomy import Bar, anatomy
from hybridlab.show.layouts.memory_bars import size
from hybridlab.show.paper.figure import Figure
from hybridlab.show.paper.still import Still
from hybridlab.show.plans.step_parts import Row, step_parts

SINGLE = 4  # bytes of a number on this core


# --- a step -------------------------------------------------------------------------------------------------------


def step(measured: Parts, predicted: Parts | None = None) -> Still:
    """One step of training by its parts; below the prediction, if there is one."""
    rows = [Row("predicted", predicted._asdict(), False)] if predicted else []
    told = "measured: " + ", ".join(f"{name} {1e3 * one:.3g} ms" for name, one in measured._asdict().items())
    if predicted:
        told = f"predicted {1e3 * sum(predicted):.3g} ms, measured {1e3 * sum(measured):.3g} ms; {told}"
    return step_parts([*rows, Row("measured", measured._asdict())], "One training step on one core", told)


# --- networks -----------------------------------------------------------------------------------------------------

KINDS = {"data": (5, "circle"), "pipeline": (2, "square"), "tensor": (4, "diamond"), "hybrid": (1, "cross")}
BILLION = 1e9


def growth() -> Figure:
    """The lecture's table of frameworks: the largest network over the most accelerators, by kind of parallelism."""
    curves = []
    for kind, (colour, marker) in KINDS.items():
        rows = [row for row in FRAMEWORKS if row.parallelism == kind]
        x, y = ([math.log10(one) for one in many] for many in zip(*((r.accelerators, r.parameters) for r in rows)))
        curves.append(Curve(kind, x, y, colour, "", marker, [row.name for row in rows]))
    marks = {math.log10(n): str(n) for n in (8, 16, 64, 256, 512, 2048)}
    x = Axis("devices: GPUs, CPUs or TPU cores", 0.7, 3.8, marks=marks)
    y = Axis("parameters", 7, 11.4, marks={7: "10 M", 8: "100 M", 9: "1 B", 10: "10 B", 11: "100 B"})
    least, most = (end(FRAMEWORKS, key=lambda row: row.parameters) for end in (min, max))
    told = f"From {_named(least)} to {_named(most)}: {most.parameters / least.parameters:,.0f} times as large"
    return chart(curves, x, y, "The largest network that each framework trained", told)


def _named(row):
    return f"{row.name} ({_count(row.parameters)} parameters on {row.accelerators:,} {row.kind})"


def _count(parameters):
    return f"{parameters / BILLION:g} B" if parameters >= BILLION else f"{parameters / 1e6:g} M"


class Frameworks:
    """The same table in words, with a link to the notebook in which each technique runs, if there is one."""

    def __init__(self, folder: str | Path = "."):
        self._folder = Path(folder)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """(framework, what it divides, accelerators, parameters, notebook) as text."""
        return [
            (row.name, row.parallelism, f"{row.accelerators:,} {row.kind}", _count(row.parameters), row.notebook)
            for row in FRAMEWORKS
        ]

    def _repr_markdown_(self):
        head = ("framework", "it divides", "most devices", "largest network", "notebook")
        rows = [(*row[:-1], self._link(row[-1])) for row in self.rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))

    def _link(self, notebook):
        there = (self._folder / f"{notebook}.ipynb").exists()
        return f"[{notebook}]({notebook}.ipynb)" if there else f"{notebook} (to come)"

    def __repr__(self):
        return "\n".join(
            f"{name:16} {how:9} {where:>16} {large:>7}  {book}" for name, how, where, large, book in self.rows
        )


# --- memory -------------------------------------------------------------------------------------------------------


def formula_and_counted(computed: Footprint, counted: Footprint, model: str) -> Still:
    """The memory of a step, by formula and counted."""
    bars = [Bar("predicted", "by formula", computed), Bar("measured", "bytes of tensors", counted)]
    told = ", ".join(f"{name} {size(part)}" for name, part in counted._asdict().items())
    same = "equal to the byte" if computed == counted else f"{size(computed.total)} predicted"
    return anatomy(bars, f"Memory of training: {model}", f"{told}: together {size(counted.total)}; {same}")


class Things:
    """The saved activations of one block, in bytes over s·b·h: here, and as Korthikanti et al. count them."""

    def __init__(self, shape: hl.Shape, batch: int):
        unit = shape.context * batch * shape.width
        ours, theirs = saved.block(shape, batch), saved.paper(shape, batch)
        each = [(what, ours[what] / unit, theirs[what] / unit) for what in ours]
        together = [sum(column) for column in zip(*(numbers for _, *numbers in each))]
        self.rows = [*each, ("together", *together)]

    def __repr__(self):
        lines = (f"{what:24}  {here:7.3f}  {paper:9.3f}" for what, here, paper in self.rows)
        return "\n".join([f"{'bytes over s·b·h':24}  {'here':>7}  {'the paper':>9}", *lines])

    def _repr_html_(self):
        head = "<tr><th>bytes over s·b·h</th><th>here</th><th>the paper</th></tr>"
        rows = (f"<tr><td>{html.escape(what)}</td><td>{a:g}</td><td>{b:g}</td></tr>" for what, a, b in self.rows)
        return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


LONGEST = 3  # cards' sizes at which a bar is cut off


def placing_and_training(parameters: float, cards: int, card: float) -> Still:
    """The weights alone, and the model's state in training, divided equally among cards of `memory` bytes."""
    rows = [("placing", placing, cards), ("training", training, cards)]
    kept = [what(parameters, n) for _, what, n in rows]
    bars = [Bar(f"{name} on {n} cards", "on each", one) for (name, _, n), one in zip(rows, kept)]
    told = "; ".join(f"{bar.name}: {size(one.total)} on each" for bar, one in zip(bars, kept))
    longest = LONGEST * card  # longer bars are cut off, so that the line of the card does not touch the first sum
    return anatomy(bars, f"{_count(parameters)} parameters, before any activation", told, card, longest)


# --- the roofline -------------------------------------------------------------------------------------------------


class Roof(NamedTuple):
    """The peak rates of a core: FLOP/s, and bytes/s to and from memory."""

    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """The FLOPs per byte above which arithmetic is the limit, and not the memory."""
        return self.peak / self.bandwidth


def roofline(square: list[Product], thin: list[Product], roof: Roof) -> Figure:
    """FLOP/s of matmuls over their arithmetic intensity, under the roof of this core, on logarithmic axes."""
    curves = [_under(roof, [_intensity(one) for one in (*square, *thin)])]
    for name, many, colour, marker in (
        ("n×n times n×n, measured", square, 5, "circle"),
        ("m×4096 times 4096×4096, measured", thin, 2, "square"),
    ):
        x, y = [math.log10(_intensity(one)) for one in many], [math.log10(one.rate / 1e9) for one in many]
        labels = [f"n = {one.n}" if one in square else f"m = {one.m}" for one in many]
        curves.append(Curve(name, x, y, colour, "", marker, labels))
    across, up = ([at for curve in curves for at in getattr(curve, axis)] for axis in "xy")
    x = Axis("arithmetic intensity: FLOPs for each byte", min(across) - 0.1, max(across) + 0.3, marks=_decades(across))
    y = Axis("GFLOP/s", min(up) - 0.2, max(up) + 0.2, marks=_decades(up))
    best, worst = (end((*square, *thin), key=lambda one: one.rate) for end in (max, min))
    told = (
        f"roof: {roof.peak / 1e9:.3g} GFLOP/s and {roof.bandwidth / 1e9:.3g} GB/s; ridge at {roof.ridge:.3g} FLOPs for "
        f"each byte; best {best.rate / 1e9:.3g} GFLOP/s, worst {worst.rate / 1e9:.3g} GFLOP/s; "
        "the roof's bandwidth is that of a copy, so a GEMM that only reads its matrix can be above it"
    )
    return chart(curves, x, y, "GEMMs under the roofline of this core", told)


WHY_BELOW = {  # by which of its sizes a matmul is small
    "n": "a small GEMM: the call takes as long as the work",
    "m": "thin: the weights are read, copied to another layout, and read again",
}


def below_the_roof(products: list[Product], roof: Roof) -> Comparison:
    """The fraction of its roofline bound that each matmul reaches; for all but the largest, the reason why it is below
    1.

    >>> below_the_roof([Product(4, 4, 4, 1e-6), Product(1, 4096, 4096, 4e-3)], Roof(1e11, 1e10)).rows[0].row[:4]
    ('n = 4, fraction of its roof', '', '100%', '≈2%')
    """
    rows, largest = [], max(products, key=lambda one: one.m * one.k * one.n)
    for one in products:
        letter = "n" if one.m == one.n else "m"
        allowed = min(roof.peak, roof.bandwidth * _intensity(one))
        name = f"{letter} = {getattr(one, letter)}, fraction of its roof"
        why = "" if one is largest else WHY_BELOW[letter]
        rows.append(Compared(name, 1, one.rate / allowed, "{:.0%}", within=None, why=why))
    return compare(*rows)


def by_rate(thin: list[Product]) -> str:
    """Matmuls with one thin side, from the fewest FLOP/s to the most.

    >>> by_rate([Product(8, 64, 64, 1e-3), Product(1, 64, 64, 1e-3)])
    'm = 1 < m = 8'
    """
    return " < ".join(f"m = {one.m}" for one in sorted(thin, key=lambda one: one.rate))


def _intensity(one: Product) -> float:
    return product(one.m, one.k, one.n, 1, 1, SINGLE).intensity


def _under(roof, intensities):
    low, high = min(intensities), 2 * max(*intensities, roof.ridge)  # room for the last label
    x = [min(low, roof.ridge), roof.ridge, high]
    y = [min(roof.peak, roof.bandwidth * one) / 1e9 for one in x]
    return Curve("roof: bandwidth, then peak", *([math.log10(one) for one in many] for many in (x, y)), 3, "dash")


def _decades(values):
    """Ticks of a logarithmic axis: 1, 2, 5, 10 …"""
    low, high = min(values) - 0.2, max(values) + 0.3
    tens = range(math.floor(low), math.ceil(high) + 1)
    marks = {math.log10(lead * 10.0**ten): f"{lead * 10.0**ten:g}" for ten in tens for lead in (1, 3)}
    return {at: name for at, name in marks.items() if low + 0.1 <= at <= high}


def ridges() -> dict[str, float]:
    """{machine from the catalog: the FLOPs per byte above which arithmetic is the limit}.

    >>> print(*(f"{name} {ridge:.0f}" for name, ridge in ridges().items() if name in ("a100", "h100", "b200")))
    a100 153 h100 295 b200 281
    """
    return {name: one.peak / one.bandwidth for name, one in MACHINES.items()}


def intensity_of(shape: hl.Shape, batch: int) -> float:
    """FLOPs for each byte, in half precision, of the MLP's first matmul, for a batch of this many sequences.

    >>> from hybridlab.core.what.catalog import model
    >>> round(intensity_of(model("gpt3-175b").shape, 1))
    1695
    """
    return product(batch * shape.context, shape.width, shape.inside, 1, 1).intensity
