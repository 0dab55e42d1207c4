"""Looped breadth-first: every chunk takes all microbatches before the next chunk starts."""

import numpy as np

from hybridlab.core.when.schedule import Schedule, actions
from hybridlab.scheduling.interleaved import looped, table


def looped_bfs(ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """GPipe with several chunks per rank: the forwards of all microbatches chunk by chunk, then the backwards, last
    chunk first.

    Placement:   stage k·p + r on rank r, for chunk k
    Order:       for each chunk F × m; then for each chunk, last first, B × m in reverse
    Needs:       nothing
    Bubble:      idle time (p-1)(F+B) per chunk costs, as interleaved; for m < p, (p-m)(v-1)(F+B) more
    Peak:        v·m chunks on every rank
    Source:      Lamy-Poirier 2022, arXiv:2211.05953; each chunk's weights are gathered and reduced once a step

    raises  ValueError if `chunks` is not positive

    >>> print(looped_bfs(ranks=1, microbatches=2, chunks=2))
    rank 0: 0F0 0F1 1F0 1F1 1B1 1B0 0B1 0B0
    """
    table(chunks, [microbatches])
    m = np.arange(microbatches)
    programs = []
    for r in range(ranks):
        stages = range(r, chunks * ranks, ranks)
        forwards = [actions("F", stage, m) for stage in stages]
        backwards = [actions("B", stage, m[::-1]) for stage in reversed(stages)]
        programs.append(np.concatenate(forwards + backwards))
    return looped("looped_bfs", programs, ranks, microbatches, chunks)
