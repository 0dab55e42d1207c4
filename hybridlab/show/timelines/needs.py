"""Needs: the actions that an action depends on. A picture highlights them."""

import numpy as np

from hybridlab.core.when.lists import Lists
from hybridlab.core.when.timeline import Timeline


def needs(timeline: Timeline) -> Lists:
    """For every row of the schedule, the rows of the actions that make its inputs.

    >>> from hybridlab.predict.time.simulate import simulate
    >>> from hybridlab.scheduling.registry import schedule
    >>> toy = simulate(schedule("gpipe", ranks=2, microbatches=1))  # rows: 0F0 0B0 1F0 1B0
    >>> [needs(toy)[row].tolist() for row in range(4)]  # 1B0 also takes the activation that 0F0 made
    [[], [0, 3], [0], [0, 2]]
    """
    flow = timeline.flow
    maker, action = flow.maker[flow.takes.values], flow.takes.owners
    pair = np.unique(action[maker >= 0] * flow.actions + maker[maker >= 0])  # each once, sorted by taker
    action, maker = np.divmod(pair, max(flow.actions, 1))
    counts = np.bincount(action, minlength=flow.actions)
    starts = np.cumsum(np.concatenate([[0], counts]))
    of_row = counts[flow.action_of]
    row_starts = np.cumsum(np.concatenate([[0], of_row]))
    at = np.repeat(starts[flow.action_of] - row_starts[:-1], of_row) + np.arange(row_starts[-1])
    return Lists(row_starts, flow.first_row[maker[at]])
