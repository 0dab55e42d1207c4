"""The joint sums of a schedule, written out: weights that live in several places have one gradient, their sum."""

import numpy as np

from hybridlab.core.flow import Flow
from hybridlab.core.schedule import Schedule, actions


def with_sums(schedule: Schedule) -> Schedule:
    """The same schedule with a REDUCE_GRAD behind each rank's last action for every stage that has copies elsewhere.

    Copies are replicas of a stage (the two directions of Chimera and DualPipe) and tied stages. All ranks sum in the
    order of the stages, so that nobody waits in another's meeting. Sums that the schedule has already are left alone.

    >>> from hybridlab.schedules.chimera import chimera
    >>> print(with_sums(chimera(ranks=2, microbatches=2)))
    rank 0: 0F0 1F1@1 1B1@1 0B0 0REDUCE_GRAD 1REDUCE_GRAD@1
    rank 1: 0F1@1 1F0 1B0 0B1@1 0REDUCE_GRAD@1 1REDUCE_GRAD
    """
    flow = Flow(schedule)
    every = [action for program in schedule.program for action in program]
    summed = {(action.stage, action.replica) for action in every if action.kind == "REDUCE_GRAD"}
    added = [[] for _ in range(schedule.ranks)]
    for (stage, replica), rank in sorted(schedule.place.items()):
        elsewhere = {schedule.place[copy] for copy in flow.copies(stage)} - {rank}
        if elsewhere and (stage, replica) not in summed:
            added[rank].append(actions("REDUCE_GRAD", stage, replica=replica))
    if not any(added):
        return schedule
    lists = np.split(schedule.rows, schedule.starts[1:-1])
    programs = [np.concatenate([rows, *more]) for rows, more in zip(lists, added)]
    shift = np.repeat(np.cumsum([0, *map(len, added)])[:-1], np.diff(schedule.starts))
    return schedule.with_programs(programs, fused=[row + int(shift[row]) for row in schedule.fused])


def without_sums(schedule: Schedule) -> Schedule:
    """The same schedule without its joint sums: what all but the last play of an accumulated step do."""
    programs = [[action for action in one if action.kind != "REDUCE_GRAD"] for one in schedule.program]
    return schedule.with_programs(programs)


def forward_only(schedule: Schedule) -> Schedule:
    """The forwards of a schedule and their messages, keeping nothing: what an evaluation plays.

    >>> from hybridlab.schedules.gpipe import gpipe
    >>> print(forward_only(gpipe(ranks=2, microbatches=2)))
    rank 0: 0C0 0C1
    rank 1: 1C0 1C1
    """
    programs = [
        [part._replace(kind="C") if part.kind == "F" else part for action in one for part in action.parts or (action,)
         if part.kind in ("F", "C", "SEND_F", "RECV_F")]
        for one in schedule.program
    ]  # fmt: skip
    return schedule.with_programs(programs)
