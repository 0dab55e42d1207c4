"""Search for an order of F, I and W for given costs and a memory limit.

Every idle rank chooses among the actions that are ready: an input half first, because other ranks wait for it; then a
forward, if memory allows; a weight half if nothing else is ready. A few of these rules have variants; all combinations
are tried, and also ZB-H1 and ZB-H2 if they fit. The best order is improved by swapping neighbours. (The automatic
zero-bubble idea of Qi et al. 2023, arXiv:2401.10241, in our own form.)
"""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from hybridlab.core.added import added
from hybridlab.core.afford import refuse_actions
from hybridlab.core.when.action import Action
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.schedule import Schedule
from hybridlab.predict.time.costs import Costs
from hybridlab.scheduling.zero_bubble import zb_h1, zb_h2
from hybridlab.signatures import typed


@dataclass(frozen=True)
class Habits:
    """The rules by which a rank chooses its next action.

    patience  wait with a weight half if a better action is known to become ready within this fraction of its duration
    pause     start nothing if a gradient arrives within this fraction of its duration; this avoids decisions by
              rounding
    warm_up   forwards before the first input half, as a function of the number of later ranks and of the number of
              forwards that fit into the time until a microbatch returns
    """

    patience: float
    pause: float
    warm_up: Callable[[int, float], float]


HABITS = [
    Habits(patience, pause, warm_up)
    for patience, pause in ((0, 0), (0, 0.05), (1, 0))
    for warm_up in (lambda behind, away: behind, lambda behind, away: 2 * behind, lambda behind, away: away)
]
STUCK = math.inf, math.inf  # stands for the spans if ranks wait for each other forever
POLISH = 400_000  # number of actions replayed during the search: this takes about a third of a second
LONGEST = 1.0  # lower bound on the seconds of one simulation; the search takes about thirty times as long
FEWEST = 100  # swaps; the search finds nothing in a schedule so large that it allows fewer


@typed
def automatic(
    ranks: int, microbatches: int, costs: Costs | None = None, limit: float | None = None, until_w: float = 1.0
) -> Schedule:
    """The best schedule found with one stage per rank: the one with the shortest maximum span over all ranks.

    ranks         p, with one stage each
    microbatches  m
    costs         F, I, W per stage and latency; None: `Costs()`
    limit         the memory of a rank, in activations of one microbatch; None: p, as for 1F1B
    until_w       the fraction of an activation that is held until W; I frees the rest

    raises  ValueError if the limit is below 1, or until_w is not between 0 and 1

    >>> import hybridlab as hl
    >>> t = hl.simulate(hl.automatic(ranks=4, microbatches=8, limit=8))
    >>> t.bubble_span, max(t.peak_live) <= 8
    (0.0, True)
    """
    costs, limit = costs or Costs(), ranks if limit is None else limit
    for what, number in {"ranks": ranks, "microbatches": microbatches}.items():
        if number < 1:
            raise ValueError(f"{what}={number} is not possible: give a whole number, 1 or more")
    refuse_actions(3 * ranks * microbatches, LONGEST, ranks=ranks, microbatches=microbatches)
    if not limit >= 1:
        raise ValueError(f"limit={limit} leaves no memory for one activation: give 1 or more")
    if not 0 <= until_w <= 1:
        raise ValueError(f"until_w={until_w} is not a fraction: give a number from 0 to 1")
    place = {(stage, 0): stage for stage in range(ranks)}
    found = [_decide(ranks, microbatches, costs, limit, until_w, habits) for habits in HABITS]
    tries = [Schedule.of("automatic", programs, place, microbatches) for programs in found]
    tries += [make(ranks, microbatches).renamed("automatic") for make in (zb_h1, zb_h2)]
    fitting = [one for one in tries if all(_fits([a.kind for a in program], limit, until_w) for program in one.program)]
    best = min(fitting, key=lambda one: Replay(one, costs).spans_as_written())
    return _polished(best, costs, lambda program: _fits(program, limit, until_w))


def _fits(program: list[str], limit: float, until_w: float) -> bool:
    """Whether a rank that runs these kinds of actions in this order stays within its memory."""
    change = {"F": 1, "I": until_w - 1, "W": -until_w}
    return max(itertools.accumulate(change[kind] for kind in program)) <= limit + 1e-9


def _polished(schedule: Schedule, costs: Costs, fits) -> Schedule:
    """The schedule after swapping adjacent actions of a rank while this shortens the longest span."""
    replay = Replay(schedule, costs)
    programs = [list(range(a, b)) for a, b in replay.bounds]
    kinds = [schedule.action(row).kind for row in range(len(schedule.rows))]
    best, left, improved = replay.spans(programs), POLISH // max(len(kinds), 1), True
    left = left if left >= FEWEST else 0
    while improved and left > 0:
        improved = False
        for program in programs:
            for i in range(len(program) - 1):
                if kinds[program[i]] == kinds[program[i + 1]] or left <= 0:
                    continue
                program[i : i + 2] = program[i + 1], program[i]
                spans = replay.spans(programs) if fits([kinds[row] for row in program]) else STUCK
                left -= 1
                if spans < best:
                    best, improved = spans, True
                else:
                    program[i : i + 2] = program[i + 1], program[i]
    return schedule.with_programs([schedule.rows[program] for program in programs])


class Replay:
    """A schedule's durations and dependencies, read once from the law, to time other orders of the same actions."""

    def __init__(self, schedule: Schedule, costs: Costs):
        flow = flow_of(schedule)
        makers = flow.maker[flow.takes.values]
        self.bounds = list(zip(schedule.starts.tolist(), schedule.starts[1:].tolist()))
        self.duration = costs.table(schedule).tolist()
        self.needs: list[list[tuple[int, float]]] = [[] for _ in range(flow.actions)]
        edges = flow.edge_of(flow.takes.values)
        for taker, maker, edge in zip(flow.takes.owners.tolist(), makers.tolist(), edges.tolist()):
            if maker >= 0:
                away = flow.rank[maker] != flow.rank[taker]
                self.needs[taker].append((maker, costs.of_message(edge) if away else 0))

    def spans_as_written(self) -> tuple[float, float]:
        """`spans` of the schedule's own order."""
        return self.spans([list(range(a, b)) for a, b in self.bounds])

    def spans(self, programs: list[list[int]]) -> tuple[float, float]:
        """(the longest span of a rank, the sum of all spans) if ranks run their actions in these orders, or `STUCK`."""
        end: list[float | None] = [None] * len(self.duration)
        began, clock, position = [0.0] * len(programs), [0.0] * len(programs), [0] * len(programs)
        moved = True
        while moved:
            moved = False
            for rank, program in enumerate(programs):
                while position[rank] < len(program):
                    action = program[position[rank]]
                    begin = clock[rank]
                    for maker, late in self.needs[action]:
                        made = end[maker]
                        if made is None:
                            begin = None
                            break
                        begin = max(begin, made + late)
                    if begin is None:
                        break
                    if not position[rank]:
                        began[rank] = begin
                    end[action] = clock[rank] = begin + self.duration[action]
                    position[rank] += 1
                    moved = True
        if any(done < len(program) for done, program in zip(position, programs)):
            return STUCK
        own = [last - first for first, last in zip(began, clock)]
        return round(max(own), 9), round(added(own), 9)


def _decide(ranks, microbatches, costs, limit, until_w, habits) -> list[list[Action]]:
    """Let all ranks choose their actions, in the order of time."""
    minds = [_Rank(r, ranks, microbatches, costs, limit, until_w, habits) for r in range(ranks)]
    events = [(0.0, r) for r in range(ranks)]
    while events:
        now = events[0][0]
        awake = set()
        while events and events[0][0] == now:
            awake.add(heapq.heappop(events)[1])
        for r in sorted(awake):
            done = minds[r].act(now)
            if done is None:
                continue
            action, end = done
            heapq.heappush(events, (end, r))
            neighbour = r + 1 if action.kind == "F" else r - 1 if action.kind == "I" else -1
            if 0 <= neighbour < ranks:
                arrives = end + costs.of_message(min(r, neighbour))
                (minds[neighbour].inputs if action.kind == "F" else minds[neighbour].gradients).append(arrives)
                heapq.heappush(events, (arrives, neighbour))
    return [mind.program for mind in minds]


class _Rank:
    """The state of one rank: the values that have arrived or will arrive, the finished actions, the memory."""

    def __init__(self, rank, ranks, microbatches, costs, limit, until_w, habits):
        self.rank, self.habits, self.limit, self.until_w = rank, habits, limit, until_w
        self.last = rank == ranks - 1
        self.cost = {kind: costs.of(kind, rank) for kind in "FIW"}
        behind = range(rank + 1, ranks)
        away = added(costs.of("F", r) + costs.of("I", r) + 2 * costs.of_message(r - 1) for r in behind)
        self.warm_up = 1 + math.floor(habits.warm_up(len(behind), away / self.cost["F"] if self.cost["F"] else 0))
        self.done = dict.fromkeys("FIW", 0)
        self.inputs = [0.0] * microbatches if rank == 0 else []  # when each microbatch's activation arrives
        self.gradients: list[float] = []  # when each one's gradient arrives
        self.free, self.program = 0.0, []

    def act(self, now):
        """The action that starts now, and its end; None if the rank is busy or has nothing to do."""
        if now < self.free:
            return None
        kind = self._choose(now)
        if kind is None:
            return None
        action = Action(kind, self.rank, self.done[kind])
        self.done[kind] += 1
        self.free = now + self.cost[kind]
        if kind == "F" and self.last:
            self.gradients.append(self.free)
        self.program.append(action)
        return action, self.free

    def _choose(self, now):
        can_f = self._arrived(self.inputs, "F", now) and self._room()
        if self.done["I"] == 0:
            can_f = can_f and self.done["F"] < self.warm_up
        can_i = self._arrived(self.gradients, "I", now)
        if can_i:
            return "I"
        if can_f and not self._at_once(now, "F"):
            return "F"
        if self.done["W"] < self.done["I"] and not self._soon(now) and not self._at_once(now, "W"):
            return "W"
        return None

    def _at_once(self, now, kind):
        """Does a gradient arrive a moment after this would begin?"""
        ahead = self.gradients[self.done["I"] : self.done["I"] + 1]
        return any(now < arrival < now + self.cost[kind] * self.habits.pause for arrival in ahead)

    def _arrived(self, arrivals, kind, now):
        return self.done[kind] < len(arrivals) and arrivals[self.done[kind]] <= now

    def _room(self):
        f, i, w = self.done.values()
        return f - i + (i - w) * self.until_w + 1 <= self.limit + 1e-9

    def _soon(self, now):
        """Does an action become ready before a weight half that starts now would end?"""
        ahead = self.gradients[self.done["I"] : self.done["I"] + 1]
        if self._room():
            ahead = ahead + self.inputs[self.done["F"] : self.done["F"] + 1]
        return any(now < arrival < now + self.cost["W"] * self.habits.patience for arrival in ahead)
