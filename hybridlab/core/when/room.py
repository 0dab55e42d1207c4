"""Room: the memory capacity of a device, turned into dependencies, so that the order of actions alone respects it.

When an action begins, all compute actions before it have ended. A copy to the host has certainly ended only if an
earlier action has waited for it; all other copies may still be in progress and still occupy memory. So the list
determines the largest amount of memory that may be held. An action that would not fit takes one more value, `room`,
made by the first SWAP_OUT that frees enough. Validation, both simulators and the real ranks need no further rule.

Messages in transit are not counted: a rank holds a tensor between two stages from the first to the last of its compute
actions that make or take it. Sends and receives do not count as such actions.

Source of the problem: out-of-core training, Wahib et al. 2020, KARMA, arXiv:2008.11421. The rule is ours.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hybridlab.core.when.action import KINDS
from hybridlab.core.when.law import KIND
from hybridlab.doors import guarded

if TYPE_CHECKING:
    from hybridlab.core.when.flow import Flow

EXACT = 1e-9  # relative tolerance of the capacity, for rounding in sums


@guarded()
@dataclass(frozen=True)
class Room:
    """The memory capacity of each device, and the size of each value, in bytes or in activations.

    capacity  the largest amount that a rank may hold at a time
    keeps     the size of the values that one forward saves (a swap moves it); a number, or one per stage
    boundary  the size of a tensor between two stages and of its gradient; a number, or one per edge (the last edge, out
              of the model, counts nothing). It is never swapped

    raises  ValueError when a number is negative

    >>> Room(capacity=2)
    Room(capacity=2, keeps=1, boundary=0)
    """

    capacity: float
    keeps: float | tuple[float, ...] = 1
    boundary: float | tuple[float, ...] = 0

    def __post_init__(self) -> None:
        for name in ("capacity", "keeps", "boundary"):
            given = getattr(self, name)
            if not np.all(np.asarray(given, dtype=float) >= 0):
                raise ValueError(f"Room({name}={given}): give a number of bytes or of activations, 0 or more")

    def kept(self, stage: int) -> float:
        """The size of the values that a forward of this stage saves."""
        return self.keeps[stage] if isinstance(self.keeps, tuple) else self.keeps

    def weights(self, flow: "Flow") -> np.ndarray:
        """The size of every value of a flow on a device. Saved activations count until their `input` is freed.

        raises  ValueError if there is not one number per stage, or per edge
        """
        for name, count in (("keeps", flow.schedule.stages), ("boundary", len(flow.edges))):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != count:
                raise ValueError(
                    f"Room({name}={given}) has {len(given)} numbers, not {count}: give {count} of them, or one"
                )
        weights = np.zeros(flow.size)
        keeps = np.broadcast_to(np.asarray(self.keeps, dtype=float), flow.schedule.stages)
        weights[flow.named("input")] = np.repeat(keeps, int(np.prod(flow.shape["input"][1:])))
        boundary = np.array(np.broadcast_to(np.asarray(self.boundary, dtype=float), len(flow.edges)))
        boundary[flow.schedule.stages - 1] = 0  # the edge that leads out of the model
        for name in ("activation", "gradient"):
            weights[flow.named(name)] = flow.on_every_edge(boundary)
        return weights


def stays(flow: "Flow", room: Room) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first, last, weight) of everything that is held on some rank: from the start of one action to another's end."""
    weights = room.weights(flow)
    value = np.concatenate([flow.makes.values, flow.takes.values])
    action = np.concatenate([flow.makes.owners, flow.takes.owners])
    message = np.array([row.lane in ("send", "receive") for row in KIND.values()])[flow.kind[flow.first_row]]
    counts = (weights[value] > 0) & ~message[action]
    value, action = value[counts], action[counts]
    here, which = np.unique(np.stack([value, flow.rank[action]]), axis=1, return_inverse=True)
    first, last = np.full(here.shape[1], flow.actions), np.full(here.shape[1], -1)
    np.minimum.at(first, which.reshape(-1), action)
    np.maximum.at(last, which.reshape(-1), action)
    return first, last, weights[here[0]]


def during(flow: "Flow", room: Room) -> np.ndarray:
    """For each action, the memory that its rank holds meanwhile, if copies took no time.

    >>> from hybridlab.core.when.flow import Flow
    >>> from hybridlab.core.when.schedule import Schedule
    >>> during(Flow(Schedule.from_csv("0F0,0SWAP_OUT0,1F0,1B0,0SWAP_IN0,0B0")), Room(capacity=2)).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    """
    first, last, weight = stays(flow, room)
    makes, frees = (np.bincount(one, weight, flow.actions) for one in (first, last))
    return np.cumsum(makes - frees) + frees


def arrows(flow: "Flow", room: Room) -> tuple[np.ndarray, np.ndarray]:
    """(waits_for, lacks): the SWAP_OUT that each action waits for (-1: none), and the memory that is missing even then.

    The compute actions of a rank wait in order. So do the copies of an engine. So an action that takes the result of a
    copy has also waited for everything that this copy and earlier copies have waited for.
    """
    first, last, weight = stays(flow, room)
    makes = np.bincount(first, weight, flow.actions).tolist()
    frees = np.bincount(last, weight, flow.actions).tolist()
    lanes = np.array([KIND[kind].lane for kind in KINDS])[flow.kind[flow.first_row]].tolist()
    most = room.capacity * (1 + EXACT)
    waits_for, lacks = np.full(flow.actions, -1), np.zeros(flow.actions)
    for start, end in zip(flow.program.tolist(), flow.program[1:].tolist()):
        held, outs, gone, by_rank, by_engine = 0.0, [], [0.0], 0, 0
        over: dict[int, int] = {}  # copy of this rank: how many of the rank's SWAP_OUTs have ended when the copy ends
        for action in range(start, end):
            lane = lanes[action]
            if lane == "in":
                by_engine = max(by_engine, by_rank)
            known = by_engine if lane == "in" else by_rank
            for value in flow.takes[action].tolist() if over else ():
                known = max(known, over.get(int(flow.maker[value]), 0))
            held += makes[action]
            if makes[action] and held - gone[known] > most:
                known = min(bisect_left(gone, held - most), len(outs))
                waits_for[action] = outs[known - 1] if known else -1
                lacks[action] = max(0.0, held - gone[known] - most)
            if lane == "out":
                outs.append(action)
                gone.append(gone[-1] + frees[action])
                over[action] = len(outs)
                continue
            held -= frees[action]
            if lane == "in":
                over[action] = by_engine = known
            elif lane == "compute":
                by_rank = known
    return waits_for, lacks
