"""Vocabulary parallelism over the stages: each rank has a piece of the head, so the last stage is as long as the others.

The head of a language model computes a score for every token of the vocabulary, which takes as long as several blocks.
On the last stage it makes all other ranks wait. Here its matrix is sharded by tokens over all ranks of the pipeline:

    stages 0 … p-1   the blocks, as in 1F1B; stage p-1 ends with the norm before the head
    stage p+i        piece i of the head, on rank i
    stage 2p         the join of the pieces, on rank p-1

    0 ─▶ 1 ─▶ … ─▶ p-1 ─┬─▶ piece 0   ─┬─▶ join: the loss
                        ├─▶ …          ─┤
                        └─▶ piece p-1 ─┘

A piece gives two numbers for each token, and the join adds them up. So no rank has the scores of all tokens, and the
messages to the join are small. The backward of the join needs no work: the gradients of its inputs are a softmax of the
pieces, and -1.

Source: Yeung et al. 2024, "Balancing Pipeline Parallelism with Vocabulary Parallelism", arXiv:2411.05288. Relatives:
`one_f_one_b`; `subgraph`, branches; `training.models.vocabulary_pieces`, the model; `modes.parts.vocabulary_parallel`,
the same matrix sharded along tp.
"""

from hybridlab.core.when.action import Action
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.subgraph import joined

MORE = 2  # forwards of blocks in flight, more than in 1F1B: the head's answer takes two slots
EARLY, BLOCKS, LATE = 0, 1, 2  # in a slot: the forward of a block, the pieces, the backward of a block


def vocabulary_1f1b(ranks: int, microbatches: int) -> Schedule:
    """1F1B with the head in pieces, one on each rank, between the forward and the backward of the blocks.

    Placement:   stage s of the blocks on rank s, piece i of the head (stage p+i) on rank i, the join (stage 2p) on the
                 last rank
    Order:       F × (p+1-r), then in slot j: F of microbatch j+p+1-r, the piece's F of j+b+1, its B of j+b, B of j, with
                 b = ⌈⅔(p-1-r)⌉ (those that exist); the join follows its rank's piece
    Needs:       a reference transformer, whose head can be cut
    Bubble:      a period of 3(L+ρ)/p for a head of ρ blocks, after L blocks, instead of 3(L/p+ρ) in 1F1B
    Peak:        min(p+2-r, m) activations of blocks on rank r, and at most 2 of a piece
    Source:      Yeung et al. 2024, arXiv:2411.05288

    >>> print(vocabulary_1f1b(ranks=2, microbatches=1))
    rank 0: 0F0 2F0 2B0 0B0
    rank 1: 1F0 3F0 4F0 4B0 3B0 1B0
    """
    join = 2 * ranks
    programs = []
    for r in range(ranks):
        behind = ranks - 1 - r
        slots = -(-2 * behind // 3)
        runs = [("F", r, behind + MORE, EARLY), ("F", ranks + r, slots + 1, BLOCKS)]
        runs += [("F", join, 1, BLOCKS), ("B", join, 1, BLOCKS)] * (behind == 0)
        runs += [("B", ranks + r, slots, BLOCKS), ("B", r, 0, LATE)]
        found = [
            (m - ahead, turn, number, Action(kind, stage, m))
            for number, (kind, stage, ahead, turn) in enumerate(runs)
            for m in range(microbatches)
        ]
        programs.append([action for *_, action in sorted(found, key=lambda one: one[:3])])
    edges = [(s, s + 1) for s in range(ranks - 1)]
    edges += [edge for i in range(ranks, join) for edge in ((ranks - 1, i), (i, join))]
    home = [*range(ranks), *range(ranks), ranks - 1]
    return joined("vocabulary_1f1b", home, edges, programs, microbatches, pieces=ranks)
