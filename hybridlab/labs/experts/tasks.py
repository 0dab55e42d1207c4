"""The exercises of notebook 32. As in `labs.exercises.all_tasks`, the package computes every number."""

import math
from functools import partial

from hybridlab.core.what.shape import Shape
from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.experts import build_tasks, clinic
from hybridlab.labs.experts.on_ranks import CASE, SCORES, On
from hybridlab.labs.experts.uneven import factor
from hybridlab.labs.trials.cases import OnCases, OnMeshes, first_found
from hybridlab.labs.trials.clinic import Clinic

task = partial(Task, notebook="32_experts")
CASES = (CASE, On((5, 7, 4), 5, 2), On((3, 1, 2, 5), 9, 1))
COARSE = Shape(layers=1, width=1024, heads=8, experts=16, chosen=2, inner=4096)  # of experts.fine
FINER = 4
TOKENS = 129_280  # DeepSeek-V3's vocabulary
CLOSE = 0.006  # of a weight: two digits are enough


# --- routing by hand ----------------------------------------------------------------------------------------------


def routed() -> list[tuple[int, int, float]]:
    """(first choice, second choice, weight of the first) of each token.

    >>> [(*choices, round(weight, 3)) for *choices, weight in routed()]
    [(1, 2, 0.625), (3, 0, 0.692), (1, 3, 0.778), (1, 2, 0.562)]
    """
    found = []
    for scores in SCORES:
        first, second = sorted(range(len(scores)), key=lambda expert: -scores[expert])[:2]
        found.append((first, second, scores[first] / (scores[first] + scores[second])))
    return found


def _route(answer) -> Verdict:
    """Rows of (first, second, weight of the first)."""
    if not isinstance(answer, list | tuple) or len(answer) != len(SCORES):
        return False, f"Answer with {len(SCORES)} rows, one for each token."
    for token, (row, right) in enumerate(zip(answer, routed())):
        is_row = isinstance(row, list | tuple) and len(row) == 3 and all(isinstance(one, int | float) for one in row)
        if not is_row:
            return False, f"Row {token} must be (first expert, second expert, weight of the first)."
        if tuple(row[:2]) != right[:2]:
            turned = tuple(row[1::-1]) == right[:2]
            return False, f"Token {token}: {'the higher score comes first' if turned else 'other scores are higher'}."
        if abs(row[2] - SCORES[token][right[0]]) < CLOSE:
            return False, f"Token {token}: that is the score. The two weights of a token add up to 1."
        if not abs(row[2] - right[2]) <= CLOSE:
            return False, f"Token {token}: the experts are right, the weight is not."
    loads = [sum(row[:2].count(expert) for row in routed()) for expert in range(len(SCORES[0]))]
    return True, f"So the experts get {' '.join(map(str, loads))} tokens: two on average."


# --- the dispatch -------------------------------------------------------------------------------------------------


# --- loads --------------------------------------------------------------------------------------------------------


def _hot(share: int) -> Task:
    experts, ranks = 8, 4
    rest = (100 - share) / (experts - 1)
    loads = [share, *[rest] * (experts - 1)]
    return task(
        f"There are {experts} experts on {ranks} ranks, two on each. One expert gets {share} of 100 choices; the other "
        "seven share the rest evenly. Every choice costs the same work, and messages take no time. By what factor does "
        "the time of the layer grow, compared with even loads?",
        Number(
            lambda: factor(loads, ranks),
            "times",
            slips=[
                (share * experts / 100, "That is the expert's load over the mean. Its rank has a second expert."),
                (share * ranks / 100, "That is the hot expert alone: its rank has another one, too."),
                (share / rest, "That compares two experts. The layer ends when the rank with the largest load ends."),
                (1, "The total work is the same. But which rank do the others wait for?"),
            ],
        ),
        (
            "The layer ends when the rank with the largest load has finished. How much work does that rank have?",
            f"Its two experts get {share} and (100 - {share})/7 choices. With even loads a rank has 25.",
            f"({share} + {100 - share}/7)/25.",
        ),
        objective="Predict how much longer a layer takes when one expert is hot.",
        difficulty=1,
        minutes=3,
    )


# --- further ------------------------------------------------------------------------------------------------------


def _bytes(ranks: int, chosen: int) -> Task:
    return task(
        f"There are {ranks} ranks with the same number of tokens each; a token chooses {chosen} experts. Count the "
        "rows that one forward moves for a rank, to the experts and back, including those that stay on their rank. "
        "What is the ratio of the rows that the all-gather moves (with its reduce-scatter) to those that the two "
        "all-to-alls move?",
        Number(
            lambda: ranks / chosen,
            "times",
            slips=[
                (chosen / ranks, "Upside down: which moves more, the all-gather or the all-to-all?"),
                (ranks, "A token goes to more than one expert."),
                (ranks * chosen, "In the all-gather a token is sent once, however many experts it chooses."),
                (2 * ranks / chosen, "Both ways go to the experts and back, with two collectives each."),
            ],
        ),
        (
            "Let each rank have n tokens. How many rows does an all-to-all move for a rank, how many an all-gather?",
            f"All-to-all: {chosen}·n rows to the experts and the same number back. All-gather: {ranks}·n rows, and the "
            "same number in the reduce-scatter.",
            f"{ranks}/{chosen}.",
        ),
        objective="Say for how many choices an all-gather moves no more than an all-to-all.",
        difficulty=1,
        minutes=3,
    )


def _further(stages: int, tokens: int) -> Task:
    borders = stages - 1
    once = TOKENS / (borders * tokens)  # with this many microbatches the saved traffic equals that of the copy
    first = lambda much: math.floor(much) + 1
    return task(
        f"A model with a vocabulary of {TOKENS:,} has {stages} pipeline stages. An extra block on the last stage needs "
        f"the embedding of each microbatch, which has {tokens:,} tokens. First way: the embedding passes from stage to "
        "stage, and its gradient passes back. Second way: the last stage keeps a copy of the embedding's weights, and "
        "once per step the gradients of the weights and of their copy are all-reduced; each of the two ranks sends as "
        "many numbers as the embedding has weights. Count the numbers that all ranks send. What is the smallest number "
        "of microbatches per step for which the copy sends fewer?",
        Number(
            lambda: first(once),
            "microbatches",
            within=1e-3,
            slips=[
                (
                    once,
                    (
                        "The number of microbatches is an integer: for which of the two neighbours does the copy send "
                        "fewer?"
                    ),
                ),
                (first(once) - 1, "With this number the copy still sends more, or the same."),
                (first(TOKENS / (stages * tokens)), "Count the boundaries between the stages once more."),
                (first(2 * once), "Gradients cross the same boundaries."),
                (first(once / 2), "Two ranks take part in the sum, and each sends."),
            ],
        ),
        (
            "Let h be the width. How many numbers cross one boundary for one microbatch, forward and backward?",
            f"With m microbatches: m · {borders} · 2 · {tokens:,} h along the stages; 2 · {TOKENS:,} h for the copy.",
            f"{TOKENS:,} / ({borders} · {tokens:,}) = {once:.2f}; the answer is the next larger integer.",
        ),
        objective=(
            "Compare a tensor that crosses all stages in every microbatch with a copy that is all-reduced once per "
            "step."
        ),
        difficulty=2,
        minutes=5,
    )


def _fine(answer) -> Verdict:
    """The verdict on (experts, chosen, shared, inner): the same weights and work as the coarse layer."""
    if not isinstance(answer, list | tuple) or len(answer) != 4 or not all(type(one) is int for one in answer):
        return False, "Answer with four whole numbers: (experts, chosen, shared, inner)."
    experts, chosen, shared, inner = answer
    if inner != COARSE.inner // FINER:
        return False, f"An expert must be {FINER} times narrower: inner={COARSE.inner // FINER}."
    if shared != 1:
        return False, "One expert must be shared: every token goes through it without being routed."
    if (experts + shared) * inner != COARSE.experts * COARSE.inner:
        return (
            False,
            f"The experts and the shared one have {experts + shared} · {inner} hidden units in all: that is a "
            "different number.",
        )
    if (chosen + shared) * inner != COARSE.chosen * COARSE.inner:
        return False, (
            f"A token goes through {chosen + shared} · {inner} hidden units: that is a different amount of work."
        )
    return True, "The same weights, the same work for each token, and many more teams of experts to choose from."


ABOUT_DISPATCH = {  # {words of a reply: the hint about the mistake that it reports}
    "without the weights": "y is the sum of each expert's result times its weight: token_order.combine(home, order, "
    "weights) multiplies.",
    "a different y from": "Take one rank and two experts, and write down the source rank and the expert of "
    "each row that arrives. One permutation brings the rows into the experts' order, its inverse brings them back.",
    "no gradient came to": "Counts may be plain lists, rows may not: from x to y, use only indexing, "
    "typed.all_to_all and arithmetic. Which step builds a new tensor from numbers?",
    "no gradient can flow": "comm.all_to_all moves numbers, typed.all_to_all gradients as well.",
    "are its rows, and all counts": "Send each row once, and only to the rank that has its expert: the argument sent= "
    "lists the number of rows for each rank.",
    "are expected by": "The argument sent= counts your tokens, by the rank of their expert; received= counts rows for "
    "your experts, by the rank of the tokens. On the way back the two are swapped.",
    "in another order": "The rows come back in the order in which they left. token_order.combine needs that order.",
}

TASKS: dict[str, Task] = {
    **build_tasks.TASKS,
    "experts.route": task(
        "Each token goes to the two experts with the highest scores. Its two weights are these scores, divided by "
        "their sum. Answer with a row for each token: (first expert, second expert, weight of the first).",
        _route,
        (
            "Look for the two largest numbers in each row.",
            "The weight of the first is its score over the sum of both.",
            "Token 0: experts 1 and 2, weight 0.50/(0.50 + 0.30) = 0.625.",
        ),
        objective="Route tokens by their scores.",
        difficulty=1,
        minutes=4,
    ),
    "experts.dispatch": task(
        "Write `my_dispatch(comm, x, chosen, weights, experts, owned)`. `x` holds this rank's tokens (a row each); "
        "`chosen` and `weights` hold their experts and weights (a row for each token); `owned` is the number of "
        "experts of each rank along ep, in order. `experts(rows, counts)` computes this rank's own experts: `rows` "
        "are sorted by expert, and `counts` is a list with the number of rows of each expert. Return y, a row for "
        "each token of x. Gradients must flow, and only counts, rows and returned rows may be sent. Your code is "
        f"tested on {CASES[0]}, then with other numbers of ranks, tokens and experts.",
        OnMeshes(
            "experts.trial:try_dispatch",
            first_found,
            CASES,
            "y and all gradients are those of one device, with idle experts too.",
        ),
        (
            "Two questions first: how many rows go to each rank, and how many come from each? Only the other ranks "
            'know the second answer: comm.all_gather(counts[None], "ep") is a row of counts for each rank.',
            "sent: counts.split(owned), each part added up. received: the columns of the experts on this rank, each "
            "row added up. The rows arrive sorted by rank, then by expert; experts needs them sorted only by expert. "
            "Label each row with its expert (arange, repeat, repeat_interleave), and take a stable argsort.",
            'came = typed.all_to_all(comm, x[order // chosen.shape[1]], "ep", cut=0, join=0, sent=sent, '
            "received=received); made = experts(came[sort], mine.sum(0).tolist()); home = typed.all_to_all(comm, "
            "made[sort.argsort()], …) with sent and received exchanged; return token_order.combine(home, order, "
            "weights).",
        ),
        about=ABOUT_DISPATCH,
        objective="Send tokens to experts on other ranks and back, with gradients that flow.",
        difficulty=3,
        minutes=14,
    ),
    "experts.clinic": task(
        "What is wrong with the experts' gradients? (a) They lack the tokens of other ranks. (b) They are sums over "
        "the tokens of dp · ep ranks, and are divided by dp alone. (c) They are added over ep, where each rank has "
        "different experts. (d) The mean of the ranks' mean losses is not the loss. Answer with the letter and the "
        "fixed function.",
        Clinic(
            clinic.CAUSES,
            OnCases(
                clinic.play, clinic.judge, clinic.CASES, "Every gradient is that of one device, on all four meshes."
            ),
        ),
        (
            "By what factor are they too large, on each mesh? Is that dp, ep, or both?",
            "The loss is the mean over dp · ep ranks. So every gradient is a sum over the tokens of all ranks, "
            "divided by dp · ep. Which of these sums has the backward of the all-to-all already made?",
            "(b). Add experts' gradients over dp, all others over dp and ep; divide all of them by "
            'comm.mesh["dp"] * comm.mesh["ep"].',
        ),
        objective="Say over which ranks a gradient is all-reduced, and by what number it is divided.",
        difficulty=2,
        minutes=7,
    ),
    "experts.hot": varying(_hot, share=(30, 40, 50)),
    "experts.bytes": varying(_bytes, ranks=(16, 32, 64), chosen=(4, 8)),
    "experts.fine": task(
        f"A layer has {COARSE.experts} experts with {COARSE.inner:,} hidden units each, and a token goes through "
        f"{COARSE.chosen}. Make every expert narrower by a factor of {FINER}, and make one of them a shared expert "
        "for every token. The total number of hidden units, and the number for one token, must not change. Answer "
        "with (experts, chosen, shared, inner): the numbers of routed experts, of routed experts that a token chooses, "
        "of shared experts, and of hidden units in each expert.",
        _fine,
        (
            "Count hidden units: in total, and for one token.",
            f"An expert now has {COARSE.inner // FINER} hidden units. So the number of experts grows by a factor of "
            f"{FINER}, and so does the number that a token goes through. One of them is shared.",
            f"({FINER} · {COARSE.experts} - 1, {FINER} · {COARSE.chosen} - 1, 1, {COARSE.inner // FINER}).",
        ),
        objective="Use more and smaller experts with the same weights and the same work.",
        difficulty=2,
        minutes=4,
    ),
    "experts.further": varying(_further, stages=(8, 4, 6), tokens=(512, 768)),
}
