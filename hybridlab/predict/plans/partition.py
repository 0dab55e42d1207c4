"""Partition: where a sequence of layers is cut into stages, so that the slowest stage is as fast as can be."""

from itertools import accumulate


def partition(weights, stages: int) -> list[range]:
    """The layers of each stage: contiguous, none empty, with the smallest possible largest sum of weights.

    weights  of the layers, 0 or more: seconds, parameters, or anything else that adds up

    Exact, by dynamic programming over (layers, stages); among equals it leans to even stages, then to early cuts.
    torchgpipe's block partition (Bárány and Grinberg 2013) does the same by a heuristic.

    raises  ValueError when there are fewer layers than stages

    >>> partition([3, 1, 1, 1, 4], stages=2)
    [range(0, 3), range(3, 5)]
    """
    layers = len(weights)
    if not 1 <= stages <= layers:
        raise ValueError(f"{stages} stages need at least {stages} layers, this model has {layers}: choose fewer ranks")
    until = [0, *accumulate(weights)]
    best = [(until[k], until[k] ** 2, None) for k in range(layers + 1)]  # of the first k layers: largest, evenness, cut
    history = []
    for stage in range(1, stages):
        history.append(best)
        best = [
            min(
                (max(best[cut][0], until[k] - until[cut]), best[cut][1] + (until[k] - until[cut]) ** 2, cut)
                for cut in range(stage, k)
            )
            if k > stage
            else None
            for k in range(layers + 1)
        ]
    bounds = [layers]
    for table in [best, *reversed(history)][: stages - 1]:
        bounds.append(table[bounds[-1]][2])
    bounds = [0, *reversed(bounds)]
    return [range(a, b) for a, b in zip(bounds, bounds[1:])]
