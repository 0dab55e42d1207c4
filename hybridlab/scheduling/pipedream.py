"""PipeDream: no flush. Every stage updates as soon as it can, and keeps old weights for microbatches in flight."""

from collections.abc import Sequence
from itertools import accumulate
from math import lcm

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions, alternate


def pipedream(
    ranks: int, microbatches: int, vertical_sync: bool = False, copies: Sequence[int] | None = None
) -> Schedule:
    """1F1B without a flush: an update follows every backward; a backward uses the weights of its forward.

    Placement:   stage s on rank s; with copies=(k, …) on as many ranks as it says, stage after stage
    Order:       F × (p-1-r), then (F, B, REDUCE_GRAD, OPT), then the last B, each with its update
    Needs:       with copies, their sum equal to ranks, and microbatches a multiple of each; a microbatch is a whole
                 mini-batch here
    Bubble:      none between fill and drain; bubble_fraction (p-1)/(M+p-1) over M mini-batches
    Peak:        min(p-r, M) activations on rank r; p-r weight versions (weight stashing), p with vertical_sync
    Source:      Narayanan et al. 2019, SOSP; with vertical_sync a mini-batch uses one version on every stage

    `0F3#2` is the forward of mini-batch 3 with version 2 of the weights of stage 0; `0OPT#2` makes version 3 from it.

    A stage with k copies takes turns (1F1B-RR): copy c has the mini-batches c, c + k, c + 2k, …, forward and backward.
    Its update number u is one step of all its copies with the mean of the gradients of mini-batches u·k … u·k + k-1; so
    it makes M/k of them, and a copy begins with as many forwards as there are ranks from its stage on, p-1-r in a
    straight pipeline, divided by k (see `_warm`). A replica, as `@1` in `1F1@1`, is a way through the copies.

    raises  ValueError when the copies are not possible

    >>> print(pipedream(ranks=2, microbatches=2))
    rank 0: 0F0#0 0F1#0 0B0#0 0REDUCE_GRAD#0 0OPT#0 0B1#0 0REDUCE_GRAD#1 0OPT#1
    rank 1: 1F0#0 1B0#0 1REDUCE_GRAD#0 1OPT#0 1F1#1 1B1#1 1REDUCE_GRAD#1 1OPT#1
    >>> print(pipedream(ranks=3, microbatches=2, copies=(2, 1)))
    rank 0: 0F0#0 0B0#0 0REDUCE_GRAD#0 0OPT#0
    rank 1: 0F1@1#0 0B1@1#0 0REDUCE_GRAD@1#0 0OPT@1#0
    rank 2: 1F0#0 1B0#0 1REDUCE_GRAD#0 1OPT#0 1F1@1#1 1B1@1#1 1REDUCE_GRAD#1 1OPT#1
    """
    copies = (1,) * ranks if copies is None else tuple(copies)
    _refuse_copies(copies, ranks, microbatches, vertical_sync)
    ways, first, programs = lcm(*copies), [0, *accumulate(copies)], []
    for stage, count in enumerate(copies):
        turn, warm = np.arange(microbatches // count), _warm(ranks - first[stage], count)
        version = np.maximum(turn - (ranks - 1 if vertical_sync else warm), 0)  # the updates that it does not see yet
        for copy in range(count):
            m = turn * count + copy
            update = [_at(kind, stage, [-1] * len(m), turn, copy) for kind in UPDATE]
            backwards = alternate(_at("B", stage, m, version, m % ways), *update).reshape(len(m), 3, -1)
            programs.append(_endless(_at("F", stage, m, version, m % ways), backwards, warm))
    place = {(stage, way): first[stage] + way % count for stage, count in enumerate(copies) for way in range(ways)}
    replica_of = tuple(m % ways for m in range(microbatches))
    return Schedule.of("pipedream", programs, place, microbatches, replica_of=replica_of, window=1)


def _warm(behind: int, copies: int) -> int:
    """The number of forwards of a copy before its first backward: enough mini-batches to keep all ranks from its stage
    on busy, divided among the copies of the stage."""
    return (behind - 1) // copies


def _refuse_copies(copies, ranks, microbatches, vertical_sync):
    if min(copies, default=0) < 1:
        raise ValueError(f"copies={copies} leave a stage without a rank: give each stage 1 or more, and {ranks} in all")
    if sum(copies) != ranks:
        raise ValueError(f"copies={copies} need {sum(copies)} ranks, not {ranks}: give {ranks} in all")
    for count in copies:
        if microbatches % count:
            raise ValueError(
                f"{microbatches} mini-batches cannot be distributed evenly over {count} copies: give a multiple of "
                f"{lcm(*copies)}"
            )
    if vertical_sync and max(copies) > 1:
        raise ValueError(
            "vertical_sync=True cannot work with copies, whose stages update at different times: leave out "
            "vertical_sync"
        )  # fmt: skip


def pipedream_2bw(ranks: int, microbatches: int, window: int | None = None) -> Schedule:
    """1F1B without a flush: one update per window of microbatches, and each window uses the weights from two updates
    earlier.

    Placement:   stage s on rank s
    Order:       F × (p-1-r), then (F, B), then the last B; REDUCE_GRAD and OPT after the last B of each window
    Needs:       windows of at least p microbatches, and microbatches a multiple of window (default p)
    Bubble:      none between fill and drain; bubble_fraction (p-1)/(M+p-1) over M microbatches
    Peak:        min(p-r, M) activations on rank r; 2 weight versions
    Source:      Narayanan et al. 2021, arXiv:2006.09503: window k uses version max(0, k-1), a delay of one update

    raises  ValueError when the window is not possible
    """
    window = ranks if window is None else window
    if not ranks <= window or microbatches % window:
        fits = [n for n in range(ranks, microbatches + 1) if microbatches % n == 0]
        change = f"choose window from {fits}" if fits else f"give a multiple of {ranks} microbatches"
        raise ValueError(f"window={window} does not fit {ranks} ranks and {microbatches} microbatches: {change}")
    m = np.arange(microbatches)
    version = np.maximum(m // window - 1, 0)
    programs = []
    for r in range(ranks):
        backwards = list(_at("B", r, m, version)[:, None])
        for last in m[window - 1 :: window]:
            update = [_at(kind, r, [-1], [last // window]) for kind in UPDATE]
            backwards[last] = np.concatenate([backwards[last], *update])
        programs.append(_endless(_at("F", r, m, version), backwards, warm=ranks - 1 - r))
    return Schedule.of("pipedream_2bw", programs, {(r, 0): r for r in range(ranks)}, microbatches, window=window)


UPDATE = ("REDUCE_GRAD", "OPT")


def _at(kind: str, stage: int, microbatches, version, replica: int | np.ndarray = 0) -> np.ndarray:
    rows = actions(kind, stage, microbatches)
    rows[:, 3], rows[:, 4] = replica, version
    return rows


def _endless(forwards, backwards, warm):
    """Warm up, then one forward and one backward (with what follows it), then the rest."""
    program = [forwards[:warm]]
    for i, backward in enumerate(backwards):
        program += [forwards[warm + i : warm + i + 1], backward]
    return np.concatenate(program)
