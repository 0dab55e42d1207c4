"""Measurements of this machine, next to their predictions and to the records of other machines."""

import json
import math
import os
from dataclasses import dataclass

from hybridlab.core.when.timeline import Timeline
from hybridlab.measuring.course_suite import TO
from hybridlab.measuring.recorded import Recorded, recorded
from hybridlab.measuring.row import device_of_ranks, row, where
from hybridlab.show.charts import strip
from hybridlab.show.charts.card import NUMBER, Head, Line, card
from hybridlab.world.devices.placement import placement

HERE, PREDICTED = "this machine", "predicted"
ELSEWHERE = "elsewhere"  # the class of other machines' columns
SCALES = {"s": ((1, "s"), (1e-3, "ms"), (1e-6, "µs")), "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s")),
          "B/s": ((1e9, "GB/s"), (1e6, "MB/s"))}  # fmt: skip


@dataclass(frozen=True)
class Machines:
    """Measurements of several machines, shown as a card of strips: a column for each machine, a line for each quantity.

    values  {quantity: its numbers in `unit`, in the order of the columns}; None if a machine has none
    """

    columns: tuple[str, ...]
    values: dict[str, tuple[float | None, ...]]
    unit: str = "s"

    @property
    def rows(self) -> dict[str, tuple[str, ...]]:
        """{quantity: each value with its unit, or ""}."""
        return {what: tuple(in_unit(value, self.unit) for value in its) for what, its in self.values.items()}

    def __repr__(self):
        return "\n".join(f"{what}: {'; '.join(self._told(cells))}" for what, cells in self.rows.items())

    def _told(self, cells):
        return [f"{column} {cell}" for column, cell in zip(self.columns, cells) if cell]

    def _repr_html_(self):
        lines = [Line(what, self._drawn(self.values[what]), cells) for what, cells in self.rows.items()]
        return card("Predicted, on this machine, and on others", self._heads, lines)

    def _drawn(self, values):
        marks = [(head.sign, value) for head, value in zip(self._heads, values) if value is not None]
        return strip.on_scale(marks, lambda value: in_unit(value, self.unit) if value else "0", measured=True)

    @property
    def _heads(self):
        """Each column with its mark; those of other machines have a class, by which tests/nbval.cfg leaves them out."""
        own = {PREDICTED: "predicted", HERE: "measured"}
        others = iter(range(len(self.columns)))
        return [
            Head(column, own[column], "; ")
            if column in own
            else Head(column, strip.other(next(others)), "; ", f"{ELSEWHERE} {NUMBER}")
            for column in self.columns
        ]


def machines(
    notebook: str,
    measured: dict,
    unit: str = "s",
    records: list[Recorded] | None = None,
    device: str | None = None,
    ranks: int | dict[str, int] = 1,
) -> Machines:
    """A notebook's measurements, as a card: predicted, on this machine, and on the machines recorded in `results`.

    measured  {name: measured, or (predicted, measured)}; each is a timeline, a number in `unit`, or several
              numbers, of which the median counts
    unit      "s", "FLOP/s" or "B/s"
    device    the kind of device that was measured; None: that of the ranks here; "cpu" for emulated work
    ranks     the number of ranks, for all or as {name: ranks}: on GPUs a row says whether they shared one
              A timeline has its own device and ranks

    Under `hybridlab measure --suite course` the measurements are also recorded.

    >>> machines("1f1b", {"1F1B, one step": (0.5, [0.51, 0.55, 0.52])}, records=[])
    1F1B, one step: predicted 500 ms; this machine 520 ms
    """
    records = recorded() if records is None else records
    both = {what: one if isinstance(one, tuple) else (None, one) for what, one in measured.items()}
    device = device or device_of_ranks()
    count = lambda what: ranks.get(what, 1) if isinstance(ranks, dict) else ranks
    rows = {
        what: row(what, unit, numbers(one), notebook=notebook, **of_ranks(one, device, count(what)))
        for what, (_, one) in both.items()
    }
    _write_down(rows.values())
    cells = {
        what: [foreseen and numbers(foreseen)[0], rows[what]["median"], *(of(one, notebook, what) for one in records)]
        for what, (foreseen, _) in both.items()
    }
    columns = (PREDICTED, HERE, *(one.label for one in records))
    filled = [place for place in range(len(columns)) if any(its[place] is not None for its in cells.values())]
    return Machines(
        tuple(columns[place] for place in filled),
        {what: tuple(its[place] for place in filled) for what, its in cells.items()},
        unit,
    )


def numbers(measured) -> list[float]:
    """The repetitions of a measurement: the lengths of a timeline's steps, or the numbers themselves."""
    if isinstance(measured, Timeline):
        return [measured.step(number).length for number in range(measured.steps)]
    return [float(one) for one in measured] if isinstance(measured, list) else [float(measured)]


def of_ranks(measured, device: str, ranks: int) -> dict:
    """The device of a measurement, and on GPUs its ranks: a timeline names its own; for numbers, the given ones.

    >>> of_ranks(0.5, "cpu", 4)
    {'device': 'cpu'}
    """
    if isinstance(measured, Timeline):
        device, mesh = measured.origin.get("device", device), measured.origin.get("mesh", {})
        ranks = math.prod(mesh.values())
    return {"device": device} | (where(placement(ranks)) if device != "cpu" else {})


def in_unit(number: float | None, unit: str) -> str:
    """
    >>> in_unit(0.0123, "s"), in_unit(4.15e10, "FLOP/s"), in_unit(None, "s")
    ('12.3 ms', '41.5 GFLOP/s', '')
    """
    if number is None:
        return ""
    size, name = next((scale for scale in SCALES[unit] if number >= scale[0]), SCALES[unit][-1])
    return f"{float(f'{number / size:.3g}'):g} {name}"


def of(record: Recorded, notebook: str, what: str) -> float | None:
    """The measurement of a record's machine, or None."""
    found = record.row(notebook, what)
    return found and found["median"]


def _write_down(rows):
    if file := os.environ.get(TO):
        with open(file, "a", encoding="utf-8") as told:
            told.writelines(json.dumps(one) + "\n" for one in rows)
