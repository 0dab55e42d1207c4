"""From clocks to a timeline: the combined times of all ranks."""

from dataclasses import replace

import numpy as np
import torch

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lanes import COMPUTE, lanes, messages
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.predict.time.costs import OF_EDGES, Costs, links_in

NOTICED = 0.05  # a wait that is shorter than this fraction of the time since the message began gives no information


def measured(schedule: Schedule, times: list[list[torch.Tensor]], origin: dict, held=(), **more) -> Timeline:
    """The timeline of a run, from `times[rank][step]` as `Player.step` returns them.

    origin  with the links that `links.edge_links` has measured
    held    held[rank][step], of a run with a given memory capacity: the result of `Arena.told`. The origin stores that
            of the typical step as {"held": one list for each rank of (seconds, bytes held since then)}

    Each step starts with its first compute action. A message begins when both sides have posted it and its sender knows
    that, and ends when the receiver that waits for it has it. If it arrives before its receiver checks, its arrival
    time is unknown, and the measured time of its edge is used. Receiving even such a message takes a moment. So a wait
    no longer than that time, or than a twentieth of the time since the message began, does not count as waiting.
    (origin["seen"]: the device has recorded the arrival of every message. Then the recorded ends are exact, and the
    latency of an edge is the time that its messages took.)
    """
    noted = np.concatenate([np.stack([step.numpy() for step in rank], axis=1) for rank in times])
    ready, begin, end, looked = noted.transpose(2, 1, 0)
    flow = Flow(schedule)
    lane = lanes(flow)
    sends, receives = messages(flow, lane)
    edge = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
    links = Costs(**links_in(origin))
    every = range(len(flow.edges))
    carried, asked = (np.rint([1e9 * of(one) for one in every]) for of in (links.of_message, links.of_handshake))
    carried, asked = (column.astype(np.int64)[edge] for column in (carried, asked))
    posting = np.mean((begin - ready)[:, [*sends, *receives]]) * 1e-9 if len(sends) else 0.0
    known = np.minimum(ready[:, receives] + asked, end[:, receives])  # a handshake may be shorter than the measured one
    begin[:, receives] = begin[:, sends] = np.maximum(known, ready[:, sends])
    if not origin.get("seen"):
        waited, since = (end[:, receives] - column[:, receives] for column in (looked, begin))
        unseen = (waited <= np.maximum(carried, NOTICED * since)) & ~flow.exchanged[edge]  # collectives have ends
        soonest = np.minimum(end[:, receives], begin[:, receives] + carried)
        end[:, receives] = np.where(unseen, soonest, end[:, receives])
    else:
        taken = (end - begin)[:, receives] * 1e-9
        medians = [float(np.median(taken[:, edge == one])) if (edge == one).any() else 0.0 for one in every]
        origin = {name: told for name, told in origin.items() if name not in OF_EDGES} | {"latency": medians}
    end[:, sends] = end[:, receives]
    _take_turns(flow, sends, receives, begin, end)
    start = np.where(lane == COMPUTE, begin, np.iinfo(np.int64).max).min(axis=1, keepdims=True)
    columns = (np.maximum(column - start, 0) for column in (ready, begin, end))
    origin = {"kind": "measured", "post": float(posting)} | origin
    real = Timeline(schedule, *columns, lane, tick=1e-9, unit="s", origin=origin, **more)
    since = start[real.typical, 0]
    told = [[(float(at - since) * 1e-9, size) for at, size in rank[real.typical].tolist()] for rank in held]
    return replace(real, origin=origin | {"held": told}) if told else real


def _take_turns(flow, sends, receives, begin, end):
    """A rank's exchanges run one after another: each begins when the previous one is over. Changes `begin`."""
    edge = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
    order = np.argsort(sends)
    for rank in np.unique(flow.rank[sends]):
        own = order[(flow.exchanged[edge] & (flow.rank[sends] == rank))[order]]
        for one, before in zip(own[1:], own[:-1]):
            begin[:, sends[one]] = np.maximum(begin[:, sends[one]], end[:, sends[before]])
            begin[:, receives[one]] = begin[:, sends[one]]
