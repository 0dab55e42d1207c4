"""The exercise on resharding of notebook 40: which stretches of a flat tensor each rank sends to another."""

from collections import Counter
from functools import partial

from hybridlab.labs.exercises.plain import integer
from hybridlab.labs.exercises.task import Task, Verdict
from hybridlab.labs.trials.trial import Function, Gave

task = partial(Task, notebook="40_hybrid")

MOVED = (  # the span (from, to) that each rank has, and the one that it needs
    (((0, 6), (6, 8)), ((0, 4), (4, 8))),
    (((0, 4), (4, 8)), ((0, 8), (0, 8))),
    (((0, 3), (3, 6), (6, 9)), ((2, 7), (2, 7), (0, 9))),
    (((0, 8), (0, 8), (8, 12), (8, 12)), ((0, 6), (0, 6), (0, 12), (6, 12))),
    (((0, 6), (0, 6), (0, 0), (0, 0), (0, 0), (0, 0)), ((0, 6),) * 6),
    (((0, 5), (0, 5), (5, 5), (5, 11)), ((0, 2), (1, 11), (3, 9), (4, 4))),
    (((0, 8), (0, 8), *((0, 0),) * 4), (*((0, 8),) * 3, (0, 1), (0, 8), (0, 1))),  # messages of different lengths
)


def judged_moves(gave: list[Gave]) -> Verdict:
    """The verdict on the messages of a student, for each pair of layouts."""
    for (have, want), one in zip(MOVED, gave):
        case = f"With have={list(have)} and want={list(want)}"
        if one.raised:
            return False, f"{case} it raised {one.raised}"
        if told := _wrong(have, want, one.value):
            return False, f"{case}: {told}"
    return (
        True,
        f"Right on {len(MOVED)} pairs of layouts: nothing is sent that is there already, and copies send in turn.",
    )


def _wrong(have, want, value) -> str:
    """The mistake in one answer, in a sentence; empty if there is none."""
    try:
        messages = [tuple(map(integer, one)) for one in value]
        shaped = all(len(one) == 4 for one in messages)
    except (TypeError, ValueError):
        shaped = False
    if not shaped:
        return "return a list of messages (sender, receiver, from, to)."
    arrived, sent = Counter(), Counter()
    for sender, receiver, low, high in messages:
        if not (0 <= sender < len(have) and 0 <= receiver < len(have) and low < high):
            return f"{(sender, receiver, low, high)} is not a message: ranks are 0 to {len(have) - 1}, and from < to."
        if not (have[sender][0] <= low and high <= have[sender][1]):
            return f"rank {sender} has {have[sender]}, so it cannot send {low} to {high}."
        arrived.update((receiver, element) for element in range(low, high))
        sent[sender] += high - low
    for rank, (there, needed) in enumerate(zip(have, want)):
        for element in range(min(there[0], needed[0]), max(there[1], needed[1])):
            number = arrived[rank, element]
            if number and there[0] <= element < there[1]:
                return f"element {element} is sent to rank {rank}, which has it already."
            if number and not needed[0] <= element < needed[1]:
                return f"element {element} is sent to rank {rank}, which does not need it."
            if needed[0] <= element < needed[1] and not there[0] <= element < there[1] and number != 1:
                return f"element {element} is sent to rank {rank} {number} times."
    return _uneven(have, messages, sent)


def _uneven(have, messages, sent) -> str:
    """In a sentence, two ranks with the same span of which one sends too much; empty if all send in turn."""
    longest = max((high - low for _, _, low, high in messages), default=0)
    for rank, span in enumerate(have):
        for other in (other for other in range(rank) if have[other] == span):
            if abs(sent[rank] - sent[other]) > longest:
                both = f"{sent[other]} and {sent[rank]} elements"
                return f"ranks {other} and {rank} have the same span, but they send {both}."
    return ""


TASKS: dict[str, Task] = {
    "hybrid.moves": task(
        "A flat tensor changes its layout. `have[r]` is the span (from, to) that rank r has, and `want[r]` is the span "
        "that it needs. Any two spans in the list `have` are either equal or disjoint. Write `my_moves(have, want)`: "
        f"return the messages, a list of (sender, receiver, from, to). So `my_moves{MOVED[0]!r}` is [(0, 1, 4, 6)]. "
        "Send nothing that the receiver already has. If several ranks have the same span, the one that has sent the "
        "fewest elements sends it.",
        Function(MOVED, judged_moves, "Answer with your function itself: my_moves, without parentheses."),
        (
            "For each receiver, look at each different span of have. Which part of it does the receiver need?",
            "The intersection of two spans goes from max(a, c) to min(b, d). Skip the receiver's own span.",
            "sent = Counter(); for each receiver to and each span in set(have) other than have[to]: low = max(span[0], "
            "want[to][0]), high = min(span[1], want[to][1]); if low < high: sender = min((r for r in range(len(have)) "
            "if have[r] == span), key=lambda r: sent[r]); sent[sender] += high - low.",
        ),
        objective="Build the messages that carry a tensor from one layout to another.",
        difficulty=2,
        minutes=8,
    ),
}
