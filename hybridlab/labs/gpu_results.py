"""`labs.on_gpus("gpipe")`: published measurements on GPUs for a notebook, our predictions, and our GPU records."""

from hybridlab.labs.by_machine import SCALES
from hybridlab.measuring.recorded import Recorded, recorded
from hybridlab.predict.judged.on_gpus import NONE, Panel, panels
from hybridlab.predict.judged.points import Point
from hybridlab.show.charts import on_gpus as charts
from hybridlab.show.paper.still import Still

GPU = "cuda"  # the device of a row that was measured on one


def on_gpus(topic: str, records: list[Recorded] | None = None) -> Still:
    """The published measurements of a notebook's subject on GPUs, with our predictions of them.

    topic    the notebook's name without its number, as "gpipe"
    records  of this course; None: those in `results`. Records from GPUs are shown at the end

    raises  ValueError for an unknown topic

    Hollow circles are measurements; each panel names their machine, date and source. Filled marks are predictions.
    The data are in predict/papers/tables.

    >>> print(on_gpus("naive", records=[]).summary)
    Measured on GPUs. torchgpipe: AmoebaNet-D without microbatches; 2 GPUs are 1, Tesla P40: 2 GPUs 1.00 × measured, \
1.00 predicted; 4 GPUs 1.00 × measured, 1.08 predicted; 8 GPUs 0.93 × measured, 1.12 predicted. Our largest error: \
+20 % at 8 GPUs.
    """
    found = recorded() if records is None else records
    own = [panel for one in found for panel in _own(one, topic)]
    return charts.on_gpus("Measured on GPUs", panels(topic), own)


def _own(record: Recorded, topic: str) -> list[Panel]:
    """The rows of one GPU machine for this notebook, one panel for each unit."""
    rows = [row for row in record.rows if row.get("device") == GPU and row["notebook"] == topic]
    units = dict.fromkeys(row["unit"] for row in rows)
    return [_of_unit(record.label, [row for row in rows if row["unit"] == unit], unit) for unit in units]


def _of_unit(label: str, rows: list[dict], unit: str) -> Panel:
    size, name = next((one for one in SCALES[unit] if max(row["median"] for row in rows) >= one[0]), SCALES[unit][-1])
    machine, _, when = label.rpartition(", ")
    points = tuple(Point(row["name"], row["median"] / size) for row in rows)
    return Panel("Measured by this course", machine, when, "results/", "median", name, "", NONE, points)
