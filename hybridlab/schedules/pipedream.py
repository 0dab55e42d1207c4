"""PipeDream: no flush. Every stage updates as soon as it can, and keeps old weights for what is under way."""

import numpy as np

from hybridlab.core.schedule import Schedule, actions, alternate


def pipedream(ranks: int, microbatches: int, vertical_sync: bool = False) -> Schedule:
    """1F1B without end: every backward is followed by an update; a backward uses the weights of its forward.

    Placement:   stage s on rank s
    Order:       F × (p-1-r), then (F, B, REDUCE_GRAD, OPT), then the last B, each with its update
    Needs:       nothing; a microbatch is a whole minibatch here: each makes an update of its own
    Bubble:      none between fill and drain; bubble_fraction (p-1)/(M+p-1) over M minibatches
    Peak:        min(p-r, M) activations on rank r; p-r weight versions (weight stashing), p with vertical_sync
    Source:      Narayanan et al. 2019, SOSP; with vertical_sync a minibatch meets one version on every stage

    `0F3#2` is the forward of minibatch 3 with version 2 of the weights of stage 0; `0OPT#2` makes version 3 from it.

    >>> print(pipedream(ranks=2, microbatches=2))
    rank 0: 0F0#0 0F1#0 0B0#0 0REDUCE_GRAD#0 0OPT#0 0B1#0 0REDUCE_GRAD#1 0OPT#1
    rank 1: 1F0#0 1B0#0 1REDUCE_GRAD#0 1OPT#0 1F1#1 1B1#1 1REDUCE_GRAD#1 1OPT#1
    """
    m = np.arange(microbatches)
    programs = []
    for r in range(ranks):
        behind = ranks - 1 if vertical_sync else ranks - 1 - r  # updates that a minibatch has not seen when it enters
        version = np.maximum(m - behind, 0)
        backwards = alternate(_at("B", r, m, version), *(_at(kind, r, [-1] * len(m), m) for kind in UPDATE))
        programs.append(_endless(_at("F", r, m, version), backwards.reshape(len(m), 3, -1), warm=ranks - 1 - r))
    return Schedule.of("pipedream", programs, {(r, 0): r for r in range(ranks)}, microbatches, window=1)


def pipedream_2bw(ranks: int, microbatches: int, window: int | None = None) -> Schedule:
    """1F1B without end, one update per window of microbatches, every window with the weights from two updates back.

    Placement:   stage s on rank s
    Order:       F × (p-1-r), then (F, B), then the last B; REDUCE_GRAD and OPT after the last B of each window
    Needs:       windows of at least p microbatches, and microbatches a multiple of window (default p)
    Bubble:      none between fill and drain; bubble_fraction (p-1)/(M+p-1) over M microbatches
    Peak:        min(p-r, M) activations on rank r; 2 weight versions
    Source:      Narayanan et al. 2021, arXiv:2006.09503: window k uses version max(0, k-1), a delay of one update

    raises  ValueError when the window cannot be
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


def _at(kind, stage, microbatches, version):
    rows = actions(kind, stage, microbatches)
    rows[:, 4] = version
    return rows


def _endless(forwards, backwards, warm):
    """Warm up, then one forward and one backward (with what follows it), then the rest."""
    program = [forwards[:warm]]
    for i, backward in enumerate(backwards):
        program += [forwards[warm + i : warm + i + 1], backward]
    return np.concatenate(program)
