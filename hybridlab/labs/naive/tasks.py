"""Exercises of notebook 10, on ranks that take turns and on balance: `naive.*`. The package computes every number."""

from functools import partial
from itertools import combinations

import hybridlab as hl
from hybridlab.labs.engine.trial import ABOUT, pipeline
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.words import in_words
from hybridlab.labs.trials.clinic import Clinic

LAYER_TIMES = (10, 10, 10, 10, 20, 20, 20, 20)  # ms of each layer in the balancing exercises

task = partial(Task, notebook="10_naive")


def _naive_speedup(ranks):
    one = hl.simulate(hl.schedule("naive", ranks=1, microbatches=1), hl.Costs(F=ranks, B=2 * ranks))
    return one.length / hl.simulate(hl.schedule("naive", ranks=ranks, microbatches=1), hl.Costs(F=1, B=2)).length


def _slots_of(name, stages, microbatches):
    return hl.simulate(hl.schedule(name, ranks=stages, microbatches=microbatches), hl.Costs(F=1, B=2)).length / 3


def _stage_times(sizes):
    """The time of each stage when the layers are cut, in order, into stages of these sizes."""
    starts = [sum(sizes[:stage]) for stage in range(len(sizes))]
    return [sum(LAYER_TIMES[start : start + size]) for start, size in zip(starts, sizes)]


def _bottleneck(stages):
    """The slowest stage's time of the best contiguous cut: every cut is tried."""
    last = len(LAYER_TIMES)
    cuts = ((0, *inner, last) for inner in combinations(range(1, last), stages - 1))
    return min(max(_stage_times([b - a for a, b in zip(cut, cut[1:])])) for cut in cuts)


def _balanced(answer) -> Verdict:
    """The verdict on the sizes of three stages: the slowest must be as fast as possible."""
    try:
        sizes = [int(size) for size in answer]
        whole = sizes == [float(size) for size in answer]
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        return False, "Answer with three whole numbers, the number of layers of each stage, as in [3, 3, 2]."
    if len(sizes) != 3 or min(sizes) < 1:
        return False, "Make it three stages, each with at least one layer."
    if sum(sizes) != len(LAYER_TIMES):
        return False, f"These stages hold {sum(sizes)} layers; the model has {len(LAYER_TIMES)}."
    times, target = _stage_times(sizes), _bottleneck(3)
    told = f"The stages take {' '.join(map(str, times))} ms"
    if max(times) > target:
        return False, f"{told}: stage {times.index(max(times))} is the slowest. {target} ms are possible."
    return True, f"{told}: in no cut into three is the slowest stage faster."


def _utilisation(ranks):
    return task(
        f"With naive model parallelism on {ranks} GPUs, for what fraction of the time is each GPU busy?",
        Number(
            lambda: 1 - hl.simulate(hl.schedule("naive", ranks=ranks, microbatches=1)).bubble_fraction,
            slips=[
                (1 - 1 / ranks, "That is the idle fraction. The question is the busy one."),
                (100 / ranks, "Give a fraction between 0 and 1."),
            ],
        ),
        (
            "Only one GPU works at a time, and the work is divided equally.",
            "Each of N GPUs works 1/N of the time.",
            f"N = {ranks}: one divided by {ranks}.",
        ),
        objective="Say for what fraction of the time GPUs are busy if they take turns.",
        difficulty=1,
        minutes=1,
    )


def _slots(stages, microbatches):
    p, m = stages, microbatches
    return task(
        f"A pipeline (GPipe) has {p} stages and {m} microbatches. A slot is the time of F and B of one microbatch. How "
        "many slots does a step take?",
        Number(
            lambda: _slots_of("gpipe", p, m),
            "slots",
            slips=[
                (p * m, "That is the naive order: one microbatch after another."),
                (m, f"The first stage needs {in_words(m)} slots; the others start later."),
            ],
        ),
        (
            f"The last stage starts {in_words(p - 1)} slots late.",
            "m + p - 1 slots.",
            f"The last stage starts in slot {p - 1}, counted from 0, and works in {m} slots: {m} + {p - 1}.",
        ),
        objective="Count the slots of a pipeline.",
        difficulty=1,
        minutes=2,
    )


ENGINE = (
    "Write naive model parallelism. Each rank calls `my_naive(comm, stage, x, target)` with its own stage; `x` and "
    "`target` are the same on every rank. Afterwards the parameters of each stage hold the gradients that one device "
    "would compute. Your code is tested on 3 ranks, then on 2 and 4."
)

SIZES = (("naive", 3, 1), ("naive", 2, 1), ("naive", 4, 1))  # (schedule, ranks, microbatches) of naive.engine
CAUSES = {
    "a": "Then x.grad would be None on ranks 1 and 2, and they would fail. Here all ranks finish.",
    "b": "",
    "c": "Then rank 2 would be wrong too, and so would every rank before it. Which is the last rank that is right?",
}

TASKS: dict[str, Task] = {
    "naive.utilisation": varying(_utilisation, ranks=(4, 3, 5, 6, 8)),
    "naive.slots": varying(_slots, stages=(3, 4, 5, 6), microbatches=(3, 4, 6, 8)),
    "naive.engine": task(
        ENGINE,
        pipeline(
            "naive",
            SIZES,
            "The gradients are those of one device, to the last bit, on 2, 3 and 4 ranks.",
        ),
        (
            "Forward: every rank but the first receives its x, and every rank but the last sends its y. Backward: the "
            "other way round.",
            "A received tensor has no autograd history. Call requires_grad_() on it before the forward: the rank "
            "before needs its .grad. The last rank begins the backward with loss(y, target).backward(), the others "
            "with y.backward(g), where g is the received gradient.",
            "if comm.rank > 0: x = comm.recv(torch.empty_like(x), comm.rank - 1).requires_grad_(); y = stage(x); then "
            "send y.detach() on, or call loss(y, target).backward(); at the end send x.grad to comm.rank - 1.",
        ),
        about=ABOUT,
        objective="Write forward and backward over several processes.",
        difficulty=2,
        minutes=10,
    ),
    "naive.speedup": task(
        "The same model runs on 1 GPU and, naively, on 4. What is the speed-up of a step on 4 GPUs over a step on 1 "
        "GPU, if messages take no time?",
        Number(
            lambda: _naive_speedup(4),
            slips=[
                (4, "There are four GPUs, but only one works at a time."),
                (0.25, "Each GPU is busy for a quarter of the time, but the whole work takes the same time."),
            ],
        ),
        (
            "Note when each GPU works: do two of them ever work at the same time?",
            "Nothing overlaps, so the time does not change.",
            "A step that takes the same time as before is faster by a factor of one.",
        ),
        objective="Distinguish saving memory from saving time.",
        difficulty=1,
        minutes=1,
    ),
    "naive.clinic": task(
        "What is wrong with `broken`? (a) The activation that arrives is not marked with `requires_grad_()`. (b) A "
        "rank in the middle sends back the gradient of its output, not of its input. (c) The last rank compares y with "
        "the wrong target. Answer with the letter and the fixed function.",
        Clinic(CAUSES, pipeline("naive", SIZES, "Every rank sends back the gradient of its input.")),
        (
            "With two ranks there is no rank in the middle. What does rank 1 do that the first and the last rank do "
            "not?",
            "The chain rule: a stage receives the gradient of its y, and must send the gradient of its x to the rank "
            "before.",
            "comm.send(x.grad, before), on every rank but the first.",
        ),
        about=ABOUT,
        objective="Find the cause of a wrong gradient, starting at the first rank where it appears.",
        difficulty=2,
        minutes=5,
    ),
    "naive.balance": task(
        f"Eight layers take {' '.join(map(str, LAYER_TIMES))} ms. Cut them, in order, into three stages so that the "
        "slowest stage is as fast as possible. Answer with the number of layers of each stage.",
        _balanced,
        (
            "All layers together take 120 ms. How long would each of three equal stages take?",
            "Add up layers from the first one until 40 ms are reached; begin the next stage there.",
            "Stage 0 gets the four layers of 10 ms. The other four take 20 ms each, and two of them make 40.",
        ),
        objective="Cut a model by time, not by number of layers.",
        difficulty=2,
        minutes=5,
    ),
    "naive.bottleneck": task(
        "Now cut the same eight layers into four stages. How long does the slowest stage take in the best cut?",
        Number(
            lambda: _bottleneck(4),
            "ms",
            slips=[(sum(LAYER_TIMES) / 4, "That is the mean, 120 / 4. Try to find a cut that reaches it.")],
        ),
        (
            "If every stage took 30 ms, the first three layers would be stage 0. Go on from there.",
            "30 for stage 0, and 10 + 20 for stage 1. Then three layers of 20 ms are left for two stages.",
            "One of these two stages gets two layers of 20 ms, and no other cut avoids that.",
        ),
        objective="See why the mean over the stages cannot always be reached.",
        difficulty=2,
        minutes=3,
    ),
}
