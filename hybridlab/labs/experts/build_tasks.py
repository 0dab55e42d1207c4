"""The exercises of notebook 32 about the places of experts: folded ones, and copies of popular ones."""

from functools import partial

from hybridlab.labs.exercises.task import Number, Task, Verdict, varying
from hybridlab.labs.experts.lend_trial import LENDINGS, try_loans
from hybridlab.labs.trials.cases import OnCases, first_found
from hybridlab.labs.trials.trial import Function, Gave
from hybridlab.predict.bytes.copied_experts import busiest, packed, placed
from hybridlab.predict.bytes.experts import popular

task = partial(Task, notebook="32_experts")
SKEWED = tuple(popular(16, 1, 1.0))
PLACES = (  # (loads, ranks, slots); the first one is in the question
    ([5, 3, 2, 2], 2, 6),
    ([6, 2, 1, 1], 2, 6),
    ([1, 9, 1, 1, 1, 1], 4, 8),
    ([round(100 * load, 2) for load in SKEWED], 4, 20),
    ([round(100 * load, 2) for load in reversed(SKEWED)], 8, 24),
    ([5, 5, 5, 5], 2, 4),
)
ALMOST = 1.02  # times the load of the package's placement: ties may be broken in another way


def _fold(ways: int) -> Task:
    ep = 2
    return task(
        f"Experts are distributed over `ep={ep}`, and `tp={ways}` shards the hidden units of each; the stream is "
        "sharded along the sequence. A row is one token with one of its choices. It starts on one rank. Along ep, one "
        f"message takes it to the ep rank that has its expert, unless it is already there. Along tp, {ways - 1} "
        "messages take it to the other ranks that have parts of this expert. Then the same number of messages return: "
        f"{ways - 1} partial sums along tp, and one row along ep. Now fold: the {ep * ways} ranks of ep and tp hold "
        "unsharded experts. A row is sent to the one rank that has its expert, and back, unless it is already there. "
        "What is the ratio of the bytes of rows that a rank sends with sharded experts to those that it sends with "
        "folded ones? "
        "Assume that all experts are chosen equally often, so that a rank sends as many rows as it receives.",
        Number(
            lambda: ways,
            "times",
            slips=[
                (1, "The rows of a rank are the same. But to how many ranks is each of them sent?"),
                (ep * ways, "That is the number of ranks of ep and tp. Sharded rows are not sent to all of them."),
                (ways - 1, "That is the number of messages along tp. Count those along ep, and those of a folded row."),
                (ep, "That is ep. How many ranks had a part of each expert?"),
                (
                    1 + ways,
                    "That counts messages of a rank to itself. How often is a row already on the right part of ep, and "
                    "how many other ranks are along tp?",
                ),
                (
                    (ways - 1) / (1 - 1 / (ep * ways)),
                    "Nearly. Count sharded rows along ep too, and of the folded rows only those that leave the rank.",
                ),
                (
                    (ways - 1 / ep) / (1 - 1 / ep),
                    f"The sharded rows are right. Folded rows are sent among {ep * ways} ranks: how many of them stay?",
                ),
                (
                    2 * (1 - 1 / (ep * ways)),
                    "That is the folded part alone. Divide the messages of a sharded row by it.",
                ),
                (1 / ways, "That is folded over sharded. The question asks for sharded over folded."),
            ],
        ),
        (
            "A rank begins with n rows. It sends as many rows as the ranks do on average, so count the messages of "
            "one row and multiply by n. The way back has as many messages as the way there.",
            "One way, a sharded row needs a message along ep only if its expert is on another part: on average 1 - "
            f"1/{ep}. Along tp it needs {ways} - 1. What is the sum? Which fraction of the folded rows stays on its "
            f"rank, with {ep * ways} ranks?",
            f"Divide: a rank sends n·(1 - 1/{ep} + {ways} - 1) sharded rows and n·(1 - 1/{ep * ways}) folded rows, "
            "each way.",
        ),
        objective="Predict the bytes of folded experts.",
        difficulty=2,
        minutes=6,
    )


def _judged(gave: list[Gave]) -> Verdict:
    for number, (case, one) in enumerate(zip(PLACES, gave)):
        loads, ranks, slots = case
        name = "the example" if number == 0 else f"{len(loads)} experts, {ranks} ranks and {slots} slots"
        if one.raised:
            return False, f"On {name} it raised {one.raised}"
        if told := _wrong(*case, one.value):
            return False, f"On {name}: {told}"
    return True, f"Right on {len(PLACES)} cases. No token is dropped, and no router has changed."


def _wrong(loads, ranks: int, slots: int, value) -> str:
    """The mistake in one placement, in a sentence; empty if there is none."""
    if not isinstance(value, list | tuple) or len(value) != ranks:
        return f"return {ranks} lists, one for each rank, with the indices of its experts."
    if not all(isinstance(its, list | tuple) and len(its) == slots // ranks for its in value):
        return f"every rank has {slots // ranks} slots, and all of them hold an expert."
    every = [expert for its in value for expert in its]
    if not all(type(one) is int and 0 <= one < len(loads) for one in every):
        return f"the indices of the experts are 0 to {len(loads) - 1}."
    if missing := set(range(len(loads))) - set(every):
        return f"expert {min(missing)} is on no rank."
    found, right = busiest(loads, value), busiest(loads, packed(loads, ranks, slots))
    if found <= ALMOST * right:
        return ""
    each = [load / every.count(expert) for expert, load in enumerate(loads)]
    hottest = max(range(len(loads)), key=lambda expert: each[expert])
    words = f"the busiest rank has {found:.2f} times the mean, and {right:.2f} is possible"
    if each[hottest] > ALMOST * right * sum(loads) / ranks:
        return f"{words}. A copy of expert {hottest} alone has {each[hottest] * ranks / sum(loads):.2f} times the mean."
    if busiest(loads, placed(loads, [every.count(expert) for expert in range(len(loads))], ranks)) <= ALMOST * right:
        return f"{words}, with the same copies on other ranks. In which order do you place them, and by which rule?"
    return (
        f"{words}. The better placement has different copies: which expert has the largest load per copy when you give "
        "away a further slot?"
    )


TASKS: dict[str, Task] = {
    "experts.fold": varying(_fold, ways=(4, 8, 6)),
    "experts.copies": task(
        "Write `my_places(loads, ranks, slots)`. `loads` has the load of each expert; `slots` is a multiple of "
        "`ranks`, and at least the number of experts. For each rank, make a list of the indices of its experts, with "
        "`slots/ranks` entries. Return the list of these lists. An expert may have several copies, which share its "
        "load equally, even if two of them are on the same rank. Make the load of the busiest rank small: at most "
        f"{100 * (ALMOST - 1):.0f} % larger than with the package's placement. The table below has the package's "
        f"placement and the bound for one set of loads. For example, `my_places({PLACES[0][0]}, 2, 6)` can be "
        "[[0, 1, 2], [0, 1, 3]]: both ranks have the load 6.",
        Function(PLACES, _judged, "Answer with your function itself: my_places, without parentheses."),
        (
            "Two steps: first decide how many copies each expert has, then put the copies on ranks.",
            "Give each further slot to the expert with the largest load per copy. Then take the copies, the largest "
            "load first; put each on the rank with the smallest load so far that has a free slot.",
            "copies = [1] * len(loads); for each of slots - len(loads) slots: expert = max(range(len(loads)), "
            "key=lambda e: loads[e] / copies[e]); copies[expert] += 1. Then sort the pairs (loads[e] / copies[e], e), "
            "the largest first.",
        ),
        objective="Balance ranks with copies of popular experts.",
        difficulty=2,
        minutes=12,
    ),
    "experts.loans": task(
        "Write `my_loans(comm, weight, lent)`. Here each rank along ep owns one expert: expert 2 is on rank 2. "
        "`weight` has its weights, in one row. `lent` has the ranks with a copy of each lent expert, "
        "`{expert: ranks}`. Return the weights that this rank borrows: a row for each, in the order of the experts. "
        "In the backward, the gradient of each copy returns to its owner, and only the lent weights may be sent. Your "
        f"code is tested on {LENDINGS[0].size} ranks with `lent={LENDINGS[0].lent}`, then with other lent experts.",
        OnCases(
            try_loans,
            first_found,
            LENDINGS,
            "Copies are lent, and their gradients return. The optimizer needs no change.",
        ),
        (
            "Every rank sends to some ranks and receives from others, so this is an all-to-all with uneven parts. How "
            "many rows do you send to each rank, and how many come from each?",
            "sent: 1 for each rank in lent.get(here, ()), otherwise 0. received: 1 for each rank whose expert is lent "
            "to this one. The rows to send are sum(sent) times the same row.",
            'return typed.all_to_all(comm, weight.repeat(sum(sent), 1), "ep", cut=0, join=0, sent=sent, '
            "received=received). Its backward returns the gradients, and that of repeat adds them.",
        ),
        objective="Lend the weights of an expert, and return its gradients.",
        difficulty=2,
        minutes=8,
    ),
}
