"""Notebook 14: backwards in halves, schedules with different chunks, made comparable and run on ranks; sabotages."""

import hybridlab as hl

UNIT = 0.04  # seconds that each of F, I and W of a whole rank takes; with two chunks an action takes 20 ms


def beside(schedule: hl.Schedule) -> hl.Schedule:
    """The same schedule with every backward split in two, the weight half right after the input half.

    >>> print(beside(hl.schedule("1f1b", ranks=1, microbatches=2)))
    rank 0: 0F0 0I0 0W0 0F1 0I1 0W1
    """
    cut = {"F": "F", "B": "IW"}
    programs = [
        [action._replace(kind=kind) for action in program for kind in cut[action.kind]] for program in schedule.program
    ]
    return schedule.with_programs(programs, name=f"{schedule.name}, cut")


def in_shares(schedule: hl.Schedule, unit: float = 1) -> hl.Costs:
    """F, I and W of a whole rank take one unit each, for any number of chunks on the rank.

    >>> in_shares(hl.schedule("zb_v", ranks=2, microbatches=4))
    Costs(F=0.5, I=0.5, W=0.5)
    """
    share = unit / schedule.chunks
    return hl.Costs(F=share, I=share, W=share)


def repeated(schedule: hl.Schedule, steps: int) -> hl.Schedule:
    """This number of steps of a schedule, one after another without a barrier: a rank that has finished starts its next
    step.

    >>> print(repeated(hl.schedule("1f1b", ranks=1, microbatches=2), steps=2))
    rank 0: 0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3
    """
    count = schedule.microbatches
    later = lambda action, step: action._replace(microbatch=action.microbatch + count * step)
    programs = [[later(action, step) for step in range(steps) for action in program] for program in schedule.program]
    return hl.Schedule.of(schedule.name, programs, schedule.place, count * steps)


def in_a_row(name: str, place: str | None, steps: int) -> hl.Timeline:
    """Steps of four ranks with eight microbatches in a row; they clip with the norm "before" the optimizer step or
    "after" it, or not at all (None).

    >>> [in_a_row("zb_h2", place, 2).length for place in ("before", "after")]
    [54.0, 51.0]
    """
    plan = hl.orders.in_a_row(hl.orders.with_norm(hl.schedule(name, ranks=4, microbatches=8), place), steps)
    return hl.simulate(plan, in_shares(plan))


def held(timeline: hl.Timeline) -> float:
    """The most that a rank holds until W, as a fraction of a rank's activations; for a measured timeline, as counted by
    the ranks."""
    return max(timeline.origin.get("peak_live", timeline.peak_live)) / timeline.schedule.chunks


def run(schedule: hl.Schedule, unit: float = UNIT, steps: int = 1) -> hl.Timeline:
    """A real run of a schedule with emulated work, in fractions of a rank's unit."""
    return hl.run(schedule, costs=in_shares(schedule, unit), steps=steps)


# sabotages, for hl.check


def lose_a_weight_half():
    """A sabotage: on every rank, the weight half of microbatch 1 is left out."""
    from hybridlab.runtime.work import ModelWork

    whole = ModelWork.weight_half
    ModelWork.weight_half = lambda work, stage, m, *more: [] if m == 1 else whole(work, stage, m, *more)


def keep_copies_apart():
    """A sabotage: the gradients of a stage's copies are not added up."""
    from hybridlab.modes.parts.replicated import Replicated
    from hybridlab.runtime.pending import Sums

    Replicated.reduce = lambda weights, comm, action: Sums()
