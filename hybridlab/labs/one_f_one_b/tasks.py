"""Exercises of notebook 12, on orders and their memory: `1f1b.*`. The package computes every number."""

from functools import cache, partial

import hybridlab as hl
from hybridlab.core.when.play import Stuck
from hybridlab.labs.exercises.pipelines import UNIT, predicted, several
from hybridlab.labs.exercises.played import played
from hybridlab.labs.exercises.task import Task, Verdict
from hybridlab.labs.one_f_one_b import build_tasks
from hybridlab.labs.one_f_one_b.letters import from_letters
from hybridlab.labs.trials.trial import Function, Gave

ROOM = 3  # activations on rank 0, in 1f1b.design
LONGEST = 20_000  # letters of a typed schedule; far more than any exercise needs
SIZES = ((4, 8), (2, 2), (3, 9), (4, 4), (1, 3), (4, 2), (6, 3), (8, 1))  # (ranks, microbatches) in 1f1b.order
GAME = {"ranks": 4, "microbatches": 6, "units": 30, "held": 3}  # 1f1b.play: 1F1B holds 4 and does not fit

task = partial(Task, notebook="12_1f1b")


def _typed(answer, ranks: int, microbatches: int) -> tuple[hl.Timeline | None, str]:
    """(the predicted timeline of an answer, "") or (None, its mistake)."""
    told = "Answer with text: one line for each rank, with commas between its actions."
    answer, problem = played(answer)
    if problem:
        return None, problem
    try:
        if isinstance(answer, list | tuple):
            lines = [str(line).strip() for line in answer]
            if not lines or not all(line and set(line) <= {"F", "B"} and len(line) <= LONGEST for line in lines):
                return None, f'{told} A list of strings of F and B is right too, as in ["FFBB", "FBFB"].'
            answer = from_letters(lines)
        if not isinstance(answer, str | hl.Schedule):
            return None, told
        if isinstance(answer, str) and len(answer) > LONGEST:
            return None, "This text is far too long for the question."
        mine = hl.validate(hl.Schedule.from_csv(answer) if isinstance(answer, str) else answer)
    except (ValueError, OSError) as error:
        return None, str(error)
    if {action.kind for program in mine.computing for action in program} - {"F", "B"}:
        return None, "Use only F and B: do not split the backward."
    sizes = (mine.ranks, mine.stages, len(mine.replica_of))
    if sizes != (ranks, ranks, microbatches):
        has = f"The ranks, stages and microbatches are {', '.join(map(str, sizes))}."
        return None, f"{has} Make it {ranks}, {ranks}, {microbatches}."
    return hl.simulate(mine, UNIT), ""


def _against_1f1b(t: hl.Timeline) -> str:
    """Why a timeline is worse than 1F1B of its size, or ""."""
    target = predicted("1f1b", t.schedule.ranks, t.schedule.microbatches)
    if t.length > target.length:
        return f"It takes {t.length:g} units, idle / total {t.bubble_fraction:.1%}; {target.length:g} are possible."
    for rank, (held, enough) in enumerate(zip(t.peak_live, target.peak_live)):
        if held > enough:
            return f"It is fast enough, but rank {rank} holds {held} activations at once; {enough} would be enough."
    return ""


def _your_schedule(answer) -> Verdict:
    """A schedule of three ranks and four microbatches, as good as 1F1B."""
    t, problem = _typed(answer, 3, 4)
    if t is None:
        return False, problem
    if problem := _against_1f1b(t):
        return False, f"Valid. {problem}"
    held = " ".join(map(str, t.peak_live))
    return True, f"{t.length:g} units, idle / total {t.bubble_fraction:.1%}, held at most {held}: this order is 1F1B."


def _held_with_few(answer) -> Verdict:
    """The peaks of 1F1B where there are fewer microbatches than ranks."""
    ranks, microbatches = 6, 4
    given = several(answer, ranks)
    right = predicted("1f1b", ranks, microbatches).peak_live
    if given is None:
        return False, f"Answer with {ranks} numbers, one for each rank."
    if given == right:
        return True, f"{' '.join(map(str, right))}: min(p-r, m)."
    if given == [ranks - rank for rank in range(ranks)]:
        return False, f"There are only {microbatches} microbatches: no rank can hold more than all of them."
    if given == predicted("gpipe", ranks, microbatches).peak_live:
        return False, "That is GPipe. The last rank can do a backward right after its first forward."
    if given == right[::-1]:
        return False, "The order is reversed: the first rank waits longest for its gradients."
    wrong = next(rank for rank in range(ranks) if given[rank] != right[rank])
    return False, f"Look at rank {wrong} again."


def _order_of_a_rank(gave: list[Gave]) -> Verdict:
    """The verdict on a function (rank, ranks, microbatches), for sizes that the question does not name."""
    calls = iter(gave)
    for ranks, microbatches in SIZES:
        lines = []
        for rank in range(ranks):
            call = next(calls)
            if call.raised:
                return False, f"For {ranks} ranks and {microbatches} microbatches it raised {call.raised}."
            if not isinstance(call.value, str):
                return False, f"It returned {type(call.value).__name__}; return a string of F and B."
            if (forwards := call.value.count("F")) > microbatches:
                told = f"rank {rank} does {forwards} forwards, more than there are microbatches"
                return False, f"With {ranks} ranks and {microbatches} microbatches: {told}."
            lines.append(call.value)
        t, problem = _typed(lines, ranks, microbatches)
        problem = problem if t is None else _against_1f1b(t)
        if problem:
            return False, f"With {ranks} ranks and {microbatches} microbatches: {problem}"
    return True, (
        f"Your order is as good as 1F1B in all {len(SIZES)} sizes tested, including those with fewer microbatches than "
        "ranks."
    )


def _by_hand(schedule: hl.Schedule) -> hl.Schedule:
    """A schedule with messages as one writes them first: receive before each action, send right after it."""
    programs = []
    for rank, program in enumerate(schedule.program):
        line = []
        for action in program:
            source, target = (rank - 1, rank + 1) if action.kind == "F" else (rank + 1, rank - 1)
            line += [f"{rank}RECV_{action.kind}{action.microbatch}"] * (0 <= source < schedule.ranks)
            line += [str(action)]
            line += [f"{rank}SEND_{action.kind}{action.microbatch}"] * (0 <= target < schedule.ranks)
        programs.append(",".join(line))
    return hl.Schedule.from_csv("\n".join(programs), name="by hand")


@cache
def _queue() -> tuple[str, ...]:
    """The actions in which the ranks of 1f1b.deadlock wait when no rank can continue, rank by rank."""
    try:
        hl.check_rendezvous(_by_hand(hl.schedule("1f1b", ranks=4, microbatches=8)))
    except Stuck as stuck:
        return tuple(action for action, _ in stuck.waiting.values())


def _deadlocked(answer) -> Verdict:
    """The two sends that wait for each other: the end of a queue of ranks."""
    pair = [str(one).strip() for one in answer] if isinstance(answer, list | tuple) else []
    if len(pair) != 2:
        return False, 'Answer with two messages, as in ("0SEND_F0", "1SEND_B0").'
    queue = _queue()
    if set(pair) == set(queue[-2:]):
        return True, f"{queue[-2]} and {queue[-1]}: each waits for a receive that comes after the other rank's send."
    if set(pair) <= set(queue):
        return (
            False,
            "Both hang, but not because of each other: one of them waits for a rank that waits for another rank.",
        )
    if any("RECV" in one for one in pair):
        return False, "Name the sends: every rank waits at one."
    wrong = next(one for one in pair if one not in queue)
    return False, f"No rank hangs at {wrong[:20]!r}."


def _least_length(microbatches: int) -> float:
    """A bound for every schedule with at most `ROOM` activations on rank 0 (one schedule reaches it: see the tests).

    A microbatch needs a full round to return to rank 0, and frees its memory only then. So every `ROOM` microbatches
    take at least a round. The first `ROOM` of them cannot be back sooner than all of them with 1F1B.
    """
    first = predicted("1f1b", 4, ROOM).length
    round_trip = predicted("1f1b", 4, 1).length
    return first + (microbatches // ROOM - 1) * round_trip


def _within_room(answer) -> Verdict:
    """The verdict on the fastest schedule of four ranks and twelve microbatches with little memory on rank 0."""
    t, problem = _typed(answer, 4, 12)
    if t is None:
        return False, problem
    held, least = t.peak_live[0], _least_length(12)
    if held > ROOM:
        return False, f"Valid, {t.length:g} units. But rank 0 holds {held} activations and has memory for {ROOM}."
    if t.length > least:
        return False, f"Valid, and it fits: rank 0 holds {held}. It takes {t.length:g} units; {least:g} are possible."
    free = predicted("1f1b", 4, 12)
    return True, (
        f"{t.length:g} units with {held} activations on rank 0: no schedule is faster. 1F1B takes {free.length:g} "
        f"and holds {free.peak_live[0]}: one activation fewer costs {t.length / free.length - 1:.0%} more time."
    )


def _played(answer) -> Verdict:
    """A game, or a typed schedule, of four ranks and six microbatches: short, with less memory than 1F1B."""
    t, problem = _typed(answer, GAME["ranks"], GAME["microbatches"])
    if t is None:
        return False, problem
    held = max(t.peak_live)
    told = f"{t.length:g} units, and no rank holds more than {held} activations"
    if held > GAME["held"]:
        rank = t.peak_live.index(held)
        return False, f"{t.length:g} units, but rank {rank} holds {held} activations; {GAME['held']} are allowed."
    if t.length > GAME["units"]:
        return (
            False,
            f"{told}. But it takes longer than {GAME['units']} units: which rank waits although there is work?",
        )
    free = predicted("1f1b", GAME["ranks"], GAME["microbatches"])
    with_more = f"1F1B takes {free.length:g} and holds {max(free.peak_live)}"
    return True, f"{told}. With this memory no schedule is shorter; {with_more}."


TASKS: dict[str, Task] = {
    **build_tasks.TASKS,
    "1f1b.game": task(
        "Type a schedule for 3 ranks and 4 microbatches. With F = 1 and B = 2 a step must take 18 units, and ranks 0, "
        "1 "
        "and 2 may hold at most 3, 2 and 1 activations.",
        _your_schedule,
        (
            "The last rank can do every backward right after its forward. How do the others keep it busy?",
            "Rank 0 first does two forwards and rank 1 does one; then each alternates one forward and one backward.",
            "Letter by letter: rank 0 FFFBFBBB, rank 1 FFBFBFBB, rank 2 FBFBFBFB. Number each kind from 0.",
        ),
        objective="Write a schedule by hand that loses no time and needs little memory.",
        difficulty=2,
        minutes=8,
        starter="0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3",
    ),
    "1f1b.play": task(
        f"There are {GAME['ranks']} ranks and {GAME['microbatches']} microbatches; F takes 1 unit, B takes 2. No rank "
        f"may ever hold more than {GAME['held']} activations, so 1F1B does not fit. Make a step of at most "
        f"{GAME['units']} units. Play it with `hl.play({GAME['ranks']}, {GAME['microbatches']}, limit={GAME['held']})` "
        "and hand in the finished game, or a string of F and B for each rank.",
        _played,
        (
            "Rank 0 must pause after three forwards until a gradient arrives. Should the others keep alternating "
            "one forward and one backward in the meantime?",
            "Whenever a rank is free, let it do a ready action: a backward if there is one, otherwise a forward if "
            "there is "
            "memory. No rank has to alternate.",
            'Rank 0: "FFF" + "BF" * 3 + "BBB". Rank 1: "FFF" + "BBFBFF" + "BBB". Rank 3: "FB" * 6. What does rank 2 do '
            "while rank 0 sends nothing new?",
        ),
        objective="Meet a limit of time and a limit of memory where 1F1B does not fit.",
        difficulty=2,
        minutes=8,
    ),
    "1f1b.held": task(
        "1F1B runs on 6 ranks with only 4 microbatches. How many activations does each rank hold at most? Give a list.",
        _held_with_few,
        (
            "The number in flight on rank r is at most the number of ranks from r to the last one.",
            "min(p-r, m) for r = 0 … 5.",
            "p-r is 6, 5, 4, 3, 2, 1; no entry can be larger than m = 4.",
        ),
        objective="Say how many activations each rank holds, even with few microbatches.",
        difficulty=1,
        minutes=3,
    ),
    "1f1b.order": task(
        "Write a function `(rank, ranks, microbatches)` that returns 1F1B's order on that rank, as a string of F and "
        "B.",
        Function(
            tuple((rank, ranks, microbatches) for ranks, microbatches in SIZES for rank in range(ranks)),
            _order_of_a_rank,
            "Answer with your function itself: my_order, without parentheses.",
        ),
        (
            "First w forwards, then F and B alternately, then the remaining backwards. What is w on the last rank?",
            "On rank r, w = ranks - 1 - rank. What if there are fewer microbatches than that?",
            'w = min(ranks - 1 - rank, microbatches), and the middle is "FB" * (microbatches - w).',
        ),
        objective="Write 1F1B as a rule for any rank.",
        difficulty=2,
        minutes=5,
    ),
    "1f1b.deadlock": task(
        "1F1B runs on 4 ranks with 8 microbatches. Each rank receives right before an action and sends right after it, "
        "and a send blocks until it is received. Which two sends wait for each other?",
        _deadlocked,
        (
            "All ranks continue until the first backward of the last rank. Which rank must receive its gradient?",
            "Rank 3 has done 3F0 and 3B0. Rank 2 has done 2F0 and 2F1, and must now send the second activation.",
            "Rank 3 waits at 3SEND_B0. Rank 2 waits at the send of its second forward: write this in the same way.",
        ),
        objective="Find the cycle in which ranks wait for each other.",
        difficulty=2,
        minutes=5,
    ),
    "1f1b.design": task(
        f"There are 4 ranks and 12 microbatches. Rank 0 has memory for only {ROOM} activations; the other ranks have "
        "memory for all 12. F takes 1 unit, B takes 2. Which schedule is the shortest?",
        _within_room,
        (
            'Rank 0: "FFF" + "BF" * 9 + "BBB". If the others must alternate, which rank waits for forwards that '
            "cannot come?",
            "So no rank should alternate: when it is free it does a ready action, a backward before a "
            "forward. hl.play(4, 12) shows the ready actions at each moment. What do ranks 1 and 2 do until six "
            "microbatches have finished?",
            'Three microbatches pass through the pipeline every 12 units. Rank 1: "FFF" + "BBFBFF" * 3 + "BBB". Rank '
            '3: "FB" * 12. What is the rhythm of rank 2?',
        ),
        objective="Design a schedule for a limit of memory, and say how much time it costs.",
        difficulty=3,
        minutes=12,
        starter=["FFF" + "FB" * 9 + "BBB", "FF" + "FB" * 10 + "BB", "F" + "FB" * 11 + "B", "FB" * 12],
    ),
}
