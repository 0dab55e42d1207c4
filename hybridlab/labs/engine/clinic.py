"""The bug clinic: a broken rank program, its symptoms on real ranks; the student names the cause and mends it."""

from collections.abc import Callable
from dataclasses import dataclass

from hybridlab.labs.engine.case import Case
from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.exercises.trial import is_code, run


@dataclass(frozen=True)
class Clinic:
    """A check of (the letter of the cause, the mended function).

    causes  {letter: the reply to it}; that of the right one is empty
    mended  the check of the function
    """

    causes: dict[str, str]
    mended: Callable[[object], Verdict]

    def __call__(self, answer) -> Verdict:
        if not isinstance(answer, list | tuple) or len(answer) != 2:
            return False, 'Answer with two things: the letter of the cause and your function, as in ("a", mended).'
        letter, function = answer
        letter = letter.strip().lower() if isinstance(letter, str) else ""
        if letter not in self.causes:
            return False, f"Name the cause by its letter: one of {', '.join(self.causes)}."
        if self.causes[letter]:
            return False, self.causes[letter]
        if not is_code(function):
            return False, "That is the cause. Now mend it: the second thing is your function itself."
        right, told = self.mended(function)
        return right, told if right else f"That is the cause. But: {told}"


def symptoms(function, call: str, name: str, ranks: int = 3, microbatches: int = 4) -> list[str]:
    """What a function does with the lists of a schedule: rank by rank, its gradients beside those of one device."""
    from hybridlab.labs.engine.played import Did, play

    case = Case(name, ranks, microbatches)
    home = [Did(*did) for did in run(ranks, play, function, call, case)]
    return [f"rank {rank}: {_told(did)}" for rank, did in enumerate(home)]


def _told(did) -> str:
    if did.missing:
        return "gradients missing"
    return "gradients of one device" if did.gap < 1e-6 else f"gradients differ, norm {did.ratio:.2f} times as large"
