"""Define costs: the durations of all kinds of actions and of messages."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.when.law import KIND
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.timeline import Timeline
from hybridlab.doors import guarded
from hybridlab.signatures import typed

UNLESS_GIVEN = {"B": ("I", "W"), "recompute": ("F",)}  # by default as long as these kinds of action together
OTHER_HALF = {"I": "W", "W": "I"}
FINEST = 9  # decimal places of a cost that count: nanoseconds if units are seconds …
EXACT = 4  # … but of each cost at least so many digits
LARGEST = 1e301  # of a cost: the sum over all actions that fit into memory is still a float
LONGEST = 15  # digits of a cost in ticks: simulated times stay 64-bit integers
OF_EDGES = ("latency", "handshake", "bandwidth", "bytes")  # each a number, or one number per edge
RATES = ("bandwidth", "bytes")  # not durations


@guarded()
@dataclass(frozen=True)
class Costs:
    """Durations of actions in any unit; each is one number, or one number per stage.

    F, B         forward, full backward
    I, W         input half and weight half of the backward, if a schedule splits it. Missing values of B, I and W
                 follow from the others: B = I + W, with equal halves; without any value a half takes 1
    fused        a fused forward and backward pair; F + B unless given
    recompute    R, the repeated forward; F unless given
    optimizer    OPT;  reduce  REDUCE_GRAD;  gather  UNSHARD;  swap  SWAP_OUT, and SWAP_IN
    post         time that a rank takes to post one SEND or RECV of a lowered schedule (the o of LogP)
    unit         the unit of the durations: "units", or "s"

    For messages, each a number, or one number per edge (edge i leads from stage i to i + 1, the last one out):

    latency      of a message between ranks, to which bytes / bandwidth is added
    handshake    time from posting a receive until its sender knows of it; counts only if a message waits for its
                 receive
    bandwidth    of a link, in bytes per unit; None: bytes take no time
    bytes        of a boundary tensor

    raises  ValueError if a cost is negative or above 1e301, a half is longer than B, costs have different numbers of
            stages, or bytes are given without a bandwidth

    >>> Costs(F=1, I=1, W=1).of("B", stage=0), Costs(B=0.5).of("I", stage=0), Costs(B=3, W=1).of("I", stage=0)
    (2, 0.25, 2)
    """

    F: float | tuple[float, ...] = 1
    I: float | tuple[float, ...] | None = None
    W: float | tuple[float, ...] | None = None
    B: float | tuple[float, ...] | None = None
    fused: float | tuple[float, ...] | None = None
    recompute: float | tuple[float, ...] | None = None
    optimizer: float | tuple[float, ...] = 0
    reduce: float | tuple[float, ...] = 0
    gather: float | tuple[float, ...] = 0
    swap: float | tuple[float, ...] = 0
    latency: float | tuple[float, ...] = 0
    post: float = 0
    bandwidth: float | tuple[float, ...] | None = None
    bytes: float | tuple[float, ...] = 0
    handshake: float | tuple[float, ...] = 0
    unit: str = "units"

    def __post_init__(self) -> None:
        for one in self._numeric():
            given = getattr(self, one.name)
            if given == ():
                raise ValueError(f"{one.name}=() is empty: give one number for each stage, or one for all")
            for number in given if isinstance(given, tuple) else (given or 0,):
                if not 0 <= number < math.inf:
                    raise ValueError(f"{one.name}={number} is not a valid duration: give a number, 0 or more")
                if number > LARGEST:
                    raise ValueError(f"{one.name}={number} is too large to be added up: give at most {LARGEST:g}")
        self._refuse_lengths("stage", [one.name for one in self._numeric() if one.name not in OF_EDGES])
        self._refuse_lengths("edge", OF_EDGES)
        for half, other in OTHER_HALF.items():
            if min(self._of_all_stages(half)) < 0:
                said = f"a backward of B={self.B} is shorter than its half {other}={getattr(self, other)}"
                raise ValueError(f"{said}: give a longer B, or both I and W")
        if self.bandwidth is None and np.any(np.atleast_1d(self.bytes)):
            raise ValueError("bytes have no effect without a bandwidth: give bandwidth= too (bytes per unit of time)")
        if self.bandwidth is not None and not np.all(self.bandwidth):
            raise ValueError(
                f"bandwidth={self.bandwidth} lets no message arrive: give more than 0, or None if bytes cost no time"
            )
        if max(self._of_all_messages()) > LARGEST:
            raise ValueError(
                f"bytes={self.bytes} at bandwidth={self.bandwidth} take too long to be added up: give fewer bytes"
            )

    def _refuse_lengths(self, what: str, names: Sequence[str]) -> None:
        lengths = {name: len(cost) for name in names if isinstance(cost := getattr(self, name), tuple)}
        if len({*lengths.values()}) > 1:
            raise ValueError(
                f"the costs have different lengths, {lengths}: give one number for each {what}, or one for all"
            )

    def _numeric(self):
        return [one for one in fields(self) if one.name != "unit"]

    @typed
    def refuse(self, schedule: Schedule) -> None:
        """Raise ValueError if these costs are for a different number of stages or edges than the schedule has."""
        has = {"stages": schedule.stages, "edges, counting that which leads out": len(schedule.edges)}
        for one in self._numeric():
            cost, (what, count) = getattr(self, one.name), [*has.items()][one.name in OF_EDGES]
            if isinstance(cost, tuple) and len(cost) != count:
                raise ValueError(
                    f"{one.name} has {len(cost)} numbers, but {schedule.name} has {count} {what}: give one for each"
                )

    def of(self, kind: str, stage: int) -> float:
        """The duration of one action of this kind on this stage; for a SEND or RECV, the time to post it.

        raises  ValueError for an unknown kind or stage
        """
        if not isinstance(kind, str) or kind not in KIND:
            raise ValueError(f"there is no kind of action {kind!r}: choose one of {', '.join(KIND)}")
        cost = KIND[kind].cost
        given = getattr(self, cost) if cost else 0
        if given is None and cost in OTHER_HALF:
            return self._half(cost, stage)
        if given is None:
            return added(self.of(part, stage) for part in UNLESS_GIVEN[cost])
        return _at(given, stage)

    def _half(self, half: str, stage: int) -> float:
        """A half of the backward that is not given: the rest of B."""
        other = getattr(self, OTHER_HALF[half])
        if self.B is None:
            return 1
        whole = _at(self.B, stage)
        return whole / 2 if other is None else whole - _at(other, stage)

    def _of_all_stages(self, half: str) -> list[float]:
        """The durations of a half of the backward, one for each stage with a given value."""
        said = max(np.atleast_1d(0 if one is None else one).size for one in (self.I, self.W, self.B))
        return [self.of(half, stage) for stage in range(said)]

    def _of_all_messages(self) -> list[float]:
        """The time of one message over each edge with a given value."""
        edges = max(np.atleast_1d(getattr(self, name) or 0).size for name in OF_EDGES)
        return [self.of_message(edge) for edge in range(edges)]

    def of_pair(self, forward_stage: int, backward_stage: int) -> float:
        """The duration of a fused pair: the forward on `forward_stage`, the backward on `backward_stage`."""
        if self.fused is not None:
            return _at(self.fused, forward_stage)
        return self.of("F", forward_stage) + self.of("B", backward_stage)

    def of_message(self, edge: int) -> float:
        """The time of one message over an edge: latency + bytes / bandwidth."""
        carried = _at(self.bytes, edge) / _at(self.bandwidth, edge) if self.bandwidth else 0
        return _at(self.latency, edge) + carried

    def of_handshake(self, edge: int) -> float:
        """The time until the sender over an edge knows that a receive has been posted."""
        return _at(self.handshake, edge)

    def tick(self) -> Fraction:
        """The longest tick, a power of ten, of which every cost is a multiple, to at least four digits.

        raises  ValueError if the longest and the shortest cost differ too much for that
        """
        given = [getattr(self, one.name) or 0 for one in self._numeric() if one.name not in RATES]
        numbers = [n for cost in given for n in np.atleast_1d(cost).tolist()]
        numbers += [*self._of_all_stages("I"), *self._of_all_stages("W")]
        numbers += self._of_all_messages()
        place = lambda n: math.floor(math.log10(n))  # of its first digit
        shortest, longest = min((n for n in numbers if n), default=1), max(*numbers, 1e-300)
        digits = max(-int(Decimal(str(n)).as_tuple().exponent) if n % 1 else 0 for n in numbers)
        digits = min(digits, max(FINEST, EXACT - place(shortest)), LONGEST - place(longest))
        tick = 10.0**-digits
        if any(abs(round(n / tick) * tick - n) > n / 1000 for n in numbers):
            raise ValueError(
                f"costs from {shortest:g} to {longest:g} are too far apart to be simulated: give 0 for the negligible "
                "ones"
            )
        return Fraction(10) ** -digits

    def table(self, schedule: Schedule) -> np.ndarray:
        """The time of every row of a schedule on its rank, in order.

        raises  ValueError as `refuse` does
        """
        self.refuse(schedule)
        by_kind = np.array([[self.of(kind, stage) for stage in range(schedule.stages)] for kind in KIND], dtype=float)
        return by_kind[schedule.rows[:, 0], schedule.rows[:, 1]]

    @classmethod
    @typed
    def measured(cls, real: Timeline) -> "Costs":
        """The costs of `real`, a measured timeline: the median per kind and stage, its posting time, its links.

        raises  ValueError if the timeline was not measured
        """
        if real.origin.get("kind") != "measured":
            raise ValueError("these costs were not measured: give the timeline of a real run, which hl.run returns")
        seconds, flow = (real.end - real.begin) * real.tick, real.flow
        rows, costs = real.schedule.rows[flow.first_row], {}
        fused = np.diff(flow.first_row, append=len(flow.kind)) > 1
        cost_of = np.array([kind.cost for kind in KIND.values()])[rows[:, 0]]
        seen = {cost for cost in cost_of.tolist() if cost} - {"post"}  # the posting time is in the origin
        picks = {cost: (cost_of == cost) & ~fused for cost in seen} | {"fused": fused}
        for name, pick in picks.items():
            if pick.any():
                costs[name] = _medians(seconds, pick, rows[:, 1], real.schedule.stages)
        links = links_in(real.origin)
        if flow.exchanged.any():
            links |= {"bytes": _carried(flow, seconds, links.get("latency", 0.0)), "bandwidth": 1}
        return cls(**costs, **links, unit=real.unit, post=real.origin.get("post", 0.0))

    def __repr__(self) -> str:
        given = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        return f"Costs({', '.join(f'{name}={value}' for name, value in given.items())})"


def _at(cost, stage):
    if not isinstance(cost, tuple):
        return cost
    if not 0 <= stage < len(cost):
        raise ValueError(f"{cost} has no entry {stage}: choose one from 0 to {len(cost) - 1}")
    return cost[stage]


def _carried(flow, seconds, latency) -> tuple[float, ...]:
    """The time of each edge's messages in addition to the latency: the measured median for exchanges, 0 for others."""
    found, rows = np.zeros(len(flow.edges)), flow.parts_of_kind["SEND_F"]
    edge = flow.edge_of(flow.takes.values[flow.takes.starts[flow.action_of[rows]]])
    for number in np.flatnonzero(flow.exchanged):
        taken = float(np.median(seconds[:, flow.action_of[rows[edge == number]]]))
        found[number] = max(0.0, taken - _at(latency, number))
    return tuple(found.tolist())


def links_in(origin: dict) -> dict:
    """The cost of messages, from a timeline's origin, as arguments of `Costs`.

    >>> links_in({"kind": "measured", "latency": [0.25, 0.5]})
    {'latency': (0.25, 0.5)}
    """
    told = {name: origin[name] for name in OF_EDGES if name in origin}
    return {name: tuple(one) if isinstance(one, list) else one for name, one in told.items()}


def _medians(seconds, pick, stage_of, stages) -> tuple[float, ...]:
    """The median time of the selected actions, stage by stage; for a stage without any, the median of all."""
    every = float(np.median(seconds[:, pick]))
    own = (seconds[:, pick & (stage_of == stage)] for stage in range(stages))
    return tuple(float(np.median(some)) if some.size else every for some in own)
