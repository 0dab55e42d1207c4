"""The assignment of the capstone, and the steps of a plan: predict, defend, run dry, and run small on real ranks.

Relatives: `predict.plans` (the plans), `training.dry` (one rank without arithmetic), `predict.plans.scaled`.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from hybridlab.core.dry import DryRun
from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.core.when.schedule import Schedule
from hybridlab.labs.choosing.trades import Sentences
from hybridlab.labs.comparison import Compared
from hybridlab.predict.plans.arithmetic import DAY
from hybridlab.predict.plans.by_schedule import schedule_of
from hybridlab.predict.plans.bytes_of_rank import sent
from hybridlab.predict.plans.footprint import ROOM
from hybridlab.predict.plans.plan import Plan, named
from hybridlab.predict.plans.planner import Choice, Planned, plan
from hybridlab.predict.plans.rates import FITTED
from hybridlab.predict.plans.reasons import bill

ROWS = {"weights": "weights", "gradients": "gradients", "optimizer": "optimizer", "activations": "activations"}


class Given(NamedTuple):
    """The assignment: a model, a machine, and the limits.

    room  bytes of a device that a plan may use;  zero  the highest ZeRO stage that the available programs support
    assumed  assumptions about the programs: fused attention, and otherwise those of notebook 42
    """

    model: str
    machine: str
    gpus: int
    batch: int
    tokens: float
    days: float
    room: float
    zero: int
    assumed: dict

    @property
    def shape(self) -> Shape:
        """The shape of the model."""
        return catalog.model(self.model).shape

    @property
    def kind(self) -> Machine:
        """The machine, with the memory of which the planner uses exactly `room`."""
        return replace(catalog.machine(self.machine), memory=self.room / ROOM)

    @property
    def longest(self) -> float:
        """Seconds that a step may take.

        >>> round(GIVEN.longest, 1)
        38.1
        """
        return self.days * DAY / (self.tokens / (self.batch * self.shape.context))


ASSUMED = {"software": "megatron-2021", "fit": FITTED, "fused": True}
GIVEN = Given("llama3-70b", "h100", gpus=256, batch=1024, tokens=400e9, days=21, room=72e9, zero=1, assumed=ASSUMED)
BASELINE = Plan(p=8, t=8, d=4, zero=1, sequence=True, fused=True)  # a plan that is legal, but too slow


@cache
def plans() -> Planned:
    """Every plan for the assignment."""
    every = plan(GIVEN.shape, GIVEN.kind, GIVEN.gpus, GIVEN.batch, **GIVEN.assumed)
    return every.kept(every.space.zero <= GIVEN.zero)


def chosen(mine: dict | None) -> Choice:
    """A plan with its time and memory; the baseline plan if there is none yet.

    raises  ValueError when the plan is not legal, or does not use all devices

    >>> print(chosen(None).plan)
    p=8 t=8 d=4 b=1, ZeRO 1, sequence parallel, fused attention
    """
    one = BASELINE if mine is None else named({"fused": True} | mine)
    if one.devices != GIVEN.gpus:
        raise ValueError(
            f"the product of its sizes is {one.devices}, but there are {GIVEN.gpus} devices: give sizes whose product "
            f"is {GIVEN.gpus}"
        )
    return plans().choice(one)


def bills(one: Choice) -> tuple[tuple, list[tuple]]:
    """(columns, rows): a plan, the limits, and the fastest plan within the limits."""
    best = plans().best
    days = lambda its: f"{its.step.total / GIVEN.longest * GIVEN.days:.1f}"
    rows = [
        (told, str(its.plan), f"{its.step.total:.2f}", days(its), f"{its.memory.total / 1e9:.1f}")
        for told, its in (("yours", one), ("the fastest that fits", best))
    ]
    limits = ("the limit", "", f"{GIVEN.longest:.2f}", str(GIVEN.days), f"{GIVEN.room / 1e9:.0f}")
    return ("", "plan", "s a step", "days", "GB a device"), [*rows, limits]


def defended(mine: Choice, *rivals: dict) -> Sentences:
    """The time of each rival's best plan compared with mine, term by term: a rival may be faster.

    >>> defended(chosen(None), dict(zero=3))
    - zero=3: the programs here support at most ZeRO 1
    """
    return Sentences(tuple(_against(mine, rival) for rival in rivals))


def _against(mine: Choice, rival: dict) -> str:
    """The sentence about one rival; the planner's sentence if no plan of it fits."""
    asked = ", ".join(f"{name}={value}" for name, value in rival.items())
    if rival.get("zero", 0) > GIVEN.zero:
        return f"{asked}: the programs here support at most ZeRO {GIVEN.zero}"
    found = plans().only(**rival)
    if not found.fits.any():
        return plans().why(**rival)
    one = found.best
    if one.plan == mine.plan:
        return f"{asked}: that is this plan"
    share = one.step.total / mine.step.total - 1
    told = f"{one.step.total:.2f} s instead of {mine.step.total:.2f} s, {abs(share):.1%}"
    return f"{asked} takes {told} {'slower' if share > 0 else 'faster'}: {bill(one, mine)}"


# --- one rank in a dry run -----------------------------------------------------------------------------------------


@cache
def played(one: Choice) -> DryRun:
    """The dry run of a plan's first rank. Memory does not grow with the microbatches, so a few are enough: one more
    than the stages, or with chunks twice the number of stages."""
    from hybridlab.training.dry.dry_run import dry_run  # here, because it loads torch

    few = 2 * one.plan.p if one.plan.v > 1 else one.plan.p + 1
    smaller = few * one.plan.b * one.plan.d * one.plan.ep
    return dry_run(**one._replace(batch=smaller).job() | {"memory": GIVEN.room, "machine": GIVEN.machine}, rank=0)


def beside_the_dry_run(one: Choice, told: DryRun) -> tuple[tuple, list[tuple]]:
    """(columns, rows): the memory by formula and in the dry run at its peak, part by part."""
    rows = [
        (part, f"{size / 1e9:.2f}", f"{told.peak[ROWS[part]] / 1e9:.2f}") for part, size in one.memory._asdict().items()
    ]
    rest = sum(size for kind, size in told.peak.items() if kind not in ROWS.values())
    total = ("all", f"{one.memory.total / 1e9:.2f}", f"{told.peak_bytes / 1e9:.2f}")
    return ("part", "GB by formula", "GB in the dry run"), [*rows, ("all else", "", f"{rest / 1e9:.2f}"), total]


# --- and small, on real ranks ----- --------------------------------------------------------------------------------


def foreseen_bytes(one: Choice) -> dict[str, float]:
    """{purpose: bytes that all first ranks of the stages send in a step} of the scaled plan, in 16-bit numbers."""
    small = one.scaled()
    found = {}
    for place in range(small.plan.p):
        for what, size in sent(small.shape, small.plan, small.batch, place).items():
            found[what] = found.get(what, 0) + size
    return found


def agreement(one: Choice) -> list[Compared]:
    """The scaled plan's bytes: counted in dry runs of the first rank of each stage, and by the formula."""
    from hybridlab.training.dry.dry_run import dry_run

    small, counted = one.scaled(), {}
    job = small.job()
    for place in range(small.plan.p):
        rank = job["mesh"].rank(pp=place) if small.plan.p > 1 else 0
        for what, size in dry_run(**job, rank=rank).bytes.items():
            counted[what] = counted.get(what, 0) + size
    words = {"messages": "between stages", "inside": "along tp", "shares": "gradients and weights, shared"}
    words |= {"sums": "sums of gradients", "experts": "along ep", "context": "along cp"}
    foreseen = foreseen_bytes(one)
    return [Compared(words[what], foreseen[what], counted[what], "{:.0f} bytes", 0.01) for what in sorted(foreseen)]


def pipeline(one: Choice) -> Schedule:
    """The plan's schedule on four ranks, with eight microbatches: real processes that wait will execute it."""
    return schedule_of(one.plan._replace(p=4, b=1, d=1, ep=1, v=min(one.plan.v, 2)), batch=8)
