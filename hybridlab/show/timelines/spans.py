"""Spans: the boxes of one timeline in columns: its actions in program order, its bubbles, and messages that wait to be
used.

x is time, y counts lane heights downwards from the top of the rank's lane. Messages have half a lane under it; below
them copies to the host and copies to the device have half a lane each. A bar ends when the transfer ends. From there
a thin line leads to the action that takes the message.
"""

import numpy as np

from hybridlab.core.when.action import KINDS
from hybridlab.core.when.lanes import OUT, RECEIVE, REDUCE, SEND
from hybridlab.core.when.timeline import LANES, Timeline
from hybridlab.show.paper.style import STYLE, look

SEND_Y, RECEIVE_Y, REDUCE_Y = (1.04, 1.27), (1.29, 1.52), (1.04, 1.52)  # message bars, from the top of their lane
OUT_Y, IN_Y, COPIES = (1.04, 1.54), (1.58, 2.08), 1.06  # copies to the host and back; the height of both
ARRIVED_Y = (1.37, 1.44)  # the line after a message that waits
BUBBLE, ARRIVED, LOST = -1, -2, -3  # instead of a kind of action; a lost rank's box is a bubble with another look
SHADES = 5  # stages of a rank with different shades; with more, the last would be white
BRIEF = 1000  # a wait shorter than a timeline's length divided by this is not drawn
LATER = 2**62  # later than any tick


def is_measured(timeline: Timeline) -> bool:
    """Whether a timeline was measured on real ranks."""
    return timeline.origin.get("kind") == "measured"


def columns(timeline: Timeline, scale: float, tops: np.ndarray, looks: dict) -> dict[str, np.ndarray]:
    """The columns of one timeline, by the names that `Boxes` gives them.

    scale  drawn length of a tick;  tops  those of the ranks' lanes;  looks  {look: number}, to which new ones are added
    """
    schedule, flow, step = timeline.schedule, timeline.flow, timeline.typical
    kind, stage, microbatch, replica, _, peer = schedule.rows.T
    action, rank = flow.action_of, schedule.rank_of
    begin, end = timeline.begin[step][action], timeline.end[step][action]
    top, bottom = _heights(timeline, flow)
    chunk = _chunks(schedule)
    chunk = (chunk if chunk.max() < SHADES else chunk * 0)[stage, replica]
    kinds, which = np.unique(np.stack([kind, chunk, peer >= 0]), axis=1, return_inverse=True)
    numbers = [_look_number(looks, *key[:2], is_measured(timeline), lent=key[2]) for key in kinds.T.tolist()]
    looked = np.array(numbers, dtype=np.int64)[which.reshape(-1)]
    idle_rank, idle_begin, idle_end = _idle(timeline)
    came, used = waiting(timeline)
    row, late = flow.first_row[came], rank[flow.first_row[came]]
    none, here = np.full(len(idle_rank), -1), np.ones(len(came), dtype=np.int64)
    grey = np.full(len(idle_rank), _look_number(looks, BUBBLE, 0, is_measured(timeline)))
    if gone := _lost(timeline):
        grey[np.isin(idle_rank, gone)] = _look_number(looks, LOST, 0, False)
    line = here * _look_number(looks, ARRIVED, 0, is_measured(timeline)) if len(came) else here
    return {
        "x0": np.concatenate([begin, idle_begin, timeline.end[step][came]]) * scale,
        "x1": np.concatenate([end, idle_end, used]) * scale,
        "y0": np.concatenate([tops[rank] + top, tops[idle_rank], tops[late] + ARRIVED_Y[0]]),
        "y1": np.concatenate([tops[rank] + bottom, tops[idle_rank] + 1, tops[late] + ARRIVED_Y[1]]),
        "look": np.concatenate([looked, grey, line]),
        "rank": np.concatenate([rank, idle_rank, late]),
        "stage": np.concatenate([stage, none, stage[row]]),
        "microbatch": np.concatenate([microbatch, none, microbatch[row]]),
        "kind": np.concatenate([kind, none * 0 + BUBBLE, here * ARRIVED]),
    }


def waiting(timeline: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """(RECVs whose message has arrived and waits, the start in ticks of the first action that takes it).

    It is computed only from the message's end and the start of the actions that take it.

    >>> from hybridlab.predict.time.costs import Costs
    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.lower import lower
    >>> from hybridlab.scheduling.registry import schedule
    >>> t = simulate(lower(schedule("1f1b", ranks=2, microbatches=3)), Costs(F=2, B=4, latency=1))
    >>> [f"{t.flow.action(came)} came at {t.end[0, came]}, used at {used}" for came, used in zip(*waiting(t))]
    ['1RECV_F1 came at 5, used at 9']
    """
    flow, step = timeline.flow, timeline.typical
    begin, end = timeline.begin[step], timeline.end[step]
    taken = np.full(flow.size, LATER)  # when the first taker of each value begins
    np.minimum.at(taken, flow.takes.values, begin[flow.takes.owners])
    used = np.full(flow.actions, LATER)
    np.minimum.at(used, flow.makes.owners, taken[flow.makes.values])
    late = (timeline.lane == RECEIVE) & (used < LATER) & ((used - end) * BRIEF > end.max(initial=0))
    came = np.flatnonzero(late)
    return came, used[came]


def tall(timeline: Timeline) -> float:
    """The height of a rank's lane, with its messages, waiting or not, and copies; those without length do not count."""
    seen = timeline.lane[(timeline.end > timeline.begin)[timeline.typical]]
    there = np.isin(seen, (SEND, RECEIVE, REDUCE)).any() or len(waiting(timeline)[0])
    messages = RECEIVE_Y[1] if there else 1.0
    return messages + (COPIES if (seen >= OUT).any() else 0.0)


def _heights(timeline, flow):
    """Top and bottom of every row's box inside its lane; the two actions of a fused pair take half a lane each."""
    lane, action = timeline.lane[flow.action_of], flow.action_of
    down = tall(timeline) - 1 - COPIES  # copies are below the messages, where there are any
    copies = {name: (top + down, bottom + down) for name, (top, bottom) in {"out": OUT_Y, "in": IN_Y}.items()}
    of_lane = {"compute": (0.0, 1.0), "send": SEND_Y, "receive": RECEIVE_Y, "reduce": REDUCE_Y} | copies
    top, bottom = np.array([of_lane[name] for name in LANES])[lane].T
    second = flow.first_row[action] != np.arange(len(action))
    pair = np.isin(action, action[second])
    return np.where(second, 0.5, top), np.where(pair & ~second, 0.5, bottom)


def _chunks(schedule):
    """chunk[stage, replica]: k, if this is the k-th stage that its rank owns, counted from 0."""
    chunk = np.zeros((schedule.stages, schedule.replicas), dtype=np.int64)
    seen = {}
    for replica, stage in sorted((replica, stage) for stage, replica in schedule.place):
        rank, first = schedule.place[stage, replica], schedule.copy_of[stage, replica]
        if first == replica:
            chunk[stage, replica] = seen[rank] = seen.get(rank, -1) + 1
        chunk[stage, replica] = chunk[stage, first]
    return chunk


def _look_number(looks, kind, chunk, measured, lent=False):
    """The number of a look; `looks` remembers them in the order of their first use."""
    name = {BUBBLE: "bubble", ARRIVED: "arrived", LOST: "lost"}.get(kind) or KINDS[kind]
    name = name.replace("SWAP", "LENT") if lent else name
    name = name if name in STYLE["kinds"] else "message"
    wanted = look(name, 0 if name == "message" else chunk, measured)
    return looks.setdefault(wanted, len(looks))


def _lost(timeline):
    """The ranks without any action. In a deadlock, a rank without actions waits."""
    starts = timeline.schedule.starts
    return [] if "stuck" in timeline.origin else np.flatnonzero(np.diff(starts) == 0).tolist()


def _idle(timeline):
    """(rank, begin, end) of every bubble, in ticks: the time in which a rank runs no compute action, from 0 to the
    length.

    While a run goes on, the time after a rank's last action is not yet a bubble.
    """
    step, length = timeline.typical, int(timeline.end[timeline.typical].max(initial=0))
    live = timeline.origin.get("live", False)
    found = [np.zeros((3, 0), dtype=np.int64)]
    for rank, (a, b) in enumerate(zip(timeline.flow.program, timeline.flow.program[1:])):
        own = np.flatnonzero(timeline.lane[a:b] == 0) + a
        begin, end = timeline.begin[step, own], np.maximum.accumulate(timeline.end[step, own])
        last = end[-1:] if live else [length]
        edges = np.stack([np.concatenate([[0], end]), np.concatenate([begin, last])])
        gaps = edges[:, edges[1] > edges[0]]
        found.append(np.concatenate([np.full((1, gaps.shape[1]), rank), gaps]))
    return np.concatenate(found, axis=1)
