"""A check of code that runs on ranks, case by case: the first case is in the question, the others are not."""

from collections.abc import Callable
from dataclasses import dataclass

from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.exercises.trial import Failed, is_code, run


@dataclass(frozen=True)
class Cases:
    """A check of a function or class that a student has written for ranks.

    trial  trial(comm, answer, case) on every rank: what it did there
    cases  each has `ranks`, on how many it runs, and `words`, how the reply names it
    judge  judge(case, homes) of what all ranks brought home: what is wrong, in a sentence; empty when nothing is
    right  the reply to a right answer
    """

    trial: Callable
    cases: tuple
    judge: Callable[[object, list], str]
    right: str

    def __call__(self, answer) -> Verdict:
        if not is_code(answer) or isinstance(answer, list | tuple):
            return False, "Answer with what you have written itself: its name, without parentheses."
        asked = self.cases[0]
        for case in self.cases:
            try:
                told = self.judge(case, run(case.ranks, self.trial, answer, case))
            except Failed as failed:
                told = str(failed)
            if told:
                return False, told if case is asked else f"Right: {asked.words}. But {case.words}: {told}"
        return True, self.right
