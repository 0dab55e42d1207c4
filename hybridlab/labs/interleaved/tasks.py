"""Exercises of notebook 13, on thinner stages: `interleaved.*`."""

import math
from functools import partial

import hybridlab as hl
from hybridlab.labs.engine.trial import ABOUT, pipeline
from hybridlab.labs.exercises.task import Number, Task, Verdict, rounds_to, varying
from hybridlab.labs.exercises.typed_schedule import typed
from hybridlab.labs.interleaved.thin_stages import thinned
from hybridlab.labs.interleaved.trial import PIECES, try_pieces
from hybridlab.labs.trials.cases import OnCases, first_found

RANKS = 4
BOTH = ("bubble_fraction", "bubble_overhead")
CLOSE = 0.01  # relative, as for a single number
PARTS = {2: "half", 3: "a third", 4: "a quarter"}

# the design of an interleaved step: 96 layers of half a unit forward and one backward, on four ranks
LAYERS_PER_RANK, FORWARD, BACKWARD = 24, 12, 24
MESSAGE, LONGEST, MOST_HELD = 1.2, 355, 4.8

task = partial(Task, notebook="13_interleaved")


def _shares(timeline, rank=0):
    """The peak of a rank in shares of a whole rank's layers: chunks held, over chunks per rank."""
    return timeline.peak_live[rank] / timeline.schedule.chunks


def _two_numbers(answer):
    """(a, b), or None if it is something else."""
    try:
        a, b = (float(value) for value in answer)
    except (TypeError, ValueError, OverflowError):
        return None
    return (a, b) if math.isfinite(a) and math.isfinite(b) else None


def _same(given, expected):
    return all(_close(a, b) for a, b in zip(given, expected))


def _close(given, expected):
    return abs(given - expected) <= CLOSE * abs(expected)


def _both_bubbles(answer) -> Verdict:
    """bubble_fraction and bubble_overhead of interleaved 1F1B with two chunks."""
    given = _two_numbers(answer)
    if given is None:
        return False, "Answer with two numbers: [idle / total, idle / ideal]."
    thin, whole = (hl.simulate(thinned(chunks)) for chunks in (2, 1))
    right = [getattr(thin, name) for name in BOTH]
    if all(_close(a, b) or rounds_to(a, b) for a, b in zip(given, right)):
        return True, f"Idle / total is {right[0]:.4g}, idle / ideal is {right[1]:.4g}."
    if _same(given, right[::-1]):
        return False, "The two are swapped: idle / total comes first, and it is the smaller one."
    if _same(given, [getattr(whole, name) for name in BOTH]):
        return False, "These are the two bubbles of 1F1B, without interleaving."
    if _same(given, [getattr(whole, BOTH[0]) / 2, right[1]]):
        return False, "idle / ideal is right. idle / total does not simply halve: its total shrinks too."
    for place, (mine, wanted) in enumerate(zip(given, right)):
        if not _close(mine, wanted) and not rounds_to(mine, wanted):
            name = ("idle / total", "idle / ideal")[place]
            return False, f"The number for {name} is too {'large' if mine > wanted else 'small'}."
    raise AssertionError("one of the two numbers differs")


def _shorter_warm_up(answer) -> Verdict:
    """Interleaved 1F1B on two ranks, where rank 0 warms up with one forward fewer."""
    mine, problem = typed(answer)
    if problem:
        return False, problem
    usual = thinned(2, ranks=2, microbatches=4)
    if (mine.ranks, mine.stages, len(mine.replica_of)) != (usual.ranks, usual.stages, usual.microbatches):
        return False, "Keep 2 ranks, 4 stages and 4 microbatches."
    if mine.place != usual.place or mine.program[1] != usual.program[1]:
        return False, "Leave the line of rank 1 unchanged; only rank 0 changes."
    warm, needed = (_warm_up(one.program[0]) for one in (mine, usual))
    if warm != needed - 1:
        return False, f"Rank 0 warms up with {warm} forwards before its first pair; make it {needed - 1}."
    if not _alternates(mine.program[0], warm):
        return False, f"After {warm} forwards rank 0 must do one forward, one backward, one forward, … while it can."
    for kind, what in (("F", "forwards"), ("B", "backwards")):
        found, wanted = ([one for one in its if one.kind == kind] for its in (mine.program[0], usual.program[0]))
        if told := next((f"{a} instead of {b}" for a, b in zip(found, wanted) if a != b), ""):
            return False, f"Rank 0 now does {told}: keep the order of its {what}."
    told = []
    for words, cost in (("with free messages", 0), ("with messages of 1 unit", 1)):
        costs = hl.Costs(F=1, B=2, latency=cost)
        told.append(f"{words}: {hl.simulate(mine, costs).length:g} units, before {hl.simulate(usual, costs).length:g}")
    held = [hl.simulate(one).peak_live[0] for one in (mine, usual)]
    return True, f"{'; '.join(told)}. Rank 0 holds {held[0]} chunks instead of {held[1]}."


def _warm_up(program):
    """Forwards before the first (F, B) pair."""
    return [action.kind for action in program].index("B") - 1


def _alternates(program, warm):
    forwards = sum(action.kind == "F" for action in program)
    pairs = forwards - warm
    return [action.kind for action in program] == ["F"] * warm + ["F", "B"] * pairs + ["B"] * warm


def _like_for_like(answer) -> Verdict:
    """The bubble before and after interleaving, both by one definition."""
    given = _two_numbers(answer)
    if given is None:
        return False, "Answer with two numbers: [before, after]."
    if max(given) > 1:
        return False, "Give fractions between 0 and 1."
    before = hl.simulate(hl.schedule("gpipe", ranks=8, microbatches=48))
    after = hl.simulate(thinned(2, ranks=8, microbatches=48))
    pairs = {name: (getattr(before, name), getattr(after, name)) for name in BOTH}
    for name, pair in pairs.items():
        if _same(given, pair):
            return True, f"Both are {name}. They differ by a factor of {pair[0] / pair[1]:.4g}."
        if _same(given, pair[::-1]):
            return False, "The two are swapped: the number without interleaving comes first."
    if _same(given, (pairs[BOTH[0]][0], pairs[BOTH[1]][1])):
        return False, "That is the published pair: the first is idle / total, the second idle / ideal."
    known = [value for pair in pairs.values() for value in pair]
    if all(any(abs(one - value) <= CLOSE * value for value in known) for one in given):
        return False, "Both numbers occur, but not by the same definition."
    return False, "p = 8 and m = 48: take one of the two formulas, and use it for both numbers."


def _designed(chunks):
    """(length, peak in rank shares) of the step that is to be designed."""
    costs = hl.Costs(F=FORWARD / chunks, B=BACKWARD / chunks, latency=MESSAGE)
    t = hl.simulate(hl.schedule("interleaved", ranks=RANKS, microbatches=8, chunks=chunks), costs)
    return t.length, max(_shares(t, rank) for rank in range(RANKS))


def _fits(chunks):
    length, held = _designed(chunks)
    return length <= LONGEST and held <= MOST_HELD


def _design(answer) -> Verdict:
    """The smallest number of chunks that keeps within the time and the memory."""
    possible = [v for v in range(1, LAYERS_PER_RANK + 1) if LAYERS_PER_RANK % v == 0]
    try:
        chunks = int(answer)
        whole = chunks == float(answer)
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        return False, f"Answer with one whole number of chunks per rank, one of {', '.join(map(str, possible))}."
    if chunks not in possible:
        return False, f"{LAYERS_PER_RANK} layers cannot be cut into {chunks} equal chunks: choose from {possible}."
    length, held = _designed(chunks)
    told = f"With v = {chunks} a step takes {length:.4g} units and rank 0 holds {held:.4g} rank shares"
    if length > LONGEST and held > MOST_HELD:
        return False, f"{told}: too slow, and too much memory."
    if length > LONGEST:
        return False, f"{told}: memory is fine, but a step may take {LONGEST} units at most."
    if held > MOST_HELD:
        return False, f"{told}: the time is fine, but a rank may hold {MOST_HELD} shares at most."
    smaller = [v for v in possible if v < chunks and _fits(v)]
    if smaller:
        return False, f"{told}. That is enough, but a smaller v is enough too."
    return True, f"{told}. Fewer chunks need too much memory, and many more send too many messages."


def _memory(ranks, chunks):
    p, v, m = ranks, chunks, 2 * ranks
    right = p * (1 + (p - 1) / (p * v))
    return task(
        f"Interleaved 1F1B runs on {p} ranks with {m} microbatches and {v} chunks. How many activations does rank 0 "
        "hold at most? "
        "Answer in rank shares: chunks held / chunks per rank.",
        Number(
            lambda: _shares(hl.simulate(thinned(v, p, m))),
            "rank shares",
            slips=[
                (v * right, f"That counts chunks. A chunk is {PARTS[v]} of the layers of a rank."),
                (p, "That is 1F1B. Interleaving holds more."),
                (right / p, "That is the factor over 1F1B. How many rank shares is it?"),
            ],
        ),
        (
            "Count the forwards that rank 0 does before its first backward; the first pair adds one to the warm-up.",
            "p shares times 1 + (p-1)/(p v).",
            f"{p} times (1 + {p - 1} / {p * v}).",
        ),
        objective="Say how much memory interleaving costs.",
        difficulty=2,
        minutes=4,
    )


THIN = (("interleaved", 2, 4, 2), ("interleaved", 3, 6, 2), ("interleaved", 4, 4, 2), ("interleaved", 2, 4, 3))
WHOLE = (("1f1b", 3, 4, 1), ("gpipe", 4, 2, 1), ("naive", 2, 3, 1))  # lists of one chunk, with their stage named

TASKS: dict[str, Task] = {
    "interleaved.engine": task(
        "Let the interpreter execute several stages on a rank. Each rank calls `my_chunks(comm, stages, program, "
        "data)`: `stages[s]` is stage s, for each s that the rank owns: rank, rank + p, rank + 2p, … In "
        "`program[rank]`, "
        '("F", 2, 5) is the forward of microbatch 2 on stage 5. Your code is tested on 2 ranks with 2 stages each and '
        "m = 4, then with other sizes, and with lists for one stage on each rank.",
        pipeline(
            "chunks",
            (*THIN, *WHOLE),
            "Your interpreter executes the naive order, GPipe, 1F1B and interleaved 1F1B, with any number of stages "
            "on a rank.",
        ),
        (
            "Now the first and the last are stages, not ranks. On which rank is the stage before s?",
            "Stage s - 1 is on rank (s - 1) % p. Save tensors under the key (k, s), because a rank holds the same "
            "microbatch on several stages.",
            "Each message between two ranks needs its own tag. In the forward, use the tag k * count + s for the "
            "message from stage s, with count = p * len(stages). In the backward, add m * count to it.",
        ),
        about=ABOUT,
        objective="Write the interpreter for thin stages.",
        difficulty=3,
        minutes=15,
    ),
    "interleaved.bubbles": task(
        "Interleaved 1F1B runs on 4 ranks with 8 microbatches and 2 chunks. Answer with [idle / total, idle / ideal].",
        _both_bubbles,
        (
            "idle / ideal is (1/v)(p-1)/m, as on the slide. Here v = 2.",
            "If idle / ideal is x, idle / total is x / (1 + x).",
            "x = 3/16. For 16 parts of work there are 3 parts of idle time. How many parts is the total?",
        ),
        objective="Say by how much two chunks reduce each of the two bubbles.",
        difficulty=1,
        minutes=3,
    ),
    "interleaved.memory": varying(_memory, ranks=(6, 4, 8), chunks=(3, 2, 4)),
    "interleaved.warmup": task(
        "There are 2 ranks, 2 chunks and 4 microbatches. Let rank 0 warm up with 3 forwards instead of 4. Then it "
        "does pairs of "
        "one forward and one backward, then the remaining backwards; the order of the forwards and that of the "
        "backwards do not change. Type this schedule.",
        _shorter_warm_up,
        (
            "The fourth forward of rank 0, 2F1, now begins the first pair: the backward 2B0 comes right after it.",
            "Rank 0: 0F0,0F1,2F0, then the pairs 2F1,2B0 and 0F2,2B1 and so on; three backwards remain at the end.",
            "The line of rank 0 begins 0F0,0F1,2F0,2F1,2B0,0F2,2B1,0F3,0B0,2F2,0B1 and ends 2F3,2B2,2B3,0B2,0B3.",
        ),
        objective="Find out the purpose of each forward of the warm-up.",
        difficulty=2,
        minutes=8,
        starter=(
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3"
        ),
    ),
    "interleaved.published": task(
        "There are 8 ranks and 48 microbatches. A text says that the bubble is 0.127 for GPipe and "
        "0.073 for interleaving with v = 2, so 1.74 times smaller. Correct it: answer with [before, after], both by "
        "the same definition.",
        _like_for_like,
        (
            "7/55 is 0.127 and 7/96 is 0.073. Which is idle / total, and which is idle / ideal?",
            "7/55 is idle / total: 48 slots of work and 7 idle ones. Keep 7/96; what is idle / ideal before?",
            "idle / ideal: 7/48 before, 7/96 after.",
        ),
        objective="Compare two schedules by one definition.",
        difficulty=2,
        minutes=4,
    ),
    "interleaved.design": task(
        f"There are 4 ranks with {LAYERS_PER_RANK} layers each and 8 microbatches. A rank's layers take {FORWARD} "
        "units forward and "
        f"{BACKWARD} backward, and a message takes {MESSAGE}. Find the smallest number of chunks per rank for which a "
        f"step takes at most {LONGEST} units and no rank holds more than {MOST_HELD} rank shares. (One rank share is "
        "the activations of one microbatch in all chunks of a rank.)",
        _design,
        (
            "The chunks are equal, so v divides 24. Memory is p(1 + (p-1)/(pv)) shares: for which v is it small "
            "enough?",
            "hl.simulate(hl.schedule('interleaved', ranks=4, microbatches=8, chunks=v), "
            f"hl.Costs(F={FORWARD}/v, B={BACKWARD}/v, latency={MESSAGE})) gives the length. Try the divisors of 24.",
            "With v = 3 memory is 5 shares, slightly too much; with v = 6 the messages take too long.",
        ),
        objective="Choose the number of chunks for a limit of time and a limit of memory.",
        difficulty=3,
        minutes=8,
    ),
    "interleaved.pieces": task(
        "Write the loss with a sharded output head as two functions. The vocabulary has V entries. A piece has W "
        "of them, with the indices `first` to `first` + W - 1. `my_piece(scores, targets, first)` runs on each "
        "rank: `scores` (N, W) are the scores of N positions for the piece's entries, and `targets` (N,) are "
        "indices from 0 to V - 1. It returns `lse` and `target`, both (N,). `lse` is the log-sum-exp of the piece, "
        "log Σ exp(score) over its W entries; `target` is the target's score, or 0 if the target is in another "
        "piece. `my_join(lse, target)` runs on the last rank, and gets both from all pieces, as (pieces, N). It "
        "returns the loss of each "
        f"position: log Σ exp(score) over all V entries, minus the target's score. Your code is tested on {PIECES[0]}, "
        "then with other sizes, and with scores so large that exp overflows. Gradients are compared too.",
        OnCases(
            try_pieces,
            first_found,
            PIECES,
            "Loss and gradients are those of one device. Each piece has sent two numbers for each position.",
            names=("my_piece", "my_join"),
        ),
        (
            "Both terms of the loss combine all pieces. Which part of Σ exp(score) does a piece know? How does the "
            "loss get the target's score, if only one piece has it?",
            "targets - first is the column of the target in scores, if it is at least 0 and less than "
            "scores.shape[1]. Clamp it to this range, so that every position has a column to gather, then multiply "
            "by ((targets >= first) & (targets < first + scores.shape[1])), 1 or 0. Over all pieces, "
            "Σ exp(score) is Σ exp(lse).",
            "A piece returns scores.logsumexp(1) and the masked score; the join returns lse.logsumexp(0) - "
            "target.sum(0).",
        ),
        objective="Compute the loss of a head whose scores no rank has in full.",
        difficulty=2,
        minutes=12,
    ),
}
