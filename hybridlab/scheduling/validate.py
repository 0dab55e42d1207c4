"""Validation: check whether a list of actions is a training step.

There are four rules, all read from the law: every action is on the rank of its stage; every value is made once,
every taken value is made, and saved activations are freed once; every goal is reached; and the execution reaches the
end. A fifth rule concerns the stage graph: every stage is connected.
"""

import numpy as np

from hybridlab.core.when.action import CODE, MAKES_GRADIENT, SWAPS, WITHOUT_MICROBATCH, Action
from hybridlab.core.when.along import steps
from hybridlab.core.when.flow import flow_of
from hybridlab.core.when.play import play
from hybridlab.core.when.room import Room
from hybridlab.core.when.schedule import Schedule
from hybridlab.core.when.values import AWAY, VERSIONED
from hybridlab.signatures import typed


class Invalid(ValueError):
    """Raised for a schedule that violates the dependency rules; the message names the action and shows its place."""

    def __init__(self, schedule: Schedule, row: int, why: str):
        self.row = row
        super().__init__(f"{schedule.name} is not valid: {why}\n{schedule.grid(mark=row)}")


@typed
def validate(schedule: Schedule, room: Room | None = None) -> Schedule:
    """The schedule itself, if it is valid.

    schedule  the schedule to check
    room      memory capacity of each device; a schedule that needs more even after waiting for its swaps is invalid

    raises  Invalid, a ValueError that names the action at fault; Stuck if the ranks wait for each other

    >>> import hybridlab as hl
    >>> hl.validate(hl.Schedule.from_csv("0F0,0B0,0F0"))
    Traceback (most recent call last):
    ...
    hybridlab.scheduling.validate.Invalid: typed order is not valid: 0F0 occurs twice on rank 0: keep one of them
    rank 0: 0F0 0B0 →0F0←
    """
    _check_places(schedule)
    _check_joined(schedule)
    flow = flow_of(schedule, room)
    _check_made_once(flow)
    _check_goals(flow)
    _check_let_go_once(flow)
    _check_taken_made(flow)
    _check_undone(schedule)
    play(flow)
    return schedule


def _check_places(schedule):
    kind, stage, microbatch, replica, _, peer = schedule.rows.T
    total, replica_of = len(schedule.replica_of), np.array(schedule.replica_of)
    without = np.isin(kind, [CODE[name] for name in WITHOUT_MICROBATCH])
    _refuse(
        schedule, (stage < 0) | (stage >= schedule.stages), f"has no such stage: choose from 0 to {schedule.stages - 1}"
    )
    _refuse(
        schedule,
        ~without & ((microbatch < 0) | (microbatch >= total)),
        f"has no such microbatch: choose from 0 to {total - 1}",
    )
    home = np.full((schedule.stages, max(schedule.replicas, int(replica.max(initial=0)) + 1)), -1)
    for (s, r), rank in schedule.place.items():
        home[s, r] = rank
    swaps = np.isin(kind, [CODE[name] for name in SWAPS])
    _refuse(
        schedule, swaps & (peer >= schedule.stages), f"names no stage after >: choose from 0 to {schedule.stages - 1}"
    )
    lives = home[stage, replica]
    lends = home[np.where(swaps & (peer >= 0), peer, stage), replica] == schedule.rank_of
    lives = np.where(lends, schedule.rank_of, lives)
    _refuse(
        schedule,
        lives != schedule.rank_of,
        "is on the wrong rank",
        lambda row: f"put it on rank {lives[row]}, where its stage is",
    )
    belongs = replica_of[np.where(without, 0, microbatch)]
    _refuse(schedule, ~without & (belongs != replica), "names the wrong replica", lambda row: f"write @{belongs[row]}")


def _check_joined(schedule):
    """Check, if the chain has breaks, that every stage but the first still takes from an earlier one, and that every
    one but the last passes on to a later one.
    """
    stage, edges = schedule.rows[:, 1], schedule.inside.values()
    enters, leaves = ([edge[at] for edge in edges] for at in (1, 0))
    alone = (stage > 0) & ~np.isin(stage, enters)
    _refuse(
        schedule,
        alone,
        "receives from no stage",
        lambda row: f"give stage {stage[row]} an edge, skips=((s, {stage[row]}),)",
    )
    lost = (stage < schedule.stages - 1) & ~np.isin(stage, leaves)
    _refuse(
        schedule,
        lost,
        "sends to no stage",
        lambda row: f"give stage {stage[row]} an edge, skips=(({stage[row]}, s),)",
    )


def _refuse(schedule, at_fault, why, remedy=None):
    rows = np.flatnonzero(at_fault)
    if len(rows):
        end = f": {remedy(rows[0])}" if remedy else ""
        raise Invalid(schedule, int(rows[0]), f"{schedule.action(rows[0])} {why}{end}")


def _check_made_once(flow):
    count = np.bincount(flow.makes.values, minlength=flow.size)
    twice = np.flatnonzero(count > 1)
    if len(twice):
        first, second, *_ = flow.makes.owners[flow.makes.values == twice[0]].tolist()
        row = int(flow.first_row[second])
        a, b = flow.action(first), flow.action(second)
        if a == b and flow.rank[first] == flow.rank[second]:
            raise Invalid(flow.schedule, row, f"{a} occurs twice on rank {flow.rank[first]}: keep one of them")
        raise Invalid(flow.schedule, row, f"{a} and {b} both make the {flow.describe(twice[0])}: leave one out")


def _check_taken_made(flow):
    lacks = (flow.maker[flow.takes.values] < 0) & ~flow.given[flow.takes.values]
    at = np.flatnonzero(lacks)
    if len(at):
        action, value = int(flow.takes.owners[at[0]]), int(flow.takes.values[at[0]])
        raise Invalid(flow.schedule, int(flow.first_row[action]), _why_missing(flow, action, value))


def _why_missing(flow, action, value):
    one, name = flow.action(action), flow.name_of(value)
    what = f"{one} takes the {flow.describe(value)}"
    if name == "room":
        has, lacks = f"{flow.room.capacity:.4g} that fit on rank {flow.rank[action]}", flow.lacks[action]
        return f"{one} needs {lacks:.4g} more than the {has}: swap something out before it, or recompute"
    if name in AWAY:
        return f"{what}, which is empty: put {_swap('SWAP_OUT', flow, name, value)} before it, or leave it out"
    if name in VERSIONED and flow.where(name, value)[-1]:
        out, back = (_swap(kind, flow, name, value) for kind in ("SWAP_OUT", "SWAP_IN"))
        return f"{what}, but {out} comes before it: put {back} between them"
    return f"{what}, which no action makes"


def _swap(kind, flow, name, value):
    stage, microbatch, version, _ = flow.where(name, value)
    return Action(kind, stage, microbatch, flow.schedule.replica_of[microbatch], version or -1)


def _check_let_go_once(flow):
    """Check that saved activations are not swapped out after the one action that frees them: they would be lost."""
    block = slice(flow.named("saved").start, flow.named("input").stop)
    count = np.bincount(flow.takes.values, minlength=flow.size)[block]
    twice = np.flatnonzero(count > 1) + block.start
    if len(twice):
        first, second = flow.takes.owners[flow.takes.values == twice[0]].tolist()[:2]
        a, b = flow.action(first), flow.action(second)
        why = f"{b} takes the {flow.describe(twice[0])}, which {a} has freed: put it before {a}, or leave it out"
        raise Invalid(flow.schedule, int(flow.first_row[second]), why)


def _check_undone(schedule):
    """Check that there are only forwards between an optimizer step and its VALID: these can be repeated."""
    kind, number = schedule.rows[:, 0], np.arange(len(schedule.rows))
    valid = np.flatnonzero(kind == CODE["VALID"])
    norm_of = np.stack([schedule.rank_of, steps(schedule)])
    for one in valid:
        since = (norm_of == norm_of[:, one : one + 1]).all(axis=0) & (number < one)
        why = f"comes before {schedule.action(one)}, which may undo the weights that it uses"
        late = since & np.isin(kind, [CODE[name] for name in MAKES_GRADIENT + ("I",)])
        _refuse(schedule, late, why, lambda row: "put VALID before it")


def _check_goals(flow):
    """Check that every microbatch leaves its weight gradient on every stage of its replica, and the last weights are
    made.
    """
    schedule, goals = flow.schedule, flow.named("weight_gradient")
    wanted = np.zeros((schedule.stages, len(schedule.replica_of)), dtype=bool)
    for stage, replica in schedule.place:
        wanted[stage] |= flow.owner == replica
    missing = np.flatnonzero(wanted.ravel() & (flow.maker[goals] < 0))
    if len(missing):
        stage, microbatch = divmod(int(missing[0]), len(schedule.replica_of))
        rank = schedule.place[stage, schedule.replica_of[microbatch]]
        last = int(schedule.starts[rank + 1]) - 1  # of an empty first rank -1: no row is marked
        halved = ((flow.kind == CODE["I"]) & (flow.stage == stage) & (flow.microbatch == microbatch)).any()
        lost = f"{stage}{'W' if halved else 'B'}{microbatch}"
        why = f"rank {rank} never makes the {flow.describe(goals.start + int(missing[0]))}: add {lost}"
        raise Invalid(schedule, last, why)
    if "OPT" in flow.parts_of_kind:
        _check_every_place_steps(flow)


def _check_every_place_steps(flow):
    """Check that every copy of a stage makes the same number of optimizer steps."""
    schedule = flow.schedule
    rows, copies = flow.parts_of_kind["OPT"], [len(ranks) if schedule.window else 1 for ranks in schedule.holders]
    steps = {(stage, rank): 0 for stage, ranks in enumerate(schedule.holders) for rank in ranks}
    for stage, rank in zip(flow.stage[rows].tolist(), schedule.rank_of[rows].tolist()):
        steps[stage, rank] += 1
    most = max(count * copies[stage] for (stage, _), count in steps.items())
    for (stage, rank), count in steps.items():
        if count * copies[stage] < most:
            wanted = -(-most // copies[stage])
            why = (
                f"stage {stage} takes {count} optimizer steps on rank {rank} instead of {wanted}: add {stage}OPT there"
            )
            raise Invalid(schedule, int(schedule.starts[rank + 1]) - 1, why)
