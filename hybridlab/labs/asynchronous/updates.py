"""Notebook 15: pipelines with and without a flush, as schedules of many updates; and the results of training."""

from typing import NamedTuple

import hybridlab as hl
from hybridlab.core.when.action import Action

RANKS = 4


def flushed(microbatches: int, window: int, ranks: int = RANKS) -> hl.Schedule:
    """1F1B with a flush and an update after every `window` microbatches: many synchronous steps as one schedule.

    Microbatches of window k meet version k on every stage, so no weights are old.

    raises  ValueError when the microbatches do not fill whole windows

    >>> print(flushed(microbatches=2, window=1, ranks=2))
    rank 0: 0F0#0 0B0#0 0REDUCE_GRAD#0 0OPT#0 0F1#1 0B1#1 0REDUCE_GRAD#1 0OPT#1
    rank 1: 1F0#0 1B0#0 1REDUCE_GRAD#0 1OPT#0 1F1#1 1B1#1 1REDUCE_GRAD#1 1OPT#1
    """
    if microbatches % window:
        raise ValueError(f"{microbatches} microbatches do not fill windows of {window}: give a multiple of {window}")
    one = hl.schedule("1f1b", ranks=ranks, microbatches=window)
    programs = [
        [action for k in range(microbatches // window) for action in _one_step(rank, program, k, window)]
        for rank, program in enumerate(one.program)
    ]
    name = f"1f1b, flush after {window}"
    return hl.Schedule.of(name, programs, {(r, 0): r for r in range(ranks)}, microbatches, window=window)


def _one_step(stage, program, k, window):
    """The k-th step of one rank: its actions with their version, then its update."""
    work = [action._replace(microbatch=k * window + action.microbatch, version=k) for action in program]
    return [*work, *(Action(kind, stage, version=k) for kind in ("REDUCE_GRAD", "OPT"))]


def ways(microbatches: int, ranks: int = RANKS) -> dict[str, hl.Schedule]:
    """Five ways to train on the same microbatches: {name: schedule}."""
    sizes = {"ranks": ranks, "microbatches": microbatches}
    return {
        "flush after each": flushed(microbatches, 1, ranks),
        "flush after 4": flushed(microbatches, 4, ranks),
        "pipedream": hl.schedule("pipedream", **sizes),
        "vertical sync": hl.schedule("pipedream", vertical_sync=True, **sizes).renamed("vertical sync"),
        "2BW": hl.schedule("pipedream_2bw", **sizes),
    }


class Trained(NamedTuple):
    """The result of training on real ranks.

    losses    nats per token, one for each update, before it
    versions  the largest number of weight versions that each rank held at once, counted by the rank
    window    microbatches per update
    """

    losses: list[float]
    versions: list[int]
    window: int

    def after(self, microbatches: int) -> float:
        """The mean loss of the last `microbatches`."""
        last = self.losses[-(microbatches // self.window) :]
        return sum(last) / len(last)
