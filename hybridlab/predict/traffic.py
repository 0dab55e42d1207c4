"""Traffic: which messages a schedule sends over which link, and what they weigh."""

from collections import Counter

import numpy as np

from hybridlab.core.flow import Flow
from hybridlab.core.lanes import lanes, messages
from hybridlab.core.schedule import Schedule
from hybridlab.schedules.lower import lower


def traffic(schedule: Schedule, bytes: float = 1) -> dict[tuple[int, int], tuple[int, float]]:
    """{(from rank, to rank): (messages, bytes)} of one step, for boundary tensors of so many bytes each.

    bytes  a number, or one per edge (edge i leads from stage i to i + 1)

    >>> from hybridlab.schedules.registry import schedule
    >>> traffic(schedule("1f1b", ranks=3, microbatches=4), bytes=10)
    {(0, 1): (4, 40), (1, 0): (4, 40), (1, 2): (4, 40), (2, 1): (4, 40)}
    """
    flow = Flow(lower(schedule))
    sends, receives = messages(flow, lanes(flow))
    edges = flow.edge_of(flow.takes.values[flow.takes.starts[receives]])
    weights = np.broadcast_to(bytes, len(flow.edges))[edges]
    count, weight = Counter(), Counter()
    for link, size in zip(zip(flow.rank[sends].tolist(), flow.rank[receives].tolist()), weights.tolist()):
        count[link] += 1
        weight[link] += size
    return {link: (count[link], weight[link]) for link in sorted(count)}
