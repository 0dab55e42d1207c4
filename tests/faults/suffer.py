"""To suffer a fault: run it on ranks, and see what the kernel says, how soon, what is left, and whether it goes on."""

import contextlib
import os
import pathlib
import re
import time
from typing import NamedTuple

from faults import strikes

from hybridlab.world.processes.launch import RankError


class Suffered(NamedTuple):
    """What came of a fault: the error, and the seconds from the fault until it was told and all ranks were gone."""

    error: RankError | None
    seconds: float
    left: list[int]


def suffer(pool, outcome, work=None) -> Suffered:
    """Run the fault of a `Run` on this pool, in this kind of work."""
    pids = pool.run(lambda comm: os.getpid())
    moments, error = [], None
    note = lambda rank, event: moments.append(event["fault"])
    begin = time.monotonic()
    try:
        if work:
            pool.run(strikes.during, work, outcome.fault, outcome.hit, on_event=note)
        else:
            pool.run(outcome.fault, on_event=note)
    except RankError as caught:
        error = caught
    seconds = time.monotonic() - max(moments, default=begin)
    return Suffered(error, seconds, [pid for pid in pids if alive(pid)])


def complaint(outcome, suffered: Suffered) -> str:
    """What is wrong with what the kernel said, or nothing."""
    error = suffered.error
    if error is None:
        return "no error"
    wrong = [
        f"kind {error.kind}" * (error.kind != outcome.kind),
        f"rank {error.rank}" * (error.rank != outcome.rank),
        "sentence" * (not re.search(outcome.says, str(error)) or "\n" in str(error)),
        f"where {error.where!r}" * (not re.fullmatch(r"\w+\.py:\d+", error.where)),
        f"left {suffered.left}" * bool(suffered.left),
    ]
    return ", ".join(filter(None, wrong)) and f"{', '.join(filter(None, wrong))}: {error}"


def alive(pid) -> bool:
    """Whether the process still runs; one that only waits to be collected does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
