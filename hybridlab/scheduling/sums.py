"""The gradient reductions of a schedule, written out: weights with several copies have one gradient, the sum."""

import functools

import numpy as np

from hybridlab.core.when.action import last_backwards
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.schedule import Schedule, actions


def with_sums(schedule: Schedule, everywhere: bool = False, alone: bool = False) -> Schedule:
    """The same schedule with a REDUCE_GRAD after each rank's last action for every stage with copies on other ranks.

    Copies are replicas of a stage (data parallelism, the two directions of Chimera and DualPipe) and tied stages. All
    ranks reduce in the order of the stages, so no rank waits in another group. Sums that the schedule already has stay
    as they are.

    everywhere  for every stage: the ranks that hold one stage between them (tp) may have separate reductions
    alone  whether copies along dp make optimizer steps independently: then gradients are summed only inside each copy

    >>> from hybridlab.scheduling.chimera import chimera
    >>> print(with_sums(chimera(ranks=2, microbatches=2)))
    rank 0: 0F0 1F1@1 1B1@1 0B0 0REDUCE_GRAD 1REDUCE_GRAD@1
    rank 1: 0F1@1 1F0 1B0 0B1@1 0REDUCE_GRAD@1 1REDUCE_GRAD
    """
    flow = flow_of(schedule)
    every = [action for program in schedule.program for action in program]
    summed = {(action.stage, schedule.place[action.stage, action.replica]) for action in every
              if action.kind == "REDUCE_GRAD"}  # fmt: skip
    added, each = [[] for _ in range(schedule.ranks)], schedule.replicas // schedule.dp

    @functools.cache
    def ranks_of(stage: int, copy: int) -> set[int]:
        """The ranks of all copies of a stage; if each copy of the pipeline is alone, only those in this one."""
        return {schedule.place[one] for one in flow.copies(stage) if not alone or one[1] // each == copy}

    for (stage, replica), rank in sorted(schedule.place.items()):
        elsewhere = len(ranks_of(stage, replica // each if alone else 0)) > 1
        if (elsewhere or everywhere) and (stage, rank) not in summed:
            summed.add((stage, rank))
            added[rank].append(actions("REDUCE_GRAD", stage, replica=replica))
    if not any(added):
        return schedule
    lists = np.split(schedule.rows, schedule.starts[1:-1])
    programs = [np.concatenate([rows, *more]) for rows, more in zip(lists, added)]
    shift = np.repeat(np.cumsum([0, *map(len, added)])[:-1], np.diff(schedule.starts))
    return schedule.with_programs(programs, fused=[row + int(shift[row]) for row in schedule.fused])


def sooner(schedule: Schedule) -> Schedule:
    """The same schedule with every reduction right after its stage's last backward: the rest of the program hides it.

    If the copies of a stage run different lists (two directions, tied stages), the reduction stays after all others:
    otherwise two ranks could sum different stages with each other.

    >>> print(sooner(with_sums(Schedule.from_csv("0F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD"))))
    rank 0: 0F0 1F0 1B0 1REDUCE_GRAD 0B0 0REDUCE_GRAD
    """
    stay = {stage for group in schedule.tied for stage in group}
    if schedule.replicas > schedule.dp:
        return schedule
    programs = []
    for program in schedule.program:
        last = {stage: number for (stage, _), number in last_backwards(program).items()}
        sums = {action.stage: action for action in program if action.kind == "REDUCE_GRAD" and action.stage not in stay}
        kept = [(i, action) for i, action in enumerate(program) if action not in sums.values()]
        programs.append([a for i, action in kept for a in (action, *(sums[s] for s in sums if last.get(s) == i))])
    return schedule.with_programs(programs)


def without_sums(schedule: Schedule) -> Schedule:
    """The same schedule without reductions and update: for all runs of an accumulated step except the last."""
    last = ("REDUCE_GRAD", "NORM", "OPT") if not schedule.window else ("REDUCE_GRAD",)
    programs = [[action for action in one if action.kind not in last] for one in schedule.program]
    return schedule.with_programs(programs)


def forward_only(schedule: Schedule) -> Schedule:
    """The forwards of a schedule and their messages, with the latest weights and no saved activations: for evaluation.

    >>> from hybridlab.scheduling.gpipe import gpipe
    >>> print(forward_only(gpipe(ranks=2, microbatches=2)))
    rank 0: 0C0 0C1
    rank 1: 1C0 1C1
    """
    keep = {"F": {"kind": "C", "version": -1}, "C": {"version": -1}, "SEND_F": {}, "RECV_F": {}}
    parts = [[part for action in program for part in action.each] for program in schedule.program]
    programs = [[part._replace(**keep[part.kind]) for part in program if part.kind in keep] for program in parts]
    return schedule.with_programs(programs)
