"""Lost ranks: the copies of their stages take over their microbatches (ReCycle, arXiv 2405.14009).

Data parallelism keeps a copy of each stage in every pipeline. If a rank is lost, only its own microbatches have to
move: they pass this one stage on the ranks of other pipelines, alternately. With backwards in halves, the extra work
fits into the bubbles, because weight gradients can wait.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, count

from hybridlab.core.when.action import Action
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.where.mesh import Mesh
from hybridlab.scheduling.most_urgent import DURATION, Item, in_order_of
from hybridlab.scheduling.replicate import replicate
from hybridlab.scheduling.sums import with_sums
from hybridlab.signatures import typed

URGENCY = {"I": 0, "B": 0, "F": 1, "W": 2}  # weight gradients can wait


@typed
def rerouted(schedule: Schedule, dp: int, lost: Sequence[int]) -> Schedule:
    """A schedule of `dp` copies of a pipeline in which some ranks are idle, and other copies do their work.

    schedule  the schedule of one pipeline of p ranks, with full backwards (B) or split ones (I, W)
    dp        copies of the pipeline
    lost      the lost ranks, from 0 to dp·p-1; rank q·p + r is rank r of pipeline q, as in Mesh(dp=dp, pp=p)

    Run it on Mesh(pp=dp·p). A lost rank has no actions, and holds no weights. The order is greedy: input gradients and
    backwards first, then forwards, then weight gradients. The saved activations of each stage grow at most in
    proportion to the microbatches that its rank runs, plus one.

    With F=1, B=2, full backwards and at most f lost ranks in the same stage, the length is about
    3·(m·dp / (dp-f) + p-1).

    raises  ValueError if a stage has no copy left, a rank does not exist, or the schedule does more than forwards and
            backwards with one update at the end

    >>> import hybridlab as hl
    >>> print(hl.rerouted(hl.schedule("1f1b", ranks=2, microbatches=2), dp=2, lost=[1]))
    rank 0: 0F0 0F1 0B0 0B1 0REDUCE_GRAD
    rank 1:
    rank 2: 0F2@1 0F3@1 0B2@1 0B3@1 0REDUCE_GRAD@1
    rank 3: 1F0 1B0 1F2@1 1B2@1 1F1 1B1 1F3@1 1B3@1
    """
    _refuse(schedule, dp, lost)
    whole = replicate(schedule, Mesh(dp=dp, pp=schedule.ranks))
    place, replica_of = _routes(whole, frozenset(lost))
    more = {"name": f"rerouted {schedule.name}", "place": place, "replica_of": replica_of}
    made = with_sums(schedule.with_programs(_greedy(whole, place, replica_of), **more))
    return replace(made, microbatches=len(replica_of))  # all copies are one pipeline now


def _refuse(schedule: Schedule, dp: int, lost: Sequence[int]):
    ranks = dp * schedule.ranks
    others = {action.kind for program in schedule.program for action in program} - set(DURATION) - {"REDUCE_GRAD"}
    if schedule.window or schedule.fused or schedule.exchanges or others:
        raise ValueError(
            f"schedule={schedule.name} is invalid: it does more than forwards and backwards with one update at the "
            "end. Choose gpipe, 1f1b, interleaved or a zero-bubble schedule, and give it without messages"
        )
    if dp < 2:
        raise ValueError(f"dp={dp} is invalid: a lost rank needs another copy of its stages. Give 2 or more")
    if wrong := [rank for rank in lost if not 0 <= rank < ranks]:
        raise ValueError(f"lost={wrong[0]} is invalid: the ranks are 0 to {ranks - 1}. Name one of them")


def _routes(whole: Schedule, lost: frozenset[int]) -> tuple[dict, tuple[int, ...]]:
    """(place, replica_of) of a schedule without the lost ranks: a replica for each route that microbatches take."""
    homes = defaultdict(list)
    for (stage, _), rank in sorted(whole.place.items()):
        if rank not in lost and rank not in homes[stage]:
            homes[stage].append(rank)
    if empty := [stage for stage in range(whole.stages) if not homes[stage]]:
        raise ValueError(
            f"lost={sorted(lost)} is invalid: no copy of stage {empty[0]} is left. Restart from a checkpoint instead"
        )
    place, replica_of, numbers = {}, [0] * len(whole.replica_of), count()
    for replica in range(whole.replicas):
        own = {stage: whole.place[stage, replica] for stage in range(whole.stages)}
        gone = [stage for stage, rank in own.items() if rank in lost]
        routes = [next(numbers) for _ in range(max((len(homes[stage]) for stage in gone), default=1))]
        for turn, route in enumerate(routes):
            taken = own | {stage: homes[stage][turn % len(homes[stage])] for stage in gone}
            place |= {(stage, route): rank for stage, rank in taken.items()}
        mine = [m for m, one in enumerate(whole.replica_of) if one == replica]
        for turn, m in enumerate(mine):
            replica_of[m] = routes[turn % len(routes)]
    used = {route: number for number, route in enumerate(sorted(set(replica_of)))}  # fewer microbatches than routes
    place = {(stage, used[route]): rank for (stage, route), rank in place.items() if route in used}
    return place, tuple(used[route] for route in replica_of)


def _greedy(whole: Schedule, place: dict, replica_of: tuple[int, ...]) -> list[list[Action]]:
    """A list for each rank: whenever a rank is free, it takes the most urgent action that is ready."""
    turn = _turns(whole)
    rank_of = lambda item: place[item[1], replica_of[item[2]]]
    urgency = lambda item: (URGENCY[item[0]], turn[item[2]], -item[1], item[2])
    waits, then = _waiting(whole, rank_of, turn)
    programs = in_order_of(waits, then, whole.ranks, rank_of, urgency)
    return [[action._replace(replica=replica_of[action.microbatch]) for action in program] for program in programs]


def _turns(whole: Schedule) -> list[int]:
    """turn[m]: the number of microbatches that come before m in the same pipeline."""
    seen, turns = Counter(), []
    for replica in whole.replica_of:
        turns.append(seen[replica])
        seen[replica] += 1
    return turns


def _waiting(whole: Schedule, rank_of, turn) -> tuple[dict[Item, int], dict[Item, list[Item]]]:
    """({action: for how many others it waits}, {action: those that wait for it}).

    A rank's forward also waits for memory: for the end of an earlier microbatch (`_room`).
    """
    kinds = {action.kind for program in whole.program for action in program}
    back, end = ("I", "W") if "I" in kinds else ("B", "B")
    final = set(range(whole.stages)) - {begin for begin, _ in whole.inside.values()}
    then = defaultdict(list)
    for m in range(len(whole.replica_of)):
        for a, b in whole.inside.values():
            then["F", a, m].append(("F", b, m))
            then[back, b, m].append((back, a, m))
        for stage in range(whole.stages):
            if stage in final:
                then["F", stage, m].append((back, stage, m))
            if back != end:
                then[back, stage, m].append((end, stage, m))
    for first, second in _room(whole, rank_of, turn, end):
        then[first].append(second)
    counts = Counter(one for ones in then.values() for one in ones)
    every = [
        (kind, s, m) for kind in dict.fromkeys(("F", back, end)) for s in range(whole.stages) for m in range(len(turn))
    ]
    return {item: counts[item] for item in every}, then


def _room(whole: Schedule, rank_of, turn, end: str):
    """Pairs of actions: one that frees saved activations, and the forward that may begin after it."""
    mine = defaultdict(list)
    for m in sorted(range(len(turn)), key=lambda m: (turn[m], m)):
        for stage in range(whole.stages):
            mine[stage, rank_of(("F", stage, m))].append(m)
    for (stage, rank), new in mine.items():
        old = [action.kind for action in whole.program[rank] if action.stage == stage and action.kind in ("F", end)]
        peak = max(accumulate(1 if kind == "F" else -1 for kind in old))
        room = -(-peak * len(new) // old.count("F")) + 1
        yield from (((end, stage, m), ("F", stage, after)) for m, after in zip(new, new[room:]))
