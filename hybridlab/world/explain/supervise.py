"""The supervisor watches the ranks from the kernel, and describes each kind of hang in one sentence.

`Watch` reads the journal of one run. It can prove two kinds of trouble, and reports them at once: operations that do
not match, and deadlocks (`compare`). The third kind needs a time limit: a rank has waited in one operation for `hang_s`
seconds, and some rank has not reached it. Then that rank is inspected: is it stopped? in C code? at which line? Time in
which no rank is communicating does not count: a breakpoint or a first compilation is not a hang. Time in which some
rank initializes its device, or connects to others, does not count either: eight ranks that start on one GPU arrive
seconds apart.
"""

import contextlib
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

from hybridlab.world import WORLD
from hybridlab.world.explain.compare import Comparison, Finding, together, told, where_of
from hybridlab.world.explain.faults import FRESH, LastSeen, RankError
from hybridlab.world.explain.places import is_users, names, place
from hybridlab.world.talk.journal import Journal

LOOK_SECONDS = 0.05  # between two reads of the journal
SETTLE_SECONDS = 0.1  # after the first mismatch, for the ranks that have not arrived yet
SURE_SECONDS = 0.2  # minimum time in a deadlock before it is reported
STILL_SECONDS = 1.0  # ranks that wait in a collective without a finished rank are unchanged for this long
LONGEST_LOOK = 0.25  # after a longer pause, reading was prevented: the machine slept, or a handler was busy
SILENT_SECONDS = 1.0  # without a heartbeat for this long, Python is not running
LONGER = "if that may take so long, give hl.ranks, hl.train, hl.run or hl.check a larger hang_s"
MUCH_LONGER = f"{LONGER}, or hl.ranks a larger timeout"
NO_PROGRESS = "no progress for"  # how the sentence about a hang begins; a busy machine can cause it too
NO_REPORT = "no rank reported anything for"  # likewise
STOPPED = "stopped (SIGSTOP or a debugger)"
STACK_SECONDS = 0.2  # for ranks to write their stacks
SPEAKERS = tuple(os.path.join(WORLD, "talk", name) for name in ("comm.py", "door.py", "message.py"))
STACK_LINE = re.compile(r'File "(.*)", line (\d+) in (.*)')


class Watch:
    """One run, as the journal shows it.

    moved      whether, between the latest two reads, any rank has announced an operation or continued
    preparing  the number of devices being initialized and of connections being made, for all ranks together
    """

    def __init__(self, journal: Journal, run: int, size: int, hang_s: float):
        self._journal, self._run, self._size, self._hang_s = journal, run, size, hang_s
        self._comparison = Comparison()
        self._looked = time.monotonic()
        self._heads: list = [None] * size
        self._waited: dict[int, list] = {}  # by rank: the post in which it waits, and the observed seconds
        self._since: dict[str, tuple] = {}  # by suspicion: its evidence, and the time since which that is unchanged
        self._standing = Standing(hang_s)
        self.moved, self.preparing = True, 0

    def look(self, finished, gang) -> RankError | None:
        """Read new posts; a RankError if they prove a fault. finished: the ranks that have returned their result.

        A read right after another one finds nothing new.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS / 2:
            return None
        seconds, self._looked = min(now - self._looked, LONGEST_LOOK), now
        self._read(seconds)
        finding = self._comparison.misfit()
        if finding and self._lasts("misfit", True, SETTLE_SECONDS):
            return error_of(finding)
        waiting = {rank: post for rank, (post, _) in self._waited.items()}
        stuck = self._comparison.stuck(waiting, finished)
        state = [(rank, waiting[rank].number, needs) for rank, needs in sorted(stuck.items())]
        if self._lasts("stuck", state, SURE_SECONDS) and stuck:
            return error_of(self._comparison.explain(waiting, stuck, finished))
        abandoned = not self.moved and self._comparison.abandoned(finished)
        if self._lasts("abandoned", abandoned, STILL_SECONDS) and abandoned:
            return error_of(abandoned)
        longest = max((seconds for _, seconds in self._waited.values()), default=0)
        if longest > self._hang_s and not finding:
            finding = self._hang(waiting, finished, gang)
            return finding and error_of(finding)
        # a stopped rank is reported even if no rank waits for it: it may be the only one
        alone = {} if self.moved or waiting else {r: pid for r, pid in gang.pids.items() if r not in finished}
        if still := self._standing.still(alone, seconds):
            story = f"{_are_stopped(still, self._hang_s)}; {LONGER}"
            return error_of(Finding("hang", still[0], "", story))
        return None

    def conclude(self, over: bool) -> RankError | None:
        """At the end of a run: a mismatch; if all ranks have finished, also operations without a partner."""
        self._read(0.0)
        finding = self._comparison.misfit() or (over and self._comparison.unmet())
        return error_of(finding) if finding else None

    def last(self, folder: str) -> dict[int, LastSeen]:
        """The last known state of each rank; used if some have died."""
        return {rank: self._last(rank, last_words(folder, rank)) for rank in range(self._size)}

    def _last(self, rank: int, words: str) -> LastSeen:
        post = self._comparison.last.get(rank)
        did = f", {'in' if rank in self._waited else 'after'} {told(post)}" if post else ""
        doing, where = whereabouts(words)
        at = f", {doing} at {where}" if where else ""
        return LastSeen(
            at + did, where or (where_of(post) if post else ""), words.partition("Fatal Python error")[0].strip()
        )

    def _read(self, seconds: float):
        for rank in range(self._size):
            for post in self._journal.news(rank, self._run):
                self._comparison.add(post)
        heads = [self._journal.head(rank) for rank in range(self._size)]
        self.preparing = sum(head.preparing for head in heads)
        seconds = 0.0 if self.preparing else seconds
        for rank, head in enumerate(heads):
            self._keep(rank, head.waiting if head.run == self._run else 0, seconds)
        seen = [head._replace(beat=0) for head in heads]
        self.moved, self._heads = seen != self._heads, seen

    def _keep(self, rank: int, number: int, seconds: float):
        """Add to the time that a rank has waited in this operation, or start to count."""
        before = self._waited.pop(rank, None)
        if before and before[0].number == number:
            self._waited[rank] = [before[0], before[1] + seconds]
        elif post := self._journal.post(rank, number) if number else None:
            self._waited[rank] = [post, 0.0]

    def _lasts(self, suspicion: str, state, seconds: float) -> bool:
        """Whether the evidence of a suspicion has been unchanged for this long."""
        if self._since.get(suspicion, (None,))[0] != state:
            self._since[suspicion] = state, self._looked
        return self._looked - self._since[suspicion][1] >= seconds

    def _hang(self, waiting, finished, gang) -> Finding | None:
        """Explain a hang: the ranks for which others wait, directly or indirectly, and the action of each of them."""
        missing = {rank for post in waiting.values() for rank in self._comparison.absent(post)} - waiting.keys()
        there = {r for post in waiting.values() for r in post.group}
        if not missing and (gone := there & set(finished)):
            return self._forgot(waiting, min(gone))
        meant = sorted((missing or there) - set(finished))
        states = {rank: _state(gang.pids[rank], self._journal.head(rank).beat) for rank in meant}
        odd = {rank: state for rank, state in states.items() if state} if not missing else states
        if not odd:
            return None  # all have arrived and are working: a large message, or a slow machine
        stacks = stacks_of({rank: gang.pids[rank] for rank in odd}, gang.folder)
        rank = next((rank for rank in odd if odd[rank]), next(iter(odd)))
        story = ", and ".join(self._does(rank, state, *whereabouts(stacks[rank])) for rank, state in odd.items())
        where = self._last(rank, stacks[rank]).where
        sentence = f"{NO_PROGRESS} {self._hang_s:g} s: {together(waiting)}; {story}; {LONGER}"
        return Finding("hang", rank, where, sentence)

    def _forgot(self, waiting, rank: int) -> Finding:
        """Find a rank that started its part of an operation and then finished: the operation was dropped early, and may
        never be sent.
        """
        last = self._comparison.last[rank]
        sentence = f"{together(waiting)}; rank {rank} has finished without a wait() for its part, after {told(last)}"
        return Finding("left", rank, where_of(last), sentence)

    def _does(self, rank: int, state: str, doing: str, where: str) -> str:
        at = f" {doing} at {where}" if where else ""
        last = self._comparison.last.get(rank)
        after = f", after {told(last)}" if last and rank not in self._waited else ""
        return f"rank {rank} is {state or 'at work'}{at}{after}"


class Standing:
    """The time for which ranks have been stopped, by SIGSTOP or by a debugger."""

    def __init__(self, hang_s: float):
        self._hang_s, self._stopped = hang_s, Counter()

    def still(self, pids: dict[int, int], seconds: float) -> list[int]:
        """The ranks that have been stopped for `hang_s` of observed time; this call adds its seconds."""
        stopped = [rank for rank, pid in pids.items() if _is_stopped(pid)]
        self._stopped = Counter({rank: self._stopped[rank] + seconds for rank in stopped})
        return [rank for rank in stopped if self._stopped[rank] > self._hang_s]


def _are_stopped(ranks: list[int], hang_s: float) -> str:
    return f"{names(ranks)} {'is' if len(ranks) == 1 else 'are'} {STOPPED}, for {hang_s:g} s already"


class Meeting:
    """The start of ranks, until they are connected: a stopped rank keeps all others waiting.

    The methods are those of a `Watch`. Imports and connections have no time limit.

    preparing  the number of devices that they initialize in this time, one after another
    """

    moved = False

    def __init__(self, hang_s: float, preparing: int = 0):
        self._hang_s, self._looked, self._standing = hang_s, time.monotonic(), Standing(hang_s)
        self.preparing = preparing

    def look(self, met, gang) -> RankError | None:
        """A RankError if a rank has been stopped for too long of the observed time."""
        now = time.monotonic()
        seconds, self._looked = min(now - self._looked, LONGEST_LOOK), now
        still = self._standing.still({rank: pid for rank, pid in gang.pids.items() if rank not in met}, seconds)
        if not still:
            return None
        sentence = f"the ranks do not meet: {_are_stopped(still, self._hang_s)}"
        return error_of(Finding("hang", still[0], "", sentence))

    def conclude(self, over: bool) -> None:
        """Nothing to report: ranks that have not connected have announced no operation."""

    def last(self, folder: str) -> dict[int, LastSeen]:
        """No rank has a known state yet."""
        return {}


def error_of(finding: Finding) -> RankError:
    return RankError(
        f"{finding.sentence}; {FRESH}",
        rank=finding.rank,
        kind=finding.kind,
        message=finding.sentence,
        where=finding.where,
    )


def silence(pids: dict[int, int], folder: str, unfinished: list[int], seconds: float) -> RankError:
    """The RankError of ranks that reported nothing in time, with the location of each of them."""
    places: dict[str, list[int]] = {}
    stacks = stacks_of({rank: pids[rank] for rank in unfinished if rank in pids}, folder)
    for rank in unfinished:
        doing, where = whereabouts(stacks.get(rank, ""))
        places.setdefault(f"{doing} at {where}" if where else doing, []).append(rank)
    story = "; ".join(f"{names(there)} {place}" for place, there in places.items())
    message = f"{NO_REPORT} {seconds:g} s: {story}; {MUCH_LONGER}"
    where = next(iter(places)).partition(" at ")[2]
    return RankError(f"{message}; {FRESH}", rank=unfinished[0], kind="timeout", message=message, where=where)


def stacks_of(pids: dict[int, int], folder: str) -> dict[int, str]:
    """The stacks of these ranks, by rank, which they write into the folder on request; "" from a rank that does not
    answer.
    """
    for rank, pid in pids.items():
        Path(folder, f"stack-{rank}").write_text("")  # the stderr of its C code so far
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)  # see `rank._join`
    time.sleep(STACK_SECONDS)
    return {rank: last_words(folder, rank) for rank in pids}


def last_words(folder: str, rank: int) -> str:
    """The stderr of a rank's C code, and its stacks if they were requested or it crashed."""
    words = Path(folder, f"stack-{rank}")
    try:
        return words.read_text(errors="replace")
    except FileNotFoundError:  # nothing was written, or its parent has just cleaned up
        return ""


def whereabouts(stacks: str) -> tuple[str, str]:
    """The current action and place of a rank, from the stacks of its threads as written by faulthandler.

    >>> whereabouts('Thread 1:\\n  File "/home/me/lab.py", line 3 in step\\n  File "rank.py", line 9 in live')
    ('in step', 'lab.py:3')
    """
    main = next((stack for stack in stacks.split("\n\n") if " in live" in stack), "")
    operation = None
    for file, line, function in STACK_LINE.findall(main):
        if file in SPEAKERS:
            operation = function
        elif is_users(file):
            return f"waiting in {operation}" if operation else f"in {function}", place(file, line)
    return "between two runs" if main else "without an answer (stopped?)", ""


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    return False


def _state(pid: int, beat: int) -> str:
    """The reason why a process does not run Python; "" if it runs."""
    if _is_stopped(pid):
        return STOPPED
    age = (time.perf_counter_ns() - beat) / 1e9
    return (
        "" if age < SILENT_SECONDS else f"unresponsive (no heartbeat for {age:.1f} s: C code that keeps Python's lock?)"
    )
