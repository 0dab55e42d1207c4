"""Measure: runs a suite of measurements and records it, with all repetitions and where they come from.

A record is JSON: {"suite", "command", "took", "machine" (and when), "rows"}. The machine says what there is, and what
ranks compute on here. Each row says what was measured, on which kind of device its tensors were, in which unit, every
repetition, their median and the least of them. A record holds no name of a machine, a person or a path.
"""

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from hybridlab.core import afford
from hybridlab.measuring.row import device_of_ranks
from hybridlab.world.devices import gpus

SUITES = ("cpu", "gpu", "course")


def measure(suite: str = "cpu", out: str | Path = "results", on_row=lambda row: None) -> tuple[dict, Path]:
    """Run a suite; returns its record and the file that holds it, `<suite>-<day>.json` in the folder `out`
    (`course-<device>-<day>.json`); later ones of a day end in -2, -3, …

    on_row  called with each row as soon as it is measured; the file then holds it, so whoever breaks off loses nothing

    raises  ValueError when there is no such suite, when it needs what this machine lacks, or the file cannot be written
    """
    rows = _rows(suite)
    from hybridlab.training.run import provenance  # only now, so that a wrong suite is told at once

    begin = time.monotonic()
    record = {
        "suite": suite,
        "command": f"python -m hybridlab measure --suite {suite}",
        "took": 0.0,
        "machine": provenance(device_of_ranks()) | hardware() | {"load before": round(os.getloadavg()[0], 2)},
        "rows": [],
    }
    device = "-" + record["machine"]["device"] if suite == "course" else ""  # the one that runs on either
    file = _new(Path(out), f"{suite}{device}-{record['machine']['when'][:10]}")
    _keep(record, file)  # now, so that a place where nothing can be written is told before minutes are spent
    for one in rows:
        record["rows"].append(one)
        record["took"] = round(time.monotonic() - begin, 1)
        _keep(record, file)
        on_row(one)
    return record, file


def hardware() -> dict:
    """What the machine has, beside what `run.provenance` says: memory, GPUs, their driver, CUDA and NCCL."""
    import torch

    here = gpus.here()
    found = {"memory": (afford.memory() or (0, 0))[1], "gpus": [[gpu.name, gpu.memory] for gpu in here.usable]}
    if not found["gpus"]:
        return found
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return found | {"driver": here.driver, "cuda": torch.version.cuda, "nccl": nccl}


def _rows(suite) -> Iterator[dict]:
    match suite:
        case "cpu":
            from hybridlab.measuring import cpu_suite

            return cpu_suite.rows()
        case "gpu":
            from hybridlab.measuring import gpu_suite

            here = gpus.here()
            if not here:
                why = f"there is one, but {here.why}" if here.why else "there is none: try --suite cpu"
                raise ValueError(f"the gpu suite needs a GPU that torch can use (CUDA), and {why}")
            return gpu_suite.rows(len(here))
        case "course":
            from hybridlab.measuring import course_suite

            return course_suite.rows()
    raise ValueError(f"there is no suite {suite!r}: choose {', '.join(SUITES[:-1])} or {SUITES[-1]}")


def _new(folder: Path, name: str) -> Path:
    """A file that is not there yet: a second record of a day does not replace the first, which may be whole."""
    others = (folder / f"{name}-{number}.json" for number in itertools.count(2))
    return next(file for file in (folder / f"{name}.json", *itertools.islice(others, 1000)) if not file.exists())


def _keep(record, file):
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot write to {file.parent}: {error.strerror}") from None
