"""Save a `Timeline` as JSON, and read it.

`Timeline` uses this file and has its functions as methods (`save`, `load`, …). So what is read here are
*facts*: the arguments of `Timeline`.
"""

import json
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from hybridlab.core.files import content
from hybridlab.core.when.exchange import refuse_version
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.lanes import lanes
from hybridlab.core.when.schedule import Schedule

if TYPE_CHECKING:
    from hybridlab.core.when.timeline import Timeline

FORMAT, VERSION = "hybridlab.timeline", 2
COLUMNS = ("ready", "begin", "end")
PLAIN = {"tick": (int, float), "unit": str, "costs": dict, "origin": dict, "loss": list, "ledger": list}


def plain(timeline: "Timeline") -> dict:
    """A timeline as plain values."""
    columns = {name: getattr(timeline, name).tolist() for name in COLUMNS}
    rest = {name: getattr(timeline, name) for name in PLAIN}
    rest |= {"loss": list(timeline.loss), "ledger": list(timeline.ledger)}
    return {"format": FORMAT, "version": VERSION, "schedule": timeline.schedule.to_dict(), **columns, **rest}


def read(path: str | PathLike[str]) -> dict:
    """The plain values saved at `path`.

    raises  ValueError if the file does not exist, or is not JSON
    """
    text = content(path, "the timeline")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not a saved hybridlab timeline: save one with timeline.save(path)") from None


def facts(saved: dict) -> dict:
    """The facts of a timeline, from its plain values.

    raises  ValueError if they are something else, of another version, or damaged
    """
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise ValueError("this is not a saved hybridlab timeline: save one with timeline.save(path)")
    refuse_version("timeline", saved.get("version"), VERSION)
    schedule = Schedule.from_dict(saved.get("schedule", {}))
    columns = {name: _column(saved.get(name)) for name in COLUMNS}
    steps = sorted(map(len, columns.values()))[1]  # at least two of three agree, unless more than one is damaged
    wanted = steps, len(schedule.rows) - len(schedule.fused)
    sound = {name: column.shape == wanted and column.size > 0 for name, column in columns.items()}
    sound |= {name: isinstance(saved.get(name), kind) for name, kind in PLAIN.items()}
    if damaged := [name for name, good in sound.items() if not good]:
        raise ValueError(f"the saved timeline is damaged at {damaged[0]!r}: save it again")
    rest = {name: saved[name] for name in PLAIN} | {name: tuple(saved[name]) for name in ("loss", "ledger")}
    return {"schedule": schedule, **columns, "lane": lanes(flow_of(schedule)), **rest}


def _column(saved) -> np.ndarray:
    """A saved column of integer ticks, a line per step; an empty one if the input is anything else."""
    try:
        column = np.array(saved)
    except ValueError:  # lines of different lengths
        column = np.zeros(0)
    return column if column.ndim == 2 and column.dtype.kind == "i" else np.zeros((0, 0), dtype=np.int64)
