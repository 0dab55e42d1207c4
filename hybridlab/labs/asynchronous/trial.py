"""The verdict on a student's pipeline without flush: the weights of the replay, to the last bit; the versions held."""

from hybridlab.labs.engine.case import Case, counted, lists
from hybridlab.labs.engine.trial import ABOUT as ENGINE
from hybridlab.labs.engine.trial import _short, miscounted

LINGERS = 1  # a variable may still hold a version that is over, until it gets the next one
MARKED = "was not marked with requires_grad_()"
ABOUT = {  # {words of a reply: the hint about the mistake that it reports}
    "its list says": "The lists are those of 1F1B; do not reorder them. Each entry gives the kind and the index k of "
    "a microbatch: use versions[k] and kept[k].",
    "were still in use": "Other microbatches are between their forward and their backward, with these same tensors. "
    "An update must not change them: w - rate * gradient is a new tensor, w -= is not.",
    "modified by an inplace operation": "Autograd has noticed that a weight which a forward saved has changed "
    "since. Make the next version in new tensors: w - rate * gradient is a new tensor.",
    "used the same tensors": "Microbatches that share a tensor also share its .grad. Which tensors must each forward "
    "have for itself?",
    "in between are lost": "Two lists of tensors meet in an update: the version of the microbatch, which has the "
    "gradient, and the newest one, which must change. Which of them is on the left of the minus sign?",
    "versions at once": "A version is needed until the backward of its microbatch, and not longer: versions.pop(k). "
    "The saved y of the microbatch holds it too, by its history: remove both.",
    MARKED: ENGINE[MARKED],
    "keep no gradient": "A version needs its own .grad: versions[k] = [w.clone().requires_grad_() for w in weights].",
    "times too small": "Every microbatch makes its own update here, so its loss is not divided by m. Where do you "
    "divide?",
}
ALIKE = {  # {a rule that gives the same weights as a wrong run: the reply}
    "from the version": "made each update from the weights that the microbatch had used: the updates of other "
    "microbatches in between are lost. Update the newest weights.",
    "divided by m": "has updates m times too small: every microbatch makes its own update here, so do not divide by m.",
    "one .grad": "used the same tensors for several microbatches: .grad adds up over all of their backwards. Give "
    "each microbatch its own copy: w.clone().requires_grad_().",
    "never updated": "returned the weights with which it began.",
}


def wrong(case: Case, home: list) -> str:
    """The mistake in one run, in a sentence; empty if there is none. `home` has a `rank.Did` from each rank."""
    for judge in (_order, _same_version, _weights, _kept, _messages):
        for rank, did in enumerate(home):
            if told := judge(case, rank, *did):
                return f"Rank {rank} {told}"
    return ""


def _order(case, rank, problem, gap, like, order, *_) -> str:
    program = lists(*case)[rank]
    return "" if order == program else f"did {_short(order)}; its list says {_short(program)}."


def _same_version(case, rank, problem, gap, like, order, changed, *_) -> str:
    if changed < 0:
        return ""
    return (
        f"overwrote weights that were still in use: the backward of microbatch {changed} found "
        "different weights from those of its forward. Make new tensors in an update, and do not change the old ones."
    )


def _weights(case, rank, problem, gap, like, *_) -> str:
    if problem:
        return f"{problem}."
    if like == "right":
        return ""
    return ALIKE.get(like) or f"ends with weights that are not the replay's: they differ by up to {gap:.2g}."


def _kept(case, rank, problem, gap, like, order, changed, most, *_) -> str:
    enough, _ = counted(case, rank)
    if most <= enough + LINGERS:
        return ""
    told = f"kept {most} versions at once; {enough} are enough for its list"
    return f"{told}. Free a version after its backward, and y, whose history holds it."


def _messages(case, rank, problem, gap, like, order, changed, most, *sent) -> str:
    return miscounted(case, rank, *sent)
