"""What follows from a list of actions: where stages live, microbatches and replicas, chunks, windows, copies, skips.

Text and files say who does what in which order (see `exchange`); the rest of a `Schedule` is read back here.
"""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np

from hybridlab.core.action import CODE, DOWN, MOST, Action
from hybridlab.core.schedule import Schedule

ACTIONS = 500_000  # the most that is read
SIZE = 4_000_000  # about 4 values of the law for every stage and microbatch, more with weight versions


def _programs(ranks, spot):
    """(one list of actions per rank, place), from the cells of every rank; `spot` words where a cell stands."""
    programs, place, count = [], {}, itertools.count(1)
    for rank, cells in enumerate(ranks):
        programs.append([])
        for *where, text in cells:
            try:
                programs[-1].append(_settled(Action.parse(text), rank, place))
                if next(count) > ACTIONS:
                    raise ValueError(f"at most {ACTIONS} actions are read")
            except ValueError as error:
                raise ValueError(f"{spot.format(*where)}: {error}") from None
    return programs, place


def _settled(action, rank, place):
    """The action, its stages noted as living on this rank."""
    for part in action.each:
        home = place.setdefault((part.stage, part.replica), rank)
        if home != rank:
            stage = f"stage {part.stage}" + (f" (replica {part.replica})" if part.replica else "")
            raise ValueError(f"{action} is on rank {rank}, but {stage} lives on rank {home}: move it there")
    return action


def completed(name, ranks, spot):
    """The schedule of these cells, with everything that its actions say about it."""
    programs, place = _programs(ranks, spot)
    made = Schedule.of(name, programs or [[]], place, 1)
    kind, stage, microbatch, replica, version, _ = made.rows.T
    there = microbatch >= 0
    if not there.any():
        raise ValueError("there is no forward or backward action: write at least 0F0 and 0B0")
    missing = np.flatnonzero(np.bincount(microbatch[there]) == 0)
    if len(missing):
        last = made.action(int(microbatch.argmax()))
        raise ValueError(f"microbatch {missing[0]} is missing, though {last} is there: count from 0 without a hole")
    _check_split(kind, stage, microbatch)
    replica_of = np.zeros(int(microbatch.max()) + 1, dtype=np.int64)
    replica_of[microbatch[there]] = replica[there]
    facts = {
        "replica_of": tuple(replica_of.tolist()),
        "chunks": max(Counter(rank for (_, one), rank in place.items() if one == 0).values(), default=1),
        "skips": _skips(made),
        "window": _window(version[kind == CODE["REDUCE_GRAD"]], len(replica_of)),
        "dp": (copies := _copies(made, replica_of)),
        "microbatches": len(replica_of) // copies,
    }
    return checked(replace(made, **facts))


def _check_split(kind, stage, microbatch):
    """Older files call the input half B: then there are B and W of one microbatch, and no I at all."""
    whole, half = ((stage * MOST + microbatch)[kind == CODE[one]] for one in "BW")
    both = np.intersect1d(whole, half)
    if len(both) and CODE["I"] not in kind:
        s, m = divmod(int(both[0]), MOST)
        raise ValueError(f"{s}B{m} and {s}W{m} stand together, as in older PyTorch's files: write {s}I{m} for {s}B{m}")


def _window(sums, total):
    """Microbatches per optimizer step: the sums say which window they close."""
    windows = 1 + int(sums.max(initial=-1))
    if windows and total % windows:
        raise ValueError(f"REDUCE_GRAD#{windows - 1} asks for {windows} equal windows, impossible with m={total}")
    return total // windows if windows else 0


def _skips(schedule):
    """The edges of the messages that name another stage than the next."""
    kind, stage, _, _, _, peer = schedule.rows[schedule.rows[:, 5] >= 0].T
    onward = np.isin(kind, [CODE[one] for one in DOWN])
    edges = {*zip(np.where(onward, stage, peer).tolist(), np.where(onward, peer, stage).tolist())}
    _check_stages(schedule, edges)
    return tuple(sorted(edges))


def _check_stages(schedule, groups):
    for stage in {*itertools.chain(*groups)} - {stage for stage, _ in schedule.place}:
        raise ValueError(f"stage {stage} has no actions, so nothing can skip to it or be tied to it")


def _copies(schedule, replica_of):
    """How many data-parallel copies there are: equal groups of ranks that share no replica."""
    on_rank, groups = {}, []
    for (_, replica), rank in schedule.place.items():
        on_rank.setdefault(rank, set()).add(replica)
    for mine in on_rank.values():
        met = [group for group in groups if group & mine]
        groups = [group for group in groups if not group & mine] + [mine.union(*met)]
    ranks = {sum(mine <= group for mine in on_rank.values()) for group in groups}
    microbatches = {int(np.isin(replica_of, list(group)).sum()) for group in groups}
    equal = len(ranks) == len(microbatches) == 1 and ranks.pop() * len(groups) == schedule.ranks
    return len(groups) if equal else 1


def checked(schedule):
    """The schedule, unless checking it would take more memory than a laptop has."""
    stages, total, copies = schedule.stages + len(schedule.skips), len(schedule.replica_of), schedule.replicas
    versions = 5 + int(schedule.rows[:, 4].max(initial=-1))
    gathered = 2 * int((schedule.rows[:, 0] == CODE["UNSHARD"]).sum())
    if stages * (max(total, copies) * versions + copies * gathered) > SIZE:
        numbers = f"{schedule.stages} stages, {total} microbatches and {versions - 4} weight versions"
        raise ValueError(f"{numbers} are too many: stages times microbatches may be {SIZE // 4}, less with versions")
    return schedule
