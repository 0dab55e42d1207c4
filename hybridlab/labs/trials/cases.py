"""A check of code that runs on ranks in several cases: first the case in the question, then others."""

from collections.abc import Callable
from dataclasses import dataclass

from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.trials.trial import Failed, is_code, run


def first_found(case, home: list[str]) -> str:
    """The verdict of the first rank that found a mistake."""
    return next((f"Rank {rank} {told}" for rank, told in enumerate(home) if told), "")


@dataclass(frozen=True)
class OnCases:
    """A check of a function, or of some functions, that run on ranks.

    trial   trial(comm, answer, case) on every rank returns the input of `judge`
    judge   judge(case, home): the mistake in the values that the ranks returned, in a sentence; empty if there is none
    cases   its runs, each with `ranks` and a description; those after the first are not in the question
    right   the reply to a right answer
    names   the names of an answer of several functions; a single function has none
    explain explain(case, report): the report of a run that failed, with its meaning in this exercise
    """

    trial: Callable
    judge: Callable[[object, list], str]
    cases: tuple
    right: str
    names: tuple[str, ...] = ()
    explain: Callable[[object, str], str] = lambda case, report: report

    def __call__(self, answer) -> Verdict:
        if not self._is_whole(answer):
            return False, self._ask
        asked = self.cases[0]
        for case in self.cases:
            try:
                told = self.judge(case, run(case.ranks, self.trial, answer, case))
            except Failed as failed:
                told = self.explain(case, str(failed))
            if told:
                return False, told if case == asked else f"Right on {asked}. On {case}: {told}"
        return True, self.right

    def _is_whole(self, answer) -> bool:
        if self.names:
            return isinstance(answer, list | tuple) and len(answer) == len(self.names) and is_code(answer)
        return is_code(answer) and not isinstance(answer, list | tuple)

    @property
    def _ask(self) -> str:
        if self.names:
            return f"Answer with ({', '.join(self.names)}): the functions themselves, without calling them."
        return "Answer with your function itself: its name, without parentheses."


SAME_LISTS = " All ranks of a row, and all of a column, must pass the same lists have and want. Check this."


@dataclass(frozen=True)
class OnMeshes(OnCases):
    """Cases on meshes: if several ranks fail, the first one is reported; for a hang, its probable cause too."""

    def __call__(self, answer) -> Verdict:
        right, told = super().__call__(answer)
        first, *others = told.split(", then rank ")
        if others:
            return right, f"{first}; other ranks fail too."
        return right, told + SAME_LISTS if "deadlock" in told and "irecv" in told else told
