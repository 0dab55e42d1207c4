"""The symptoms of a broken pipeline, on real ranks, for the bug clinics of notebooks 10 to 12."""

from hybridlab.labs.engine.case import Case
from hybridlab.labs.engine.trial import NEAR
from hybridlab.labs.trials.trial import run


def symptoms(function, call: str, name: str, ranks: int = 3, microbatches: int = 4) -> list[str]:
    """Run the lists of a schedule with a function; print for each rank whether its gradients equal one device's."""
    from hybridlab.labs.engine.rank import Did, play

    case = Case(name, ranks, microbatches)
    home = [Did(*did) for did in run(ranks, play, function, call, case)]
    return [f"rank {rank}: {_told(did)}" for rank, did in enumerate(home)]


def _told(did) -> str:
    if did.missing:
        return "gradients missing"
    return "gradients of one device" if did.gap <= NEAR else f"gradients differ, norm {did.ratio:.2f} times as large"
