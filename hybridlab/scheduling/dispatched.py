"""Stages with experts: each in three parts, with the all-to-alls between them as separate messages.

A block with experts computes twice and exchanges tokens twice:

    attention  →  dispatch: tokens to their experts  →  experts  →  combine: tokens home  →  the next block

Here each stage becomes three: attention, experts, and a last one that computes nothing, for the combined tokens. The
edges between them are *exchanges*: a rank sends to the ranks along ep and receives from them. So an all-to-all is a
SEND and a RECV like any other message, overlapped with compute, and the law says which action waits for it.

The order determines whether it is hidden. A rank that runs the parts of one microbatch one after another waits for
every exchange. In DualPipe a rank runs a forward and a backward as a pair; their parts can alternate, and each exchange
then overlaps with a part of the other microbatch:

    computes     attention of F    experts of B     experts of F     attention of B
    overlapped   combine of B       dispatch of F    dispatch of B    combine of F

In a backward combine comes first and sends gradients to the experts; dispatch sends them back. All exchanges are hidden
if one takes no longer than the shortest of the four parts.

Without a pipeline, `dual_batch` makes such pairs on one rank: the forward of a microbatch with the backward of the one
before it. Megatron-LM calls it batch-level overlap (`--overlap-moe-expert-parallel-comm`).

Source: DeepSeek-AI 2024, arXiv:2412.19437, section 3.2.1 and figure 4. Relatives: `scheduling.dualpipe`,
`predict.time.with_experts`; notebook 32.
"""

from dataclasses import replace

from hybridlab.core.when.schedule import Schedule

PARTS = 3
ATTENTION, EXPERTS, HOME = range(PARTS)


def dispatched(schedule: Schedule, overlapped: bool = True) -> Schedule:
    """The same schedule with every stage in three parts, and an all-to-all before and after the second.

    overlapped  the parts of a fused pair alternate; otherwise the forward's come first, then the backward's

    raises  ValueError if the schedule is lowered, or has skips or ties

    >>> print(dispatched(Schedule.from_csv("0F0,0B0")))
    rank 0: 0F0 1F0 2F0 2B0 1B0 0B0
    >>> print(dispatched(Schedule.from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1")))
    rank 0: 0F0 1F0 2F0 2B0 0F1 1B0 1F1 0B0 2F1 2B1 1B1 0B1
    """
    if schedule.lowered or schedule.skips or schedule.tied or schedule.exchanges:
        raise ValueError(
            f"{schedule.name} already has messages, skips, ties or exchanges: give a schedule without them"
        )
    programs = [[part for action in program for part in _parts(action, overlapped)] for program in schedule.program]
    place = {(PARTS * s + k, replica): rank for (s, replica), rank in schedule.place.items() for k in range(PARTS)}
    exchanges = [(s, s + 1) for s in range(PARTS * schedule.stages) if s % PARTS != HOME]
    more = {"place": place, "exchanges": tuple(exchanges), "chunks": PARTS * schedule.chunks}
    name = f"{schedule.name} with experts" + ", in turns" * (overlapped and bool(schedule.fused))
    return schedule.with_programs(programs, name=name, **more)


def dual_batch(microbatches: int, blocks: int = 1, overlapped: bool = True) -> Schedule:
    """Two microbatches alternate on one pipeline rank, and each hides the all-to-alls of the other.

    microbatches  of a step;  blocks  of the model, each a stage
    overlapped    as in `dispatched`: without it, a pair hides no more messages than a forward and a backward in order

    At most two microbatches are in flight. Four exchanges of each block are exposed in a step: those of the first
    forward and of the last backward. This holds for one block, if `predict.time.with_experts.hidden` is true.

    raises  ValueError if one of them is not a whole number, 1 or more

    >>> print(dual_batch(2))
    rank 0: 0F0 1F0 2F0 2B0 0F1 1B0 1F1 0B0 2F1 2B1 1B1 0B1
    """
    if not all(isinstance(number, int) and number >= 1 for number in (microbatches, blocks)):
        raise ValueError(f"dual_batch({microbatches}, blocks={blocks}) is not possible: give whole numbers, 1 or more")
    pairs = [f"({s}F{m + 1};{blocks - 1 - s}B{m})OVERLAP_F_B" for m in range(microbatches - 1) for s in range(blocks)]
    first, last = [f"{s}F0" for s in range(blocks)], [f"{s}B{microbatches - 1}" for s in reversed(range(blocks))]
    one = replace(Schedule.from_csv(",".join([*first, *pairs, *last])), name="dual_batch")
    return dispatched(one, overlapped)


def _parts(action, overlapped):
    """The actions that replace one action."""
    if not action.parts:
        return _in_order(action)
    forward, backward = (_in_order(part) for part in action.parts)
    if not overlapped:
        return forward + backward
    turns = zip(backward, forward)  # 2B 0F, 1B 1F, 0B 2F
    return [part for turn in turns for part in turn]


def _in_order(action):
    down = action.kind in ("F", "C", "R")
    return [action._replace(stage=PARTS * action.stage + k) for k in (range(PARTS) if down else reversed(range(PARTS)))]
