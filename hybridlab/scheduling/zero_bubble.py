"""Zero bubble: the backward is cut in two halves, and the weight half, which no rank waits for, fills the idle time."""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions
from hybridlab.scheduling.interleaved import groups, looped, passes


def zb_h1(ranks: int, microbatches: int) -> Schedule:
    """1F1B with delayed weight halves: each rank needs as much memory as 1F1B's first rank; a third of its bubble at
    equal costs.

    Placement:   stage s on rank s
    Order:       F × (p-1-r); then for each i: F if one is left, I_i, and W of microbatch i-r; then the other W
    Needs:       nothing
    Bubble:      idle time (p-1)(F+I-W) where W ≤ F; (p-1)F where W > F (m ≥ p)
    Peak:        min(p, m) activations on every rank, until W
    Source:      Qi et al. 2023, arXiv:2401.10241 (its B is our I)

    >>> print(zb_h1(ranks=2, microbatches=3))
    rank 0: 0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2
    rank 1: 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
    """
    m = np.arange(microbatches)
    programs = [delayed(*_halves(r, m), warm=ranks - 1 - r, delay=r) for r in range(ranks)]
    return Schedule.of("zb_h1", programs, {(r, 0): r for r in range(ranks)}, microbatches)


def zb_h2(ranks: int, microbatches: int) -> Schedule:
    """Twice the warm-up of 1F1B: with twice the memory, a rank is never idle between its first and its last action.

    Placement:   stage s on rank s
    Order:       F × (2(p-r)-1); then for each i: I_i, W of microbatch i-2r, and F if one is left; then the other W
    Needs:       nothing; m ≥ 2p-1 for the formula
    Bubble:      bubble_span: idle time (p-1)(F+I-2W) where W ≤ F; from start to end the fill's (p-1)F remains
    Peak:        min(2p-1, m) activations on every rank, until W
    Source:      Qi et al. 2023, arXiv:2401.10241

    >>> print(zb_h2(ranks=2, microbatches=3))
    rank 0: 0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2
    rank 1: 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2
    """
    m = np.arange(microbatches)
    programs = [delayed(*_halves(r, m), warm=2 * (ranks - r) - 1, delay=2 * r, late=True) for r in range(ranks)]
    return Schedule.of("zb_h2", programs, {(r, 0): r for r in range(ranks)}, microbatches)


def zb_interleaved(ranks: int, microbatches: int, chunks: int = 2, group: int | None = None) -> Schedule:
    """ZB-H1's rule on the table of interleaved 1F1B, with half its extra warm-up.

    Placement:   stage k·p + r on rank r, for chunk k
    Order:       F × ((p-1-r) + (v-1)N); then for each i: F if one is left, I_i, and W of the pass i-r; then the other W
    Needs:       groups of N ≥ p microbatches
    Bubble:      idle time (p-1)·max(F, F+I-W), per chunk costs
    Peak:        v·p chunks on every rank, until W (m ≥ p)
    Source:      PyTorch's ScheduleInterleavedZeroBubble; the zero-bubble paper has no schedule of this name

    raises  ValueError if `chunks` or `group` is not possible
    """
    sizes = groups(ranks, microbatches, group)
    programs = []
    for r in range(ranks):
        forwards, inputs = passes(ranks, r, chunks, sizes, backward="I")
        weights = passes(ranks, r, chunks, sizes, backward="W")[1]
        programs.append(delayed(forwards, inputs, weights, warm=ranks - 1 - r + (chunks - 1) * sizes[0], delay=r))
    return looped("zb_interleaved", programs, ranks, microbatches, chunks)


def zb_v(ranks: int, microbatches: int) -> Schedule:
    """Two chunks per rank in a V: the first and the last stage are on rank 0, no rank is idle between its first and
    last action, and memory is that of 1F1B.

    Placement:   stages r and 2p-1-r on rank r
    Order:       below, `_v_program`; in the steady state F I W of one chunk, then F I W of the other
    Needs:       nothing; m ≥ 2p-1 for the formula
    Bubble:      bubble_span 0 at F = I = W; from start to end idle time (p-1)F, per chunk costs
    Peak:        min(2p, 2m) chunks on every rank, until W
    Source:      Qi et al. 2023, arXiv:2401.10241, ZB-V

    >>> print(zb_v(ranks=1, microbatches=1))
    rank 0: 0F0 1F0 1I0 1W0 0I0 0W0
    """
    programs = [_v_program(ranks, r, max(microbatches, 2 * ranks - 1)) for r in range(ranks)]
    programs = [program[program[:, 2] < microbatches] for program in programs]  # made for more, without the surplus
    return in_a_v("zb_v", programs, ranks, microbatches)


def in_a_v(name: str, programs: list, ranks: int, microbatches: int) -> Schedule:
    """A schedule whose stages go down the ranks and up again: stages r and 2p-1-r on rank r."""
    place = {(stage, 0): min(stage, 2 * ranks - 1 - stage) for stage in range(2 * ranks)}
    return Schedule.of(name, programs, place, microbatches, chunks=2)


def _halves(stage, microbatches):
    return (actions(kind, stage, microbatches) for kind in "FIW")


def delayed(
    forwards: np.ndarray, inputs: np.ndarray, weights: np.ndarray, warm: int, delay: int, late: bool = False
) -> np.ndarray:
    """A rank's list: warm up; then each input half with the weight half of `delay` passes before.

    late  the next forward comes last
    """
    warm = min(warm, len(forwards))
    program, next_weight = [forwards[:warm]], 0
    for i in range(len(inputs)):
        forward, do_weight = forwards[warm + i : warm + i + 1], i >= delay
        weight = weights[next_weight : next_weight + do_weight]
        next_weight += do_weight
        program += [inputs[i : i + 1], weight, forward] if late else [forward, inputs[i : i + 1], weight]
    return np.concatenate([*program, weights[next_weight:]])


def _v_program(p, r, m):
    """One rank's list, for m ≥ 2p-1; each chunk's passes are taken in the order of their microbatches."""
    down, up = r, 2 * p - 1 - r
    taken = dict.fromkeys([(kind, stage) for kind in "FIW" for stage in (down, up)], 0)
    program = []

    def do(*passes, times=1):
        for _ in range(times):
            for kind, stage in passes:
                if taken[kind, stage] < m:
                    program.append(actions(kind, stage, [taken[kind, stage]]))
                    taken[kind, stage] += 1

    do(("F", down), times=2 * (p - r) - 1)
    do(("F", up), ("F", down), times=r)
    do(("F", up), ("I", up), ("W", up), times=p - r)
    while taken["F", up] < m or taken["F", down] < m:
        do(("F", down), ("I", down), ("W", down), ("F", up), ("I", up), ("W", up))
    do(("I", down), ("I", up), times=r)
    do(("I", down), ("W", down), times=p - r)
    do(("W", up), times=m)
    do(("W", down), times=m)
    return np.concatenate(program)
