"""Exercise `1f1b.blocking`: an interpreter with blocking sends. GPipe's lists complete, but 1F1B's two ranks hang."""

from hybridlab.labs.engine.case import Case
from hybridlab.labs.engine.trial import pipeline
from hybridlab.labs.exercises.task import Verdict
from hybridlab.labs.trials.trial import Failed, run

RANKS, MICROBATCHES = 3, 4
GPIPE = pipeline("play", (("gpipe", RANKS, MICROBATCHES),), "GPipe's lists end.")


def blocked(answer) -> Verdict:
    """A check that is passed if GPipe ends with the gradients of one device, and 1F1B deadlocks."""
    right, told = GPIPE(answer)
    if not right:
        return False, f"With the lists of gpipe: {told}"
    kind, report = _of_1f1b(answer)
    if kind == "deadlock":
        return True, f"GPipe's run ends. 1F1B's run does not: {report}"
    if kind:
        return False, f"1F1B's run fails, but not because two ranks wait for each other. GPipe's run ends. {report}"
    return False, "Both runs end: use comm.send, for activations and for gradients."


def _of_1f1b(answer) -> tuple[str, str]:
    """(the kind of fault, the report) of a run with the lists of 1F1B; empty when it ends."""
    try:
        run(RANKS, "engine.rank:play", answer, "play", Case("1f1b", RANKS, MICROBATCHES))
    except Failed as failed:
        return getattr(failed.__cause__, "kind", "other"), str(failed)
    return "", ""
