"""Links: the time of messages on each edge of a schedule, measured between the ranks that it joins.

Two ranks on one host talk faster than two on different ones, so one number for all edges is wrong where a pipeline
crosses a network. Each pair of ranks sends a token there and back. Each rank holds it for a while and sleeps, as
between the messages of a pipeline: if the ranks did nothing else, a message would take only a sixth of the time.

gloo sends when the sender knows that a receive has been posted. A receive that is posted late first asks for its
message, and this request also crosses the link. A rank that is late on purpose measures this *handshake*. The other
messages must not contain it, so a token is held until the other side's receive is known.

Relatives: `clocks`, which uses these times in timelines; `measuring.links`, which fits lines to messages of many sizes.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hybridlab.core.when.schedule import Schedule

HOLD = 0.002  # seconds for which a rank holds a token, unless the token is longer under way
LAPS, ALL_LAPS, FEWEST = 8, 48, 3  # repetitions of each pair; of all pairs together, about; the least of each pair
LONG_LAPS = 5  # with a long message
GREETINGS = 4  # tokens that two ranks exchange first, to find how long one is under way
SHORT = 4096  # bytes: if messages are longer, a short one is measured too, to find the bandwidth
LEAST = 1e-9  # seconds that the bytes of a long message take at least

Pair = tuple[int, int]


def pairs_of(schedule: Schedule, line: Sequence[int]) -> dict[int, list[Pair]]:
    """{edge: the pairs of ranks that exchange its messages, each with the lower rank first}.

    line  the ranks that run the schedule, in its order

    >>> pairs_of(Schedule.from_csv("0F0,0B0\\n1F0,1B0"), line=[4, 6])
    {0: [(4, 6)]}
    """
    place, found = schedule.place, {}
    for number, (a, b) in schedule.inside.items():
        ends = [(place.get((a, one)), place.get((b, one))) for one in {replica for _, replica in place}]
        both = {tuple(sorted((line[one], line[other]))) for one, other in ends if None not in (one, other)}
        found[number] = sorted(pair for pair in both if pair[0] != pair[1])
    return found


def edge_links(comm, pairs: Mapping[int, list[Pair]], sizes: Sequence[int], device="cpu") -> dict[str, list[float]]:
    """The cost of a message on each edge, in the terms of `Costs`: latency, handshake, bandwidth and bytes.

    pairs   of ranks, for each edge that joins ranks
    sizes   bytes of a message on each edge, numbered as in `Schedule.edges`
    device  of the messages

    All ranks call it at once, and get the same numbers. If an edge has several pairs, its slowest pair determines the
    times. Pairs without a common rank are measured at the same time, as they will send.
    """
    comm.greet({pair for some in pairs.values() for pair in some}, torch.device(device))
    count = sum(map(len, pairs.values()))
    laps = max(FEWEST, min(LAPS, ALL_LAPS // max(1, count)))
    seconds = torch.zeros(3, len(sizes), dtype=torch.float64)  # of a short message, of a handshake, of a full message
    for edge, some in pairs.items():
        for pair in some:
            if comm.rank in pair:
                found = _measured(comm, pair, sizes[edge], laps, device)
                seconds[:, edge] = torch.maximum(seconds[:, edge], torch.tensor(found, dtype=torch.float64))
    short, handshake, whole = comm.all_reduce(seconds, op="max").tolist() if comm.size > 1 else seconds.tolist()
    found = {"latency": short, "handshake": handshake}
    if max(sizes, default=0) <= SHORT:
        return found
    carried = [max(LEAST, both - one) if size > SHORT else 0.0 for one, both, size in zip(short, whole, sizes)]
    rates = [size / long if long else 1.0 for size, long in zip(sizes, carried)]
    return found | {"bandwidth": rates, "bytes": [float(size) if long else 0.0 for size, long in zip(sizes, carried)]}


def _measured(comm, pair: Pair, size: int, laps: int, device) -> tuple[float, float, float]:
    """Seconds of a short message between two ranks, of a handshake, and of a message of this size."""
    meeting = _Meeting(comm, *pair, device)
    meeting.meet()
    short, handshake = meeting.times(min(size, SHORT), laps)
    return short, handshake, meeting.times(size, LONG_LAPS)[0] if size > SHORT else short


@dataclass
class _Meeting:
    """Two ranks that measure their link; only rank `near` knows the result."""

    comm: Any
    near: int
    far: int
    device: Any

    hold: float = HOLD

    def meet(self):
        """Send tokens there and back, so that both know how long to hold the others.

        The first token waits until the other rank has come, which may have been busy for any time, so it gives no
        information about the link. The fastest of the others counts: while one is under way, a rank may lose its core.
        """
        token = torch.zeros(1, dtype=torch.float64)
        laps = [self._lap(token) for _ in range(GREETINGS)][1:]
        if self.comm.rank == self.near:
            self.comm.send(token.fill_(max(HOLD, min(laps))), to=self.far)
        else:
            self.comm.recv(token, source=self.near)
        self.hold = float(token)

    def _lap(self, token) -> float:
        """Seconds that a token takes there and back."""
        begin = time.perf_counter()
        if self.comm.rank == self.near:
            self.comm.send(token, to=self.far)
            self.comm.recv(token, source=self.far)
        else:
            self.comm.recv(token, source=self.near)
            self.comm.send(token, to=self.near)
        return time.perf_counter() - begin

    def times(self, size: int, laps: int) -> tuple[float, float]:
        """(seconds of a message of this size, seconds of a handshake); (0, 0) on the far rank."""
        token, room = (torch.zeros(max(1, size), dtype=torch.uint8, device=self.device) for _ in range(2))
        turn = self._out if self.comm.rank == self.near else self._back
        noted = [turn(token, room) for _ in range(laps + 1)][1:]  # the first one warms up
        mine = torch.tensor(noted, dtype=torch.float64)  # (lap, what)
        if self.comm.rank == self.far:
            self.comm.send(mine, to=self.near)
            return 0.0, 0.0
        its = self.comm.recv(torch.empty_like(mine), source=self.far)
        posting = min(mine[:, 1].min(), its[:, 1].min())  # while it posts, a rank may lose its core
        one_way = statistics.median(((mine[:, 0] - its[:, 0]) / 2 - posting).tolist())
        late = statistics.median(its[:, 2].tolist())
        return max(one_way, 0.0), max(late - one_way, 0.0)

    def _out(self, token, room) -> tuple[float, float, float]:
        """Send the token and get it back; send once more, to a rank that is late. Return (lap, posting, 0)."""
        arriving = self.comm.irecv(room, self.far)
        time.sleep(self.hold)
        begin = time.perf_counter()
        leaving = self.comm.isend(token, self.far)
        posted = time.perf_counter()
        arriving.over()
        end = time.perf_counter()
        leaving.over()
        self.comm.isend(token, self.far).over()
        return end - begin, posted - begin, 0.0

    def _back(self, token, room) -> tuple[float, float, float]:
        """The other side. Returns (how long it held the token, posting, from a late receive until the message)."""
        self.comm.irecv(room, self.near).over()
        begin = time.perf_counter()
        time.sleep(self.hold)
        end = time.perf_counter()
        leaving = self.comm.isend(token, self.near)
        posted = time.perf_counter()
        leaving.over()
        time.sleep(self.hold)
        late = time.perf_counter()
        self.comm.irecv(room, self.near).over()
        return end - begin, posted - end, time.perf_counter() - late
