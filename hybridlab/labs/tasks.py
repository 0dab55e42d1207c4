"""The exercises: what is asked, how an answer is checked, and what to think of next when it is off.

A task's numbers are computed by the package, never typed. Its check returns the reply to one answer: whether it is
right, and one sentence. Hints come one at a time, the next with every wrong answer.
"""

from itertools import combinations

import hybridlab as hl
from hybridlab.labs.asynchronous_tasks import ASYNCHRONOUS_TASKS
from hybridlab.labs.collective_tasks import COLLECTIVE_TASKS
from hybridlab.labs.data_parallel_tasks import DATA_PARALLEL_TASKS
from hybridlab.labs.gpipe_tasks import GPIPE_TASKS
from hybridlab.labs.hybrid_tasks import HYBRID_TASKS
from hybridlab.labs.interleaved_tasks import INTERLEAVED_TASKS
from hybridlab.labs.megatron_tasks import MEGATRON_TASKS
from hybridlab.labs.one_f_one_b_tasks import ONE_F_ONE_B_TASKS
from hybridlab.labs.task import Task, Verdict, number
from hybridlab.labs.zero_bubble_tasks import ZERO_BUBBLE_TASKS
from hybridlab.labs.zero_tasks import ZERO_TASKS

LAYER_TIMES = (10, 10, 10, 10, 20, 20, 20, 20)  # ms of each layer in the balancing exercises


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
    except (TypeError, ValueError, OverflowError):
        return False, "Give the list that pool.run returned: one number for each rank."
    if values == [10.0] * 4:
        return True, "Every rank holds the same sum, 1 + 2 + 3 + 4 = 10."
    if len(values) != 4:
        return False, f"There are {len(values)} numbers; four ranks give four."
    if values == [1.0, 2.0, 3.0, 4.0]:
        return False, "Every rank still holds its own number."
    return False, "All four must be equal: the sum over the ranks."


def _swapped(answer) -> Verdict:
    """100 and 101, each on the other rank."""
    try:
        values = [float(value) for value in answer]
    except (TypeError, ValueError, OverflowError):
        return False, "Give the list that pair.run returned: one number for each rank."
    if len(values) != 2:
        return False, f"The list has {len(values)} entries, two ranks give two: use the pool that is called pair."
    kept = [rank for rank, value in enumerate(values) if value == 100 + rank]
    if len(kept) == 2:
        return False, "Both ranks still hold their own number: no message has arrived."
    if kept:
        return False, f"Rank {kept[0]} still holds its own number, {values[kept[0]]:g}; the other one has it too."
    if values != [101.0, 100.0]:
        return False, "Rank 0 must end with 101 and rank 1 with 100, the numbers that the other one began with."
    return True, "Each rank holds the number of the other, and nobody waits for ever."


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
    """Sizes of three stages whose slowest is as quick as any cut can make it."""
    try:
        sizes = [int(size) for size in answer]
        whole = sizes == [float(size) for size in answer]
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        return False, "Answer with three whole numbers: how many layers each stage gets, as in [3, 3, 2]."
    if len(sizes) != 3 or min(sizes) < 1:
        return False, "Make it three stages, each with at least one layer."
    if sum(sizes) != len(LAYER_TIMES):
        return False, f"These stages hold {sum(sizes)} layers; the model has {len(LAYER_TIMES)}."
    times, target = _stage_times(sizes), _bottleneck(3)
    told = f"The stages take {' '.join(map(str, times))} ms"
    if max(times) > target:
        return False, f"{told}: stage {times.index(max(times))} is the slowest. {target} ms are possible."
    return True, f"{told}: no cut into three has a quicker slowest stage."


def _same_order(answer) -> Verdict:
    """A typed schedule for two ranks and two microbatches that needs no more than 1F1B does."""
    if not isinstance(answer, str | hl.Schedule):
        return False, "Answer with text: one line for each rank, its actions with commas between them."
    try:
        mine = hl.validate(hl.Schedule.from_csv(answer) if isinstance(answer, str) else answer)
    except (ValueError, OSError) as error:
        return False, str(error)
    target = hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2))
    if (mine.ranks, mine.stages, len(mine.replica_of)) != (2, 2, 2):
        return (
            False,
            f"Ranks, stages, microbatches: {mine.ranks}, {mine.stages}, {len(mine.replica_of)} here. Make it 2, 2, 2.",
        )
    t = hl.simulate(mine)
    if t.length > target.length:
        return False, f"Valid. It takes {t.length:g} units; {target.length:g} are possible."
    for rank, (held, enough) in enumerate(zip(t.peak_live, target.peak_live)):
        if held > enough:
            return False, f"Quick enough, but rank {rank} holds {held} activations at once; {enough} will do."
    word = "as good as" if (t.length, t.peak_live) == (target.length, target.peak_live) else "better than"
    held = " and ".join(map(str, t.peak_live))
    return True, f"{t.length:g} units, and the ranks hold {held} activations at most: {word} 1F1B."


TASKS: dict[str, Task] = {
    "start.all_reduce": Task(
        "Four ranks; rank r starts with r + 1. Return the sum over all ranks, from every rank.",
        _all_reduced,
        (
            "comm.all_reduce(x) puts the sum into x. Call it on every rank, after x is made and before it is returned.",
            "x = torch.tensor([comm.rank + 1.0]); comm.all_reduce(x); return x.item()",
        ),
    ),
    "start.swap": Task(
        "Two ranks; rank r starts with 100 + r. Return from each rank the number that the other one began with.",
        _swapped,
        (
            "Rank 1 needs its own number after the message has come: receive into a new tensor, torch.zeros(1).",
            "Rank 0 sends, then receives. Rank 1 receives, then sends. In any other order somebody waits for ever.",
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
        "Type a schedule for 2 ranks and 2 microbatches. It must be as short as 1F1B, and hold no more on any rank.",
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
    "naive.balance": Task(
        f"Eight layers take {' '.join(map(str, LAYER_TIMES))} ms. Cut them, in order, into three stages so that the "
        "slowest stage is as quick as possible. Answer with the number of layers of each stage.",
        _balanced,
        (
            "All layers together take 120 ms. What would each of three equal stages take?",
            "Add up layers from the first one until 40 ms are reached; begin the next stage there.",
        ),
    ),
    "naive.bottleneck": Task(
        "The same eight layers, now on four stages. How long does the slowest stage take in the best cut?",
        number(
            lambda: _bottleneck(4),
            "ms",
            slips=[(sum(LAYER_TIMES) / 4, "That is the mean, 120 / 4. Try to find a cut that reaches it.")],
        ),
        (
            "If every stage took 30 ms, the first three layers would be stage 0. Go on from there.",
            "30 for stage 0, and 10 + 20 for stage 1. Then three layers of 20 ms are left, for two stages.",
        ),
    ),
    **GPIPE_TASKS,
    **ONE_F_ONE_B_TASKS,
    **INTERLEAVED_TASKS,
    **ZERO_BUBBLE_TASKS,
    **ASYNCHRONOUS_TASKS,
    **COLLECTIVE_TASKS,
    **DATA_PARALLEL_TASKS,
    **ZERO_TASKS,
    **MEGATRON_TASKS,
    **HYBRID_TASKS,
}
