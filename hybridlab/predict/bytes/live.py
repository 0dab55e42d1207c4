"""Compute the live memory: the bytes of activations, gradients and receive buffers on each rank, over time."""

from dataclasses import dataclass

import numpy as np

from hybridlab.core.when.lanes import RECEIVE
from hybridlab.core.when.lifetimes import lives
from hybridlab.core.when.room import Room, stays
from hybridlab.core.when.timeline import Timeline
from hybridlab.signatures import typed


@dataclass(frozen=True)
class Bytes:
    """The sizes of one microbatch's values on one stage, in bytes or in any unit.

    input   saved by F for W;  saved  saved by F for I;  kept  saved by I for W
    buffer  one received tensor, from the post of its receive until its last use
    """

    input: float = 1
    saved: float = 0
    kept: float = 0
    buffer: float = 0


@typed
def live(timeline: Timeline, weights: Bytes | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """live[rank] is (times, bytes): the bytes that the rank holds, starting at each time (in the timeline's unit).

    A value is held from the start of the action that produces it until the end of the last action that uses it. With
    the default weights the unit is one activation, and the maximum is `peak_live`.

    timeline  predicted or measured
    weights   the bytes of each kind of value; None: each activation counts as 1

    >>> import hybridlab as hl
    >>> times, held = hl.live(hl.simulate(hl.schedule("gpipe", ranks=1, microbatches=2)))[0]
    >>> times.tolist(), held.tolist()
    ([0.0, 1.0, 4.0, 6.0], [1.0, 2.0, 1.0, 0.0])
    """
    weights = weights or Bytes()
    changes = [[] for _ in range(timeline.schedule.ranks)]
    for name in ("input", "saved", "kept"):
        _values(timeline, name, getattr(weights, name), changes)
    _buffers(timeline, weights.buffer, changes)
    return [_summed(own, timeline.tick) for own in changes]


def peak_bytes(timeline: Timeline, weights: Bytes | None = None) -> list[float]:
    """peak_bytes[rank]: the largest number of bytes that each rank holds at any time."""
    return [float(held.max(initial=0)) for _, held in live(timeline, weights)]


def on_device(timeline: Timeline, room: Room | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """on_device[rank]: (times, held): the size of the counted values on the rank's device, starting at each of the
    times.

    room  the size of each value, in bytes or activations; by default, the one given to the timeline

    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.core.when.schedule import Schedule
    >>> from hybridlab.predict.time.costs import Costs
    >>> s = Schedule.from_csv("0F0,0SWAP_OUT0,1F0,1B0,0SWAP_IN0,0B0")
    >>> times, held = on_device(simulate(s, Costs(B=2, swap=2), room=Room(1)))[0]
    >>> times.tolist(), held.tolist()
    ([0.0, 3.0, 6.0, 10.0], [1.0, 1.0, 1.0, 0.0])
    """
    room, flow, step = room or timeline.room or Room(np.inf), timeline.flow, timeline.typical
    changes = [[] for _ in range(timeline.schedule.ranks)]
    for first, last, weight in zip(*(column.tolist() for column in stays(flow, room))):
        changes[flow.rank[first]] += [
            (int(timeline.begin[step, first]), weight),
            (int(timeline.end[step, last]), -weight),
        ]
    return [_summed(own, timeline.tick) for own in changes]


def _values(timeline, name, weight, changes):
    if not weight:
        return
    flow, step = timeline.flow, timeline.typical
    made, freed = lives(flow, name)
    for action in np.flatnonzero(made):
        changes[flow.rank[action]].append((int(timeline.begin[step, action]), weight * int(made[action])))
    for action in np.flatnonzero(freed):
        changes[flow.rank[action]].append((int(timeline.end[step, action]), -weight * int(freed[action])))


def _buffers(timeline, weight, changes):
    """A receive buffer exists from the post of its receive, which may be long before the message arrives."""
    if not weight:
        return
    flow, step = timeline.flow, timeline.typical
    last = np.full(flow.size, -1)
    np.maximum.at(last, flow.takes.values, flow.takes.owners)
    for receive in np.flatnonzero(timeline.lane == RECEIVE):
        (arrived,) = flow.makes[receive]
        rank = flow.rank[receive]
        freed = last[arrived] if last[arrived] >= 0 else receive
        changes[rank].append((int(timeline.ready[step, receive]), weight))
        changes[rank].append((int(timeline.end[step, freed]), -weight))


def _summed(changes, tick):
    """The bytes held after all changes at each time, starting at time 0."""
    changes = sorted([(0, 0), *changes], key=lambda change: change[0])
    times = np.array([time for time, _ in changes], dtype=np.int64)
    held = np.cumsum([amount for _, amount in changes])
    last = np.flatnonzero(np.append(np.diff(times) != 0, True))
    return times[last] * tick, held[last].astype(float)
