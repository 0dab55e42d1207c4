"""Held: how many activations each rank holds over time, for the curve beside a timeline."""

import numpy as np

from hybridlab.core.timeline import Timeline


def held(timeline: Timeline) -> list[tuple[np.ndarray, np.ndarray]]:
    """held[rank]: (times, counts); from each time on, in the timeline's unit, the rank holds so many activations.

    An activation is held from the begin of its F to the end of its W (or B): what `Timeline.peak_live` counts, so
    the highest count of a rank is its peak.

    >>> from hybridlab.predict.simulate import simulate
    >>> from hybridlab.schedules.registry import schedule
    >>> times, counts = held(simulate(schedule("gpipe", ranks=1, microbatches=2)))[0]
    >>> times.tolist(), counts.tolist()
    ([0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0], [0, 1, 1, 2, 2, 2, 1, 1, 0])
    """
    flow, step = timeline.flow, timeline.typical
    grows, shrinks = flow.lives("input")
    curves = []
    for a, b in zip(flow.program, flow.program[1:]):
        own = np.flatnonzero(timeline.lane[a:b] == 0) + a
        times = np.stack([timeline.begin[step, own], timeline.end[step, own]], axis=1).reshape(-1)
        changes = np.stack([grows[own], -shrinks[own]], axis=1).reshape(-1)
        curves.append((np.append(0, times) * timeline.tick, np.append(0, np.cumsum(changes))))
    return curves
