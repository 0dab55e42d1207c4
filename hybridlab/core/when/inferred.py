"""Infer the properties of a schedule from its lists: placement, replicas, chunks, windows, copies, skips, breaks.

Text and files contain each rank's actions in order (see `exchange`). The rest of a schedule is read back here, as
*facts*: the arguments of `Schedule.of`.
"""

import itertools
from collections import Counter
from collections.abc import Iterable

import numpy as np

from hybridlab.core.when.action import CODE, MESSAGES, MOST, Action

ACTIONS = 500_000  # larger schedules are not read
SIZE = 4_000_000  # about 4 values of the law for every stage and microbatch, more with weight versions


def _programs(ranks, spot):
    """(one list of actions per rank, place), from the cells of every rank; `spot` describes the position of a cell."""
    programs, place, count = [], {}, itertools.count(1)
    for rank, cells in enumerate(ranks):
        programs.append([])
        for *where, text in cells:
            try:
                programs[-1].append(_settled(Action.parse(text), rank, place))
                if next(count) > ACTIONS:
                    raise ValueError(f"there are more than {ACTIONS} actions: give fewer")
            except ValueError as error:
                raise ValueError(f"{spot.format(*where)}: {error}") from None
    return programs, place


def _settled(action, rank, place):
    """The action, its stages noted as living on this rank. A loan is on two ranks."""
    for part in () if action.lent else action.each:
        home = place.setdefault((part.stage, part.replica), rank)
        if home != rank:
            stage = f"stage {part.stage}" + (f" (replica {part.replica})" if part.replica else "")
            raise ValueError(f"{action} is on rank {rank}, but {stage} belongs to rank {home}: move it there")
    return action


def completed(name: str, ranks: Iterable, spot: str) -> dict:
    """The facts about a schedule that follow from the actions in the cells of all ranks.

    >>> facts = completed("toy", [[(0, "0F0"), (1, "0B0")], [(0, "1F0"), (1, "1B0")]], "cell {}")
    >>> facts["place"], facts["microbatches"], facts["chunks"]
    ({(0, 0): 0, (1, 0): 1}, 1, 1)
    """
    programs, place = _programs(ranks, spot)
    parts = _parts(programs)
    skips = _skips(parts, place)
    kind, stage, microbatch, replica, version = np.array([part.row[:5] for part in parts], np.int64).reshape(-1, 5).T
    there = microbatch >= 0
    if not there.any():
        raise ValueError("there is no forward or backward action: write at least 0F0 and 0B0")
    missing = np.flatnonzero(np.bincount(microbatch[there]) == 0)
    if len(missing):
        last = parts[int(microbatch.argmax())]
        raise ValueError(
            f"microbatch {missing[0]} is missing, but {last} is present: number microbatches from 0 without gaps"
        )
    _check_split(kind, stage, microbatch)
    replica_of = np.zeros(int(microbatch.max()) + 1, dtype=np.int64)
    replica_of[microbatch[there]] = replica[there]
    window = _window([part for part in parts if part.kind == "REDUCE_GRAD"], place, len(replica_of))
    copies = 1 if window else _copies(place, len(programs), replica_of)  # a stage that updates separately has no dp
    return {
        "name": name,
        "programs": programs,
        "place": place,
        "microbatches": len(replica_of) // copies,
        "replica_of": tuple(replica_of.tolist()),
        "chunks": max(Counter(rank for (_, one), rank in place.items() if one == 0).values(), default=1),
        "skips": skips,
        "breaks": _breaks(parts, place, skips),
        "exchanges": _exchanges(parts, place),
        "window": window,
        "tied": (),
        "dp": copies,
    }


def _check_split(kind, stage, microbatch):
    """Older files call the input half B: then there are B and W of one microbatch, and no I at all."""
    whole, half = ((stage * MOST + microbatch)[kind == CODE[one]] for one in "BW")
    both = np.intersect1d(whole, half)
    if len(both) and CODE["I"] not in kind:
        s, m = divmod(int(both[0]), MOST)
        raise ValueError(
            f"{s}B{m} and {s}W{m} are both present, as in files of older PyTorch: write {s}I{m} instead of {s}B{m}"
        )


def _window(sums, place, total):
    """The number of microbatches that a copy of a stage runs between two optimizer steps; the reductions state the
    window that they close.
    """
    last = max(sums, key=lambda action: action.version, default=None)
    if last is None or last.version < 0:
        return 0
    copies = len({rank for (stage, _), rank in place.items() if stage == last.stage})
    windows = (1 + last.version) * copies
    if total % windows:
        raise ValueError(
            f"REDUCE_GRAD#{last.version} asks for {windows} equal windows, but {total} microbatches cannot be divided "
            "equally into them: give a divisor"
        )
    return total // windows


def _skips(parts, place):
    """The edges of the messages that name a stage other than the next."""
    edges = {part.edge for part in parts if part.peer >= 0 and not part.lent}
    for stage in {*itertools.chain(*edges)} - {stage for stage, _ in place}:
        raise ValueError(f"stage {stage} has no actions: give it some, or leave out the skip to it")
    return tuple(sorted(edges))


def _breaks(parts, place, skips):
    """The breaks: edges of the chain without messages, though their stages are on different ranks, if a skip leaves the
    first stage and another one reaches the second. Without branches, such an edge is a forgotten message.
    """
    sent = {part.edge for part in parts if part.kind in MESSAGES}
    leave, reach = {begin for begin, _ in skips}, {end for _, end in skips}
    near = {(s, s + 1) for (s, r), rank in place.items() if place.get((s + 1, r), rank) != rank}
    return tuple(sorted((a, b) for a, b in near - sent if a in leave and b in reach))


def _exchanges(parts, place):
    """The edges of a rank's messages to itself, which stand for exchanges with other ranks."""
    edges = {part.edge for part in parts if part.kind in MESSAGES}
    within = [(a, b) for a, b in edges for home in place if home[0] == a and place[home] == place.get((b, home[1]))]
    return tuple(sorted(set(within)))


def _copies(place, all_ranks, replica_of):
    """The number of data-parallel copies: equal groups of ranks that share no replica."""
    on_rank, groups = {}, []
    for (_, replica), rank in place.items():
        on_rank.setdefault(rank, set()).add(replica)
    for mine in on_rank.values():
        met = [group for group in groups if group & mine]
        groups = [group for group in groups if not group & mine] + [mine.union(*met)]
    ranks = {sum(mine <= group for mine in on_rank.values()) for group in groups}
    microbatches = {int(np.isin(replica_of, list(group)).sum()) for group in groups}
    equal = len(ranks) == len(microbatches) == 1 and ranks.pop() * len(groups) == all_ranks
    return len(groups) if equal else 1


def checked(facts: dict) -> dict:
    """The facts, unless checking their schedule would take more memory than a laptop has."""
    stages, copies = (1 + max(numbers) for numbers in zip(*facts["place"]))
    edges, total, parts = stages + len(facts["skips"]), len(facts["replica_of"]), _parts(facts["programs"])
    versions = 5 + max(part.version for part in parts)
    gathered = 2 * sum(part.kind == "UNSHARD" for part in parts)
    if edges * (max(total, copies) * versions + copies * gathered) > SIZE:
        numbers = f"{stages} stages, {total} microbatches and {versions - 4} weight versions"
        raise ValueError(
            f"{numbers} are too many: give at most {SIZE // 4} stages times microbatches (fewer with versions)"
        )
    return facts


def _parts(programs):
    """All actions of all ranks, pairs as two."""
    return [part for program in programs for action in program for part in action.each]
