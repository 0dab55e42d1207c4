"""Sub-graph parallelism: branches of the stage graph run on separate ranks at the same time.

    stem ─┬─ branch ─┬─ join          F   0F0   1F0   3F0
          └─ branch ─┘                          2F0

A chain of stages would run the branches one after another. Here each branch takes the output of the stem, and not that
of the branch before it: the edge between them is a *break*. The join waits for the longest branch, and not for the sum
of all. In the backward the stem waits for all branches, and adds up their gradients.

So the depth of the pipeline is its longest path, and not its number of stages: there is less idle time, and fewer
microbatches are in flight. The stages keep their numbers, so that a model's layers are cut into slices as for any
schedule; the edges then come from the model (`training.models.graph`), and any other schedule also runs a model with
branches.

Source: LBANN's sub-graph parallelism, Jain et al. 2021, "SUPER: SUb-Graph Parallelism for TransformERs", IPDPS; with
microbatches GraphPipe, Jeon et al. 2024, arXiv:2406.17145. Relatives: `most_urgent` (the order);
`predict.plans.branches` (when it pays).
"""

from collections.abc import Sequence
from typing import Any

from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.most_urgent import most_urgent_first


def subgraph(ranks: int, microbatches: int, branches: int = 2, shared: bool = False) -> Schedule:
    """A stem, parallel branches, and a join; each stage runs 1F1B, with a warm-up given by its distance from the end.

    Placement:   stage s on rank s: the stem, branch after branch, the join; shared=True: the stem is on the first
                 branch's first rank, the join on the last branch's last rank
    Order:       F × w, then (F, B) × (m-w), then B × w, where w is the number of stages after this one on the longest
                 path
    Needs:       nothing; with fewer ranks than a stem, the branches and a join need, there are fewer branches
    Bubble:      bubble_fraction (d-1)/(m+d-1), of d stages on the longest way: d = 2+⌈(p-2)/branches⌉ of p (not shared)
    Peak:        min(w+1, m) activations on every rank, so at most d
    Source:      LBANN's sub-graph parallelism (SUPER, Jain et al. 2021, IPDPS); GraphPipe, arXiv:2406.17145

    raises  ValueError if `branches` is not positive

    >>> print(subgraph(ranks=4, microbatches=2))
    rank 0: 0F0 0F1 0B0 0B1
    rank 1: 1F0 1F1 1B0 1B1
    rank 2: 2F0 2F1 2B0 2B1
    rank 3: 3F0 3B0 3F1 3B1
    >>> print(subgraph(ranks=2, microbatches=1, shared=True))
    rank 0: 0F0 1F0 1B0 0B0
    rank 1: 2F0 3F0 3B0 2B0
    """
    if not isinstance(branches, int) or branches < 1:
        raise ValueError(f"branches={branches!r} is not possible: give a whole number, 1 or more")
    inner = ranks if shared else ranks - 2
    if inner < 1:
        return on_graph("subgraph", list(range(ranks)), [(s, s + 1) for s in range(ranks - 1)], microbatches)
    edges, branch = [], min(branches, inner)
    lengths = [inner // branch + (one < inner % branch) for one in range(branch)]
    join = 1 + inner
    for one, length in enumerate(lengths):
        first = 1 + sum(lengths[:one])
        edges += [(0, first), *((s, s + 1) for s in range(first, first + length - 1)), (first + length - 1, join)]
    home = [0, *range(inner), inner - 1] if shared else list(range(ranks))
    return on_graph("subgraph", home, edges, microbatches)


def on_graph(name: str, home: list[int], edges: list[tuple[int, int]], microbatches: int) -> Schedule:
    """Stages connected by any edges, on any ranks, in 1F1B order, with the fewest microbatches in flight that keep the
    longest path busy.

    home  home[stage]: its rank;  edges  (from stage, to stage): from earlier ones to later ones, none left out

    >>> on_graph("mine", [0, 1, 1], [(0, 1), (0, 2), (1, 2)], microbatches=1).skips
    ((0, 2),)
    """
    room = [1 + one for one in depths(len(home), edges)]
    return joined(name, home, edges, most_urgent_first(home, edges, microbatches, room), microbatches)


def joined(
    name: str, home: list[int], edges: list[tuple[int, int]], programs: list, microbatches: int, **more: Any
) -> Schedule:
    """Stages connected by any edges, with a list of actions for each rank.

    home, edges  as in `on_graph`;  programs, more  as in `Schedule.of`

    >>> joined("mine", [0, 1, 1], [(0, 1), (0, 2), (1, 2)], [[], []], microbatches=1).chunks
    2
    """
    chain = {(s, s + 1) for s in range(len(home) - 1)}
    graph = {"skips": tuple(sorted(set(edges) - chain)), "breaks": tuple(sorted(chain - set(edges)))}
    place = {(stage, 0): rank for stage, rank in enumerate(home)}
    chunks = max(home.count(rank) for rank in home)
    return Schedule.of(name, programs, place, microbatches, chunks=chunks, **graph, **more)


def depths(stages: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The number of stages after each one, on the longest path to the end.

    >>> depths(5, [(0, 1), (1, 2), (2, 4), (0, 3), (3, 4)])
    [3, 2, 1, 1, 0]
    """
    behind = [0] * stages
    for begin, end in sorted(edges, reverse=True):
        behind[begin] = max(behind[begin], 1 + behind[end])
    return behind
