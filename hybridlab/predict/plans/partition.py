"""Cut a sequence of layers into stages so that the slowest stage is as fast as possible.

`partition` is for different layers. `lengths` is for the equal blocks of a plan; some stages may have one extra block.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount


class Lengths(NamedTuple):
    """The numbers of blocks of the ranks of a pipeline, for one plan or for many.

    first, last  blocks of the first and of the last rank;  longest  the largest number
    place  the first rank that has the largest number
    least  blocks of the shortest stage
    """

    first: int
    longest: int
    last: int
    place: int
    least: int


def lengths(blocks: int, ranks: Amount, chunks: Amount = 1) -> Lengths:
    """The blocks of ranks that have `chunks` stages each, as `dealt` divides them: stage k·p + r is on rank r.

    >>> print(*lengths(126, 16), "|", *lengths(7, 4), "|", *lengths(126, 16, chunks=8))
    7 8 7 1 7 | 2 2 1 0 1 | 7 8 7 1 0
    """
    stages = ranks * chunks
    least, extra = blocks // stages, blocks % stages
    most = -(-extra // ranks)  # extra blocks on the longest rank
    first = np.where(extra > 0, (extra + 1) // ranks, 0)
    place = np.maximum(ranks * most - 1 - extra, 0)
    each = least * chunks
    return Lengths((each + first)[()], each + most, each + extra // ranks, place[()], least)


def most_stages(blocks: int) -> int:
    """The largest number of stages of a pipeline: each has a block, the embedding or the head.

    >>> most_stages(126)
    128
    """
    return blocks + 2


def dealt(blocks: int, stages: int) -> list[int]:
    """The number of blocks of each stage, as equal as possible.

    The last stage never has an extra block, since it has the head, nor has the first one, which has the embedding,
    unless all between them have one. Late stages get the extra blocks, since fewer microbatches are in flight there.
    With one or two more stages than blocks, the head is alone in its stage, and then the embedding too.

    >>> dealt(10, 4), dealt(8, 4), dealt(2, 4)
    ([2, 3, 3, 2], [2, 2, 2, 2], [0, 1, 1, 0])
    """
    least, longer = blocks // stages, blocks % stages
    return [least + (stages - 1 - longer <= stage < stages - 1) for stage in range(stages)]


def partition(weights: Sequence[float], stages: int) -> list[range]:
    """The layers of each stage, with the largest sum of weights in a stage as small as possible.

    Every stage has at least one layer, and its layers are contiguous.

    weights  of the layers, 0 or more: seconds, parameters, or anything else that adds up

    The result is exact, by dynamic programming over (layers, stages); ties prefer even stages, then early cuts.
    torchgpipe's block partition (Bárány and Grinberg 2013) does the same by a heuristic.

    raises  ValueError if there are fewer layers than stages

    >>> partition([3, 1, 1, 1, 4], stages=2)
    [range(0, 3), range(3, 5)]
    """
    layers = len(weights)
    if not 1 <= stages <= layers:
        raise ValueError(
            f"{stages} stages need at least {stages} layers, but this model has {layers}: choose fewer ranks"
        )
    until = [0, *accumulate(weights)]
    best = [(until[k], until[k] ** 2, 0) for k in range(layers + 1)]  # of the first k layers: largest, evenness, cut
    history = []
    for stage in range(1, stages):
        history.append(best)
        best = [
            min(
                (max(best[cut][0], until[k] - until[cut]), best[cut][1] + (until[k] - until[cut]) ** 2, cut)
                for cut in range(stage, k)
            )
            if k > stage
            else (math.inf, math.inf, 0)
            for k in range(layers + 1)
        ]
    bounds = [layers]
    for table in [best, *reversed(history)][: stages - 1]:
        bounds.append(table[bounds[-1]][2])
    bounds = [0, *reversed(bounds)]
    return [range(a, b) for a, b in zip(bounds, bounds[1:])]
