"""BPipe: the first ranks of 1F1B lend activations to the last ranks, which have memory to spare.

In 1F1B rank x holds p-x activations, and rank p-1-x only x+1: together p+1. So rank x sends activations to rank p-1-x
when it would hold more than half of this sum, and gets each back before its backward:

    rank 0 of 4    0F0 0F1 0F2 ↑2 0F3 ↑3         0B0 ↓2 0F4 ↑4 0B1 ↓3 …
    rank 3                     ↓2     ↓3 3F0 3B0 3F1 3B1 ↑2 3F2 ↓4 3B2 ↑3 …

The two ranks' moves are in one order, so a move never waits for a later one.

Source: Kim et al. 2023, ICML, "BPipe: Memory-Balanced Pipeline Parallelism for Training Large Language Models".
Relatives: `one_f_one_b`; the loans in `core.when.law`; `runtime.loans`, which executes them; notebook 23.
"""

from hybridlab.core.when.action import Action
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.play import play
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.one_f_one_b import one_f_one_b


def bpipe(ranks: int, microbatches: int) -> Schedule:
    """1F1B in which rank x lends activations to rank p-1-x, if it would hold more than c = ⌈(p+2)/2⌉.

    Placement:   stage s on rank s
    Order:       1F1B; on a rank x with p-x > c, SWAP_OUT to rank p-1-x right after the forwards c-1 … m-2, and SWAP_IN
                 of each c-1 backwards before its backward
    Needs:       p ≥ 4 for loans (m < p is legal)
    Bubble:      as 1F1B, even if each rank has memory for only c activations, as long as a move takes at most F
    Peak:        min(p-x, m) on a rank x without a loan, at most c = ⌈(p+2)/2⌉ activations on every rank
    Source:      BPipe, Kim et al. 2023, ICML

    >>> print(bpipe(ranks=4, microbatches=4))
    rank 0: 0F0 0F1 0F2 0SWAP_OUT2>3 0F3 0B0 0SWAP_IN2>3 0B1 0B2 0B3
    rank 1: 1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3
    rank 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3
    rank 3: 0SWAP_IN2>3 3F0 3B0 3F1 3B1 0SWAP_OUT2>3 3F2 3B2 3F3 3B3
    """
    most = -(-(ranks + 2) // 2)
    plain, moves = one_f_one_b(ranks, microbatches), {}
    for x in range(ranks - most):
        for m in range(most - 1, microbatches - 1):
            loan = Action("SWAP_OUT", x, m, peer=ranks - 1 - x)
            moves[Action("F", x, m)] = [loan]
            moves[Action("B", x, m - most + 1)] = [loan._replace(kind="SWAP_IN")]
    return lent(plain.renamed("bpipe"), moves)


def lent(schedule: Schedule, moves: dict[Action, list[Action]]) -> Schedule:
    """The schedule with loans: each after an action of the rank that lends, and at the same moment on the other rank.

    moves  {action: the moves that follow it on its rank}: SWAP_OUT of a loan, or later SWAP_IN. In each round of the
           execution, both ranks get their half of a move, as `lower` does with messages
    """
    flow, programs = flow_of(schedule), [[] for _ in range(schedule.ranks)]
    order, _ = play(flow)
    for number in order.tolist():
        action, here = flow.action(number), int(flow.rank[number])
        programs[here].append(action)
        for move in moves.get(action, ()):
            there = schedule.place[move.peer, move.replica]
            other = move._replace(kind="SWAP_IN" if move.kind == "SWAP_OUT" else "SWAP_OUT")
            for rank, half in sorted([(here, move), (there, other)], key=lambda one: one[1].kind, reverse=True):
                programs[rank].append(half)
    return schedule.with_programs(programs) if moves else schedule
