"""Exercises of notebook 15, on training without a flush: `pipedream.*`. The package computes every number."""

from functools import partial

import hybridlab as hl
from hybridlab.labs.asynchronous.trial import ABOUT, wrong
from hybridlab.labs.asynchronous.updates import flushed
from hybridlab.labs.engine.case import Case
from hybridlab.labs.exercises.pipelines import several
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.trials.cases import OnCases
from hybridlab.labs.trials.trial import Function, Gave

SIZES = ((4, 8), (2, 5), (6, 3), (8, 12), (1, 3))  # (ranks, microbatches) in pipedream.delay
UNIT = hl.Costs(F=1, B=2)
RUNS = tuple(Case(*run) for run in (("1f1b", 3, 8), ("1f1b", 2, 5), ("1f1b", 4, 8), ("gpipe", 3, 4)))
DEQUE = 4  # ranks in pipedream.deque
COPIES = (2, 1, 1)  # of each stage, in pipedream.copies

task = partial(Task, notebook="15_pipedream")


def _versions(name: str, ranks: int, **more) -> list[int]:
    """The largest number of weight versions that each rank holds."""
    return hl.simulate(hl.schedule(name, ranks=ranks, microbatches=2 * ranks, **more)).peak("weights")


def _kept(answer) -> Verdict:
    """The versions that each of six ranks stashes."""
    right, given = _versions("pipedream", 6), several(answer, 6)
    if given is None:
        return False, "Answer with 6 numbers, one for each rank."
    if given == right:
        return True, f"{' '.join(map(str, right))}: p-r, one for each microbatch in flight."
    if given == right[::-1]:
        return False, "The order is reversed: on the first rank a microbatch is in flight longest."
    if given == [one - 1 for one in right]:
        return False, "That is the number of updates in between. The version before them is kept too."
    if given == _versions("pipedream", 6, vertical_sync=True):
        return False, "That is vertical sync, where the last rank must keep the versions that the first one still uses."
    wrong = next(rank for rank in range(6) if given[rank] != right[rank])
    return False, f"Look at rank {wrong} again."


def _held_by_copies(answer) -> Verdict:
    """The versions that each rank of stages with copies stashes."""
    schedule = hl.schedule("pipedream", ranks=sum(COPIES), microbatches=8 * COPIES[0], copies=COPIES)
    right, given = hl.simulate(schedule).peak("weights"), several(answer, sum(COPIES))
    if given is None:
        return False, f"Answer with {sum(COPIES)} numbers, one for each rank."
    if given == right:
        return (
            True,
            f"{' '.join(map(str, right))}: the number of ranks of a stage and of all later stages, divided by the "
            "number of copies of the stage and rounded up.",
        )
    if given == _versions("pipedream", sum(COPIES)):
        return False, "That is a straight pipeline of four stages. Here there are three, the first on two ranks."
    if given == [4, 4, 2, 1]:
        return False, "That is the total number of mini-batches in flight on stage 0. Its two copies divide them."
    wrong = next(rank for rank in range(len(right)) if given[rank] != right[rank])
    return False, f"Look at rank {wrong} again."


def _version(gave: list[Gave]) -> Verdict:
    """The verdict on a function (rank, ranks, microbatch) -> version, for sizes that the question does not name."""
    calls = iter(gave)
    for ranks, microbatches in SIZES:
        schedule = hl.schedule("pipedream", ranks=ranks, microbatches=microbatches)
        for rank, program in enumerate(schedule.program):
            versions = {action.microbatch: action.version for action in program if action.kind == "F"}
            for m, call in zip(range(microbatches), calls):
                where = f"rank {rank} of {ranks}, microbatch {m}"
                if call.raised:
                    return False, f"For {where} it raised {call.raised}."
                if isinstance(call.value, bool) or call.value != versions[m]:
                    return False, f"For {where} it returns {call.value!r:.20}; the schedule says {versions[m]}."
    return True, f"It agrees with the schedule in all {len(SIZES)} sizes tested."


def _slope(b: float, step: float = 1e-3) -> float:
    """The derivative of (b·a)²/2 at a = 1, by finite differences."""
    above, below = ((b * a) ** 2 / 2 for a in (1 + step, 1 - step))
    return (above - below) / (2 * step)


def _wrong_way(answer) -> Verdict:
    """Two values of b for which the gradient of a, mixed from both, points the wrong way."""
    pair = several(answer, 2)
    if pair is None:
        return False, "Answer with two numbers: b in the forward, b in the backward."
    before, after = pair
    true = [_slope(b) for b in pair]
    mixed = before * after  # the gradient by y comes from the forward, where y = b; the factor b from the backward
    told = f"Finite differences give {true[0]:.3g} with the old b, {true[1]:.3g} with the new one; mixed: {mixed:.3g}."
    if min(true) < 1e-6:
        return False, f"{told} One of the true gradients is zero: choose two nonzero values of b."
    if mixed > 0:
        return False, f"{told} All three have the same sign, so a step reduces the loss."
    return True, f"{told} The mixed one has the other sign: a step against it makes the loss larger, with either b."


def _times_faster() -> float:
    """How much longer 16 microbatches take with a flush after every four than without."""
    endless = hl.simulate(hl.schedule("pipedream", ranks=4, microbatches=16), UNIT)
    return hl.simulate(flushed(16, window=4), UNIT).length / endless.length


def _memory(ranks):
    p = ranks
    stashed, twice = p * (p + 1) // 2, 2 * p
    return task(
        f"There are {p} ranks, and one version of a stage's weights takes 1 GB. How many GB of weights does "
        "2BW save on all ranks together, compared with weight stashing?",
        Number(
            lambda: sum(_versions("pipedream", p)) - sum(_versions("pipedream_2bw", p)),
            "GB",
            slips=[
                (stashed, "That is the memory of stashing. The question is how much 2BW saves."),
                (twice, "That is the memory of 2BW. The question is how much it saves."),
                (p - 2, "That is the first rank alone."),
                (stashed - p, "That leaves one version on every rank. 2BW keeps two."),
                (p * p - twice, "Stashing keeps p-r versions on rank r, not p on every rank."),
            ],
        ),
        (
            f"Add up p-r for r = 0 … {p - 1}.",
            f"Compare {p} + {p - 1} + … + 1 with {p} times 2.",
            f"Stashing takes {stashed} GB. 2BW keeps two versions on each of {p} ranks.",
        ),
        objective="Say how much memory two versions save.",
        difficulty=1,
        minutes=4,
    )


TASKS: dict[str, Task] = {
    "pipedream.engine": task(
        "Write PipeDream's interpreter. Each rank calls `my_play(comm, stage, weights, program, data, rate)`. "
        "`stage(weights, x)` is the forward with these weights. The forward of microbatch k uses the newest weights "
        "and saves them as `versions[k]`; its backward uses the same weights; right after each backward the newest "
        "weights become `newest - rate * gradient`. Return the newest weights. Your code is tested with the lists of "
        "1F1B for 3 ranks and m = 8, then with other sizes and with the lists of GPipe. The result must equal a replay "
        "in one process, to the last bit.",
        OnCases(
            "asynchronous.rank:play",
            wrong,
            RUNS,
            "The weights of every rank equal those of the replay, to the last bit, and no rank keeps more versions "
            "than "
            "its list requires.",
        ),
        (
            "Start from the interpreter of notebook 12. Its F calls stage(x); here it also passes the weights. "
            "What would happen if the update wrote into these tensors?",
            "versions[k] = [w.clone().requires_grad_() for w in weights] in F. After the backward each of them has its "
            ".grad. Do not divide by m: each microbatch has its own loss and update.",
            "In B, after y.backward(…): weights = [w - rate * old.grad for w, old in zip(weights, versions.pop(k))].",
        ),
        about=ABOUT,
        objective="Write a pipeline that updates without a flush.",
        difficulty=3,
        minutes=15,
    ),
    "pipedream.deque": task(
        "PipeDream's code keeps versions in a deque of `num_versions` places and fills it before training begins: "
        "each place gets a copy of the weights. `num_versions` is one more than the number of ranks after this one. "
        f"How many copies does the first of {DEQUE} ranks hold in its deque before the first update?",
        Number(
            lambda: float(DEQUE),
            "copies",
            slips=[
                (
                    1,
                    "At that time only one version exists, and our ranks hold only one. This code makes all copies "
                    "in advance.",
                ),
                (DEQUE - 1, "That is the number of ranks after the first one. num_versions is one more."),
                (DEQUE + 1, "That includes the weights of the module itself. The question is about the deque."),
            ],
        ),
        (
            "initialize_queue appends in a loop. How often?",
            "The loop runs num_versions times, and nothing has been updated yet.",
            f"After the first of {DEQUE} ranks there are {DEQUE - 1}; num_versions is one more.",
        ),
        objective="Say how many versions PipeDream's own code keeps, and from what time on.",
        difficulty=1,
        minutes=2,
    ),
    "pipedream.versions": task(
        "PipeDream with weight stashing runs on 6 ranks. How many versions of its weights does each rank hold at "
        "most? Give "
        "a list.",
        _kept,
        (
            "A version is kept until the last backward that needs it. How many microbatches can be in flight?",
            "Rank r has p-r microbatches in flight, and an update comes after each of them.",
            "p-r for p = 6 and r = 0 … 5: the list begins with 6 and ends with 1.",
        ),
        objective="Say how many versions of its weights each rank keeps.",
        difficulty=1,
        minutes=3,
    ),
    "pipedream.delay": task(
        "Write a function `(rank, ranks, microbatch)` that returns the version which the forward of a microbatch "
        "uses on a rank, in PipeDream with stashing. Version 0 is the first.",
        Function(
            tuple((r, ranks, m) for ranks, microbatches in SIZES for r in range(ranks) for m in range(microbatches)),
            _version,
            "Answer with your function itself: my_version, without parentheses.",
        ),
        (
            "The last rank has done all earlier updates: there, microbatch i uses version i.",
            "On rank r, p-1-r microbatches are still in flight, and no version is older than the first.",
            "Subtract p-1-r from i, the index of the microbatch, and use max(0, …), so that no version is negative.",
        ),
        objective="State the delay of asynchronous updates as a rule.",
        difficulty=2,
        minutes=6,
    ),
    "pipedream.memory": varying(_memory, ranks=(8, 6, 10, 12)),
    "pipedream.throughput": task(
        "There are 4 ranks and 16 microbatches; F takes 1 unit, B takes 2, and updates are free. From start to end, "
        "1F1B with a flush after every 4 microbatches takes longer than PipeDream. What is the ratio of the longer "
        "time to the shorter one?",
        Number(
            _times_faster,
            slips=[
                (7 / 4, "That is the factor in the long run. Here PipeDream also fills and drains once."),
                (19 / 28, "That is upside down: which of the two takes longer?"),
                (19 / 16, "That compares PipeDream with a pipeline without any bubble."),
            ],
        ),
        (
            "A step with a flush takes (m+p-1)(F+B), with m = 4. How many steps are there?",
            "PipeDream is one pipeline of 16 microbatches: (16+4-1) times 3 units.",
            "Four steps of 7 times 3 units, divided by 19 times 3 units.",
        ),
        objective="Say how much time is saved if a pipeline fills only once.",
        difficulty=2,
        minutes=5,
    ),
    "pipedream.copies": task(
        "PipeDream runs with copies 2-1-1 on 4 ranks: stage 0 is on ranks 0 and 1, stage 1 on rank 2, stage 2 on rank "
        "3. How "
        "many versions of its weights does each rank hold at most? Give a list.",
        _held_by_copies,
        (
            "To keep all ranks busy, a stage needs one mini-batch in flight for each of its ranks and for each rank of "
            "the later stages.",
            "Count 4 ranks for stage 0, 2 for stage 1 and 1 for stage 2. Copies of a stage take turns.",
            "Stage 0: 4 mini-batches for 2 copies. Stage 1: 2 for one. Stage 2: 1 for one.",
        ),
        objective="Say how many versions a copy of a stage keeps.",
        difficulty=2,
        minutes=4,
    ),
    "pipedream.wrong_way": task(
        "A stage computes y = b·a·x, and the loss is y²/2, with x = 1 and a = 1. An update changes b between forward "
        "and backward. Without stashing, the gradient of the weight a mixes both values of b. Give b as a pair (its "
        "value in the forward, its value in the backward) such that the mixed gradient has the wrong sign. The true "
        "gradient then has the opposite sign, with the old b as well as with the new b.",
        _wrong_way,
        (
            "The gradient of a is (gradient with respect to y) · b · x. The first factor comes from the forward, b "
            "from the backward.",
            "The true gradient of a is b², which is never negative. The mixed one is old b times new b.",
            "Choose one b above zero and one below it.",
        ),
        objective="Build a case in which mixed versions make the loss larger.",
        difficulty=3,
        minutes=8,
    ),
}
