"""List scheduling: whenever a rank is free, it runs the most urgent of its ready actions.

Backwards come first, then lower microbatches, then deeper stages. The order is made for backwards that take twice as
long as forwards; it may then be simulated with any costs. The stages may form any graph and be on any ranks.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from hybridlab.core.when.action import Action

DURATION = {"F": 1, "B": 2, "I": 1, "W": 1}
Item = tuple[str, int, int]  # kind, stage, microbatch


def most_urgent_first(
    home: list[int], edges: Sequence[tuple[int, int]], microbatches: int, room: list[int] | None = None
) -> list[list[Action]]:
    """One list of actions per rank.

    home   home[stage]: its rank;  edges  (from stage, to stage), each to a later one
    room   room[stage]: microbatches that it may have in flight, between their F and their B; None: any number

    >>> for program in most_urgent_first([0, 1], [(0, 1)], microbatches=3, room=[2, 1]):
    ...     print(*program)
    0F0 0F1 0B0 0F2 0B1 0B2
    1F0 1B0 1F1 1B1 1F2 1B2
    """
    waits, then = _waiting(len(home), edges, microbatches, room or [microbatches] * len(home))
    return in_order_of(
        waits,
        then,
        ranks=1 + max(home),
        home=lambda one: home[one[1]],
        urgency=lambda one: (one[0] == "F", one[2], -one[1]),
    )


def in_order_of(
    waits: dict[Item, int], then: dict[Item, list[Item]], ranks: int, home: Callable, urgency: Callable
) -> list[list[Action]]:
    """One list of actions per rank, made of any (kind, stage, microbatch) items that depend on each other.

    waits    {item: for how many others it waits};  then  {item: those that wait for it}
    home     home(item): its rank
    urgency  urgency(item): its urgency; of the ready items, the one with the smallest comes first
    """
    waits, ready = dict(waits), defaultdict(list)  # ready: per rank, a heap of (urgency, item)
    programs, free_at = [[] for _ in range(ranks)], [0] * ranks
    events = sorted(
        (0, one) for one in waits if not waits[one]
    )  # (when, item that becomes ready, or the rank that frees)
    while events:
        now, awake = events[0][0], set()
        while events and events[0][0] == now:
            _, (kind, *at) = heapq.heappop(events)
            if kind:
                item = (kind, *at)
                heapq.heappush(ready[home(item)], (urgency(item), item))
            awake.add(home((kind, *at)) if kind else at[0])
        for rank in sorted(awake):
            if free_at[rank] > now or not ready[rank]:
                continue
            _, item = heapq.heappop(ready[rank])
            programs[rank].append(Action(*item))
            free_at[rank] = end = now + DURATION[item[0]]
            heapq.heappush(events, (end, ("", rank, -1)))
            for one in then.get(item, ()):
                waits[one] -= 1
                if not waits[one]:
                    heapq.heappush(events, (end, one))
    return programs


def _waiting(stages, edges, microbatches, room):
    """({action: for how many others it waits}, {action: those that wait for it})."""
    last = set(range(stages)) - {begin for begin, _ in edges}
    then = defaultdict(list)
    for m in range(microbatches):
        for begin, end in edges:
            then["F", begin, m].append(("F", end, m))
            then["B", end, m].append(("B", begin, m))
        for stage in last:
            then["F", stage, m].append(("B", stage, m))
        for stage in range(stages):
            if m + room[stage] < microbatches:
                then["B", stage, m].append(("F", stage, m + room[stage]))
    counts = Counter(one for ones in then.values() for one in ones)
    return {(kind, s, m): counts[kind, s, m] for kind in "FB" for s in range(stages) for m in range(microbatches)}, then
