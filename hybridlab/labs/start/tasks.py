"""Exercises of notebooks 00 and 01: `start.*` and `tour.*`. The package computes every number."""

from functools import partial

import hybridlab as hl
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.words import in_words
from hybridlab.labs.trials.trial import OnRanks

start_task, tour_task = (partial(Task, notebook=name) for name in ("00_start", "01_tour"))


def _all_reduced(answer) -> Verdict:
    """The sum of 1, 2, 3, 4 on every rank."""
    try:
        values = [float(value) for value in answer]
    except (TypeError, ValueError, OverflowError):
        return False, "Answer with a function that returns one number from each rank."
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
        return False, "Answer with a function that returns one number from each rank."
    if len(values) != 2:
        return False, f"The list has {len(values)} entries, but two ranks give two: use the pool named pair."
    kept = [rank for rank, value in enumerate(values) if value == 100 + rank]
    if len(kept) == 2:
        return False, "Both ranks still hold their own number: no message has arrived."
    if kept:
        return False, f"Rank {kept[0]} still holds its own number, {values[kept[0]]:g}; the other one has it too."
    if values != [101.0, 100.0]:
        return False, "Rank 0 must end with 101 and rank 1 with 100: each with the number of the other rank."
    return True, "Each rank holds the number of the other rank, and no rank waits forever."


def _same_order(answer) -> Verdict:
    """A typed schedule for two ranks and two microbatches that needs no more than 1F1B does."""
    if not isinstance(answer, str | hl.Schedule):
        return False, "Answer with text: one line for each rank, with commas between its actions."
    try:
        mine = hl.validate(hl.Schedule.from_csv(answer) if isinstance(answer, str) else answer)
    except (ValueError, OSError) as error:
        return False, str(error)
    target = hl.simulate(hl.schedule("1f1b", ranks=2, microbatches=2))
    sizes = (mine.ranks, mine.stages, len(mine.replica_of))
    if sizes != (2, 2, 2):
        return False, f"The ranks, stages and microbatches are {', '.join(map(str, sizes))}. Make it 2, 2, 2."
    t = hl.simulate(mine)
    if t.length > target.length:
        return False, f"Valid. It takes {t.length:g} units; {target.length:g} are possible."
    for rank, (held, enough) in enumerate(zip(t.peak_live, target.peak_live)):
        if held > enough:
            return False, f"Fast enough, but rank {rank} holds {held} activations at once; {enough} would be enough."
    word = "as good as" if (t.length, t.peak_live) == (target.length, target.peak_live) else "better than"
    held = " and ".join(map(str, t.peak_live))
    return True, f"{t.length:g} units, and the ranks hold {held} activations at most: {word} 1F1B."


def _bubble(ranks, microbatches):
    p, m = ranks, microbatches
    return tour_task(
        f"1F1B runs on {p} ranks with {m} microbatches. What fraction of the time of all ranks is idle (idle / total)?",
        Number(
            lambda: hl.simulate(hl.schedule("1f1b", ranks=p, microbatches=m)).bubble_fraction,
            slips=[((p - 1) / m, "That is idle / ideal, (p-1)/m. The question is idle / total.")],
        ),
        (
            "Idle over total is (p-1)/(m+p-1).",
            f"p = {p} and m = {m}: {in_words(p - 1)} idle slots out of how many?",
            f"Each rank works in {m} slots and is idle in {p - 1}: {p - 1} divided by ({m} + {p - 1}).",
        ),
        objective="Say how large the bubble is, and by which definition.",
        difficulty=1,
        minutes=2,
    )


TASKS: dict[str, Task] = {
    "start.all_reduce": start_task(
        "There are four ranks, and rank r starts with r + 1. On every rank, return the sum over all ranks.",
        OnRanks(_all_reduced, (4, 3), lambda size: [size * (size + 1) / 2] * size),
        (
            "comm.all_reduce(x) puts the sum into x. Call it on every rank, after x is made and before it is returned.",
            "The missing line goes between the line that makes x and the return. It uses x once.",
            "x = torch.tensor([comm.rank + 1.0]); comm.all_reduce(x); return x.item()",
        ),
        objective="Write a function in which all ranks take part.",
        difficulty=1,
        minutes=3,
    ),
    "start.swap": start_task(
        "There are two ranks, and rank r starts with 100 + r. On each rank, return the number that the other rank "
        "started with.",
        OnRanks(_swapped, (2,)),
        (
            "Rank 1 needs its own number after the message has arrived: receive into a new tensor, torch.zeros(1).",
            "Rank 0 sends, then receives. Rank 1 receives, then sends. In any other order a rank waits forever.",
            "Rank 1: theirs = torch.zeros(1); comm.recv(theirs, source=0); comm.send(x, to=0); return theirs.item()",
        ),
        objective="Order sends and receives so that no rank waits forever.",
        difficulty=2,
        minutes=5,
    ),
    "tour.bubble": varying(_bubble, ranks=(8, 4, 6, 12, 16), microbatches=(24, 32, 40, 48)),
    "tour.schedule": tour_task(
        "Type a schedule for 2 ranks and 2 microbatches. It must be as short as 1F1B, and no rank may hold more "
        "activations than in 1F1B.",
        _same_order,
        (
            "The line of rank 1 is already good: each backward directly follows its forward. Change the line of rank "
            "0.",
            "Rank 0 has two forwards and two backwards. Which message does rank 1 wait for, and how early could it "
            "get it?",
            "Rank 0 must give rank 1 its second microbatch before the first gradient comes back: 0F0,0F1,0B0,0B1.",
        ),
        objective="Type a schedule, and see what its order costs in time and memory.",
        difficulty=2,
        minutes=8,
    ),
}
