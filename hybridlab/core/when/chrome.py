"""Write a timeline as a Chrome trace, for Perfetto and chrome://tracing; or one rank of it, as torch's profiler does.

A process is a rank, a thread one of its lanes. Arrows lead from a send to its receive, and a counter says how many
activations a rank holds. Steps follow each other, though a timeline measures each from its own start.

HolisticTraceAnalysis and `predict.launch.traced` read one file for each rank, and recognize the work of a device by its
stream and its kernel names. So in the trace of one rank, messages, reductions and copies have the names of NCCL and
CUDA.

Source: the Trace Event Format (Google, document 1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU); PyTorch's Kineto.
Relatives: `core.when.timeline_file`, which keeps timelines for ourselves.
"""

from typing import TYPE_CHECKING

import numpy as np

from hybridlab.core.when.lanes import LANES, messages
from hybridlab.core.when.lifetimes import lives

if TYPE_CHECKING:
    from hybridlab.core.when.timeline import Timeline

MILLISECOND, SECOND = 1e3, 1e6  # a trace is in microseconds; one unit of costs is drawn as a millisecond
HELD = "activations held"
INSIDE = 1e-3  # microseconds: an arrow ends this long before the end of its receive, since it must end inside
KERNELS = {  # by lane or kind: the prefix of an action's name in the trace of one rank
    "send": "ncclDevKernel_SendRecv",
    "receive": "ncclDevKernel_SendRecv",
    "reduce": "ncclDevKernel_AllReduce",
    "UNSHARD": "ncclDevKernel_AllGather",
    "out": "Memcpy DtoH",
    "in": "Memcpy HtoD",
}


def chrome(timeline: "Timeline") -> dict:
    """The trace of all ranks."""
    every = range(timeline.schedule.ranks)
    names = [one for rank in every for one in _processes(rank)] + [
        one for rank in every for one in _threads(timeline, rank)
    ]
    return {"traceEvents": names + _spans(timeline) + _arrows(timeline) + _counters(timeline), "displayTimeUnit": "ms"}


def chrome_of(timeline: "Timeline", rank: int) -> dict:
    """The trace of one rank, as a profiler of that rank would write it.

    raises  ValueError for a rank that does not exist
    """
    ranks = timeline.schedule.ranks
    if rank not in range(ranks):
        raise ValueError(f"there is no rank {rank}: {timeline.schedule.name} has {ranks}, counted from 0")
    mine = [event for event in _spans(timeline) + _counters(timeline) if event["pid"] == rank]
    names = [*_processes(rank), *_threads(timeline, rank)]
    about = {"backend": "nccl", "rank": rank, "world_size": ranks}
    return {"distributedInfo": about, "traceEvents": names + [_as_kernel(event) for event in mine]}


def _as_kernel(event: dict) -> dict:
    if event["ph"] != "X":
        return event
    kind, lane = event["cat"], LANES[event["tid"]]
    front = KERNELS.get(kind, KERNELS.get(lane))
    name = f"{front} {event['name']}" if front else event["name"]
    stream = {"stream": event["tid"] + 1, "kind": kind}  # HolisticTraceAnalysis ignores 0
    return event | {"cat": "kernel", "name": name, "args": event["args"] | stream}


def _processes(rank: int) -> list[dict]:
    about = {"process_name": {"name": f"rank {rank}"}, "process_sort_index": {"sort_index": rank}}
    return [{"name": name, "ph": "M", "pid": rank, "tid": 0, "args": args} for name, args in about.items()]


def _threads(timeline: "Timeline", rank: int) -> list[dict]:
    """The names of the lanes that a rank uses."""
    begin, end = timeline.flow.program[rank : rank + 2]
    used = sorted(set(timeline.lane[begin:end].tolist()))
    about = lambda lane: (("thread_name", {"name": LANES[lane]}), ("thread_sort_index", {"sort_index": lane}))
    return [
        {"name": name, "ph": "M", "pid": rank, "tid": lane, "args": args} for lane in used for name, args in about(lane)
    ]


def _spans(timeline: "Timeline") -> list[dict]:
    to_us, starts = _scale(timeline), _starts(timeline)
    return [
        {
            "name": str(span.action),
            "cat": span.action.kind,
            "ph": "X",
            "pid": span.rank,
            "tid": LANES.index(span.lane),
            "ts": (starts[span.step] + span.begin) * to_us,
            "dur": (span.end - span.begin) * to_us,
            "args": {"step": span.step, "index": span.index, "ready": span.ready},
        }
        for span in timeline.spans
    ]


def _arrows(timeline: "Timeline") -> list[dict]:
    """Arrows from the start of every send to the end of its receive."""
    to_us, starts, flow = _scale(timeline), _starts(timeline), timeline.flow
    sends, receives = messages(flow, timeline.lane)
    found = []
    for step in range(timeline.steps):
        for send, receive in zip(sends.tolist(), receives.tolist()):
            begins, ends = (timeline.span(step, one) for one in (send, receive))
            at = (starts[step] + ends.end) * to_us
            at -= min(INSIDE, (ends.end - ends.begin) * to_us / 2)
            common = {"name": str(begins.action), "cat": "message", "id": len(found) // 2 + 1}
            begun = {"ph": "s", "pid": begins.rank, "tid": LANES.index(begins.lane)}
            ended = {"ph": "f", "bp": "e", "pid": ends.rank, "tid": LANES.index(ends.lane)}
            found += [
                common | begun | {"ts": (starts[step] + begins.begin) * to_us},
                common | ended | {"ts": at},
            ]
    return found


def _counters(timeline: "Timeline") -> list[dict]:
    """The number of activations that each rank holds, at every change. A rank holds an activation from the start of its
    forward to the end of the last action that takes it."""
    to_us, starts, flow = _scale(timeline), _starts(timeline), timeline.flow
    made, freed = lives(flow, "input")
    found = []
    for step in range(timeline.steps):
        for rank, (a, b) in enumerate(zip(flow.program, flow.program[1:])):
            own = np.arange(a, b)
            moments = np.concatenate(
                [timeline.begin[step, own[made[a:b] > 0]], timeline.end[step, own[freed[a:b] > 0]]]
            )
            change = np.concatenate([made[a:b][made[a:b] > 0], -freed[a:b][freed[a:b] > 0]])
            order = np.lexsort((change, moments))  # at the same time, frees come before allocations
            for moment, held in zip(moments[order], np.cumsum(change[order])):
                at = (starts[step] + float(moment) * timeline.tick) * to_us
                found.append({"name": HELD, "ph": "C", "pid": rank, "tid": 0, "ts": at, "args": {"held": int(held)}})
    return found


def _scale(timeline: "Timeline") -> float:
    return SECOND if timeline.unit == "s" else MILLISECOND


def _starts(timeline: "Timeline") -> list[float]:
    """The start of each step, in units: after the end of all earlier steps."""
    lengths = timeline.end.max(axis=1, initial=0) * timeline.tick
    return [0.0, *np.cumsum(lengths)[:-1].tolist()]
