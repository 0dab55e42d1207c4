"""Play a schedule: rounds in which every rank does its next action once what that takes has been made.

Playing knows no durations. It yields an order in which all actions can happen, or says who waits for whom. In the
blocking form, a SEND and its RECV happen together or not at all.
"""

import numpy as np

from hybridlab.core.lanes import lanes, messages
from hybridlab.core.law import Flow


class Stuck(ValueError):
    """A schedule in which every unfinished rank waits: `waiting` maps each to (action, what it waits for)."""

    def __init__(self, name: str, waiting: dict[int, tuple[str, str]], grid: str):
        self.waiting = waiting
        lines = [f"  rank {rank}: {action} waits for {what}" for rank, (action, what) in waiting.items()]
        super().__init__(f"{name} waits on itself: no rank can go on\n" + "\n".join(lines) + f"\n{grid}")


def play(flow: Flow, blocking: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """All actions in an order in which they can happen, and the round of each; ties go to the lower rank.

    blocking  a rank leaves its SEND or RECV only when the other side has come to it too

    raises  Stuck when some rank can never go on

    >>> from hybridlab.core.schedule import Schedule
    >>> order, rounds = play(Flow(Schedule.from_csv("0F0,0B0\\n1F0,1B0")))
    >>> order.tolist(), rounds.tolist()
    ([0, 2, 3, 1], [0, 1, 2, 3])
    """
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
            if meeting[action] >= 0:  # nobody leaves a meeting before the last one has come
                there = present.setdefault(meeting[action], [])
                there.append(action)
                ended = there if len(there) == flow.attendance(meeting[action]) else []
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
    waiting = {}
    for rank in unfinished:
        action = position[rank]
        if action in partner:
            there = partner[action]
            what = f"{flow.action(there)} on rank {flow.rank[there]}, the other side of its message"
        else:
            missing = next(value for value in flow.takes[action] if not made[value])
            by = flow.maker[missing]
            whence = f", which {flow.action(by)} on rank {flow.rank[by]} makes" if by >= 0 else ", which nobody makes"
            what = flow.describe(missing) + whence
        waiting[rank] = (str(flow.action(action)), what)
    first = int(flow.first_row[position[unfinished[0]]])
    return Stuck(flow.schedule.name, waiting, flow.schedule.grid(mark=first))
