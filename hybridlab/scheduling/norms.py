"""Gradient clipping as part of a schedule: the norm is a sum over all ranks, so it may make every rank wait.

An optimizer step that clips needs the norm of all gradients. The squares go down the pipeline from rank to rank, and
their total comes back up. There are two places for VALID, the action in which a rank learns the total:

    "before" the optimizer step   a barrier: no rank begins the next step before the last one has ended this step. The
                                  fill, (p-1)F, recurs in every step: an overhead of (p-1)/(3m) if F = I = W
    "after" it (post-validation)  a rank steps at once, unless the squares so far already require clipping. It learns
                                  the total during the warm-up of the next step. If the total clips, it undoes its
                                  step, clips, steps again, and repeats the forwards that it has run since

Source: Qi et al. 2023, arXiv:2401.10241, section 4; `scheduler/communication.py` of the zero-bubble repository uses the
latest place. Relatives: the rows NORM, VALID and OPT of `core.when.law`; `training.validated` runs them; `zero_bubble`.
"""

from dataclasses import replace
from itertools import pairwise

from hybridlab.core.when.action import CODE, Action
from hybridlab.core.when.along import lines
from hybridlab.core.when.schedule import Schedule
from hybridlab.scheduling.sums import with_sums
from hybridlab.signatures import typed

VALIDATED = ("before", "after")


@typed
def with_norm(schedule: Schedule, validated: str | None = "after") -> Schedule:
    """The schedule of a training step, including the optimizer step and the norm by which gradients are clipped.

    schedule   one step, without optimizer steps and without messages
    validated  "before": every rank waits for the norm; "after": it steps before it knows the norm, and may have to
               undo its step, see above; None: the step is not clipped

    Rank r must learn the norm before the first of three actions of the next step: forward number min(2(p-1-r), m-1),
    counted from 0; its first backward; a forward that takes a value from a forward after VALID. So only forwards are
    repeated, and only on ranks that do not know the norm yet. With "after", VALID is thus at the beginning, and belongs
    to the step before. The norm comes from the next rank, which begins one forward later. So if rank r has fewer
    than 2(p-1-r) forwards before VALID, rank r+1 has at least one fewer than rank r, and no rank waits: with F = I = W,
    a step of any of these schedules takes as long as without clipping.

    raises  ValueError if the schedule has optimizer steps already, or messages, or there is no such place for VALID

    >>> import hybridlab as hl
    >>> one = hl.schedule("zb_h2", ranks=2, microbatches=3)
    >>> print(with_norm(one, "before"))
    rank 0: 0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2 0REDUCE_GRAD 0NORM 0VALID 0OPT
    rank 1: 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2 1REDUCE_GRAD 1NORM 1VALID 1OPT
    >>> print(with_norm(one, "after"))
    rank 0: 0F0 0F1 0VALID 0F2 0I0 0W0 0I1 0W1 0I2 0W2 0REDUCE_GRAD 0NORM 0OPT
    rank 1: 1VALID 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2 1REDUCE_GRAD 1NORM 1OPT
    """
    if validated not in (None, *VALIDATED):
        raise ValueError(f"validated={validated!r} is not known: choose one of {', '.join(VALIDATED)}, or None")
    if schedule.lowered or any(action.kind == "OPT" for program in schedule.program for action in program):
        raise ValueError(f"{schedule.name} has messages or optimizer steps already: give a schedule without them")
    if validated == "after" and schedule.replicas > schedule.dp:
        raise ValueError(
            f"{schedule.name} has several ranks for a stage in one pipeline, so a norm passed from rank to rank is "
            "late: choose validated='before', or another schedule"
        )
    summed = with_sums(schedule, everywhere=True)
    programs, homes = [[] for _ in range(schedule.ranks)], _homes(schedule)
    first = dict(sorted(((rank, home) for home, rank in homes), reverse=True))
    places = _places(summed)
    for line in lines(schedule):
        for rank in line:
            program, (stage, replica) = list(summed.program[rank]), first[rank]
            norm, valid = (Action(kind, stage, replica=replica) for kind in ("NORM", "VALID"))
            update = [Action("OPT", one, replica=copy) for (one, copy), its in homes if its == rank]
            head, at = [valid] if validated == "after" else [], places[rank]
            tail = {None: [], "before": [norm, valid], "after": [norm]}[validated]
            programs[rank] = [*program[:at], *head, *program[at:], *tail, *update]
    return summed.with_programs(programs)


def _homes(schedule: Schedule) -> list[tuple[tuple[int, int], int]]:
    """((stage, replica), rank) of every copy of a stage; replicas that share weights are one."""
    return [(home, schedule.place[home]) for home, first in sorted(schedule.copy_of.items()) if home[1] == first]


def _places(schedule: Schedule) -> dict[int, int]:
    """{rank: the number of actions before its VALID}: only forwards, at most 2(p-1-r) and m-1 of them, and only those
    that do not need another rank's forward after its VALID, since such a forward is not repeated. A rank begins one
    forward later than the one before, and sends the norm back to it: so it has at least one forward fewer, or the other
    would wait.
    """
    places, programs = {}, schedule.program
    for line in lines(schedule):
        for seat, rank in enumerate(line):
            latest = min(2 * (len(line) - 1 - seat), schedule.microbatches - 1)
            others = (number for number, action in enumerate(programs[rank]) if action.kind not in ("F", "C"))
            places[rank] = min(latest, next(others, len(programs[rank])))
    before = -1
    while before != sum(places.values()):
        before = sum(places.values())
        made = {action[1:3] for rank, place in places.items() for action in programs[rank][:place]}
        for rank, place in places.items():
            alone = (number for number, action in enumerate(programs[rank][:place]) if _takes(schedule, action) - made)
            places[rank] = next(alone, place)
        for line in lines(schedule):
            for rank, later in pairwise(line):
                places[later] = min(places[later], max(places[rank] - 1, 0))
    return places


def _takes(schedule: Schedule, action: Action) -> set[tuple[int, int]]:
    """The (stage, microbatch) of the forwards whose results a forward takes."""
    return {(a, action.microbatch) for a, b in schedule.inside.values() if b == action.stage}


@typed
def in_a_row(schedule: Schedule, steps: int) -> Schedule:
    """Several training steps in a row, without a pause between them; microbatches and weight versions are numbered
    consecutively.

    schedule  one step with its optimizer step, from `with_norm`
    steps     the number of steps, 1 or more

    A VALID at the beginning belongs to the step before: the first step has none, and one follows the last step.

    raises  ValueError if the schedule has no optimizer step, or steps is less than 1

    >>> import hybridlab as hl
    >>> print(in_a_row(with_norm(hl.schedule("zb_h1", ranks=1, microbatches=1)), steps=2))
    rank 0: 0F0 0I0 0W0 0REDUCE_GRAD#0 0NORM#0 0OPT#0 0VALID 0F1 0I1 0W1 0REDUCE_GRAD#1 0NORM#1 0OPT#1 0VALID
    """
    if steps < 1:
        raise ValueError(f"steps={steps} is not possible: give 1 or more")
    if not all(any(action.kind == "OPT" for action in program) for program in schedule.program if program):
        raise ValueError(f"{schedule.name} has no optimizer step: add one with hl.orders.with_norm")
    every, programs = len(schedule.replica_of), []
    for program in schedule.program:
        kinds = [action.kind for action in program]
        moved = [_moved(action, step, every) for step in range(steps) for action in program]
        if _is_late(kinds):
            moved.append(moved.pop(kinds.index("VALID")))
        programs.append(moved)
    more = {"replica_of": steps * schedule.replica_of, "window": every // len(schedule.holders[0])}
    return replace(schedule.with_programs(programs, **more), microbatches=steps * schedule.microbatches)


def posted_before_valid(schedule: Schedule) -> Schedule:
    """A lowered schedule in which a message is received before the receiver's VALID if, and only if, it was sent before
    the sender's.

    If VALID undoes an optimizer step, the forwards before it are repeated, and their messages come again: a rank must
    know which messages to drop. It must not wait for others there: their sender waits for the norm.

    >>> from hybridlab.scheduling.gpipe import gpipe
    >>> from hybridlab.scheduling.lower import lower
    >>> for program in posted_before_valid(lower(with_norm(gpipe(ranks=2, microbatches=2)))).program:
    ...     print(*program[:6])
    0F0 0SEND_F0 0VALID 0F1 0SEND_F1 0RECV_B0
    1RECV_F0 1VALID 1F0 1RECV_F1 1F1 1B0
    """
    if not (schedule.rows[:, 0] == CODE["VALID"]).any():
        return schedule
    sent, programs = set(), []
    for program in schedule.program:
        sent |= {(action.edge, action.microbatch) for action in _before_valid(program) if action.kind == "SEND_F"}
    dropped = lambda action: action.kind == "RECV_F" and (action.edge, action.microbatch) in sent
    for program in schedule.program:
        head = _before_valid(program)
        rest = program[len(head) :]
        late = [action for action in head if action.kind.startswith("RECV") and not dropped(action)]
        early = [action for action in rest if dropped(action)]
        stay = [action for action in rest if not dropped(action)]
        programs.append([*(action for action in head if action not in late), *early, *stay[:1], *late, *stay[1:]])
    return schedule.with_programs(programs)


def repeated(schedule: Schedule) -> Schedule:
    """The part of a schedule that is repeated if VALID undoes an optimizer step: the actions before VALID; nothing if
    VALID comes before the step.

    >>> from hybridlab.scheduling.gpipe import gpipe
    >>> print(repeated(with_norm(gpipe(ranks=3, microbatches=4))))
    rank 0: 0F0 0F1 0F2
    rank 1: 1F0 1F1
    rank 2:
    """
    return schedule.with_programs([_before_valid(program) for program in schedule.program])


def _before_valid(program: tuple[Action, ...]) -> tuple[Action, ...]:
    """The actions before a VALID that belongs to the step before; none if there is no such VALID."""
    kinds = [action.kind for action in program]
    return program[: kinds.index("VALID")] if _is_late(kinds) else ()


def _is_late(kinds: list[str]) -> bool:
    """Whether the VALID of a rank's list belongs to the step before."""
    return "VALID" in kinds and kinds.index("VALID") < kinds.index("NORM")


def _moved(action: Action, step: int, microbatches: int) -> Action:
    """An action of one step as it is in a later step."""
    if action.parts:
        parts = tuple(_moved(part, step, microbatches) for part in action.parts)
        return action._replace(microbatch=parts[0].microbatch, parts=parts)
    if action.microbatch >= 0:
        return action._replace(microbatch=action.microbatch + step * microbatches)
    return action if action.kind == "VALID" else action._replace(version=step)
