"""What was recorded of the course, here and elsewhere: the records of the course suite in the folder `results`.

A machine with a GPU measures some things on its GPU and some on its CPU, so its record is read as two.

    records = recorded()
    records[0].label, records[0].row("1f1b", "1F1B, one step")

Relatives: `measuring.course_suite` (who writes them), `labs.machines` (who shows them).
"""

import json
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[2] / "results"  # of the repository; an installed wheel has none
SUITE = "course"


@dataclass(frozen=True)
class Recorded:
    """The rows of one machine on one day on one kind of device, and the label that says so."""

    label: str
    rows: tuple[dict, ...]

    def row(self, notebook: str, name: str) -> dict | None:
        """The row of this name, or None where that machine has none."""
        mine = (row for row in self.rows if (row.get("notebook"), row["name"]) == (notebook, name))
        return next(mine, None)


def recorded(folder: str | Path = RESULTS) -> list[Recorded]:
    """All records of the course, the oldest first; one for each kind of device that tensors were on."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in Path(folder).glob(f"{SUITE}-*.json")]
    records.sort(key=lambda record: record["machine"]["when"])
    return [
        Recorded(label(record["machine"], device), tuple(rows))
        for record in records
        for device, rows in by_device(record["rows"]).items()
    ]


def by_device(rows: list[dict]) -> dict[str, list[dict]]:
    """The rows of each kind of device. Those that name none are of the days before 2026-11-22, all measured on CPUs."""
    found = {}
    for row in rows:
        found.setdefault(row.get("device", "cpu"), []).append(row)
    return found


def label(machine: dict, device: str) -> str:
    """The device and the day of a measurement.

    >>> machine = {"when": "2026-12-01T13:05:27+00:00", "cores": 2, "machine": "x86_64"}
    >>> label(machine | {"gpus": [["NVIDIA H200", 150e9]] * 2}, "cuda")
    '2 × NVIDIA H200, 2026-12-01'
    >>> label(machine | {"gpus": [["NVIDIA H200", 150e9]] * 2}, "cpu")
    '2 cores x86_64, 2026-12-01'
    >>> label(machine | {"gpus": []}, "accelerator")
    '2 cores x86_64 as an emulated accelerator, 2026-12-01'
    """
    day = machine["when"][:10]
    if device == "cuda":
        names = [name for name, *_ in machine["gpus"]]
        return ", ".join([*(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)), day])
    emulated = "" if device == "cpu" else " as an emulated accelerator"
    return f"{machine['cores']} cores {machine['machine']}{emulated}, {day}"
