"""The cause of a failed run: from the exceptions and deaths of ranks to the rank that caused them, in one sentence.

A rank that dies takes others with it: a rank that waits for it fails too, and often first. `Fault.suspicion`
distinguishes these victims from the culprit.
"""

import contextlib
import linecache
import os
import signal
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hybridlab.world.explain.places import is_users, names, place, title

GRACE_SECONDS = 0.1  # after a failure, to collect others that happened at the same time
CULPRIT_SECONDS = 1.0  # after a victim's failure, to collect the one that caused it
LOST_PEER = ("closed by peer", "reset by peer", "Broken pipe", "Timed out waiting", "Wait timeout", "connectFullMesh")
LARGE = 1 / 3  # fraction of the memory; a process that used more was probably killed for it
OUT_OF_MEMORY = "probably out of memory"
FRESH = "the next run starts fresh ranks"


class RankError(RuntimeError):
    """The cause of a failed run on ranks, in one sentence; the traceback from the rank is attached as a note.

    sentence        what went wrong
    rank            the rank that failed first, or the first that did not finish
    kind            an exception's type, a signal's name, "exit", "timeout" or "zygote", or a fault between ranks:
                    "mismatch", "order", "tag", "deadlock", "left" (others wait for a rank that has finished),
                    "unmatched", "hang"
    message         of the exception
    where           "file:line" in the user's code, or ""
    traceback_text  the lines of its traceback that are in the user's code

    >>> error = RankError("rank 1 divides by zero", rank=1, kind="ZeroDivisionError")
    >>> error.rank, str(error)
    (1, 'rank 1 divides by zero')
    """

    def __init__(self, sentence, *, rank, kind, message="", where="", traceback_text=""):
        super().__init__(sentence)
        self.rank, self.kind, self.message, self.where = rank, kind, message, where
        self.traceback_text = traceback_text
        if traceback_text:
            self.add_note(traceback_text)

    def __reduce__(self):  # complete, even when pickled in a process pool
        about = {name: getattr(self, name) for name in ("rank", "kind", "message", "where", "traceback_text")}
        return partial(RankError, str(self), **about), ()


@dataclass(frozen=True)
class Fault:
    """One rank's failure: an exception with its traceback, or the end of its process (`died`)."""

    rank: int
    kind: str
    message: str
    lines: tuple[tuple[str, int, str], ...]  # file, line number and function, outermost first
    at: float
    died: bool

    @property
    def victim(self) -> bool:
        """Whether this rank lost its connection to another rank, which is then the culprit."""
        return any(text in self.message for text in LOST_PEER)

    @property
    def suspicion(self):
        """A sort key that puts the culprit first: ranks that are not victims, then ranks that were not aborted (gloo
        may abort a rank whose peer vanishes), then the earliest.
        """
        return self.victim, self.kind == "SIGABRT", self.at

    @property
    def alike(self):
        """A key that is equal for ranks that failed in the same way; each death has a separate key."""
        return (self.kind, self.message, self.lines) if not self.died else self.rank

    def __str__(self):
        if self.died:
            what = f"ended with {self.message}" if self.kind == "exit" else f"was killed by {self.kind}"
            why = f", {self.message}," if self.message and self.kind != "exit" else ""
            return f"{what}{why} before giving a result"
        if self.kind == "SystemExit":
            return f"called sys.exit({self.message}) before giving a result"
        first_line = shorten(self.message.partition("\n")[0])
        return f"failed: {self.kind}: {first_line}" if first_line else f"failed: {self.kind}"


def shorten(line: str, room: int = 1000) -> str:
    """A line, shortened so that it fits into a sentence.

    >>> shorten("abcdefgh", room=4)
    'abcd…'
    """
    return line if len(line) <= room else f"{line[:room]}…"


class LastSeen(NamedTuple):
    """The last known state of a rank: its action, in words that end a sentence; its place; the stderr of its C code."""

    did: str
    where: str
    words: str


def fault_of(rank: int, said: str, tree, memory_killings: int = 0) -> Fault:
    """The fault reported by a frame: its kind ("fault", or "exit" for a process that has ended) and its tree.

    memory_killings  the result of `killed_for_memory` before the run
    """
    if said == "fault":
        kind, message, lines, at = tree
        return Fault(rank, kind, message, tuple(map(tuple, lines)), at, died=False)
    code, held = tree
    kind, message = (name_of_signal(-code), "") if code < 0 else ("exit", f"exit code {code}")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if kind == "SIGKILL" and (killed_for_memory() > memory_killings or held > LARGE * total):
        message = f"{OUT_OF_MEMORY} (it held {held / 1e9:.1f} of {total / 1e9:.1f} GB)"
    return Fault(rank, kind, message, (), time.monotonic(), died=True)


def name_of_signal(number: int) -> str:
    """The name of a signal; real-time signals have only numbers.

    >>> name_of_signal(9), name_of_signal(40)
    ('SIGKILL', 'signal 40')
    """
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def killed_for_memory() -> int:
    """The number of processes that Linux has killed for lack of memory since it started; 0 if it does not report it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def patience(faults) -> float:
    """Seconds to keep listening after the first failure."""
    return CULPRIT_SECONDS if all(fault.victim for fault in faults) else GRACE_SECONDS


def failure(faults: list[Fault], size: int, function, last: dict[int, LastSeen]) -> RankError:
    """The RankError of the culprits among these; last: the last known state of each rank, if known."""
    ordered = sorted(faults, key=lambda fault: fault.suspicion)
    culprit = ordered[0]
    parties: dict[object, list[Fault]] = {}
    for fault in ordered:
        if fault.suspicion[:2] == culprit.suspicion[:2]:
            parties.setdefault(fault.alike, []).append(fault)
    told = ", then ".join(_told(party, size, function, last) for party in parties.values())
    return RankError(
        f"{told}; {FRESH}",
        rank=min(fault.rank for fault in parties[culprit.alike]),
        kind=culprit.kind,
        message=culprit.message,
        where=_where(culprit, function, last),
        traceback_text="\n\n".join(filter(None, (_traceback(party[0], last) for party in parties.values()))),
    )


def _told(party: list[Fault], size: int, function, last) -> str:
    """One failure and the ranks that have it, in words."""
    fault = party[0]
    ranks = sorted(fault.rank for fault in party)
    who = f"all {size} ranks" if len(ranks) == size > 1 else names(ranks)
    if fault.died:
        return f"{who} {fault}{last[fault.rank].did if fault.rank in last else ''}"
    where = _where(fault, function, last)
    return f"{who} {fault}{f' ({where})' if where else ''}"


def _where(fault: Fault, function, last) -> str:
    if fault.died:
        return last[fault.rank].where if fault.rank in last else ""
    users = _users(fault)
    return place(*users[-1][:2]) if users else definition(function)


def _users(fault: Fault) -> list:
    return [line for line in fault.lines if is_users(line[0])]


def _traceback(fault: Fault, last) -> str:
    if fault.died:
        words = last[fault.rank].words if fault.rank in last else ""
        return words and f"On rank {fault.rank}:\n{words}"
    # The traceback is formatted here and not on the rank, because only the kernel has the source of a notebook's cells.
    lines = [
        traceback.FrameSummary(_shown(file), number, function, line=linecache.getline(file, number))
        for file, number, function in _users(fault)
    ]
    stack = traceback.StackSummary.from_list(lines)
    return f"On rank {fault.rank}:\n{''.join(stack.format())}{fault.kind}: {fault.message}"


def _shown(file: str) -> str:
    return file if title(file) == os.path.basename(file) else title(file)


def definition(function) -> str:
    """The place where a function is defined; empty if it is not a plain function."""
    code = getattr(function, "__code__", None)
    return place(code.co_filename, code.co_firstlineno) if code else ""
