"""Run a suite of measurements and record it, with all repetitions and their origin.

A record is JSON: {"suite", "command", "took", "whole", "machine" (and when), "rows"}. It is complete ("whole") if its
suite has ended. "machine" describes the machine and the device of its ranks. Each row has the name of a measurement,
the kind of device of its tensors, the unit, every repetition, their median and their minimum. For ranks on GPUs it also
has the backend and the number of ranks on one GPU. A record contains no name of a machine or a person, and no path.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from hybridlab.core import afford, files
from hybridlab.measuring import cards, course_suite
from hybridlab.measuring.recorded import AT_ONCE, is_whole
from hybridlab.measuring.row import device_of_ranks
from hybridlab.world.devices import gpus

SUITES = ("cpu", "gpu", "machine", "course")
SAME = ("machine", "cores", "device", "gpus", "torch", AT_ONCE)  # keys that are equal in two records of one machine


def measure(
    suite: str = "cpu", out: str | Path = "results", on_row=lambda row: None, only: Sequence[str] = (), jobs: int = 1
) -> tuple[dict, Path]:
    """Run a suite, and return its record and the file that holds it, `<suite>-<day>.json` in the folder `out`
    (`course-<device>-<day>.json`); later records of a day end in -2, -3, …

    on_row  called with each row as soon as it is measured and in the file, so an interrupted run loses nothing
    only    notebooks of the course to run; their rows are added to the newest incomplete record of this machine
    jobs    notebooks that run at the same time; the record says so, since they slow each other down

    raises  ValueError if there is no such suite or notebook, if jobs is less than 1, if this machine lacks something
            that it needs, or if the file cannot be written
    """
    rows = _rows(suite, only, jobs)
    record, file = _opened(suite, Path(out), only, jobs)
    begin = time.monotonic() - record["took"]
    _keep(record, file)  # now, so that an unwritable path is reported before minutes of work
    for one in rows:
        record["rows"].append(one)
        record["took"] = round(time.monotonic() - begin, 1)
        _keep(record, file)
        on_row(one)
    record["whole"] = not only or course_suite.is_whole(record["rows"])
    _keep(record, file)
    return record, file


def _opened(suite, folder, only, jobs) -> tuple[dict, Path]:
    """A record without rows, or this machine's newest one that lacks these notebooks; and its file."""
    from hybridlab.training.run import provenance  # only now, so that a wrong suite is reported immediately

    machine = provenance(device_of_ranks()) | hardware() | {"load before": round(os.getloadavg()[0], 2), AT_ONCE: jobs}
    name = f"{suite}-{machine['device']}" if suite == "course" else suite  # the suite that runs on either
    if only and (begun := _begun(folder.glob(f"{name}-*.json"), machine, only)):
        return begun
    command = f"python -m hybridlab measure --suite {suite}"
    record = {"suite": suite, "command": command, "took": 0.0, "whole": False, "machine": machine, "rows": []}
    return record, _new(folder, f"{name}-{machine['when'][:10]}")


def _begun(files, machine, only) -> tuple[dict, Path] | None:
    """The newest incomplete record of this machine and this torch, without these notebooks, and its file; None
    if there is none.
    """
    found = [(json.loads(file.read_text(encoding="utf-8")), file) for file in files]
    same = lambda other: all(other.get(name, 1) == machine[name] for name in SAME)  # older ones lack AT_ONCE
    begun = [
        (record | {"rows": rows}, file)
        for record, file in found
        if not is_whole(record) and same(record["machine"]) and (rows := course_suite.without(record["rows"], only))
    ]
    return max(begun, key=lambda one: one[0]["machine"]["when"], default=None)


def hardware() -> dict:
    """The facts about the machine in addition to `run.provenance`: memory, GPUs, their driver, CUDA and NCCL, and the
    settings of the cards."""
    import torch

    here = gpus.here()
    found = {"memory": (afford.memory() or (0, 0))[1], "gpus": [[gpu.name, gpu.memory] for gpu in here.usable]}
    if not found["gpus"]:
        return found
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return found | {"driver": here.driver, "cuda": torch.version.cuda, "nccl": nccl} | cards.settings()


def _rows(suite, only, jobs) -> Iterator[dict]:
    if (only or jobs > 1) and suite != "course":
        raise ValueError(f"the {suite} suite has no notebooks: give only=… and jobs=… with the course suite")
    if jobs < 1:
        raise ValueError(f"jobs={jobs} is out of range: give 1 or more")
    match suite:
        case "cpu":
            from hybridlab.measuring import cpu_suite

            return cpu_suite.rows()
        case "gpu":
            from hybridlab.measuring import gpu_suite

            here = gpus.here()
            if not here:
                why = f"there is one, but {here.why}" if here.why else "there is none: try --suite cpu"
                raise ValueError(f"the gpu suite needs a GPU that torch can use (CUDA): {why}")
            return gpu_suite.rows(len(here))
        case "machine":
            from hybridlab.measuring import machine_suite

            return machine_suite.rows()
        case "course":
            return course_suite.rows(only, jobs=jobs)
    raise ValueError(f"there is no suite {suite!r}: choose {', '.join(SUITES[:-1])} or {SUITES[-1]}")


def _new(folder: Path, name: str) -> Path:
    """A path that does not exist yet: a second record of a day does not replace the first, which may be complete."""
    others = (folder / f"{name}-{number}.json" for number in itertools.count(2))
    return next(file for file in (folder / f"{name}.json", *itertools.islice(others, 1000)) if not file.exists())


def _keep(record, file):
    files.put(files.folder(file.parent) / file.name, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
