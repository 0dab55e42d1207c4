"""Code answers: a student's program on real ranks, in fresh processes, with a time limit.

All of them are run in one way. A function for every rank (`OnRanks`) runs on the number of ranks that the question
names, and then on numbers that it does not name; a plain function (`Function`) runs on one rank, for many arguments. If
an answer fails, hangs or ends its process, a sentence reports it.
"""

import contextlib
import io
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name

from hybridlab.labs.exercises.plain import plain
from hybridlab.labs.exercises.source import Source
from hybridlab.labs.exercises.task import TOO_SLOW, Verdict
from hybridlab.world.processes import frames

SECONDS = 10.0  # for one run
HANG_S = 3.0  # for an operation in which a rank waits
HAND_IN = "The results are right. Submit the function that computes them: its name, without parentheses."
SILENT = "The results are right, but rank {} has neither sent nor received anything: send the numbers in messages."
MOST_PRINTED = 2000  # letters from each rank


class Failed(Exception):
    """The reason why a trial has no result, in one sentence."""


class TimeIsUp(BaseException):  # not an Exception, so that an answer that catches everything also ends
    """Raised on a rank when its time is over."""


def is_code(answer) -> bool:
    """Whether an answer is a function, or some functions: written here, or read from a submission."""
    if isinstance(answer, list | tuple):
        return bool(answer) and all(map(is_code, answer))
    return isinstance(answer, Source) or callable(answer)


def run(ranks: int, trial: Callable | str, answer, *args, seconds: float = SECONDS) -> list:
    """The values of `trial(comm, answer, *args)` on each of `size` fresh ranks.

    A trial that needs torch from its first line on is given by name, as in "zero.rank:play_one": the ranks import it.

    raises  Failed in one sentence when it cannot be sent, fails, hangs, or takes longer than `seconds`; its cause is a
    RankError if ranks failed
    """
    from hybridlab.world.explain.faults import RankError
    from hybridlab.world.processes.launch import ranks as start

    try:
        with start(ranks, timeout=seconds + 2, hang_s=HANG_S) as pool:
            return pool.run(_guarded, trial, answer, args, seconds)
    except RankError as error:
        if error.kind == TimeIsUp.__name__:
            raise Failed(f"{error.message}.") from error
        raise Failed(f"{_without_advice(str(error))}.") from error
    except TypeError as error:
        raise Failed(f"{error}.") from error


def _without_advice(told: str) -> str:
    """The sentence of a RankError without the advice for callers of `hl.ranks`, which a student is not."""
    from hybridlab.world.explain.faults import FRESH
    from hybridlab.world.explain.supervise import LONGER, MUCH_LONGER

    for advice in (FRESH, MUCH_LONGER, LONGER):
        told = told.removesuffix(advice).rstrip("; ")
    return told


def _guarded(comm, trial, answer, args, seconds):
    """On the rank: the answer made from its source if need be, an alarm set, and its printing kept short."""

    def ring(*_):
        raise TimeIsUp(f"{TOO_SLOW} {seconds:g} s")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with contextlib.redirect_stdout(_Short(sys.stdout)):
            return _trial(trial)(comm, _loaded(answer), *args)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _trial(trial) -> Callable:
    return resolve_name(f"hybridlab.labs.{trial}") if isinstance(trial, str) else trial


def _loaded(answer):
    if isinstance(answer, list | tuple):
        return type(answer)(map(_loaded, answer))
    return answer.load() if isinstance(answer, Source) else answer


class _Short(io.TextIOBase):
    """A stream that prints the first letters and drops the rest."""

    def __init__(self, stream):
        self._stream, self._left = stream, MOST_PRINTED

    def write(self, text: str) -> int:
        self._stream.write(text[: self._left])
        self._left -= min(len(text), self._left)
        return len(text)

    def flush(self):
        self._stream.flush()


def _heard(comm, answer, trial) -> tuple:
    """(the value of the trial, whether this rank has sent or received anything)."""
    found = trial(comm, answer)
    return found, len(comm.ledger) > 0


# --- the two kinds ----------------------------------------------------------------------------------------------


def called_on_rank(comm, function, *args):
    """The usual trial of a function for ranks: it is called with its `comm`."""
    return function(comm, *args)


@dataclass(frozen=True)
class OnRanks:
    """A check of a function that runs on every rank.

    judge     the verdict on the values of the ranks of the first size; an answer that is not code is judged as such a
              list, but is never right: results can be typed, messages cannot
    sizes     the numbers of ranks on which it is tested; those after the first are not in the question
    expected  expected(size): the right values there, rank by rank
    """

    judge: Callable[[object], Verdict]
    sizes: tuple[int, ...]
    expected: Callable[[int], list] | None = None
    trial: Callable = called_on_rank

    def __call__(self, answer) -> Verdict:
        if not is_code(answer):
            right, sentence = self.judge(answer)
            return False, HAND_IN if right else sentence
        asked, *others = self.sizes
        try:
            found, spoke = zip(*run(asked, _heard, answer, self.trial))
            right, sentence = self.judge(list(found))
        except Failed as failed:
            return False, str(failed)
        wrong = (told for size in others if right and (told := self._elsewhere(size, answer)))
        if told := next(wrong, ""):
            return False, f"Right on {asked} ranks. {told}"
        return (False, SILENT.format(spoke.index(False))) if right and not all(spoke) else (right, sentence)

    def _elsewhere(self, size: int, answer) -> str:
        """The mistake on a size that the question does not name; empty if there is none."""
        try:
            found, wanted = run(size, self.trial, answer), self.expected(size)
        except Failed as failed:
            return f"On {size} ranks: {failed}"
        return "" if found == wanted else f"{size} ranks return {_short(found)}; {_short(wanted)} would be right."


@dataclass(frozen=True)
class Function:
    """A check of a plain function; all its calls together may take at most `SECONDS`.

    cases  the arguments of each call
    judge  the verdict on the results of the calls: one `Gave` for each, up to the first that raised
    ask    the reply to an answer that is not a function
    """

    cases: tuple[tuple, ...]
    judge: Callable[[list["Gave"]], Verdict]
    ask: str

    def __call__(self, answer) -> Verdict:
        if not is_code(answer) or isinstance(answer, list | tuple):
            return False, self.ask
        try:
            ((found, late),) = run(1, _calls, answer, self.cases)
        except Failed as failed:
            return False, str(failed)
        if late:
            number, case = len(found) + 1, self.cases[len(found)]
            return False, f"{late}, in call {number} of {len(self.cases)}: {_short(case)}."
        return self.judge([Gave(*one) for one in found])


@dataclass(frozen=True)
class Gave:
    """The result of one call: its value, as text if it cannot be sent; or the type and first line of its error."""

    value: object
    raised: str = ""


def _calls(comm, function, cases) -> tuple[list, str]:
    """The results of the calls, up to the first that raised; and the sentence about a call that took too long."""
    found = []
    for case in cases:
        try:
            found.append((_sendable(plain(function(*case))), ""))
        except Exception as error:
            first = str(error).split("\n")[0][:80]
            return [*found, (None, f"{type(error).__name__}: {first}")], ""
        except TimeIsUp as late:
            return found, str(late)
    return found, ""


def _sendable(value):
    """The value in a form that can be sent: sets as lists, and the text of a value that cannot be sent."""
    if isinstance(value, set | frozenset):
        return sorted((_sendable(plain(one)) for one in value), key=repr)
    if type(value) in (list, tuple):
        return type(value)(map(_sendable, value))
    if isinstance(value, list | tuple):
        return _sendable(plain(list(value)))
    try:
        frames.encode(value)
        return value
    except TypeError:
        return repr(value)[:200]


def _short(value) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
