"""Exercises of notebook 11, on microbatches and bubbles: `gpipe.*`. The package computes every number."""

from functools import cache, partial

import hybridlab as hl
from hybridlab.core.when.flow import Flow
from hybridlab.labs.engine.trial import ABOUT, pipeline
from hybridlab.labs.exercises.pipelines import UNIT, close, predicted, several
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.words import in_words
from hybridlab.labs.trials.clinic import Clinic

SHARE = 0.10  # of idle/total, in gpipe.microbatches
CHART = """
0F0,0F1,0F2,0F3,,,,0B0,0B1,0B2,0B3
,1F0,1F1,1F2,1F3,,,1B0,1B1,1B2,1B3
,,2F0,2F1,2F2,2F3,,2B0,2B1,2B2,2B3
,,,3F0,3F1,3F2,3F3,3B0,3B1,3B2,3B3
""".strip()  # one cell per slot: what a book drew, with all ranks starting their backwards at the same time
HALVED = {"ranks": 4, "batch": 64, "sequences": 4}  # in gpipe.size
CHOSEN = {"ranks": 4, "batch": 96}  # in gpipe.design

task = partial(Task, notebook="11_gpipe")


def _two_bubbles(answer) -> Verdict:
    """Idle/total and idle/ideal of four ranks and eight microbatches, in this order."""
    given, t = several(answer, 2), predicted("gpipe", 4, 8)
    right = (t.bubble_fraction, t.bubble_overhead)
    if given is None:
        return False, "Answer with two numbers: (idle / total, idle / ideal)."
    if close(given, right):
        return True, f"idle / total is {right[0]:.1%}, idle / ideal is {right[1]:.1%}."
    if close(given, right[::-1]):
        return False, "The two are swapped: idle / ideal divides by less, so it is larger."
    if close(given, [100 * one for one in right]):
        return False, "Give fractions between 0 and 1."
    if close(given[:1], right[:1]):
        return False, "idle / total is right. idle / ideal divides the same idle time by the busy time alone."
    if close(given[1:], right[1:]):
        return False, "idle / ideal is right. idle / total divides the same idle time by the total time."
    return False, "Neither is right: count idle and busy units on one rank, then divide."


@cache
def _fewest(ranks: int, bubble: str) -> int:
    """The smallest number of microbatches with a bubble of at most `SHARE`."""
    m = 1
    while getattr(predicted("gpipe", ranks, m), bubble) > SHARE + 1e-9:
        m += 1
    return m


def _enough_microbatches(answer) -> Verdict:
    """The smallest m for four and for eight ranks."""
    given, stages = several(answer, 2), (4, 8)
    if given is None:
        return False, "Answer with two whole numbers: (m for 4 ranks, m for 8 ranks)."
    right = [_fewest(p, "bubble_fraction") for p in stages]
    if given == right:
        return True, f"m = {right[0]} and {right[1]}: m is 9 (p-1), so every additional rank needs 9 more microbatches."
    if given == [_fewest(p, "bubble_overhead") for p in stages]:
        return False, "With these numbers, idle / ideal is a tenth. The question is idle / total."
    for p, m, enough in zip(stages, given, right):
        if m != enough:
            if m < 1 or m != int(m) or m > 10_000:
                return False, f"{m:g} microbatches are not possible here."
            share = predicted("gpipe", p, int(m)).bubble_fraction
            word = "too much" if m < enough else "small enough, but fewer microbatches are enough"
            return False, f"p = {p}, m = {m:g}: idle / total is {share:.1%}, {word}."


def _slots() -> dict[str, int]:
    """{action: the slot in which the chart draws it}."""
    cells = [(cell, slot) for line in CHART.split("\n") for slot, cell in enumerate(line.split(","))]
    return {cell: slot for cell, slot in cells if cell}


def _needs() -> set[tuple[str, str]]:
    """Every (action, an action whose product it takes) of the chart's program, by the law."""
    flow, pairs = Flow(hl.Schedule.from_csv(CHART)), set()
    for action in range(flow.actions):
        for value in flow.takes[action]:
            if flow.maker[value] >= 0:
                pairs.add((str(flow.action(action)), str(flow.action(flow.maker[value]))))
    return pairs


def _too_early(answer) -> Verdict:
    """A box of the chart, and what it takes from a box that has not ended by then."""
    slots, needs = _slots(), _needs()
    boxes = [str(box).strip() for box in answer] if isinstance(answer, list | tuple) else []
    if len(boxes) != 2:
        return (
            False,
            'Answer with two boxes: (one that comes too early, one that it must wait for), as in ("1F0", "0F0").',
        )
    for box in boxes:
        if box not in slots:
            return False, f"{box[:20]!r} is not a box of this chart."
    late, early = boxes
    if (late, early) in needs:
        if slots[late] <= slots[early]:
            where = "the same slot" if slots[late] == slots[early] else "an earlier slot"
            return True, f"{late} needs the result of {early}, but is drawn in {where}. No machine can do that."
        return (
            False,
            f"{late} needs the result of {early}, and comes after it: slot {slots[late]} after {slots[early]}.",
        )
    if (early, late) in needs:
        return False, f"The two are swapped: {early} needs the result of {late}."
    return False, f"{late} does not need the result of {early}."


def _resized(answer) -> Verdict:
    """m and idle/ideal after the microbatch has been doubled."""
    given, (ranks, batch, b) = several(answer, 2), HALVED.values()
    if given is None:
        return False, "Answer with two numbers: (m, idle / ideal)."
    after, before = (predicted("gpipe", ranks, batch // size) for size in (2 * b, b))
    m = after.schedule.microbatches
    if close(given, (m, after.bubble_overhead)):
        return True, (
            f"m falls from {2 * m} to {m}, and idle / ideal doubles from {before.bubble_overhead:.1%} "
            f"to {after.bubble_overhead:.1%}."
        )
    if given[0] == 4 * m:
        return False, f"There are fewer microbatches now: the {batch} sequences are cut into larger pieces."
    if given[0] == 2 * m:
        return False, "That is m before b was doubled."
    if given[0] != m:
        return False, "m is B / b, with the new b."
    if close(given[1:], [after.bubble_fraction]):
        return False, "m is right. The other number is idle / total; the question is idle / ideal."
    return False, "m is right. idle / ideal is (p-1)/m."


def _step(b: int) -> hl.Timeline:
    """One step of gpipe.design: each microbatch costs 2 units for any size, and 1 more for every sequence."""
    return predicted("gpipe", CHOSEN["ranks"], CHOSEN["batch"] // b, hl.Costs(F=2 + b, B=2 * (2 + b)))


def _best_size(answer) -> Verdict:
    """The microbatch size with which a step of the batch takes the least time."""
    given, batch = several([answer], 1), CHOSEN["batch"]
    if given is None or given[0] != int(given[0]) or isinstance(answer, str):
        return False, "Answer with one whole number: the sequences in a microbatch."
    b = int(given[0])
    if b < 1 or batch % b:
        return False, f"{b} does not divide {batch}."
    best = min(_step(size).length for size in range(1, batch + 1) if batch % size == 0)
    t = _step(b)
    told = f"b = {b}, m = {batch // b}: idle / total {t.bubble_fraction:.1%}, a step takes {t.length:g} units"
    if t.length > best:
        return False, f"{told}; {best:g} are possible."
    return True, f"{told}. No other b is faster."


def _length(ranks: int, microbatches: int, recompute: str) -> float:
    """The predicted length of GPipe."""
    return hl.simulate(hl.schedule("gpipe", ranks, microbatches, recompute=recompute), UNIT).length


def _again(ranks, microbatches):
    p, m = ranks, microbatches
    return task(
        f"GPipe runs on {p} ranks with {m} microbatches; F takes 1 unit, B takes 2. Now activations are recomputed: "
        "every forward runs a second time, right before its backward in the list of its rank. By how many units is the "
        "step longer?",
        Number(
            lambda: _length(p, m, "always") - _length(p, m, "never"),
            "units",
            slips=[
                (p * m, f"That is the work of all {in_words(p)} ranks. They work at the same time."),
                (
                    m + p - 1,
                    f"A step has {in_words(m + p - 1)} slots, but a rank repeats a forward in only {in_words(m)} of "
                    "them.",
                ),
            ],
        ),
        (
            "How many forwards does each rank repeat?",
            f"{in_words(m).capitalize()} on each rank, one unit each; all ranks at the same time.",
            f"Each rank is busy for {m} times 1 unit more, and its idle time does not change.",
        ),
        objective="Say how much time recomputing every forward costs.",
        difficulty=1,
        minutes=2,
    )


SIZES = (("gpipe", 3, 4), ("gpipe", 2, 5), ("gpipe", 4, 3), ("gpipe", 3, 1))
CAUSES = {
    "a": "Then all gradients would be too large or too small by the same factor. These are not.",
    "b": "",
    "c": "Then the gradients of the last rank would be right: it needs no message for its backward.",
}

TASKS: dict[str, Task] = {
    "gpipe.bubbles": task(
        "GPipe runs with 4 stages and 8 microbatches. What fraction is idle? Answer with (idle / total, idle / ideal).",
        _two_bubbles,
        (
            "Every rank waits for three slots, and works in eight.",
            "The total is idle and busy time together, 11 slots. The ideal is the busy time alone, 8 slots.",
            "Answer with a pair, the smaller number first: (3 / 11, 3 / 8).",
        ),
        objective="Tell the two bubbles apart.",
        difficulty=1,
        minutes=2,
    ),
    "gpipe.microbatches": task(
        "What is the smallest m with idle / total at most a tenth? Answer with (m for 4 ranks, m for 8 ranks).",
        _enough_microbatches,
        (
            "idle / total is (p-1)/(m+p-1).",
            "(p-1)/(m+p-1) = 1/10 means that m+p-1 is ten times p-1.",
            "So m is nine times p-1: with 4 ranks p-1 is 3, with 8 ranks it is 7.",
        ),
        objective="Choose the number of microbatches for a bubble that you can afford.",
        difficulty=1,
        minutes=4,
    ),
    "gpipe.chart": task(
        "Some boxes of the chart begin too early: they need the result of a box that has not ended yet. Answer with "
        'one such box and the box that it must wait for, as in ("1F0", "0F0").',
        _too_early,
        (
            "Where does a backward get its gradient from, on every rank but the last?",
            "In which slot do all ranks begin their backwards? Only one of them has its gradient by then.",
            "In slot 7, all four ranks begin their backwards. 2B0 needs the gradient that 3B0 computes.",
        ),
        objective="Find the action in a printed chart that no machine can do.",
        difficulty=2,
        minutes=6,
    ),
    "gpipe.engine": task(
        "Write GPipe. Each rank calls `my_gpipe(comm, stage, data)`; `data` is the list of microbatches, each (x, "
        "target). Do all forwards first, then all backwards, both in the order of the list. The loss of the batch is "
        "the mean of `loss(y, target)` over its microbatches. Your code is tested on 3 ranks with 4 microbatches, then "
        "on other sizes.",
        pipeline(
            "gpipe",
            SIZES,
            "The gradients are those of one device, to the last bit, in four sizes; every rank holds at most m "
            "forwards.",
        ),
        (
            "Write two loops over the microbatches. A backward needs the x and the y of its forward: keep both.",
            "kept[k] = x, y in the first loop; x, y = kept.pop(k) in the second. On the last rank y is the loss, "
            "divided by the number of microbatches.",
            "Second loop: y.backward() on the last rank; on the others y.backward(g), with g received from comm.rank "
            "+ 1; "
            "then send x.grad to comm.rank - 1.",
        ),
        about=ABOUT,
        objective="Write a pipeline of microbatches, and keep what the backward needs.",
        difficulty=2,
        minutes=10,
    ),
    "gpipe.size": task(
        f"A pipeline of {HALVED['ranks']} stages has a batch of {HALVED['batch']} sequences in microbatches of b = "
        f"{HALVED['sequences']}. Now b is doubled, and the batch stays the same. Answer with the new (m, idle / "
        "ideal).",
        _resized,
        (
            "m = B / b, so there are half as many microbatches.",
            "m = 64 / 8, and idle / ideal is 3/m.",
            "m is 8. With the three idle slots of four stages, idle / ideal is 3 / 8.",
        ),
        objective="Distinguish the number of microbatches from their size.",
        difficulty=1,
        minutes=3,
    ),
    "gpipe.design": task(
        f"A pipeline has {CHOSEN['ranks']} stages and a batch of {CHOSEN['batch']} sequences. A forward of b sequences "
        f"takes 2 + b units on each stage, a backward twice that. Which divisor b of {CHOSEN['batch']} makes the "
        "step shortest?",
        _best_size,
        (
            "With a small b there is almost no bubble, but every microbatch costs 2 units. With a large b it is the "
            "opposite.",
            "The step takes 3 (B/b + p - 1) (2 + b) units. Write a loop over the divisors.",
            "With b = 6 it takes 456 units, with b = 12 it takes 462. Which divisor is between them?",
        ),
        objective="Choose a microbatch size by the time of a step, not by the bubble alone.",
        difficulty=2,
        minutes=8,
    ),
    "gpipe.again": varying(_again, ranks=(4, 3, 5, 6), microbatches=(8, 10, 12, 16)),
    "gpipe.clinic": task(
        "What is wrong with `broken`? (a) The loss of the batch is not the mean over its microbatches. (b) All "
        "microbatches are received into one tensor. (c) Gradients arrive in a different order from activations. Answer "
        "with the letter and the fixed function.",
        Clinic(
            CAUSES,
            pipeline("gpipe", SIZES, "With one tensor for each microbatch that is held, all gradients are right."),
        ),
        (
            "The loss is right, so every forward is right. What does a backward need besides the gradient that "
            "arrives?",
            "Autograd saves x itself, not a copy of it. What is in x when the backward comes?",
            "Make a new tensor for every receive: comm.recv(torch.empty_like(x), before).",
        ),
        about=ABOUT,
        objective="Find a buffer that is reused too early, from gradients alone.",
        difficulty=2,
        minutes=5,
    ),
}
