"""Predict the gain of running branches on separate ranks, and compare it with other uses of the same ranks.

    one device    stem + all branches + join
    sub-graph     stem + the longest branch + join, with a rank for each branch

The second line has Amdahl's two limits. One rank computes stem and join while the others wait, and all ranks wait for
the longest branch. With p ranks, data parallelism computes p rows at a time. But it needs at least p rows, every rank
holds all weights, and gradients are all-reduced, while with sub-graph parallelism one rank holds each branch. A
pipeline has neither limit, but it needs several microbatches to fill.

Relatives: `scheduling.subgraph`; `predict.plans.partition`, which cuts the pipeline; `predict.papers.googlenet`, real
branches.
"""

from collections.abc import Sequence

from hybridlab.core.added import added
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.plans.partition import partition
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.registry import schedule

BACKWARD = 2  # forwards that a backward takes


def speedup(branches: Sequence[float], stem: float = 0, join: float = 0) -> float:
    """The speed-up of a microbatch with one rank for each branch; it is at most the number of branches.

    branches, stem, join  forward durations, or multiplications, or anything else that adds up

    >>> speedup([1, 1], stem=0, join=0), speedup([1, 3], stem=1, join=1)
    (2.0, 1.2)
    """
    return (stem + added(branches) + join) / (stem + max(branches) + join)


def compared(
    branches: Sequence[float],
    stem: float = 0,
    join: float = 0,
    microbatches: int = 1,
    *,
    latency: float = 0.0,
    reduce: float = 0.0,
) -> dict[str, Timeline]:
    """A step of one model, for each kind of parallelism with one rank for each branch: {kind: its timeline}.

    stem, branches, join  forward durations of one microbatch; a backward takes twice as long
    latency  of a message between stages;  reduce  duration of the all-reduce of all gradients in data parallelism

    The stem is on the rank of the first branch, the join on that of the last. Data parallelism is missing if the number
    of ranks does not divide the number of microbatches, so also for a single microbatch.

    >>> {way: timeline.length for way, timeline in compared([1, 1], stem=1, join=1).items()}
    {'one device': 12.0, 'sub-graph': 9.0, 'pipeline': 12.0}
    >>> {way: timeline.length for way, timeline in compared([1, 1], 1, 1, microbatches=8, reduce=3).items()}
    {'one device': 96.0, 'sub-graph': 51.0, 'pipeline': 54.0, 'data parallelism': 51.0}
    """
    ranks, chain = len(branches), [stem, *branches, join]
    slices = [added(chain[layer] for layer in layers) for layers in partition(chain, ranks)]
    ways = {
        "one device": (schedule("gpipe", 1, microbatches), [added(chain)]),
        "sub-graph": (schedule("subgraph", ranks, microbatches, branches=ranks, shared=True), chain),
        "pipeline": (schedule("1f1b", ranks, microbatches), slices),
    }
    if microbatches % ranks == 0:
        ways["data parallelism"] = schedule("gpipe", 1, microbatches // ranks, dp=ranks), [added(chain)]
    return {way: simulate(one, _costs(forwards, latency, reduce)) for way, (one, forwards) in ways.items()}


def _costs(forwards, latency, reduce):
    return Costs(tuple(forwards), B=tuple(BACKWARD * one for one in forwards), latency=latency, reduce=reduce)
