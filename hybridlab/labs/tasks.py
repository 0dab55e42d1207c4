"""The exercises: what is asked, how an answer is checked, and what to think of next when it is off.

A task's numbers are computed by the package, never typed. Its check returns the reply to one answer: whether it is
right, and one sentence. Hints come one at a time, the next with every wrong answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import hybridlab as hl

Verdict = tuple[bool, str]


@dataclass(frozen=True)
class Task:
    """One exercise: the question, the check of an answer, and graded hints."""

    question: str
    check: Callable[[object], Verdict]
    hints: tuple[str, ...]


def number(
    expected: Callable[[], float], unit: str = "", within: float = 0.01, slips=()
) -> Callable[[object], Verdict]:
    """A check for one number, right within a relative tolerance; `slips` are (wrong value, what was mixed up)."""

    def check(answer):
        right = expected()
        try:
            given = float(answer)
        except (TypeError, ValueError):
            return False, f"Answer with one number{f' in {unit}' if unit else ''}."
        if abs(given - right) <= within * max(abs(right), 1e-12):
            return True, f"{_shown(right)}{f' {unit}' if unit else ''}."
        for value, mixed_up in slips:
            if abs(given - value) <= within * max(abs(value), 1e-12):
                return False, mixed_up
        return False, "Too large." if given > right else "Too small."

    return check


def _shown(value):
    return f"{value:.4g}"


def _naive_speedup(ranks):
    one = hl.simulate(hl.schedule("naive", ranks=1, microbatches=1), hl.Costs(F=ranks, B=2 * ranks))
    return one.length / hl.simulate(hl.schedule("naive", ranks=ranks, microbatches=1), hl.Costs(F=1, B=2)).length


def _naive_slots(name):
    return hl.simulate(hl.schedule(name, ranks=3, microbatches=3), hl.Costs(F=1, B=2)).length / 3


def _utilisation(ranks):
    return 1 - hl.simulate(hl.schedule("naive", ranks=ranks, microbatches=1)).bubble_fraction


def _all_reduced(answer) -> Verdict:
    """The sum of 1, 2, 3, 4 on every rank."""
    try:
        values = [float(value) for value in answer]
    except (TypeError, ValueError):
        return False, "Give the list that pool.run returned: one number for each rank."
    if values == [10.0] * 4:
        return True, "Every rank holds the same sum, 1 + 2 + 3 + 4 = 10."
    if len(values) != 4:
        return False, f"There are {len(values)} numbers; four ranks give four."
    if values == [1.0, 2.0, 3.0, 4.0]:
        return False, "Every rank still holds its own number."
    return False, "All four must be equal: the sum over the ranks."


def _same_order(answer) -> Verdict:
    """A typed schedule for two ranks and two microbatches that needs no more than 1F1B does."""
    try:
        mine = hl.validate(hl.Schedule.from_csv(answer) if isinstance(answer, str) else answer)
    except ValueError as error:
        return False, str(error)
    target = hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2))
    if (mine.ranks, mine.stages, len(mine.replica_of)) != (2, 2, 2):
        return (
            False,
            f"This has {mine.ranks} ranks, {mine.stages} stages, {len(mine.replica_of)} microbatches: make it 2, 2, 2.",
        )
    t = hl.simulate(mine)
    if t.length > target.length:
        return False, f"Valid. It takes {t.length:g} units; {target.length:g} are possible."
    if max(t.peak_live) > max(target.peak_live):
        return (
            False,
            f"Fast enough, but rank {t.peak_live.index(max(t.peak_live))} holds {max(t.peak_live)} activations at once.",
        )
    return True, f"{t.length:g} units, holding {t.peak_live} activations: nothing can beat it."


TASKS: dict[str, Task] = {
    "start.all_reduce": Task(
        "Four ranks; rank r starts with r + 1. Return the sum over all ranks, from every rank.",
        _all_reduced,
        (
            "Make a tensor that holds comm.rank + 1, and hand it to comm.all_reduce.",
            "x = torch.tensor([comm.rank + 1.0]); comm.all_reduce(x); return x.item()",
        ),
    ),
    "tour.bubble": Task(
        "1F1B on 8 ranks with 24 microbatches: which share of all rank-time is idle (idle / total)?",
        number(
            lambda: hl.simulate(hl.schedule("1f1b", ranks=8, microbatches=24)).bubble_fraction,
            slips=[(7 / 24, "That is idle / ideal, (p-1)/m. The question is idle / total.")],
        ),
        ("Idle over total is (p-1)/(m+p-1).", "p = 8 and m = 24: seven idle slots in how many?"),
    ),
    "tour.schedule": Task(
        "Type a schedule for 2 ranks and 2 microbatches that is as short as 1F1B and holds no more activations.",
        _same_order,
        (
            "One line per rank. Rank 1 can run a backward right after its forward: 1F0,1B0,1F1,1B1.",
            "Rank 0 must give rank 1 its second microbatch before the first gradient comes back: 0F0,0F1,0B0,0B1.",
        ),
    ),
    "naive.utilisation": Task(
        "Naive model parallelism on 4 GPUs: which share of the time is each GPU busy?",
        number(
            lambda: _utilisation(4),
            slips=[
                (0.75, "That is the idle share. The question is the busy one."),
                (25, "Give a share between 0 and 1."),
            ],
        ),
        ("Only one GPU works at a time, and the work is shared equally.", "Each of N GPUs works 1/N of the time."),
    ),
    "naive.slots": Task(
        "3 stages, 3 microbatches, one slot is F and B of one microbatch. How many slots does a pipeline (GPipe) need?",
        number(
            lambda: _naive_slots("gpipe"),
            "slots",
            slips=[
                (9, "That is the naive order: one microbatch after another."),
                (3, "The first stage needs three; the others start later."),
            ],
        ),
        ("The last stage starts two slots late.", "m + p - 1 slots."),
    ),
    "naive.speedup": Task(
        "The same model on 1 GPU and, naively, on 4. By which factor is the step faster on 4 (messages free)?",
        number(
            lambda: _naive_speedup(4),
            slips=[
                (4, "Four GPUs, but never two at work together."),
                (0.25, "Each is busy a quarter of the time, yet the work is done in the same time."),
            ],
        ),
        ("Add up who works when: is any of it done at the same time?", "Nothing overlaps: the time stays what it was."),
    ),
}
