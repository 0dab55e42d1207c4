"""The verdict on a student's pipeline: gradients, order, forwards held, messages; on the sizes in the question, and on
others.
"""

from functools import partial
from itertools import starmap

from hybridlab.labs.engine.case import ROWS, WIDTH, Case, counted, lists
from hybridlab.labs.trials.cases import OnCases

BOUNDARY = ROWS * WIDTH * 4  # bytes of one message, in single precision
ABOUT = {  # {words of a reply: the hint about the mistake that it reports}, in all tasks that build the engine
    "its list says": "Execute the entries of the list one by one, in its order. An entry gives the kind and the index "
    "of a microbatch; with this index, find the tensors that the forward of the same microbatch has "
    "saved.",
    "has different gradients": "Go from the last rank to the first: on which rank do the gradients become wrong? Look "
    "at both ends of its backward. Which gradient does y.backward(…) get? And which one does the "
    "rank send, that of its x or that of its y?",
    "times too large": "The loss of the batch is a mean: divide the loss of each microbatch by their number, on the "
    "rank that has the loss, before its backward.",
    "times too small": "Look for two divisions. Divide only where the loss is computed: the gradients that arrive "
    "from the next rank already include it.",
    "forwards at once": "Free the tensors that a backward has used: remove them from your dictionary with kept.pop(k). "
    "Does another name also hold them, or a list that only grows?",
    "was not marked with requires_grad_()": "A received tensor has no history, so autograd keeps no gradient for it. "
    "Mark it right after the receive, before the forward: x = comm.recv(…).requires_grad_().",
    "still in use": "A receive writes into the tensor that it is given, and the forward has saved that tensor, not a "
    "copy. Receive each microbatch into a new tensor, torch.empty_like(…).",
}
NEAR = 1e-6  # a right pipeline equals one device to the last bit, but another order of additions is not a mistake


def pipeline(call: str, cases: tuple[tuple, ...], right: str) -> OnCases:
    """A check of a function that runs a pipeline on every rank.

    call   its arguments: one of `rank.CALLS`
    cases  its runs, each (schedule, ranks, microbatches[, chunks]); those after the first are not in the question
    right  the reply to a right answer
    """
    return OnCases(partial(_played, call), _wrong, tuple(starmap(Case, cases)), right, explain=_explained)


def _played(call, comm, answer, case):
    """On each rank, where torch is loaded: see `rank.play`."""
    from hybridlab.labs.engine.rank import play

    return play(comm, answer, call, case)


def _explained(case, failed: str) -> str:
    """A report with its explanation: in these lists two messages cross, and both ranks wait in a send."""
    crossing = case.name not in ("naive", "gpipe") and "waits in send" in failed
    return f"{failed} A send returns when its message has been received; isend returns at once." if crossing else failed


def _wrong(case, home) -> str:
    """The mistake in one run, in a sentence; empty if there is none."""
    from hybridlab.labs.engine.rank import Did

    home = [Did(*did) for did in home]
    for judge in (_order, _overwritten, _gradients, _held, _messages):
        for rank, did in enumerate(home):
            if told := judge(case, rank, did):
                return f"Rank {rank} {told}"
    return ""


def _order(case, rank, did) -> str:
    program = lists(*case)[rank]
    if did.order == program:
        return ""
    return f"did {_short(did.order)}; its list says {_short(program)}."


def _overwritten(case, rank, did) -> str:
    if not did.overwrote or did.gap <= NEAR:
        return ""
    return (
        f"received into a tensor that was still in use: when the backward of microbatch {did.overwrote[0]} came, its x "
        "held another message. Receive each microbatch into its own tensor."
    )


def _gradients(case, rank, did) -> str:
    m = case.microbatches
    if did.missing:
        return f"has no gradient for {did.missing[0]}: no backward has reached it."
    if did.gap <= NEAR:
        return ""
    if m > 1 and abs(did.ratio - m) < 1e-3 * m:
        return f"has gradients {m} times too large: the loss of the batch is the mean over its {m} microbatches."
    if m > 1 and abs(did.ratio - 1 / m) < 1e-3 / m:
        return f"has gradients {m} times too small: one division by m is enough."
    told = f"they differ by up to {did.gap:.2g}, and their norm is {did.ratio:.3g} times as large"
    return f"has different gradients from those of one device: {told}."


def _held(case, rank, did) -> str:
    most, _ = counted(case, rank)
    if did.most <= most:
        return ""
    return f"held {did.most} forwards at once; {most} are enough for its list. Free each one after its backward."


def _messages(case, rank, did) -> str:
    return miscounted(case, rank, did.sent, did.bytes, did.left)


def miscounted(case, rank, sent: int, size: int, left: int) -> str:
    """The mistake in the messages that a rank has sent, in a sentence; empty if there is none."""
    _, needed = counted(case, rank)
    if (sent, size) != (needed, needed * BOUNDARY):
        return f"sent {sent} messages, {size:,} bytes; its list needs {needed}, {needed * BOUNDARY:,} bytes."
    return f"has ended without a wait() for {left} of its sends: such a message may never arrive." if left else ""


def _short(entries) -> str:
    """
    >>> _short([("F", 0), ("B", 0)]), _short([("F", 0, 3)])
    ('F0 B0', '3F0')
    """
    words = [f"{''.join(map(str, stage))}{kind}{microbatch}" for kind, microbatch, *stage in entries]
    return " ".join(words[:12]) + " …" * (len(words) > 12) if words else "nothing"
