"""The run of a student's pipeline on one rank, with its gradients compared with those of one device."""

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import torch

from hybridlab.labs.engine import toy
from hybridlab.labs.engine.case import Case, lists
from hybridlab.labs.engine.watched import Watch, Watched
from hybridlab.labs.trials import watched

UNMARKED = (
    "what it sends is None: autograd kept no x.grad, since the x that arrived was not marked with requires_grad_() "
    "before its forward"
)
KEYED = (
    "a rank has a microbatch on several stages, and the backward of one has used what another one had saved under the "
    "same number: save by (k, s)"
)
MIXED = "stage {}'s backward got the tensors of another stage of the same microbatch: save by (k, s)"


class Did(NamedTuple):
    """The result of a run on one rank."""

    missing: list[str]  # parameters without a gradient
    gap: float  # the largest difference from one device
    ratio: float  # the norm of the gradients, over that of one device
    order: list[tuple]  # its forwards and backwards, as entries of its list
    overwrote: list[int]  # microbatches with an x that had changed before their backward
    most: int  # forwards held at once
    sent: int  # messages
    bytes: int
    left: int  # sends without a wait()


def play(comm, answer: Callable, call: str, case: Case) -> Did:
    """On each rank: the student's function, called as `CALLS` says, with stages that are watched."""
    watch, program = Watch(), lists(*case)
    mine = range(comm.rank, case.stages, case.ranks)
    stages = {number: Watched(toy.stage(number, case.stages), watch, number) for number in mine}
    talk, before = watched.Watched(comm, []), len(comm.ledger)
    try:
        CALLS[call](answer, talk, stages, program, toy.microbatches(case.microbatches))
    except TypeError as error:
        if watch.unmarked and "this is None" in str(error):
            error.args = (UNMARKED,)
        raise
    except KeyError as error:
        if len(mine) > 1 and isinstance(error.args[0], int):
            raise RuntimeError(KEYED).with_traceback(error.__traceback__) from None
        raise
    except RuntimeError as error:
        backwards = [entry for entry in program[comm.rank] if entry[0] == "B"]
        done = sum(kind == "B" for kind, *_ in watch.did)
        if len(mine) > 1 and str(error).startswith("Mismatch in shape: grad_output"):
            error.args = (MIXED.format(backwards[done][2]),)
        raise
    of = _microbatch_of(program[comm.rank])
    order, overwrote = _order(watch, of), [of(*one)[0] for one in watch.overwrote]
    return Did(*_compared(stages, case), order, overwrote, watch.most, *messages(talk, before))


def messages(talk: watched.Watched, since: int) -> tuple[int, int, int]:
    """(messages that this rank has sent from row `since` of its ledger on, their bytes, sends without a wait())."""
    rows = [row for row in talk.ledger.rows()[since:] if row["op"] in ("send", "isend")]
    return len(rows), sum(row["bytes"] for row in rows), talk.left


def _compared(stages, case) -> tuple[list[str], float, float]:
    """(parameters without gradient, the largest difference, the ratio of norms), against one device."""
    right = toy.one_device(case.stages, case.microbatches)
    pairs = [
        (f"{name} of stage {number}", weight.grad, wanted.grad)
        for number, stage in stages.items()
        for (name, weight), wanted in zip(stage.inner.named_parameters(), right[number].parameters())
    ]
    missing = [name for name, found, _ in pairs if found is None]
    if missing:
        return missing, float("nan"), float("nan")
    _, found, wanted = zip(*pairs)
    norm = lambda tensors: torch.stack([one.norm() for one in tensors]).norm()
    gap = max((a - b).abs().max().item() for a, b in zip(found, wanted))
    return missing, gap, (norm(found) / norm(wanted)).item()


def _microbatch_of(program) -> Callable:
    """A function from (number of a forward in its stage, stage) to the microbatch, with the stage if the list names
    stages. A stage only counts its forwards; the list determines the microbatch of each.

    >>> _microbatch_of([("F", 2), ("B", 2)])(0, 3), _microbatch_of([("F", 2, 3)])(0, 3)
    ((2,), (2, 3))
    """
    chunked = any(len(entry) == 3 for entry in program)
    forwards = defaultdict(list)
    for kind, microbatch, *number in program:
        forwards[tuple(number)] += [microbatch] * (kind == "F")

    def of(which: int, number: int) -> tuple:
        stage = (number,) * chunked
        return forwards[stage][which] if which < len(forwards[stage]) else which, *stage

    return of


def _order(watch, of) -> list[tuple]:
    """The calls of a rank's stages, as entries of its list."""
    return [(kind, *of(which, number)) for kind, which, number in watch.did]


def _naive(answer, comm, stages, program, data):
    ((x, target),), (stage,) = data, stages.values()
    answer(comm, stage, x, target)


def _gpipe(answer, comm, stages, program, data):
    (stage,) = stages.values()
    answer(comm, stage, data)


def _interpreter(answer, comm, stages, program, data):
    (stage,) = stages.values()
    answer(comm, stage, program, data)


def _chunks(answer, comm, stages, program, data):
    answer(comm, stages, program, data)


CALLS = {"naive": _naive, "gpipe": _gpipe, "play": _interpreter, "chunks": _chunks}
