"""Compare a step from a torch profiler with its prediction, rank by rank, and split the gap by cause.

    found = [traced(path) for path in ("rank0.json.gz", "rank1.json.gz")]
    print(laid(planned.best.step, found))

The names of the kernels show the work of a device. At any time only one cause counts: matmuls come before other
kernels, and both come before messages, because a message that overlaps with work costs nothing. So the causes add up to
the step, and their gaps add up to the total gap. The bubble looks like a long receive, and counts as messages between
stages.

The format is that of `torch.profiler.profile(...).export_chrome_trace`, since PyTorch 1.8. NCCL may run an all-to-all
by sends and receives. Without "Collective name" in a kernel's arguments, it counts as these. Events without a usable
time are omitted and counted: those without a time, with a negative or infinite duration, or days away from all others.
"""

import gzip
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.files import regular
from hybridlab.predict.plans.performance import Step

PRODUCT = re.compile(r"gemm|gemv|cublas|cutlass|xmma|nvjet|splitk|wgrad|dgrad|flash|fmha|attention|cudnn|cijk_", re.I)
MESSAGE = re.compile(r"nccl|rccl|nvshmem", re.I)
BETWEEN = re.compile(r"send|recv", re.I)  # between two ranks, not in a group
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")  # the last two until PyTorch 1.11
DAY = 86_400e6  # microseconds: no step is that long or that far away
STEP = re.compile(r"ProfilerStep#\d+")
CAUSES = {  # the predicted terms of each cause; if several run at the same time, the first one counts
    "products": ("multiply", "head"),
    "other kernels": ("pointwise", "optimizer"),
    "collectives that show": ("tensor", "context", "experts", "data"),
    "between stages, and bubble": ("messages", "bubble"),
    "device idle": ("launch",),
}


class Event(NamedTuple):
    """An event of the profiler, with start and end in microseconds and its category in lower case."""

    category: str
    name: str
    begin: float
    end: float
    collective: str


class Traced(NamedTuple):
    """One rank's step, in seconds.

    rank      None if the trace names none
    seconds   by cause: those of `CAUSES`, which add up to the step;  hidden  messages during work;  steps  in the trace
    left_out  events of the device without a usable time
    """

    rank: int | None
    seconds: dict[str, float]
    hidden: float
    steps: int
    left_out: int

    @property
    def total(self) -> float:
        return added(self.seconds.values())


def traced(trace: dict | str | Path, steps: int = 1) -> Traced:
    """A rank's mean step, from the profiler's step marks; without marks, the trace divided by the number of steps.

    trace  a dict as in the file, or the file's path; it may be gzipped

    raises  ValueError if it is not such a trace, or has no events of a device
    """
    said = trace if isinstance(trace, dict) else _read(regular(trace, "the trace"))
    events = list(_events(said.get("traceEvents")))
    device = [one for one in events if one.category in ON_DEVICE]
    work = _of_one_day(device)
    if not work:
        raise ValueError(
            "this trace contains no work on a device: profile a step on a GPU, with activities=[CPU, CUDA]"
        )
    where = [_cause(one) for one in work]
    spans = np.array([(one.begin, one.end) for one in work])
    windows = _steps(events) or [(spans[:, 0].min(), spans[:, 1].max())] * steps
    inside = _shown(spans, where, sorted(set(windows)))
    shown = {name: float(inside[place]) / 1e6 / len(windows) for place, name in enumerate(CAUSES)}
    hidden = float(inside[-1]) / 1e6 / len(windows)
    return Traced(_rank(said.get("distributedInfo")), shown, hidden, len(windows), len(device) - len(work))


def _read(path: Path) -> dict:
    try:
        data = path.read_bytes()
        said = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(
            f"{path} is not a profiler's trace ({str(error)[:100]}): give one that torch.profiler wrote"
        ) from None
    if not isinstance(said, dict) or not isinstance(said.get("traceEvents"), list):
        raise ValueError(
            f"{path} is not a profiler's trace (it has no list of traceEvents): give one that torch.profiler wrote"
        )
    return said


def _events(told) -> Iterator[Event]:
    """All events with a duration; a time that is not a number is nan."""
    for one in told if isinstance(told, list) else ():
        if isinstance(one, dict) and one.get("ph") == "X":
            begin, more = _number(one.get("ts")), one.get("args")
            collective = more.get("Collective name") if isinstance(more, dict) else None
            words = (str(one.get("cat")).lower(), str(one.get("name")))
            yield Event(*words, begin, begin + _number(one.get("dur", 0)), str(collective or ""))


def _number(told) -> float:
    return float(told) if isinstance(told, int | float) else math.nan


def _of_one_day(events: list[Event]) -> list[Event]:
    """The events with a finite duration of at least 0 that start within a day of the median one."""
    ended = [one for one in events if 0 <= one.end - one.begin < DAY]
    middle = float(np.median([one.begin for one in ended])) if ended else 0.0
    return [one for one in ended if abs(one.begin - middle) < DAY]


def _rank(told) -> int | None:
    rank = str(told.get("rank")) if isinstance(told, dict) else ""
    return int(rank) if rank.isdecimal() else None


def _cause(event: Event) -> int:
    """The index of an event's cause in CAUSES."""
    if event.category != "kernel":
        return 1
    if MESSAGE.search(event.name):
        return 3 if BETWEEN.search(event.collective or event.name) else 2
    return 0 if PRODUCT.search(event.name) else 1


def _steps(events: list[Event]) -> list[tuple[float, float]]:
    """The profiler's steps, by the device's clock if the trace has them there."""
    marks = [one for one in events if STEP.fullmatch(one.name)]
    on_device = [one for one in marks if one.category == "gpu_user_annotation"]
    return [(one.begin, one.end) for one in _of_one_day(on_device or marks)]


def _shown(spans: np.ndarray, where: list[int], windows: list[tuple[float, float]]) -> np.ndarray:
    """Microseconds in all windows in which each cause counts; then those of messages during work."""
    ends = np.array(windows, float)
    moments = np.unique(np.concatenate([spans.ravel(), ends.ravel()]))
    runs = np.zeros(
        (5, len(moments)), int
    )  # number of running events of each cause after each time; the fifth counts windows
    for place, some in [*((place, spans[np.array(where) == place]) for place in range(4)), (4, ends)]:
        for column, sign in ((0, 1), (1, -1)):
            np.add.at(runs[place], np.searchsorted(moments, some[:, column]), sign)
    going = runs.cumsum(axis=1)[:, :-1] > 0
    lengths = np.diff(moments) * going[4]
    first = np.where(going[:4].any(axis=0), going[:4].argmax(axis=0), 4)
    behind = (first < 2) & going[2:4].any(axis=0)
    return np.append(np.bincount(first, lengths, minlength=5), lengths[behind].sum())


class Laid(NamedTuple):
    """A predicted step and the times of ranks: {cause: (predicted, [seconds of each rank])}.

    ranks  None for a trace that names no rank;  left_out  events without a usable time, of all traces
    """

    causes: dict[str, tuple[float, list[float]]]
    ranks: list[int | None]
    left_out: int

    @property
    def gap(self) -> dict[str, float]:
        """By cause, the seconds by which the slowest rank exceeds the prediction; they add up to the total gap."""
        slowest = int(np.argmax([added(column) for column in zip(*(took for _, took in self.causes.values()))]))
        return {name: took[slowest] - predicted for name, (predicted, took) in self.causes.items()}

    def __str__(self) -> str:
        heads = ["", "predicted", *("traced" if rank is None else f"rank {rank}" for rank in self.ranks), "gap"]
        gap = self.gap
        rows = [
            [name, *(f"{1e3 * one:.1f}" for one in (predicted, *took)), f"{1e3 * gap[name]:+.1f}"]
            for name, (predicted, took) in self.causes.items()
        ]
        sums = [added(column) for column in zip(*([one, *took] for one, took in self.causes.values()))]
        rows.append(["step, ms", *(f"{1e3 * one:.1f}" for one in sums), f"{1e3 * added(gap.values()):+.1f}"])
        wide = [max(map(len, column)) for column in zip(heads, *rows)]
        lines = [
            "  ".join(
                f"{cell:<{width}}" if not at else f"{cell:>{width}}" for at, (cell, width) in enumerate(zip(row, wide))
            )
            for row in [heads, *rows]
        ]
        return "\n".join(lines + [f"{self.left_out} events without a usable time are left out"] * (self.left_out > 0))


def laid(step: Step, found: list[Traced]) -> Laid:
    """The times of ranks, next to the prediction for the busiest rank.

    raises  ValueError if no rank is given, one is given twice, or one of several traces names no rank
    """
    ranks = [one.rank for one in found]
    if len(found) > 1 and None in ranks:
        raise ValueError(
            "a trace does not name its rank: give traces with distributedInfo, which a run of several ranks writes"
        )
    if not found or len(set(ranks)) < len(ranks):
        raise ValueError(f"the traces are of ranks {ranks}: give one trace of each rank of one run")
    found = sorted(found, key=lambda one: one.rank or 0)
    causes = {
        name: (added(float(getattr(step, term)) for term in terms), [one.seconds[name] for one in found])
        for name, terms in CAUSES.items()
    }
    return Laid(causes, [one.rank for one in found], added(one.left_out for one in found))
