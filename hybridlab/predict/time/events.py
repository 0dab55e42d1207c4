"""The simulator's machine code: the same events as in `simulate`, on records of integers, for numba.

It has no kinds of actions and no dependencies, only records. It processes all events in the order of (time, rank, order
of creation). It must stay one file: numba caches the machine code, and compiles it again only when this file changes.
"""

from typing import Any

import numpy as np

from hybridlab.core.when.lanes import COMPUTE, LANES, RECEIVE, REDUCE, SEND
from hybridlab.core.when.play import machine_code

NEVER = 2**62
ADVANCE, WORK, FINISH, POSTED, ARRIVED = range(5)  # kinds of events
NOBODY = -1
MANY = 2**40  # more than the number of actions or events: two numbers are stored in one, as high · MANY + low


def _record(short: str, long: str) -> np.dtype:
    return np.dtype([(name, np.int64) for name in long.split()] + [(name, np.int32) for name in short.split()])


# One record per action, rank and meeting; -1 is NOBODY. `partner` leads from a SEND to its RECV and back, which learns
# of the post after `unheard` ticks; the message takes `carried` ticks and occupies `link` and `other_link` (0: none).
# Ranks that wait for one value, and actions that have come to one meeting, form chains: `next` is the one that came
# before. Actions that overlap with their rank run on an `engine`, which then continues with the action `following`. The
# records of engines come after those of the ranks: `position` is the engine's next action, `stop` the point that its
# rank has reached.
ACTION = _record("rank lane meeting partner link other_link posted next engine following", "duration carried unheard")
RANK = _record("position stop next", "free waits_for")
MEETING = _record("attendance come last", "")


def _jit(function):
    return machine_code(function) or function


@_jit
def _push(heap, time, key, code):
    """Put a row into a binary heap; heap[0, 0] is the number of rows, heap[0, 1] the number of all rows so far."""
    heap[0, 0] += 1
    heap[0, 1] += 1
    at = heap[0, 0]
    while at > 1:
        above = at // 2
        if heap[above, 0] < time or heap[above, 0] == time and heap[above, 1] < key:
            break
        heap[at, 0], heap[at, 1], heap[at, 2] = heap[above, 0], heap[above, 1], heap[above, 2]
        at = above
    heap[at, 0], heap[at, 1], heap[at, 2] = time, key, code


@_jit
def _pop(heap):
    """Remove the first row, heap[1] (the smallest time, then key)."""
    number = heap[0, 0]
    time, key, code = heap[number, 0], heap[number, 1], heap[number, 2]
    heap[0, 0] = number - 1
    at, below = 1, 2
    while below < number:
        right = below + 1
        if right < number and (
            heap[right, 0] < heap[below, 0] or heap[right, 0] == heap[below, 0] and heap[right, 1] < heap[below, 1]
        ):
            below = right
        if time < heap[below, 0] or time == heap[below, 0] and key < heap[below, 1]:
            break
        heap[at, 0], heap[at, 1], heap[at, 2] = heap[below, 0], heap[below, 1], heap[below, 2]
        at, below = below, 2 * below
    heap[at, 0], heap[at, 1], heap[at, 2] = time, key, code


@_jit
def _later(events, time, rank, happens, what):
    _push(events, time, rank * MANY + events[0, 1], happens * MANY + what)


@_jit
def _is_next(events, now, rank):
    """Would a new entry for this rank be the first of the heap?"""
    return not events[0, 0] or events[1, 0] > now or events[1, 1] > rank * MANY + events[0, 1]


Records = Any  # in machine code the fields of a record are attributes, which numpy's types do not have


@_jit
def play(
    takes_at: np.ndarray,
    takes: np.ndarray,
    makes_at: np.ndarray,
    makes: np.ndarray,
    late: np.ndarray,
    born: np.ndarray,
    actions: Records,
    times: np.ndarray,
    ranks: Records,
    meetings: Records,
    blocking: bool,
    awaited: bool,
) -> None:
    """Process all events in the order of time; at the same time in the order of ranks.

    This is one long function: with a separate function for one rank, messages on links take 40 % longer.

    times     (ready, begin, end) of each action, filled in here
    late      the delay of each taken value after it is born; empty: no delay
    born      when each value was made; -1: not yet; -2 - r: not yet, and rank r waits for it
    blocking  a rank stops for its messages;  awaited  a message waits for its receive to be posted
    """
    # without collectives, the order at one time has no effect, and an action without duration needs no event
    nobody_meets, count = (meetings["attendance"] == 1).all(), len(ranks) // len(LANES)
    most = 8 + 2 * len(ranks) + len(meetings)  # events that one event can lead to
    # a heap (see `_push`) of (time, rank · MANY + order, kind · MANY + subject)
    events = np.zeros((2 * most, 3), np.int64)
    queue, waiting = np.zeros((len(actions) + 1, 3), np.int64), np.zeros((len(actions) + 1, 2), np.int64)
    occupied = np.zeros(1 + 2 * len(actions), np.bool_)
    for number in range(count):
        _later(events, 0, number, ADVANCE, number)
    while events[0, 0]:
        now, may_start, awake = (
            events[1, 0],
            False,
            NOBODY,
        )  # awake: a rank that continues unless another event comes first
        while awake != NOBODY or (events[0, 0] and events[1, 0] == now):
            # Which comes next: an event at this time, or the rank that is awake?
            if events[0, 0] + most > len(events):
                events = np.concatenate((events, np.zeros_like(events)))
            if awake != NOBODY and not _is_next(events, now, awake):
                _later(events, now, awake, ADVANCE, awake)
                awake = NOBODY
            happens, what = ADVANCE, awake
            if awake == NOBODY:
                happens, what = events[1, 2] // MANY, events[1, 2] % MANY
                _pop(events)
            awake = NOBODY

            if happens == POSTED:
                _post(queue, now, what, actions, awaited)
                awake, may_start = actions[what].rank, True

            elif happens == ADVANCE:  # continue a rank until it is busy or must wait
                rank = ranks[what]
                while rank.position < rank.stop and rank.free <= now:
                    number = rank.position
                    action = actions[number]
                    if action.lane >= REDUCE:  # its engine runs the action, and the rank continues
                        rank.position += 1
                        ranks[action.engine].stop = number + 1
                        _work(events, now, action.engine, takes_at, takes, late, born, actions, times, ranks, meetings)
                        continue

                    # When does its last input arrive? Posting a receive takes nothing.
                    arrival = 0
                    for at in range(takes_at[number], takes_at[number + 1] if action.lane != RECEIVE else 0):
                        value = takes[at]
                        if born[value] < 0:
                            arrival = NEVER
                            if rank.waits_for != value:
                                rank.waits_for, rank.next, born[value] = value, -2 - born[value], -2 - what
                            break
                        arrival = max(arrival, born[value] + late[at] if len(late) else born[value])
                    if arrival > now:
                        if arrival < NEVER:
                            _later(events, arrival, what, ADVANCE, what)
                        break

                    # It begins: a compute action at once, a message when it has been posted.
                    times[number, 0] = arrival
                    rank.position += 1
                    free = now + action.duration
                    if action.lane == COMPUTE:
                        times[number, 1], times[number, 2], rank.free = now, free, free
                        _later(events, free, what, FINISH, number)
                    else:
                        rank.free = NEVER if blocking else free
                        if free + action.unheard == now and nobody_meets:
                            _post(queue, now, number, actions, awaited)
                            may_start = True
                        else:
                            _later(events, free + action.unheard, what, POSTED, number)
                        if action.unheard:
                            _later(events, free, what, ADVANCE, what)

            elif happens == FINISH:
                awake = _finish(events, now, what, makes_at, makes, born, actions, ranks)

            elif happens == WORK:
                _work(events, now, what, takes_at, takes, late, born, actions, times, ranks, meetings)

            else:  # ARRIVED: both sides of a message are over
                send, receive = actions[what], actions[what].partner
                occupied[send.link], occupied[send.other_link], may_start = False, False, True
                if blocking:
                    ranks[send.rank].free = ranks[actions[receive].rank].free = now
                own = _finish(events, now, what, makes_at, makes, born, actions, ranks)
                _later(events, now, own, ADVANCE, own)
                awake = _finish(events, now, receive, makes_at, makes, born, actions, ranks)
        if may_start:
            _start_messages(events, queue, waiting, now, actions, times, occupied)


@_jit
def _work(events, now, engine, takes_at, takes, late, born, actions, times, ranks, meetings):
    """Let an engine start the actions that its rank has reached, one after the other, until a value is missing."""
    own = ranks[engine]
    while own.position < own.stop:
        number, arrival = own.position, 0
        for at in range(takes_at[number], takes_at[number + 1]):
            value = takes[at]
            if born[value] < 0:
                if own.waits_for != value:
                    own.waits_for, own.next, born[value] = value, -2 - born[value], -2 - engine
                return
            arrival = max(arrival, born[value] + late[at] if len(late) else born[value])
        if arrival > now:
            _later(events, arrival, actions[number].rank, WORK, engine)
            return
        times[number, 0], own.position = arrival, actions[number].following
        _join(events, now, number, actions, times, ranks, meetings)


@_jit
def _finish(events, now, done, makes_at, makes, born, actions, ranks):
    """The result of an action is available: the ranks that waited for it continue. Returns its rank, which continues
    too."""
    own, count = actions[done].rank, len(ranks) // len(LANES)
    for at in range(makes_at[done], makes_at[done + 1]):
        waits = -2 - born[makes[at]]
        born[makes[at]] = now
        while waits >= 0:
            ranks[waits].waits_for = NOBODY
            if waits != own:
                _later(events, now, waits % count, ADVANCE if waits < count else WORK, waits)
            waits = ranks[waits].next
    return own


@_jit
def _post(queue, now, number, actions, awaited):
    """A message can start when its SEND has been posted, and, if awaited, its RECV too."""
    action = actions[number]
    other, is_send, action.posted = actions[action.partner], action.lane == SEND, 1
    if (other.posted or not awaited) if is_send else (other.posted and awaited):
        send = number if is_send else action.partner
        _push(queue, now, actions[send].rank * MANY + send, 0)


@_jit
def _join(events, now, number, actions, times, ranks, meetings):
    """A collective starts when its last rank has arrived and all ranks have finished the previous one."""
    meeting = meetings[actions[number].meeting]
    actions[number].next = meeting.last
    meeting.last = number
    meeting.come += 1
    if meeting.come < meeting.attendance:
        return
    begin, duration, one = now, 0, number
    while one >= 0:
        begin = max(begin, ranks[actions[one].engine].free)
        duration = max(duration, actions[one].duration)
        one = actions[one].next
    one = number
    while one >= 0:
        action = actions[one]
        times[one, 1], times[one, 2] = begin, begin + duration
        ranks[action.engine].free = begin + duration
        _later(events, begin + duration, action.rank, FINISH, one)
        one = action.next


@_jit
def _start_messages(events, queue, waiting, now, actions, times, occupied):
    """Start every message that is ready and whose link is free, first come first served."""
    count = 0
    while queue[0, 0]:
        ready, key = queue[1, 0], queue[1, 1]
        _pop(queue)
        send = actions[key % MANY]
        if occupied[send.link] or occupied[send.other_link]:
            waiting[count, 0], waiting[count, 1] = ready, key
            count += 1
            continue
        occupied[send.link], occupied[send.other_link], occupied[0] = True, True, False
        number, receive, end = key % MANY, send.partner, now + send.carried
        times[number, 0], times[number, 1], times[number, 2] = ready, now, end
        times[receive, 0], times[receive, 1], times[receive, 2] = ready, now, end
        _later(events, end, send.rank, ARRIVED, number)
    for at in range(count):
        _push(queue, waiting[at, 0], waiting[at, 1], 0)
