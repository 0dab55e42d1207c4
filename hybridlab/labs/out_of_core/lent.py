"""Loans that a student plans for 1F1B: they are drawn, and judged by the memory that every rank holds.

A plan of loans is a function of (rank, ranks, microbatches). It returns a dictionary {a: b}: the rank lends the
activations of microbatch a right after the forward of a, and gets them back right after the backward of microbatch b.
"""

from collections.abc import Callable
from typing import NamedTuple

from hybridlab.core.when.action import Action
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.labs.exercises.task import Verdict
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.bpipe import bpipe, lent
from hybridlab.scheduling.one_f_one_b import one_f_one_b
from hybridlab.scheduling.validate import validate

COSTS = Costs(F=1, B=2, swap=1)


class Case(NamedTuple):
    """A rank of a pipeline, and the number of microbatches."""

    rank: int
    ranks: int
    microbatches: int

    def __str__(self):
        """
        >>> print(Case(0, 4, 8))
        rank 0 of 4, 8 microbatches
        """
        return f"rank {self.rank} of {self.ranks}, {self.microbatches} microbatches"


PIPELINES = ((4, 8), (6, 12), (7, 10), (8, 16), (4, 3))  # ranks, microbatches
CASES = tuple(Case(rank, p, m) for p, m in PIPELINES for rank in range(p))


def lending(loans: Callable, ranks: int = 4, microbatches: int = 8) -> Timeline:
    """The predicted step of 1F1B with a student's loans; a move takes one unit.

    >>> lending(lambda rank, ranks, microbatches: {}).peak_live
    [4, 3, 2, 1]
    """
    return simulate(_schedule([loans(rank, ranks, microbatches) for rank in range(ranks)], microbatches), COSTS)


def _schedule(plans: list[dict], microbatches: int) -> Schedule:
    ranks, moves = len(plans), {}
    for rank, plan in enumerate(plans):
        for m, backward in plan.items():
            loan = Action("SWAP_OUT", rank, m, peer=ranks - 1 - rank)
            moves[Action("F", rank, m)] = [loan]
            moves.setdefault(Action("B", rank, backward), []).append(loan._replace(kind="SWAP_IN"))
    return validate(lent(one_f_one_b(ranks, microbatches), moves))


def judge(gave: list) -> Verdict:
    """The verdict on the loans that a student's function returned for the cases."""
    found = dict(zip(CASES, gave))
    for number, (ranks, microbatches) in enumerate(PIPELINES):
        mine = {case: one for case, one in found.items() if case[1:] == (ranks, microbatches)}
        told = next(filter(None, (_of_plan(case, one) for case, one in mine.items())), "")
        told = told or _of_step([one.value for one in mine.values()], ranks, microbatches)
        if told:
            case = f"With {ranks} ranks, {microbatches} microbatches"
            return False, f"{'Right for some. ' if number else ''}{case}: {told}"
    return True, (
        "No rank holds more than ⌈(p+2)/2⌉ activations, each step is as long as in 1F1B, and there are no more loans "
        "than by BPipe's rule."
    )


def _of_plan(case: Case, one) -> str:
    if one.raised:
        return f"on rank {case.rank} it raised {one.raised}."
    if not isinstance(one.value, dict):
        return "return a dictionary {a: b} of microbatches; it is empty on a rank that lends nothing."
    every = set(range(case.microbatches))
    wrong = [key for pair in one.value.items() for key in pair if key not in every]
    return f"rank {case.rank} names microbatch {wrong[0]!r}, which does not exist." if wrong else ""


def _of_step(plans: list[dict], ranks: int, microbatches: int) -> str:
    most, usual = -(-(ranks + 2) // 2), simulate(bpipe(ranks, microbatches), COSTS)
    for rank, plan in enumerate(plans):
        if 2 * rank + 1 >= ranks and plan:
            return f"rank {rank} lends, but its partner holds more: lend only from the first half of the ranks."
    try:
        step = simulate(_schedule(plans, microbatches), COSTS)
    except ValueError as error:
        return f"{str(error).splitlines()[0]}."
    held = max(step.peak_live)
    if held > most:
        return f"rank {step.peak_live.index(held)} holds {held} activations, but {most} are possible on every rank."
    if step.length > usual.length:
        return f"the step takes {step.length:g} units, but {usual.length:g} are possible."
    mine, by_rule = sum(map(len, plans)), sum(one.lent for program in usual.schedule.program for one in program) // 4
    return f"it makes {mine} loans; with BPipe's rule {by_rule} are enough." if mine > by_rule else ""
