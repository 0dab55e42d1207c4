"""Lowering: write the messages of a schedule out as SEND and RECV actions, by the pair rule.

Play the schedule in rounds. After each round, every value that must cross to another rank gets its SEND at the end
of the sender's list *and in the same breath* its RECV at the end of the receiver's list. So all ranks see all
messages in one global order, and the earliest unfinished message is always at the head of both its ranks' lists:
nobody can hang, even if every send and receive blocks.
"""

import numpy as np

from hybridlab.core.action import CODE
from hybridlab.core.law import Flow
from hybridlab.core.play import play
from hybridlab.core.schedule import Schedule

FORWARD = [CODE[kind] for kind in ("F", "C")]
BACKWARD = [CODE[kind] for kind in ("B", "I")]


def lower(schedule: Schedule) -> Schedule:
    """The same schedule with its messages written out; a schedule that has them already is returned as it is.

    raises  Stuck when the schedule waits on itself

    >>> print(lower(Schedule.from_csv("0F0,0B0\\n1F0,1B0")))
    rank 0: 0F0 0SEND_F0 0RECV_B0 0B0
    rank 1: 1RECV_F0 1F0 1B0 1SEND_B0
    """
    if schedule.lowered:
        return schedule
    flow = Flow(schedule)
    order, rounds = play(flow)
    programs = [[] for _ in range(schedule.ranks)]
    for now in np.split(order, np.flatnonzero(np.diff(rounds)) + 1):
        messages = []
        for number in now.tolist():
            programs[flow.rank[number]].append(flow.action(number))
            messages += _messages(schedule, flow, number)
        for sender, send, receiver, receive in messages:
            programs[sender].append(send)
            programs[receiver].append(receive)
    return schedule.with_programs(programs)


def _messages(schedule, flow, number):
    """Yield (sender, SEND, receiver, RECV) for everything that one action makes for another rank."""
    action = flow.action(number)
    for part in action.parts or (action,):
        code = CODE[part.kind]
        forward = code in FORWARD
        if not forward and code not in BACKWARD:
            continue
        for begin, end in flow.edges.tolist():
            here, there = (begin, end) if forward else (end, begin)
            if here != part.stage or there >= schedule.stages:
                continue
            sender, receiver = (schedule.place[stage, part.replica] for stage in (here, there))
            if sender != receiver:
                skips = abs(begin - end) != 1
                send, receive = ("SEND_F", "RECV_F") if forward else ("SEND_B", "RECV_B")
                yield (
                    sender,
                    part._replace(kind=send, peer=there if skips else -1),
                    receiver,
                    part._replace(kind=receive, stage=there, peer=here if skips else -1),
                )
