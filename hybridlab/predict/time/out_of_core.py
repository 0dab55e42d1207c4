"""Search for the best choice for the activations of every forward: keep, swap to the host, or recompute.

Each choice has a different cost: memory, time of the copy engines, or time of the rank. The simulator computes the cost
of a mixture. The search begins with simple strategies: swap everything; recompute everything; keep as many short-lived
activations as fit, and swap or recompute the rest. It then changes one forward at a time, or two of a rank, as long as
the step becomes shorter. So it is never worse than a simple strategy. With few forwards, it continues until no
remaining mixture can be better.

Source: capacity-based layer swapping interleaved with recomputation, Wahib et al. 2020, KARMA, arXiv:2008.11421; the
search is ours. Relatives: `scheduling.out_of_core`, which inserts the actions; `predict.time.automatic`.
"""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from hybridlab.core.added import added
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.time.costs import Costs
from hybridlab.predict.time.simulate import simulate
from hybridlab.scheduling.out_of_core import recomputed, swapped
from hybridlab.signatures import typed

STAY, AWAY, AGAIN = "stay", "away", "again"
MOST = 2000  # number of mixtures to try: about ten seconds
FEW = 3**7  # up to this number, all mixtures are considered, and tried if they could be the best
Choice = tuple[str, ...]  # STAY, AWAY or AGAIN for each of the `forwards`


class Mixture(NamedTuple):
    """The choice for the saved activations of each forward, and its cost.

    choice    for each of the `forwards`: STAY (on the device), AWAY (on the host) or AGAIN (recomputed)
    length    of a step, in the unit of the costs; infinite if it does not fit
    schedule  the actions
    """

    choice: Choice
    length: float
    schedule: Schedule


@typed
def fitted(schedule: Schedule, room: Room, costs: Costs | None = None) -> Schedule:
    """The same step within a device's memory: the best mixture found of keeping, swapping and recomputing.

    schedule  the schedule of one step
    room      the memory capacity of each device
    costs     the times of actions and swaps; None: `Costs()`

    raises  ValueError if nothing fits, not even with everything recomputed

    >>> import hybridlab as hl
    >>> chain = hl.Schedule.from_csv("0F0,1F0,2F0,3F0,3B0,2B0,1B0,0B0")
    >>> print(hl.fitted(chain, hl.Room(capacity=2), hl.Costs(F=1, B=2, swap=2)))
    rank 0: 0F0 0SWAP_OUT0 1C0 2F0 3F0 3B0 0SWAP_IN0 2B0 1R0 1B0 0B0
    """
    return planned(schedule, room, costs or Costs()).schedule


def planned(schedule: Schedule, room: Room, costs: Costs) -> Mixture:
    """The best mixture that was found, with its length.

    raises  ValueError if nothing fits, not even with everything recomputed
    """
    search = _Search(schedule, room, costs)
    starts = sorted(map(search.tried, dict.fromkeys(habits(schedule))), key=_costs)
    if starts[0].length == math.inf:
        why = f"{schedule.name} does not fit into {room}, even with every forward recomputed: give more memory"
        raise ValueError(why)
    best = search.climbed(starts[0])
    return search.best_of_all(best) if 3 ** len(best.choice) <= FEW else best


def mixed(schedule: Schedule, choice: Choice, room: Room, costs: Costs) -> Mixture:
    """One mixture, as a schedule, simulated.

    raises  ValueError if there is not one choice for each of the `forwards`
    """
    which = {what: set() for what in (STAY, AWAY, AGAIN)}
    for place, what in zip(forwards(schedule), choice, strict=True):
        which[what].add(place)
    made = swapped(recomputed(schedule, which[AGAIN]), which[AWAY], room, ahead=len(schedule.rows))
    fits = not flow_of(made, room).lacks.any()
    return Mixture(choice, simulate(made, costs, room=room).length if fits else math.inf, made)


def _costs(mixture):
    """The sort key of a mixture: shorter is better; of equal lengths, more activations that stay."""
    return mixture.length, _moved(mixture.choice)


def _moved(choice):
    return added(what != STAY for what in choice)


def forwards(schedule: Schedule) -> list[tuple[int, int]]:
    """The (stage, microbatch) pairs of all forwards, rank by rank in the order of the lists."""
    return [place for own in _forwards_by_rank(schedule) for place in own]


def _forwards_by_rank(schedule):
    every = ([one for action in program for one in action.each] for program in schedule.program)
    return [[(one.stage, one.microbatch) for one in own if one.kind == "F"] for own in every]


def habits(schedule: Schedule) -> Iterator[Choice]:
    """Simple mixtures: on every rank the same number of forwards stay, those with the shortest lifetime; the others are
    all swapped or all recomputed. With 0, everything is swapped or recomputed.
    """
    own = [_shortest_kept(program) for program in schedule.program]
    every = forwards(schedule)
    for stay in range(max(map(len, own), default=0) + 1):
        kept = {place for places in own for place in places[:stay]}
        for rest in (AWAY, AGAIN):
            yield tuple(STAY if place in kept else rest for place in every)


def _shortest_kept(program):
    """A rank's (stage, microbatch) pairs, sorted by the number of actions between forward and backward."""
    parts = [one for action in program for one in action.each]
    begin = {(one.stage, one.microbatch): i for i, one in enumerate(parts) if one.kind == "F"}
    end = {(one.stage, one.microbatch): i for i, one in enumerate(parts) if one.kind in ("B", "I")}
    return sorted(begin, key=lambda place: (end[place] - begin[place], -begin[place]))


class _Search:
    """The search over mixtures of one schedule. Each is tried at most once, and only if it could be the best."""

    def __init__(self, schedule, room, costs):
        self.case, self.seen = (schedule, room, costs), {}
        own = _forwards_by_rank(schedule)
        self.rank = [rank for rank, places in enumerate(own) for _ in places]
        stages = [stage for places in own for stage, _ in places]
        self.takes = [{STAY: 0, AWAY: costs.of("SWAP_OUT", stage), AGAIN: costs.of("R", stage)} for stage in stages]
        computed = costs.table(schedule) * schedule.is_compute
        self.busy = [float(computed[a:b].sum()) for a, b in itertools.pairwise(schedule.starts.tolist())]

    def tried(self, choice) -> Mixture:
        if choice not in self.seen:
            schedule, room, costs = self.case
            self.seen[choice] = mixed(schedule, choice, room, costs)
        return self.seen[choice]

    def climbed(self, mixture) -> Mixture:
        """The best mixture that a local search reaches from this one."""
        while better := self._better(mixture):
            mixture = better
        return mixture

    def _better(self, best):
        """The first better neighbour of a mixture, or None."""
        for choice in self._near(best.choice):
            if (self._least(choice), _moved(choice)) < _costs(best) and (choice in self.seen or len(self.seen) < MOST):
                if _costs(one := self.tried(choice)) < _costs(best):
                    return one
        return None

    def best_of_all(self, best) -> Mixture:
        """The best of all mixtures. They are sorted by their lower bound, so the search stops at the first that cannot
        be better."""
        every = itertools.product((STAY, AWAY, AGAIN), repeat=len(best.choice))
        for least, moved, choice in sorted((self._least(choice), _moved(choice), choice) for choice in every):
            if (least, moved) >= _costs(best) or len(self.seen) >= MOST:
                break
            best = min(best, self.tried(choice), key=_costs)
        return best

    def _least(self, choice):
        """A lower bound on the length of a mixture's step: the work of the busiest rank or engine."""
        ranks, copies = list(self.busy), [0.0] * len(self.busy)
        for rank, what, takes in zip(self.rank, choice, self.takes):
            if what == AGAIN:
                ranks[rank] += takes[what]
            else:
                copies[rank] += takes[what]
        return max(*ranks, *copies)

    def _near(self, choice):
        """All mixtures with one changed forward, then those with two on one rank."""
        places = range(len(choice))
        for i in places:
            yield from self._changed(choice, (i,))
        for pair in itertools.combinations(places, 2):
            if self.rank[pair[0]] == self.rank[pair[1]]:
                yield from self._changed(choice, pair)

    def _changed(self, choice, places):
        others = [[what for what in (STAY, AWAY, AGAIN) if what != choice[i]] for i in places]
        for whats in itertools.product(*others):
            new = list(choice)
            for i, what in zip(places, whats):
                new[i] = what
            yield tuple(new)
