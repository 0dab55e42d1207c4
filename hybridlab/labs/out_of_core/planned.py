"""The verdict on a student's plan for a chain of blocks: it fits, is as short as our rule's, and copies no more."""

from functools import cache
from typing import NamedTuple

from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.out_of_core.chains import CHOICE, SWAP, early, length

TOO_LONG = 1e-9


class Case(NamedTuple):
    """A number of blocks, memory for some of them, and the time of a copy in forwards."""

    blocks: int
    room: int
    swap: float

    def __str__(self):
        """
        >>> print(Case(12, 5, 2))
        12 blocks, memory for 5 of them, and copies that take 2
        """
        return f"{self.blocks} blocks, memory for {self.room} of them, and copies that take {self.swap:g}"


CASES = (Case(12, 5, 2), Case(12, 5, 1), Case(12, 5, 3), Case(12, 5, 6), Case(8, 3, 2), Case(10, 4, 1.5), Case(9, 4, 4))


@cache
def target(case: Case) -> tuple[float, int]:
    """The target (length, swapped blocks): those of the best plan that follows a single rule, with the fewest swaps."""
    plan = min(early(*case), key=lambda one: length(one, case.room, case.swap))
    return length(plan, case.room, case.swap), plan.count(SWAP)


def judge(gave: list) -> Verdict:
    """The verdict on the plans that a function returned for the cases."""
    for number, (case, one) in enumerate(zip(CASES, gave)):
        if told := _raised(one) or _of_words(case, one.value) or _of_plan(case, one.value):
            return False, f"{'Right for some. ' if number else ''}For {case}: {told}"
    return True, "Each plan fits, and our rule finds no shorter one that copies less. For 12 blocks: 36, 38, 40 and 42."


def _raised(one) -> str:
    return f"it raised {one.raised}." if one.raised else ""


def _of_words(case, plan) -> str:
    if not isinstance(plan, list | tuple) or len(plan) != case.blocks:
        return f"return a list of {case.blocks} words, one for each block."
    wrong = [word for word in plan if not isinstance(word, str) or word not in CHOICE]
    return f"{wrong[0]!r} is not a choice: choose from {', '.join(CHOICE)}." if wrong else ""


def _of_plan(case, plan) -> str:
    shortest, fewest = target(case)
    mine, moved = length(list(plan), case.room, case.swap), list(plan).count(SWAP)
    if mine == float("inf"):
        return "it does not fit: it keeps more blocks than fit into memory, and a kept block is never swapped."
    if mine > shortest + TOO_LONG:
        return f"the step takes {mine:g} units, but {shortest:g} are possible."
    if mine > shortest - TOO_LONG and moved > fewest:
        return f"the step is short enough, but the plan swaps {moved} blocks, and {fewest} are enough."
    return ""
