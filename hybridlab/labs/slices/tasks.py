"""Exercises of notebook 16, on rows in token slices: `slices.*`. The package computes every number."""

import math
from functools import partial
from itertools import accumulate

import hybridlab as hl
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.exercises.typed_schedule import LONGEST_TEXT, typed
from hybridlab.labs.slices.case import ROWS
from hybridlab.labs.slices.runs import idle
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.trial import Function, Gave

ORDER = dict(ranks=2, microbatches=2, slices=2)  # of slices.order
CUTS = (  # (α, β, tokens, slices) in slices.cut
    (24 * 4096**2, 4 * 4096, 32_768, 4),
    (24 * 4096**2, 4 * 4096, 8_192, 8),
    (24 * 1024**2, 4 * 1024, 131_072, 3),
    (1000, 1, 4_096, 2),
)
CHOICES = (1, 2, 4, 8, 16, 32)  # numbers of slices in slices.best
PIPELINES = ((4, 8, 0.05), (4, 8, 0.02), (4, 4, 0.1), (2, 8, 0.05), (4, 8, 0.0), (8, 16, 0.05))  # p, rows, latency

task = partial(Task, notebook="16_slices")


# --- the order ----------------------------------------------------------------------------------------------------


def _ordered(answer) -> Verdict:
    """The lists of two ranks, valid as slices: as short as seq1f1b, with as few slices in memory."""
    if not isinstance(answer, str) or len(answer) > LONGEST_TEXT:
        return False, "Answer with text: one line for each rank, its actions with commas between them."
    n, ranks, rows = ORDER["slices"], ORDER["ranks"], ORDER["microbatches"]
    try:
        made = hl.Schedule.from_csv(answer)
        schedule, told = typed(made if made.slices == n else hl.orders.on_slices(made, n))
    except (ValueError, OSError) as error:
        return False, f"No such step can be run: {error}"
    if told:
        return False, f"This order cannot be run: {told}"
    right = hl.schedule("seq1f1b", **ORDER)
    if (schedule.place, schedule.microbatches) != (right.place, rows):
        return False, f"Give {ranks} lines for {rows} rows: stages 0 and 1 on rank 0, stages 2 and 3 on rank 1."
    found, best = (hl.simulate(one, hl.Costs(F=1, B=2)) for one in (schedule, right))
    if found.length > best.length:
        return False, (
            f"These lists are valid, but take {found.length:g} units; {best.length:g} are enough. Where does a rank "
            "wait for an action that its neighbour could have done earlier?"
        )
    if any(mine > least for mine, least in zip(found.peak_live, best.peak_live)):
        return False, (
            f"These lists take {found.length:g} units, as few as possible, but the ranks hold up to "
            f"{' and '.join(map(str, found.peak_live))} slices; {' and '.join(map(str, best.peak_live))} are enough. "
            "Begin the backwards earlier."
        )
    return True, (
        f"{found.length:g} units; the ranks hold {' and '.join(map(str, found.peak_live))} slices. This is seq1f1b."
    )


# --- the cut ------------------------------------------------------------------------------------------------------


def _ends(alpha: float, beta: float, tokens: int, slices: int) -> list[float]:
    """The positions at which slices of equal cost end, from 0 on."""
    whole = alpha * tokens + beta * tokens**2 / 2
    each = [i / slices * whole for i in range(slices + 1)]
    return [(math.sqrt(alpha**2 + 2 * beta * cost) - alpha) / beta for cost in each]


def _equal(alpha, beta, tokens, slices):
    return [i / slices * tokens for i in range(slices + 1)]


def _attention_alone(alpha, beta, tokens, slices):
    return [tokens * math.sqrt(i / slices) for i in range(slices + 1)]


def _without_half(alpha, beta, tokens, slices):
    return _ends(alpha, 2 * beta, tokens, slices)


SLIPS = (  # (positions of a wrong cut, the reply)
    (_equal, "these are equal lengths. The last slice sees the most keys, so it costs the most."),
    (_attention_alone, "these slices have the same attention, but not the same cost: every token also costs α."),
    (
        _without_half,
        "this is right for a cost of αx + βx². A token at position x sees x keys: add that up from 0 to x.",
    ),
)


def _near(found: list, ends: list[float]) -> bool:
    """Whether the slices end where these do, within a token."""
    return len(found) == len(ends) - 1 and all(abs(mine - end) <= 1 for mine, end in zip(accumulate(found), ends[1:]))


def _judged_cut(call: Gave, alpha, beta, tokens, slices) -> str:
    """The mistake in one cut; empty if there is none."""
    if call.raised:
        return f"it raised {call.raised}."
    found, size = call.value, slices
    if not isinstance(found, list | tuple) or len(found) != size:
        return f"it returns {repr(found)[:40]}; return a list of {size} lengths."
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        return "the lengths are not all integers: a token cannot be cut. Use round(…)."
    ends = _ends(alpha, beta, tokens, slices)
    if sum(found) != tokens and all(abs(mine - end) <= 1 for mine, end in zip(found, ends[1:])):
        return "these are the positions at which the slices end. Return the lengths, the differences between them."
    if sum(found) != tokens:
        return f"the lengths add up to {sum(found):,}. Round the positions where slices end, and then take differences."
    if _near(found, ends):
        return ""
    if _near(found[::-1], ends):
        return "the order is reversed: early tokens are cheap, so the first slice is the longest."
    slip = next((told for cut, told in SLIPS if _near(found, cut(alpha, beta, tokens, slices))), "")
    i = next(i for i, (mine, end) in enumerate(zip(accumulate(found), ends[1:])) if abs(mine - end) > 1)
    right = f"{round(ends[i + 1]) - sum(found[:i]):,} have {1 / slices:.1%} of the cost"
    return slip or f"slice {i}, counted from 0, has {found[i]:,} tokens; {right}."


def _cut(gave: list[Gave]) -> Verdict:
    """The verdict on a function (alpha, beta, tokens, slices) -> lengths."""
    for case, call in zip(CUTS, gave):
        if told := _judged_cut(call, *case):
            alpha, beta, tokens, slices = case
            return False, f"For {tokens:,} tokens in {slices} slices, α = {alpha:,}, β = {beta:,}: {told}"
    return True, f"All slices cost the same, in all {len(CUTS)} cases."


# --- the best number ----------------------------------------------------------------------------------------------


def _best(gave: list[Gave]) -> Verdict:
    """The verdict on a function (ranks, rows, latency, choices) -> the number of slices with the shortest step."""
    for (ranks, rows, latency), call in zip(PIPELINES, gave):
        found = {n: idle(n, latency, ranks, rows) for n in CHOICES}
        right = min(found, key=found.get)
        where = f"For {ranks} ranks, {rows} rows and a latency of {latency:g}"
        if call.raised:
            return False, f"{where} it raised {call.raised}."
        if isinstance(call.value, bool) or call.value not in CHOICES:
            return False, f"{where} it returns {repr(call.value)[:40]}; return one of {', '.join(map(str, CHOICES))}."
        if call.value != right:
            return False, (
                f"{where} it returns {call.value}, with idle/ideal {found[call.value]:.1%}; {right} slices have "
                f"{found[right]:.1%}."
            )
    return True, f"Your numbers of slices give the shortest step in all {len(PIPELINES)} cases."


def _peak(ranks, slices):
    p, n = ranks, slices
    held = lambda: hl.simulate(hl.schedule("seq1f1b", ranks=p, microbatches=16, slices=n)).peak_live[0]
    return task(
        f"seq1f1b runs on {p} ranks with 16 rows, each cut into {n} slices. How many rows of activations does rank 0 "
        "hold at most? Count a slice as one part of a row; all parts are equal.",
        Number(
            lambda: held() / n,
            "rows",
            slips=[
                (p, "That is 1F1B, where a rank holds whole rows."),
                (n + p - 1, "That is the number of slices. How many rows is that?"),
                (
                    (p - 1) / n,
                    "The warm-up has n - 1 more slices than that of 1F1B: the first backward is that of a "
                    "row's last slice.",
                ),
                ((n + p) / n, "After the warm-up of n + p - 2 slices, one forward comes before the first backward."),
            ],
        ),
        (
            "The first backward that rank 0 can do is that of the last slice of the first row. How many forwards has "
            "it done before?",
            f"Rank 0 does {n} - 1 + {p} - 1 forwards in the warm-up, and one more before its first backward.",
            f"It holds {n + p - 1} slices, and a row has {n} of them.",
        ),
        objective="Say how much memory token slices save.",
        difficulty=1,
        minutes=3,
    )


ABOUT_THE_ORDER = {  # {words of a reply: the hint about the mistake that it reports}
    "order cannot be run": "Slice 1 has read the keys of slice 0, so its backward comes first. In each row "
    "the backwards begin with the last slice.",
    "are enough. Where": "A rank begins with its forwards, also those of the next row, until the first gradient can "
    "arrive. From then on it alternates F and B.",
}
ABOUT_THE_CACHE = {
    "second time": "Autograd can use a graph for only one backward. Cut the keys and values of earlier slices from "
    "their graph with detach(), and backpropagate from y and own in one call: torch.autograd.backward((y, "
    "own), (…, …)).",
    "no gradient from later slices": "leaf = own.detach().requires_grad_() collects in leaf.grad the gradients of all "
    "slices that read it. Through which tensor must this gradient flow back?",
    "from the next slice alone": "Each slice must read the same leaf: autograd adds to its .grad each time.",
    "gave slice": "Append the leaf of each slice to the cache in its forward. past is the list of all these leaves, "
    "from slice 0 on; the newest is the last one.",
    "own has no gradient": "Backwards come in reverse order, so the last slice of a row is first, and no slice has "
    "read its keys. Which of y and own has a gradient there?",
    "got NoneType from my_backward": "x.grad is None unless x is marked before the stage reads it: x = "
    "x.detach().requires_grad_(). And does my_backward return it?",
}

TASKS: dict[str, Task] = {
    "slices.order": task(
        "Write the lists of two ranks for two rows of two slices, as text: one line for each rank, commas between "
        "actions. Stages 0 and 1 stand for rank 0 on slices 0 and 1; stages 2 and 3 stand for rank 1 on them. The step "
        "must be as short as possible, and among the shortest orders each rank must hold as few slices as possible. A "
        "forward of a slice takes 1 unit, a backward 2, and messages take no time. There is more than one right "
        "answer.",
        _ordered,
        (
            "Rank 1 can begin its first backward as soon as it has done the forwards of both slices of row 0.",
            "Rank 0 does three forwards before its first backward, 1B0. Rank 1 does two, and then 3B0.",
            "Rank 1 is 2F0,3F0,3B0,2F1,2B0,3F1,3B1,2B1. Rank 0 begins with 0F0,1F0,0F1,1B0.",
        ),
        about=ABOUT_THE_ORDER,
        objective="Write the order of a pipeline in token slices by hand.",
        difficulty=2,
        minutes=6,
    ),
    "slices.cut": task(
        "Write `my_lengths(alpha, beta, tokens, slices)`: the lengths of slices of equal cost, in order. A token costs "
        "`alpha` for its matrices and `beta` for each position before it. The lengths are integers, and their sum is "
        "`tokens`. The end of a slice may be off by one token. With `alpha=0`, two slices take 71 % and 29 % of the "
        "row.",
        Function(CUTS, _cut, "Answer with your function itself: my_lengths, without parentheses."),
        (
            "Tokens 0 to x cost αx + βx²/2. Which part of the row's cost is before the i-th cut?",
            "Solve βx²/2 + αx = c for x, with c = (i/n)(αT + βT²/2). The positive root is (√(α² + 2βc) - α)/β.",
            "ends = [round((math.sqrt(alpha**2 + 2 * beta * c) - alpha) / beta) for each c], from c = 0 on; return the "
            "differences between consecutive ends.",
        ),
        objective="Cut a row into slices that take the same time.",
        difficulty=2,
        minutes=8,
    ),
    "slices.backward": task(
        "Write the forward and the backward of one slice on one rank. `cache` is a list for one row, empty at its "
        "first slice; store in it everything that you need. `my_forward(stage, x, cache)` calls y, own = `stage(x, "
        "past)`, where `past` is the list of the keys and values of all earlier slices, and returns y. x has no "
        "autograd history yet. `my_backward(gradient, cache)` is called for the slices in reverse order, with the "
        "gradient of y. It adds to the gradients of the stage's weights, and returns the gradient of x. Your code is "
        f"tested on {ROWS[0]}, then on other sizes. The check compares with one device that never cuts a row, in "
        "double precision.",
        OnCases(
            "slices.rank:play",
            first_found,
            ROWS,
            "The gradients of every rank equal those of one device that never cuts a row.",
            names=("my_forward", "my_backward"),
        ),
        (
            "A key of slice 0 was read by slices 0, 1, 2 … When its turn comes, the gradients from all later slices "
            "must be there. Where are they collected?",
            "In the forward: y, own = stage(x, [the leaves of earlier slices]); leaf = own.detach().requires_grad_(). "
            "Later slices read the leaf, so their backwards add to leaf.grad.",
            "x, y, own, leaf = cache.pop(); torch.autograd.backward((y, own), (gradient, leaf.grad)), and y alone if "
            "leaf.grad is None; return x.grad, with x = x.detach().requires_grad_() in the forward.",
        ),
        about=ABOUT_THE_CACHE,
        objective="Write the backward through a cache of keys and values.",
        difficulty=3,
        minutes=15,
    ),
    "slices.peak": varying(_peak, ranks=(8, 6, 10, 12), slices=(4, 2, 8)),
    "slices.best": task(
        "Write `my_best(ranks, rows, latency, choices)`: the number of slices, one of `choices`, that gives the "
        "shortest step. On a rank, the forward of a row takes 1 unit, and its backward takes 2. `latency` is the time "
        "of a message, in the same units. All slices cost the same. `hl.plans.slicing.with_slices(ranks, [1 / n] * n, "
        "latency=latency)` gives their costs; use it with `hl.schedule` and `hl.simulate`.",
        Function(
            tuple((*one, CHOICES) for one in PIPELINES),
            _best,
            "Answer with your function itself: my_best, without parentheses.",
        ),
        (
            'The length of a step is hl.simulate(schedule, costs).length, with schedule = hl.schedule("seq1f1b", '
            "ranks=ranks, microbatches=rows, slices=n).",
            "With n slices each of them costs 1/n of a row: these are the shares in with_slices, and n is also the "
            "argument slices of hl.schedule.",
            "Write a function length(n) inside my_best, and return min(choices, key=length).",
        ),
        objective="Find the best number of slices under a latency.",
        difficulty=2,
        minutes=8,
    ),
}
