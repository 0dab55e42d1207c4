"""From clocks to a timeline: the latency of a message on this machine, and the combined times of all ranks."""

import statistics
import time
from dataclasses import replace

import numpy as np
import torch

from hybridlab.core.when.flow import Flow
from hybridlab.core.when.lanes import COMPUTE, lanes, messages
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline

NOTICED = 0.05  # a wait shorter than this fraction of the time since it began gives no information about a message


def link_latency(comm, laps: int = 12, elements: int = 256, hold: float = 0.002, device="cpu") -> float:
    """Seconds from posting a message until its receiver wakes up with it, if the receive was posted before.

    A token travels round all ranks. Each rank holds it for a while, asleep, as between messages of a pipeline. The
    latency is the median lap, minus the time for holding and posting, divided by the number of hops. The shortest
    posting time is used: while it posts, a rank may lose its core although its token travels on. 0 for one rank.

    device  of the token: that of the messages to be predicted
    """
    if comm.size == 1:
        return 0.0
    comm.greet([(rank, (rank + 1) % comm.size) for rank in range(comm.size)], torch.device(device))
    ahead, behind = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    token, room = torch.zeros(elements, device=device), torch.empty(elements, device=device)
    held, lap, post = torch.zeros(laps, dtype=torch.float64), [], []
    for i in range(laps):
        arriving = comm.irecv(room, behind)
        begin = time.perf_counter()
        if comm.rank > 0:
            arriving.over()
            begin = time.perf_counter()
        time.sleep(hold)
        posting = time.perf_counter()
        held[i] = posting - begin
        leaving = comm.isend(token, ahead)
        post.append(time.perf_counter() - posting)
        if comm.rank == 0:
            arriving.over()
        lap.append(time.perf_counter() - begin)
        leaving.over()
    comm.all_reduce(held.add_(min(post)))
    travelled = statistics.median((torch.tensor(lap, dtype=torch.float64) - held).tolist())
    return max(travelled / comm.size, 0.0)  # only rank 0 measured full laps


def measured(schedule: Schedule, times: list[list[torch.Tensor]], origin: dict, held=(), **more) -> Timeline:
    """The timeline of a run, from `times[rank][step]` as `Player.step` returns them.

    held  held[rank][step], of a run with a given memory capacity: the result of `Arena.told`. The origin stores that of
          the typical step as {"held": one list for each rank of (seconds, bytes held since then)}

    Each step starts with its first compute action. A message begins when both sides have posted it, and ends when the
    receiver that waits for it has it. If it arrives before its receiver checks, its arrival time is unknown, and the
    calibrated latency is used. Receiving even such a message takes a moment. So a wait no longer than the latency, or
    than a twentieth of the time since the message began, does not count as waiting. (origin["seen"]: the device has
    recorded the arrival of every message. Then the recorded ends are exact, and the latency is the time that the
    messages took.)
    """
    noted = np.concatenate([np.stack([step.numpy() for step in rank], axis=1) for rank in times])
    ready, begin, end, looked = noted.transpose(2, 1, 0)
    flow = Flow(schedule)
    lane = lanes(flow)
    sends, receives = messages(flow, lane)
    latency = round(origin["latency"] * 1e9)
    posting = np.mean((begin - ready)[:, [*sends, *receives]]) * 1e-9 if len(sends) else 0.0
    begin[:, receives] = begin[:, sends] = np.maximum(ready[:, receives], ready[:, sends])
    if not origin.get("seen"):
        waited, since = (end[:, receives] - column[:, receives] for column in (looked, begin))
        edge = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
        unseen = (waited <= np.maximum(latency, NOTICED * since)) & ~flow.exchanged[edge]  # a collective tells its end
        soonest = np.minimum(end[:, receives], begin[:, receives] + latency)
        end[:, receives] = np.where(unseen, soonest, end[:, receives])
    elif len(receives):
        origin = origin | {"latency": float(np.median((end - begin)[:, receives])) * 1e-9}
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
