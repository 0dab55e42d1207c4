"""PipeOffload: chunks run in short turns, and the host stores the activations of the chunks that wait longest.

The first chunks of a rank run their backwards last, so their activations wait longest, and there is time to copy them
to the host and back. The turns of a chunk are shorter than the pipeline, so all activations wait for a shorter time
than in interleaved 1F1B:

    rank 0 of 4, turns of N = 3    0F0 0F1 0F2 4F0 4F1 4F2 0F3 4B0 0F4 4B1 0F5 4B2 4F3 0B0 …
                                    ↓   ↓   ↓               ↓       ↓       ↓       ↑

Source: Wan et al. 2025, arXiv:2503.01328. Relatives: `interleaved`, whose turns have N ≥ p microbatches; `out_of_core`,
which adds the copies; the rows SWAP_OUT and SWAP_IN of `core.when.law`; notebook 23.
"""

import numpy as np

from hybridlab.core.when.schedule import Schedule, alternate
from hybridlab.scheduling.interleaved import looped, passes
from hybridlab.scheduling.out_of_core import swapped


def pipeoffload(
    ranks: int, microbatches: int, chunks: int = 2, group: int | None = None, offloaded: int | None = None
) -> Schedule:
    """Interleaved 1F1B with turns of N < p microbatches, and the first chunks of every rank copied to the host.

    Placement:   stage k·p + r on rank r, for chunk k
    Order:       the table of interleaved 1F1B; F × w, then (F, B), then B, with w = (v-1)N + min(p-1-r, 2N); SWAP_OUT
                 after each forward of the first chunks (by default v//2 of them), SWAP_IN one backward ahead
    Needs:       N ≥ 1 microbatches in a turn; by default ⌈⅔p⌉, the fewest without idle time if B = 2F; as few uneven
                 turns as possible
    Bubble:      idle in the steady state only if N(F+B) < p·max(F, B); copies are hidden there if they take at most
                 F+B, even if each rank has memory for only that peak (p ≥ 3)
    Peak:        (v-1-h)N + min(p-r, N+2) chunks on rank r, at least 2, with h chunks on the host; with none
                 (v-1)N + min(p-1-r, 2N) + 1 (N divides m)
    Source:      PipeOffload, Wan et al. 2025, arXiv:2503.01328

    raises  ValueError if `chunks`, `group` or `offloaded` is not possible

    >>> print(pipeoffload(ranks=2, microbatches=1))
    rank 0: 0F0 0SWAP_OUT0 2F0 0SWAP_IN0 2B0 0B0
    rank 1: 1F0 1SWAP_OUT0 3F0 1SWAP_IN0 3B0 1B0
    """
    turn = -(-2 * ranks // 3) if group is None else group
    away = chunks // 2 if offloaded is None else offloaded
    if turn < 1:
        raise ValueError(f"group={group} is not a number of microbatches: give 1 or more")
    if not 0 <= away <= chunks:
        raise ValueError(f"offloaded={offloaded} is not possible with {chunks} chunks on a rank: give 0 to {chunks}")
    sizes = [len(part) for part in np.array_split(np.arange(microbatches), -(-microbatches // turn))]
    programs = []
    for r in range(ranks):
        forwards, backwards = passes(ranks, r, chunks, sizes)
        # the last rank must reach a chunk of a turn before the first rank can begin the next one: at most two turns
        w = min((chunks - 1) * sizes[0] + min(ranks - 1 - r, 2 * sizes[-1]), len(forwards))
        rest = len(backwards) - w
        programs.append(np.concatenate([forwards[:w], alternate(forwards[w:], backwards[:rest]), backwards[rest:]]))
    made = looped("pipeoffload", programs, ranks, microbatches, chunks)
    return swapped(made, range(away * ranks)) if away else made
