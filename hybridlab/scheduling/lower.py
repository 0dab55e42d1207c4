"""Lowering: write the messages of a schedule out as SEND and RECV actions, by the pair rule.

Execute the schedule in rounds. After each round, every value needed on another rank gets its SEND at the end of the
sender's list *and at the same moment* its RECV at the end of the receiver's list. So all ranks have all messages in one
global order, and the earliest unfinished message is always at the head of both its ranks' lists: no rank can hang, even
if every send and receive blocks.
"""

import numpy as np

from hybridlab.core.when.action import CODE
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.play import play
from hybridlab.core.when.schedule import COLUMNS, Schedule
from hybridlab.signatures import typed

SENDS, RECEIVES = ([CODE[f"{side}_{way}"] for way in "FB"] for side in ("SEND", "RECV"))  # down an edge, and back up
KIND, STAGE, REPLICA, PEER = (COLUMNS.index(name) for name in ("kind", "stage", "replica", "peer"))


@typed
def lower(schedule: Schedule) -> Schedule:
    """The same schedule with its messages written out; a lowered schedule is returned unchanged.

    schedule  a schedule whose messages are implied

    raises  Stuck if the schedule has a deadlock

    >>> import hybridlab as hl
    >>> print(hl.lower(hl.Schedule.from_csv("0F0,0B0\\n1F0,1B0")))
    rank 0: 0F0 0SEND_F0 0RECV_B0 0B0
    rank 1: 1RECV_F0 1F0 1B0 1SEND_B0
    """
    if schedule.lowered:
        return schedule
    flow = flow_of(schedule)
    turn, now = _turns(flow)
    makers, edges, down = flow.crossing()
    one_by_one = np.lexsort((edges, makers, turn[makers]))
    makers = makers[one_by_one]
    messages = _messages(flow, makers, edges[one_by_one], down[one_by_one])
    return _merged(flow, now, messages, np.repeat(now[makers], 2))


def posted_ahead(schedule: Schedule, depth: int) -> Schedule:
    """A lowered schedule with receives posted earlier: the k-th of each rank where its (k - depth)-th would be.

    An early receive holds its buffer for longer, and lets a rendezvous message start as soon as it is sent. No rank may
    block in a receive any more: it waits for a message where it needs it, as `runtime.player` does.

    >>> print(posted_ahead(lower(Schedule.from_csv("0F0,0B0\\n1F0,1B0")), depth=1))
    rank 0: 0RECV_B0 0F0 0SEND_F0 0B0
    rank 1: 1RECV_F0 1F0 1B0 1SEND_B0
    """
    if depth < 0:
        raise ValueError(f"ahead={depth} is not possible: give a whole number, 0 or more")
    return schedule.with_programs([_ahead(program, depth) for program in schedule.program]) if depth else schedule


def _ahead(program, depth):
    receives = [action for action in program if action.kind.startswith("RECV")]
    later = iter(receives[depth:])
    moved = receives[:depth]
    for action in program:
        one = next(later, None) if action.kind.startswith("RECV") else action
        moved += [one] if one else []
    return moved


def _turns(flow):
    """(turn, round) of every row: its place in an order in which all actions can happen, and its round."""
    order, rounds = play(flow)
    turn = np.empty(flow.actions, dtype=np.int64)
    turn[order] = np.arange(flow.actions)
    turn = turn[flow.action_of]
    return turn, rounds[turn]


def _messages(flow, makers, edges, down):
    """The messages with the values that these rows make, in columns: SEND, RECV, SEND, RECV, … Each is numbered as its
    maker is.
    """
    begin, end = flow.edges[edges].T
    source, target = np.where(down, begin, end), np.where(down, end, begin)
    far = abs(begin - end) != 1  # not to a neighbour: the message names the other stage
    messages = np.take(flow.schedule.rows.T, np.repeat(makers, 2), axis=1)
    for side, kinds, here, there in ((0, SENDS, source, target), (1, RECEIVES, target, source)):
        columns = messages[:, side::2]
        columns[KIND], columns[STAGE], columns[PEER] = np.where(down, *kinds), here, np.where(far, there, -1)
    return messages


def _merged(flow, now, messages, then):
    """The schedule with messages in its lists: each of them after the actions of the round `then`, in this order."""
    schedule = flow.schedule
    columns = np.concatenate([schedule.rows.T, messages], axis=1)
    rank = np.concatenate([schedule.rank_of, flow.home[messages[STAGE], messages[REPLICA]]])
    when = np.concatenate([2 * now, 2 * then + 1])
    listed = np.argsort(rank * (when.max(initial=0) + 1) + when, kind="stable")  # by rank, then by time
    fused = np.flatnonzero(np.isin(listed, schedule.fused)).tolist() if schedule.fused else ()
    starts = np.searchsorted(rank[listed], np.arange(1, schedule.ranks))
    return schedule.with_programs(np.split(np.take(columns, listed, axis=1).T, starts), fused=fused)
