"""Why a run failed: from what came home, the culprit, in one sentence; from silence, where every rank is.

A rank that dies takes others with it: whoever waits for it fails too, and often first. `Fault.suspicion` tells these
victims from the culprit.
"""

import contextlib
import os
import re
import signal
import sysconfig
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from hybridlab.world import frames

GRACE_SECONDS = 0.1  # after a failure, for others that happened at the same time
CULPRIT_SECONDS = 1.0  # after a victim's failure, for the one that caused it
STACK_SECONDS = 0.2  # for ranks that hang to write down where they are
LOST_PEER = ("closed by peer", "reset by peer", "Broken pipe", "Timed out waiting")
STACK_LINE = re.compile(r'File "(.*)", line (\d+) in (.*)')
WORLD = os.path.dirname(__file__) + os.sep
LIBRARIES = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")


class RankError(RuntimeError):
    """Why a run on ranks failed, in one sentence; the traceback from the rank is attached as a note.

    rank (the culprit, or the first that did not finish), kind (exception type, signal name, "exit", "timeout" or
    "zygote"), message (the exception's own), where ("file:line" in the user's code, or ""), traceback_text (the lines
    of its traceback that belong to the user).
    """

    def __init__(self, sentence, *, rank, kind, message="", where="", traceback_text=""):
        super().__init__(sentence)
        self.rank, self.kind, self.message, self.where = rank, kind, message, where
        self.traceback_text = traceback_text
        if traceback_text:
            self.add_note(traceback_text)


@dataclass(frozen=True)
class Fault:
    """One rank's failure: an exception that came home with its traceback, or the end of its process (`died`)."""

    rank: int
    kind: str
    message: str
    lines: tuple[tuple[str, int, str], ...]  # file, line number and function, outermost first
    at: float
    died: bool

    @property
    def suspicion(self):
        """Sorts the culprit first: who names a lost peer is a victim, and gloo may abort when a peer vanishes."""
        victim = any(text in self.message for text in LOST_PEER)
        return victim, self.kind == "SIGABRT", self.at

    def __str__(self):
        if self.died:
            what = f"ended with {self.message}" if self.kind == "exit" else f"was killed by {self.kind}"
            return f"{what} before giving a result"
        if self.kind == "SystemExit":
            return f"called sys.exit({self.message}) before giving a result"
        first_line = self.message.partition("\n")[0]
        return f"failed: {self.kind}: {first_line}" if first_line else f"failed: {self.kind}"


def fault_of(rank: int, frame: frames.Frame) -> Fault:
    if frame.kind == "fault":
        kind, message, lines, at = frame.tree
        return Fault(rank, kind, message, tuple(map(tuple, lines)), at, died=False)
    code = frame.tree
    kind, message = (signal.Signals(-code).name, "") if code < 0 else ("exit", f"exit code {code}")
    return Fault(rank, kind, message, (), time.monotonic(), died=True)


def patience(faults, otherwise: float) -> float:
    """Seconds to go on listening: since the last sign, or, when something has failed, since the first failure."""
    if not faults:
        return otherwise
    only_victims = min(fault.suspicion for fault in faults)[0]
    return CULPRIT_SECONDS if only_victims else GRACE_SECONDS


def failure(faults: list[Fault], size: int, function) -> RankError:
    """The RankError of the culprit among these."""
    culprit = min(faults, key=lambda fault: fault.suspicion)
    users = [line for line in culprit.lines if _is_users(line[0])]
    where = "" if culprit.died else _place(*users[-1][:2]) if users else _definition(function)
    alike = len(faults) == size > 1 and len({(fault.kind, fault.message, fault.lines) for fault in faults}) == 1
    who = f"all {size} ranks" if alike else f"rank {culprit.rank}"
    return RankError(
        f"{who} {culprit}{f' ({where})' if where else ''}; the next run starts fresh ranks",
        rank=culprit.rank,
        kind=culprit.kind,
        message=culprit.message,
        where=where,
        traceback_text=_traceback(culprit, users) if users else "",
    )


def _traceback(fault: Fault, lines) -> str:
    # Formatted here and not on the rank, because only the kernel knows the source of a notebook's cells.
    stack = traceback.StackSummary.from_list([traceback.FrameSummary(*line) for line in lines])
    return f"On rank {fault.rank}:\n{''.join(stack.format())}{fault.kind}: {fault.message}"


def silence(pids: dict[int, int], folder: str, unfinished: list[int], seconds: float) -> RankError:
    """The RankError of ranks that gave no sign in time, told by the place where each of them is."""
    places: dict[str, list[int]] = {}
    for rank in pids.keys() & unfinished:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[rank], signal.SIGUSR1)  # see `rank._join`: it writes its stack into the folder
    time.sleep(STACK_SECONDS)
    for rank in unfinished:
        stacks = Path(folder, f"stack-{rank}")
        places.setdefault(_whereabouts(stacks.read_text() if stacks.exists() else ""), []).append(rank)
    story = "; ".join(f"{_names(there)} {place}" for place, there in places.items())
    message = f"no rank gave a sign for {seconds:g} s: {story}"
    where = next(iter(places)).partition(" at ")[2]
    return RankError(
        f"{message}; the next run starts fresh ranks", rank=unfinished[0], kind="timeout", message=message, where=where
    )


def _whereabouts(stacks: str) -> str:
    """What a rank is doing, from the stacks of its threads as faulthandler writes them.

    >>> _whereabouts('Thread 1:\\n  File "/home/me/lab.py", line 3 in step\\n  File "rank.py", line 9 in live')
    'in step at lab.py:3'
    """
    main = next((stack for stack in stacks.split("\n\n") if " in live" in stack), "")
    operation = None
    for file, line, function in STACK_LINE.findall(main):
        if file == WORLD + "comm.py":
            operation = function
        elif _is_users(file):
            return f"{f'waiting in {operation}' if operation else f'in {function}'} at {_place(file, line)}"
    return "between two runs" if main else "without an answer (stopped?)"


def _names(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _is_users(file: str) -> bool:
    return not file.startswith((WORLD, *LIBRARIES)) and "site-packages" not in file and "dist-packages" not in file


def _place(file: str, line) -> str:
    return f"{os.path.basename(file)}:{line}"


def _definition(function) -> str:
    code = getattr(function, "__code__", None)
    return _place(code.co_filename, code.co_firstlineno) if code else ""
