"""Read the records of the course suite, from this machine and others, in the folder `results`.

A machine with a GPU measures some things on its GPU and some on its CPU. And if ranks shared the GPU, their times show
no speed-up. So the record of such a machine is read as several records. Only complete records count, and only the
newest of each machine.

    records = recorded()
    records[0].label, records[0].row("1f1b", "1F1B, one step")

Relatives: `measuring.course_suite` (writes them), `labs.machines` (shows them).
"""

import json
from dataclasses import dataclass
from pathlib import Path

from hybridlab.core.beside import beside

SUITE = "course"
AT_ONCE = "notebooks at once"  # a key of a record's machine


@dataclass(frozen=True)
class Recorded:
    """The rows of one machine on one day on one kind of device, and a label with these facts."""

    label: str
    rows: tuple[dict, ...]

    def row(self, notebook: str, name: str) -> dict | None:
        """The row with this name, or None if the machine has none."""
        mine = (row for row in self.rows if (row.get("notebook"), row["name"]) == (notebook, name))
        return next(mine, None)


def recorded(folder: str | Path | None = None) -> list[Recorded]:
    """The complete records of the course, the oldest first; one for each place of a machine's tensors.

    folder  the folder of the records; None: those that came with the package
    """
    files = Path(folder or beside("results")).glob(f"{SUITE}-*.json")
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    found = {}
    for record in sorted(filter(is_whole, records), key=lambda record: record["machine"]["when"]):
        machine = record["machine"]
        for (device, sharing), rows in by_place(record["rows"]).items():
            name = label(machine, device, sharing)
            found.pop(name, None)  # an older one
            found[name] = Recorded(f"{name}, {machine['when'][:10]}", tuple(rows))
    return list(found.values())


def is_whole(record: dict) -> bool:
    """Whether a suite has ended. Records of the days before 2026-11-27 do not contain this; their suites have all
    ended.
    """
    return record.get("whole", True)


def by_place(rows: list[dict]) -> dict[tuple[str, int], list[dict]]:
    """The rows of each (kind of device, number of ranks that shared GPUs; 0 if none did).

    Rows without a device are older than 2026-11-22; all of them were measured on CPUs.
    """
    found = {}
    for row in rows:
        sharing = row["ranks"] if row.get("ranks per GPU", 1) > 1 else 0
        found.setdefault((row.get("device", "cpu"), sharing), []).append(row)
    return found


def label(machine: dict, device: str, sharing: int = 0) -> str:
    """The label of the device of a measurement; sharing: the number of ranks that shared it, if they did.

    >>> machine = {"cores": 2, "machine": "x86_64"}
    >>> label(machine | {"gpus": [["NVIDIA H200", 150e9]] * 2}, "cuda")
    '2 × NVIDIA H200'
    >>> label(machine | {"gpus": [["NVIDIA H200", 150e9]]}, "cuda", sharing=4)
    '1 × NVIDIA H200 shared by 4 ranks'
    >>> label(machine | {"gpus": [["NVIDIA H200", 150e9]] * 2}, "cpu")
    '2 cores x86_64'
    >>> label(machine | {"gpus": []}, "accelerator")
    '2 cores x86_64 as an emulated accelerator'
    >>> label(machine | {"gpus": [["NVIDIA H200", 150e9]], "notebooks at once": 4}, "cuda", sharing=2)
    '1 × NVIDIA H200 shared by 2 ranks and 4 notebooks'
    """
    sharers = [f"{sharing} ranks"] if sharing else []
    sharers += [f"{machine[AT_ONCE]} notebooks"] if machine.get(AT_ONCE, 1) > 1 else []
    shared = f" shared by {' and '.join(sharers)}" if sharers else ""
    if device == "cuda":
        return counted([name for name, *_ in machine["gpus"]]) + shared
    emulated = "" if device == "cpu" else f" as an emulated accelerator{shared}"
    return f"{machine['cores']} cores {machine['machine']}{emulated or shared}"


def counted(gpus: list[str]) -> str:
    """The GPUs of a machine in words.

    >>> counted(["NVIDIA H200", "NVIDIA H200", "Tesla T4"])
    '2 × NVIDIA H200, 1 × Tesla T4'
    """
    return ", ".join(f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus))
