"""What was recorded of the course, here and elsewhere: the records of the course suite in the folder `results`.

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
    """The rows of one machine on one day, and the label that says so."""

    label: str
    rows: tuple[dict, ...]

    def row(self, notebook: str, name: str) -> dict | None:
        """The row of this name, or None where that machine has none."""
        mine = (row for row in self.rows if (row.get("notebook"), row["name"]) == (notebook, name))
        return next(mine, None)


def recorded(folder: str | Path = RESULTS) -> list[Recorded]:
    """All records of the course, the oldest first."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in Path(folder).glob(f"{SUITE}-*.json")]
    records.sort(key=lambda record: record["machine"]["when"])
    return [Recorded(label(record["machine"]), tuple(record["rows"])) for record in records]


def label(machine: dict) -> str:
    """The device and the day of a measurement.

    >>> label({"when": "2026-11-21T13:05:27+00:00", "cores": 2, "machine": "x86_64", "gpus": []})
    '2 cores x86_64, 2026-11-21'
    >>> label({"when": "2026-11-21T13:05:27+00:00", "gpus": [["NVIDIA H200", 150e9]] * 2})
    '2 × NVIDIA H200, 2026-11-21'
    """
    day = machine["when"][:10]
    if not machine["gpus"]:
        return f"{machine['cores']} cores {machine['machine']}, {day}"
    names = [name for name, *_ in machine["gpus"]]
    return ", ".join([*(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)), day])
