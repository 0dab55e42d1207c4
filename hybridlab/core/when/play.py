"""Execute a schedule in rounds: in each round, every rank whose next action has its inputs runs it.

There are no durations here. The result is an order in which all actions can run, or the ranks that wait for each other.
In the blocking form, a SEND and its RECV happen together or not at all.

`longest_path` does the same for large schedules: an action begins when its rank is free and its inputs have arrived. If
every action takes one round, it gives the rounds; with durations, it simulates schedules without messages.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lanes import lanes, messages


class Stuck(ValueError):
    """A schedule in which every unfinished rank waits: `waiting` maps each to (action, what it waits for).

    done  by rank: the number of actions that it has finished;  whom  by waiting rank: the rank it waits for; -1: none
    """

    def __init__(
        self, name: str, waiting: dict[int, tuple[str, str]], grid: str, done: list[int], whom: dict[int, int]
    ):
        self.waiting, self.done, self.whom = waiting, done, whom
        lines = [f"  rank {rank}: {action} waits for {what}" for rank, (action, what) in waiting.items()]
        super().__init__(f"{name} waits on itself: no rank can go on\n" + "\n".join(lines) + f"\n{grid}")


def play(flow: Flow, blocking: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """All actions in an order in which they can run, and the round in which each runs; in ties, the lower rank comes
    first.

    blocking  a rank finishes its SEND or RECV only after the other side has reached it too

    raises  Stuck if some rank can never continue

    >>> from hybridlab.core.when.schedule import Schedule
    >>> order, rounds = play(Flow(Schedule.from_csv("0F0,0B0\\n1F0,1B0")))
    >>> order.tolist(), rounds.tolist()
    ([0, 2, 3, 1], [0, 1, 2, 3])
    """
    if flow.actions >= LARGE and not blocking:
        found = fast(flow, np.ones(flow.actions, dtype=np.int64))
        if found is not None:
            _, rounds, _ = found
            order = np.argsort(rounds, kind="stable")
            return order, rounds[order]
    makes_at, makes, made = flow.makes.starts.tolist(), flow.makes.values.tolist(), bytearray(flow.given)
    takes_at, takes = flow.takes.starts.tolist(), flow.takes.values.tolist()
    meeting, program = flow.meeting.tolist(), flow.program.tolist()
    position, present = program[:-1], {}
    unfinished = [rank for rank in range(len(position)) if position[rank] < program[rank + 1]]
    order, rounds, now = [], [], 0
    partner = _partners(flow) if blocking else {}
    while unfinished:
        moved, heads = [], {position[rank] for rank in unfinished} if blocking else ()
        for rank in unfinished:
            action = position[rank]
            if action in partner:
                can = partner[action] in heads
            else:
                can = all(made[value] for value in takes[takes_at[action] : takes_at[action + 1]])
            if can:
                moved.append(action)
                position[rank] += 1
        if not moved:
            raise _stuck(flow, made, position, unfinished, partner)
        for action in moved:
            ended = [action]
            if meeting[action] >= 0:  # no rank leaves a meeting before the last one has arrived
                there = present.setdefault(meeting[action], [])
                there.append(action)
                ended = there if len(there) == flow.attendance[meeting[action]] else []
            for done in ended:
                for value in makes[makes_at[done] : makes_at[done + 1]]:
                    made[value] = 1
        order += moved
        rounds += [now] * len(moved)
        now += 1
        unfinished = [rank for rank in unfinished if position[rank] < program[rank + 1]]
    return np.array(order, dtype=np.int64), np.array(rounds, dtype=np.int64)


def _partners(flow: Flow) -> dict[int, int]:
    sends, receives = (column.tolist() for column in messages(flow, lanes(flow)))
    return dict(zip([*sends, *receives], [*receives, *sends]))


def _stuck(flow: Flow, made: bytearray, position: list[int], unfinished: list[int], partner: dict[int, int]) -> Stuck:
    waiting, whom = {}, {}
    for rank in unfinished:
        action = position[rank]
        if action in partner:
            there = by = partner[action]
            what = f"{flow.action(there)} on rank {flow.rank[there]}, the other side of its message"
        else:
            missing = next(value for value in flow.takes[action] if not made[value])
            by = int(flow.maker[missing])
            maker = f"{flow.action(by)} on rank {flow.rank[by]}" if by >= 0 else "no action"
            what = f"the {flow.describe(missing)}, which {maker} makes"
        waiting[rank] = (str(flow.action(action)), what)
        whom[rank] = int(flow.rank[by]) if by >= 0 else -1
    first = int(flow.first_row[position[unfinished[0]]])
    done = [now - begin for now, begin in zip(position, flow.program.tolist())]
    return Stuck(flow.schedule.name, waiting, flow.schedule.grid(mark=first), done, whom)


GIVEN = -(2**31)  # the maker of a value that needs none
LARGE = 60_000  # with more actions, machine code saves more time than the import of numba takes (half a second)


@cache
def machine_code(function: Callable) -> Callable | None:
    """`function` compiled by numba, once per machine; None if numba (the extra `fast`) cannot be imported."""
    try:
        njit = importlib.import_module("numba").njit  # by name: the core must load without numba
    except ImportError:
        return None
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # numba finds no folder that it may write to
        return njit(function)


def fast(flow: Flow, duration: np.ndarray, late: Sequence[int] | np.ndarray = (0,)) -> np.ndarray | None:
    """(ready, begin, end) of every action by `longest_path`; None without numba, or if `longest_path` cannot decide."""
    run = machine_code(longest_path)
    if run is None:
        return None
    lists = (flow.takes.starts, flow.takes.values, flow.makes.starts, flow.makes.values)
    late, times = np.array(late, dtype=np.int64), np.empty((3, flow.actions), dtype=np.int64)
    maker = np.full(flow.size, -1, dtype=np.int32)
    maker[np.flatnonzero(flow.given)] = GIVEN
    complete = run(*lists, maker, flow.program, flow.meeting, flow.attendance, duration, late, *times)
    return times if complete else None


def longest_path(
    takes_at: np.ndarray,
    takes: np.ndarray,
    makes_at: np.ndarray,
    makes: np.ndarray,
    maker: np.ndarray,
    program: np.ndarray,
    meeting: np.ndarray,
    attendance: np.ndarray,
    duration: np.ndarray,
    late: np.ndarray,
    ready: np.ndarray,
    begin: np.ndarray,
    over: np.ndarray,
) -> bool:
    """The earliest start of every action. For numba: one function, on arrays of integers.

    A rank continues through its program until a value is missing. Then it waits until an action makes that value. The
    order of the ranks makes no difference: each action begins when its rank is free and its last input has arrived.

    takes_at, takes     starts and values of `Flow.takes`;  makes_at, makes  those of `Flow.makes`
    maker               the action that has made each value, or GIVEN; -1: not made yet; -2 - r: not made yet, and rank
                        r waits for it
    attendance          how many actions each meeting waits for; all make their values at the end of the last
    late                how much later a value arrives at another rank: entry `value % len(late)`
    ready, begin, over  of every action, to be filled in

    Several ranks that wait for one value form a chain. If rank 2 came first and then rank 0: maker[value] = -2 - 0,
    waited_before[0] = 2, waited_before[2] = -1. The actions that have come to one meeting are a chain too.

    Returns False if a rank waits forever, or a value is made twice.
    """
    actions, ranks, alike = len(duration), len(program) - 1, len(late) == 1
    waited_before = np.full(ranks, -1, np.int32)
    came_before, came_last = np.full(actions, -1, np.int32), np.full(len(attendance), -1, np.int32)
    come = np.zeros(len(attendance), np.int64)
    position, free = program[:-1].copy(), np.zeros(ranks, np.int64)
    can_go, going = np.arange(ranks), ranks  # a stack of ranks, and how many are on it
    while going:
        going -= 1
        rank = can_go[going]
        first, end, action = program[rank], program[rank + 1], position[rank]
        while action < end:
            # When does its last input arrive?
            arrival, missing = 0, -1
            for at in range(takes_at[action], takes_at[action + 1]):
                value = takes[at]
                by = maker[value]
                if by == GIVEN:
                    continue
                if by < 0:
                    missing = value
                    break
                born = over[by]
                if not first <= by < end:  # made on another rank
                    born += late[0 if alike else value % len(late)]
                arrival = max(arrival, born)
            if missing >= 0:
                waited_before[rank] = -2 - maker[missing]
                maker[missing] = -2 - rank
                break

            # It begins when its rank is free, too.
            ready[action], begin[action] = arrival, max(arrival, free[rank])
            free[rank] = over[action] = begin[action] + duration[action]
            done, time, meets = action, free[rank], meeting[action]
            action += 1

            # An action in a meeting makes nothing until the last one has arrived.
            if meets >= 0:
                came_before[done], came_last[meets] = came_last[meets], done
                come[meets] += 1
                if come[meets] < attendance[meets]:
                    continue
                one = done
                while one >= 0:
                    time, one = max(time, over[one]), came_before[one]

            # Its results are available, also those of its meeting; ranks that waited for them can continue.
            while done >= 0:
                over[done] = time
                for at in range(makes_at[done], makes_at[done + 1]):
                    value = makes[at]
                    before = maker[value]
                    if before >= 0 or before == GIVEN:
                        return False
                    maker[value] = done
                    waits = -2 - before
                    while waits >= 0:
                        can_go[going] = waits
                        going += 1
                        waits = waited_before[waits]
                done = came_before[done]
        position[rank] = action
    for rank in range(ranks):
        if position[rank] < program[rank + 1]:
            return False
    return True
