"""Vocabulary parallelism over the stages: each rank has a piece of the head, so no stage is longer than the others.

The head of a language model has a score for every token of the vocabulary, which takes as long as several blocks. On
the last stage it makes all other ranks wait. Here its matrix is sharded by tokens over all ranks of the pipeline:

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

MORE = 2  # blocks' forwards in flight, in addition to those of 1F1B: the head takes two slots, forward and backward
FIRST, BETWEEN, LAST = range(3)  # the turns in a slot: a block's forward, its rank's pieces, a block's backward


def vocabulary_1f1b(ranks: int, microbatches: int, halves: bool = False, chunks: int = 1) -> Schedule:
    """1F1B with the head in pieces, one on each rank, between a forward and a backward of blocks.

    Placement:   stage s of the blocks on rank s, piece i of the head (stage p+i) on rank i, the join (stage 2p) on the
                 last rank; with v chunks stage k·p+r on rank r, the pieces from stage v·p on, and the join after them
    Order:       F × (p+1-r), then slots: in slot j F of microbatch j+p+1-r, F of the piece of j+b+1, B of the piece of
                 j+b, B of j, those that exist, with b = ⌈⅔(p-1-r)⌉; the join follows F of its rank's piece; with halves
                 b = ⌈½(p-1-r)⌉, I for B, and a block's W r slots later, as in ZB-H1; with v chunks as in interleaved,
                 one more F ahead: in a slot of the last chunk, F of the piece of p-r microbatches later, B of p-1-r
    Needs:       a reference transformer, whose head can be cut into pieces
    Bubble:      a microbatch takes 3(L+ρ)/p, for a head as long as ρ of the L blocks; in 1F1B 3(L/p+ρ); with v chunks
                 the ends are about v times as short
    Peak:        min(p+2-r, m) activations of blocks on rank r, with halves min(p+2, m); of its piece at most 2; with v
                 chunks min(2(p-1-r)+(v-1)p+2, v·m) of a chunk
    Source:      Yeung et al. 2024, arXiv:2411.05288

    raises  ValueError for chunks and halves, or chunks and microbatches that are not a multiple of the ranks

    >>> print(vocabulary_1f1b(ranks=2, microbatches=1))
    rank 0: 0F0 2F0 2B0 0B0
    rank 1: 1F0 3F0 4F0 4B0 3B0 1B0
    """
    _refuse(ranks, microbatches, halves, chunks)
    last = chunks * ranks - 1
    join = last + 1 + ranks
    edges = [(s, s + 1) for s in range(last)]
    edges += [edge for piece in range(last + 1, join) for edge in ((last, piece), (piece, join))]
    home = [*range(ranks)] * (chunks + 1) + [ranks - 1]
    programs = [
        _rounds(ranks, r, microbatches, chunks) if chunks > 1 else _program(_runs(ranks, r, halves), microbatches)
        for r in range(ranks)
    ]
    return joined("vocabulary_1f1b", home, edges, programs, microbatches, pieces=ranks)


def _runs(ranks: int, r: int, halves: bool) -> list[tuple[str, int, int, int]]:
    """(kind, stage, slots by which it is ahead of the microbatch's last block backward, turn) of each kind of action
    of a rank, in order."""
    behind, piece, join = ranks - 1 - r, ranks + r, 2 * ranks
    back = -(-behind // 2) if halves else -(-2 * behind // 3)  # slots of 1 or 2 of 2 or 3 units, for each later rank
    parts = "IW" if halves else "B"
    runs = [("F", r, behind + MORE, FIRST), ("F", piece, back + 1, BETWEEN)]
    runs += [(kind, join, back + 1, BETWEEN) for kind in "F" + parts if not behind]
    runs += [(kind, piece, back, BETWEEN) for kind in parts]
    return runs + [(kind, r, -r * (kind == "W"), LAST) for kind in parts]


def _program(runs: list[tuple[str, int, int, int]], microbatches: int) -> list[Action]:
    """The list of one rank: slot after slot, in a slot by turns."""
    slots = [
        (m - ahead, turn, number, Action(kind, stage, m))
        for number, (kind, stage, ahead, turn) in enumerate(runs)
        for m in range(microbatches)
    ]
    return [action for *_, action in sorted(slots, key=lambda one: one[:3])]


def _rounds(ranks: int, r: int, microbatches: int, chunks: int) -> list[Action]:
    """The list of one rank with chunks: blocks in the order of interleaved, and pieces where the last chunk begins its
    backwards, which wait for them."""
    behind, piece, join = ranks - 1 - r, chunks * ranks + r, (chunks + 1) * ranks
    ahead = 2 * behind + (chunks - 1) * ranks + 1
    slots = []
    for m in range(microbatches):
        begin = m // ranks * chunks * ranks + m % ranks  # the slot of the last chunk's backward
        first = begin - behind - 1
        joining = [] if behind else [("F", join, first), ("B", join, first)]
        of_piece = [("F", piece, first), *joining, ("B", piece, first + 1)]
        slots += [(slot, BETWEEN, turn, Action(kind, at, m)) for turn, (kind, at, slot) in enumerate(of_piece)]
        for chunk in range(chunks):
            stage, later = chunk * ranks + r, (chunks - 1 - chunk) * ranks
            slots += [(begin + chunk * ranks - ahead, FIRST, 0, Action("F", stage, m))]
            slots += [(begin + later, LAST, 0, Action("B", stage, m))]
    return [action for *_, action in sorted(slots, key=lambda one: one[:3])]


def _refuse(ranks: int, microbatches: int, halves: bool, chunks: int) -> None:
    if chunks > 1 and halves:
        raise ValueError(
            f"chunks={chunks} is invalid: halves=True puts one chunk on each rank. Leave out chunks or halves"
        )
    if chunks > 1 and microbatches % ranks:
        raise ValueError(
            f"microbatches={microbatches} is not a multiple of the {ranks} ranks, which chunks={chunks} needs: give a "
            f"multiple of {ranks}"
        )
