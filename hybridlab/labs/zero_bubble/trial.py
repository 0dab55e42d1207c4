"""The verdict on a student's halves of a backward: the gradients, then the order of matmuls, and the memory held."""

from itertools import groupby
from typing import NamedTuple

from hybridlab.labs.engine.case import Case, counted, lists, sends
from hybridlab.labs.engine.trial import _short, miscounted

ABOUT = {  # {words of a reply: the hint about the mistake that it reports}
    "multiplied in the order": "The list gives the place of each GEMM, including those of W: I must leave W's "
    "GEMM for later, and B does both at once. Which of your branches multiplies more than its letter allows?",
    "had not sent the result of I": "The gradient for the rank before is ready when I is: send it inside I, before "
    "the next action begins. W comes later, and no rank waits for it.",
    "at once; ": "Free the tensors that W has used: remove them with later.pop(k). In the same way I must remove "
    "the tensors of the forward with kept.pop(k).",
    "times too large": "The loss of the batch is a mean: the first gradient of each microbatch, on the last rank, "
    "must be divided by their number.",
    "different gradients from autograd's": "Try one layer and one microbatch by hand: gz = gy * (1 - y**2) with the y "
    "of this microbatch, then gz @ w back and gz.T @ x. Which of them uses a tensor of another microbatch?",
    "gradients that are all 0": "Each W adds its GEMM to the gradient of its layer, in place. B must do this too.",
}
NEAR = 1e-5  # relative; the order in which microbatches are added is free
LINGERS = 1  # a variable may still hold a microbatch that is over, until it gets the next one


class Shapes(NamedTuple):
    """Layers on one rank: (rows of x, inputs, outputs) of each."""

    shapes: tuple[tuple[int, int, int], ...]
    ranks: int = 1

    def __str__(self):
        return "one rank"


def first_wrong(case: Shapes, home: list[str]) -> str:
    """The message about the first wrong layer, as its rank reports it."""
    return home[0]


def wrong(case: Case, home: list) -> str:
    """The mistake in one run, in a sentence; empty if there is none. `home` has one `rank.Did` for each rank."""
    for judge in (_gradients, _order, _held, _messages):
        for rank, did in enumerate(home):
            if told := judge(case, rank, *did):
                return f"Rank {rank} {told}"
    return ""


def _gradients(case, rank, problem, gap, ratio, *_) -> str:
    m = case.microbatches
    if problem:
        return f"{problem}."
    if gap <= NEAR:
        return ""
    if abs(ratio - m) < 1e-3 * m:
        return f"has gradients {m} times too large: the loss of the batch is the mean over its {m} microbatches."
    if ratio == 0:
        whole = any(kind == "B" for kind, *_ in lists(*case)[rank])
        asked = "its list has B: does each do both halves, I and then W?" if whole else "does each W add to them?"
        return f"returned gradients that are all 0: {asked}"
    return f"has different gradients from autograd's: their norm is {ratio:.3g} times as large. Begin with one layer."


def _order(case, rank, problem, gap, ratio, did, *_) -> str:
    program = lists(*case)[rank]
    found = _entries(did, program)
    order = [entry for entry, _ in found]
    for kind in "FIW":
        if not any(one == kind for one, *_ in did):
            return f"has the right gradients, but no GEMM of {kind} was seen: write every GEMM with @."
    if order != program:
        return f"multiplied in the order {_short(order)}; its list says {_short(program)}."
    due = 0
    for number, ((kind, k), sent) in enumerate(found):
        if sent < due:
            late = next(one for one in reversed(program[:number]) if sends(one[0], rank, case.stages))
            late, now = _short([late]), _short([(kind, k)])
            return f"had not sent the result of {late} when it began {now}: another rank waits for it."
        due += sends(kind, rank, case.stages)
    return ""


def _entries(did, program) -> list[tuple]:
    """[((kind, microbatch), messages sent before)] of the actions to which the matmuls belong, as entries of a list.

    >>> _entries([("F", 0, 0), ("F", 0, 0), ("I", 0, 1), ("W", 0, 2)], [("F", 0), ("I", 0), ("W", 0)])
    [(('F', 0), 0), (('I', 0), 1), (('W', 0), 2)]
    >>> _entries([("F", 0, 0), ("W", 0, 1), ("I", 0, 1)], [("F", 0), ("B", 0)])
    [(('F', 0), 0), (('B', 0), 1)]
    """
    whole = {k for kind, k in program if kind == "B"}
    entry = lambda one: ("B" if one[0] in "IW" and one[1] in whole else one[0], one[1])
    return [(key, next(group)[2]) for key, group in groupby(did, entry)]


def _held(case, rank, problem, gap, ratio, did, most, *_) -> str:
    enough, _ = counted(case, rank)
    if most <= enough + LINGERS:
        return ""
    return f"held tensors of {most} microbatches at once; {enough} are enough for its list. Free them after their W."


def _messages(case, rank, problem, gap, ratio, did, most, *sent) -> str:
    return miscounted(case, rank, *sent)
