"""Lowering: write the messages of a schedule out as SEND and RECV actions, by the pair rule.

Play the schedule in rounds. After each round, every value that must cross to another rank gets its SEND at the end
of the sender's list *and in the same breath* its RECV at the end of the receiver's list. So all ranks see all
messages in one global order, and the earliest unfinished message is always at the head of both its ranks' lists:
nobody can hang, even if every send and receive blocks.
"""

import numpy as np

from hybridlab.core.action import CODE
from hybridlab.core.flow import Flow
from hybridlab.core.law import makers
from hybridlab.core.play import play
from hybridlab.core.schedule import COLUMNS, Schedule

FORWARD, BACKWARD = ([CODE[kind] for kind in makers(value)] for value in ("activation>", "gradient<"))
KIND, STAGE, REPLICA, PEER = (COLUMNS.index(name) for name in ("kind", "stage", "replica", "peer"))


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
    turn = np.empty(flow.actions, dtype=np.int64)  # of every action: its place in the one order of all …
    turn[order] = np.arange(flow.actions)
    turn = turn[flow.action_of]  # … and of every row
    now = rounds[turn]
    maker, edge, there = (np.concatenate(column) for column in zip(*_crossing(schedule, flow)))
    at = np.lexsort((edge, maker, turn[maker]))
    maker, messages, ranks = _pairs(schedule, flow, maker[at], edge[at], there[at])
    columns, rank = np.concatenate([schedule.rows.T, messages], axis=1), np.concatenate([schedule.rank_of, ranks])
    when = np.concatenate([2 * now, 2 * now[maker] + 1])  # the messages of a round stand behind its actions
    listed = np.argsort(rank * (2 * len(order) + 1) + when, kind="stable")
    rows = np.take(columns, listed, axis=1).T
    fused = np.flatnonzero(np.isin(listed, schedule.fused)).tolist() if schedule.fused else ()
    starts = np.searchsorted(rank[listed], np.arange(1, schedule.ranks))
    return schedule.with_programs(np.split(rows, starts), fused=fused)


def posted_ahead(schedule: Schedule, depth: int) -> Schedule:
    """A lowered schedule with receives posted earlier: the k-th of each rank where its (k - depth)-th stood.

    An early receive holds its buffer for longer, and lets a rendezvous message go as soon as it is sent. No rank may
    block in a receive any more: it waits for a message where it needs it, as `modes.pipeline` does.

    >>> print(posted_ahead(lower(Schedule.from_csv("0F0,0B0\\n1F0,1B0")), depth=1))
    rank 0: 0RECV_B0 0F0 0SEND_F0 0B0
    rank 1: 1RECV_F0 1F0 1B0 1SEND_B0
    """
    return schedule.with_programs([_ahead(program, depth) for program in schedule.program]) if depth else schedule


def _ahead(program, depth):
    receives = [action for action in program if action.kind.startswith("RECV")]
    later = iter(receives[depth:])
    moved = receives[:depth]
    for action in program:
        one = next(later, None) if action.kind.startswith("RECV") else action
        moved += [one] if one else []
    return moved


def _crossing(schedule, flow):
    """Yield (rows, edges, stages): which rows make something for another rank, on which edge, for which stage."""
    place = _place(schedule)
    for kinds, way in ((FORWARD, 1), (BACKWARD, -1)):
        makes = np.flatnonzero(np.isin(flow.kind, kinds))
        stage, replica = flow.stage[makes], flow.replica[makes]
        chain = [(np.arange(len(makes)), stage - (way < 0), stage + way)]
        for number, skip in enumerate(schedule.skips, start=schedule.stages):
            here, there = skip[::way]
            on_it = np.flatnonzero(stage == here)
            chain.append((on_it, np.full(len(on_it), number), np.full(len(on_it), there)))
        for some, edge, there in chain:
            inside = np.flatnonzero((there >= 0) & (there < schedule.stages))
            some, edge, there = some[inside], edge[inside], there[inside]
            away = np.flatnonzero(place[stage[some], replica[some]] != place[there, replica[some]])
            yield makes[some[away]], edge[away], there[away]


def _pairs(schedule, flow, maker, edge, there):
    """Columns of all messages, SEND, RECV, SEND, RECV, …; beside them each one's maker, and its rank."""
    forward = np.isin(flow.kind[maker], FORWARD)
    begin, end = flow.edges[edge].T
    far = abs(begin - end) != 1  # not to a neighbour: the message names the other stage
    pair = np.repeat(maker, 2)
    messages = np.take(schedule.rows.T, pair, axis=1)
    send, receive = messages[:, ::2], messages[:, 1::2]
    send[KIND] = np.where(forward, CODE["SEND_F"], CODE["SEND_B"])
    receive[KIND] = np.where(forward, CODE["RECV_F"], CODE["RECV_B"])
    send[PEER], receive[PEER] = np.where(far, there, -1), np.where(far, send[STAGE], -1)
    receive[STAGE] = there
    return pair, messages, _place(schedule)[messages[STAGE], messages[REPLICA]]


def _place(schedule):
    place = np.full((schedule.stages, schedule.replicas), -1)
    place[tuple(np.array(list(schedule.place)).T)] = list(schedule.place.values())
    return place
