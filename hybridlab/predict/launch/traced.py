"""Traced: the step that a torch profiler saw, laid under its prediction: rank by rank, the gap split by cause.

    found = [traced(path) for path in ("rank0.json.gz", "rank1.json.gz")]
    print(laid(planned.best.step, found))

What a device does is told by the names of its kernels. At any moment one cause is counted: a product before other
kernels, either before messages, since a message beside work costs nothing. So the causes add up to the step, and their
gaps to the whole gap. The bubble looks like a receive that takes long, and stands with the messages between stages.

Format: what `torch.profiler.profile(...).export_chrome_trace` writes. Without "Collective name" in a kernel's
arguments, an all-to-all that NCCL does by sends and receives is counted with them.
"""

import gzip
import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.files import regular
from hybridlab.predict.plans.performance import Step

PRODUCT = re.compile(r"gemm|gemv|cublas|cutlass|xmma|nvjet|splitk|wgrad|dgrad|flash|fmha|attention|cudnn|cijk_", re.I)
MESSAGE = re.compile(r"nccl|rccl|nvshmem", re.I)
BETWEEN = re.compile(r"send|recv", re.I)  # two ranks, and not a group
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
STEP = re.compile(r"ProfilerStep#\d+")
CAUSES = {  # what the prediction has for each; the order is who counts where several run at once
    "products": ("multiply", "head"),
    "other kernels": ("pointwise", "optimizer"),
    "collectives that show": ("tensor", "context", "experts", "data"),
    "between stages, and bubble": ("messages", "bubble"),
    "device idle": ("launch",),
}


class Traced(NamedTuple):
    """One rank's step, in seconds.

    seconds  by cause: those of `CAUSES`, which add up to the step;  hidden  messages behind work;  steps  seen
    """

    rank: int
    seconds: dict[str, float]
    hidden: float
    steps: int

    @property
    def total(self) -> float:
        return added(self.seconds.values())


def traced(trace: dict | str | Path, steps: int = 1) -> Traced:
    """A rank's mean step: from its profiler's marks; where it set none, of so many steps in the whole trace.

    trace  a dict as in the file, or the file's path; it may be gzipped

    raises  ValueError when it is no such trace, or no device did anything in it
    """
    said = trace if isinstance(trace, dict) else _read(regular(trace, "the trace"))
    events = [one for one in said.get("traceEvents", ()) if isinstance(one, dict) and one.get("ph") == "X"]
    work = [one for one in events if one.get("cat") in ON_DEVICE]
    if not work:
        raise ValueError("no device did anything in this trace: profile a step on a GPU, with activities=[CPU, CUDA]")
    where = [_cause(one) for one in work]
    spans = np.array([_span(one) for one in work])
    windows = _steps(events) or [(spans[:, 0].min(), spans[:, 1].max())] * steps
    inside = _shown(spans, where, sorted(set(windows)))
    names = list(CAUSES)
    shown = {name: float(inside[place]) / 1e6 / len(windows) for place, name in enumerate(names)}
    rank = said.get("distributedInfo", {}).get("rank", 0)
    return Traced(rank, shown, float(inside[-1]) / 1e6 / len(windows), len(windows))


def _read(path: Path) -> dict:
    try:
        data = path.read_bytes()
        said = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} is no trace of a profiler: {str(error)[:100]}") from None
    if not isinstance(said, dict) or not isinstance(said.get("traceEvents"), list):
        raise ValueError(f"{path} is no trace of a profiler: it has no list of traceEvents")
    return said


def _span(event: dict) -> tuple[float, float]:
    return event["ts"], event["ts"] + event.get("dur", 0)


def _cause(event: dict) -> int:
    """Its place in CAUSES."""
    name = event.get("name", "")
    if event["cat"] != "kernel":
        return 1
    if MESSAGE.search(name):
        told = event.get("args", {}).get("Collective name") or name
        return 3 if BETWEEN.search(told) else 2
    return 0 if PRODUCT.search(name) else 1


def _steps(events: list[dict]) -> list[tuple[float, float]]:
    """The profiler's steps, by the device's clock where it has them."""
    for kind in ("gpu_user_annotation", "user_annotation"):
        marks = [one for one in events if one.get("cat") == kind and STEP.fullmatch(one.get("name", ""))]
        if marks:
            return [_span(one) for one in marks]
    return []


def _shown(spans: np.ndarray, where: list[int], windows: list[tuple[float, float]]) -> np.ndarray:
    """Microseconds in which each cause is the first that runs, in all windows; then those of messages behind work."""
    ends = np.array(windows, float)
    moments = np.unique(np.concatenate([spans.ravel(), ends.ravel()]))
    runs = np.zeros((5, len(moments)), int)  # how many of each cause run after each moment; the fifth: a window
    for place, some in [*((place, spans[np.array(where) == place]) for place in range(4)), (4, ends)]:
        for column, sign in ((0, 1), (1, -1)):
            np.add.at(runs[place], np.searchsorted(moments, some[:, column]), sign)
    going = runs.cumsum(axis=1)[:, :-1] > 0
    lengths = np.diff(moments) * going[4]
    first = np.where(going[:4].any(axis=0), going[:4].argmax(axis=0), 4)
    behind = (first < 2) & going[2:4].any(axis=0)
    return np.append(np.bincount(first, lengths, minlength=5), lengths[behind].sum())


class Laid(NamedTuple):
    """A predicted step and what ranks took: {cause: (predicted, [seconds of each rank])}."""

    causes: dict[str, tuple[float, list[float]]]
    ranks: list[int]

    @property
    def gap(self) -> dict[str, float]:
        """By cause, how much longer the slowest rank took than predicted; they add up to the whole gap."""
        slowest = int(np.argmax([added(column) for column in zip(*(took for _, took in self.causes.values()))]))
        return {name: took[slowest] - predicted for name, (predicted, took) in self.causes.items()}

    def __str__(self) -> str:
        heads = ["", "predicted", *(f"rank {rank}" for rank in self.ranks), "gap"]
        gap = self.gap
        rows = [
            [name, *(f"{1e3 * one:.1f}" for one in (predicted, *took)), f"{1e3 * gap[name]:+.1f}"]
            for name, (predicted, took) in self.causes.items()
        ]
        sums = [added(column) for column in zip(*([one, *took] for one, took in self.causes.values()))]
        rows.append(["step, ms", *(f"{1e3 * one:.1f}" for one in sums), f"{1e3 * added(gap.values()):+.1f}"])
        wide = [max(map(len, column)) for column in zip(heads, *rows)]
        return "\n".join(
            "  ".join(
                f"{cell:<{width}}" if not at else f"{cell:>{width}}" for at, (cell, width) in enumerate(zip(row, wide))
            )
            for row in [heads, *rows]
        )


def laid(step: Step, found: list[Traced]) -> Laid:
    """What ranks took under what was predicted for the one that has most to do.

    raises  ValueError when no rank is given, or one twice
    """
    ranks = [one.rank for one in found]
    if not found or len(set(ranks)) < len(ranks):
        raise ValueError(f"traces of ranks {ranks} are no different ranks of one run: give one of each, at least one")
    found = sorted(found, key=lambda one: one.rank)
    causes = {
        name: (added(float(getattr(step, term)) for term in terms), [one.seconds[name] for one in found])
        for name, terms in CAUSES.items()
    }
    return Laid(causes, sorted(ranks))
