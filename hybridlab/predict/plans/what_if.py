"""What if: change a few sizes of a plan and as little else as possible, and say which other fields follow.

`reasons` compares the best plan with the best plan of other sizes, which may differ in every field. Here the rest of
the plan stays as it is where that is legal and fits.

Relatives: `predict.plans.planner`, `predict.plans.reasons`, notebook 41.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hybridlab.predict.plans.choice import Choice
from hybridlab.predict.plans.plan import ASKED, CONDITIONS, NAMED, Plan, beyond, named, unequal
from hybridlab.predict.plans.reasons import bill, reason
from hybridlab.predict.plans.space import at, grid

if TYPE_CHECKING:
    from hybridlab.predict.plans.planner import Planned

FOLLOWS = ("d", "uneven")  # fields that are free to follow: the other sizes determine them


@dataclass(frozen=True)
class WhatIf:
    """A plan with other sizes, and the plan that it was made from.

    asked   {field: its new value}
    missing  bytes that it would need with fewer changes, if so many do not fit; else 0
    room    bytes that it may use
    """

    before: Choice
    after: Choice
    asked: dict
    missing: float
    room: float

    @property
    def changed(self) -> dict[str, tuple]:
        """{field: (old value, new value)} of all fields that differ and were not asked for, by name where they have
        one."""
        fields = set(Plan._fields) - set(self.asked) - {"uneven"}
        pairs = {name: (getattr(self.before.plan, name), getattr(self.after.plan, name)) for name in fields}
        return {name: tuple(_said(name, one) for one in pairs[name]) for name in Plan._fields if _differ(pairs, name)}

    def __repr__(self) -> str:
        """The changes and their seconds in two or three sentences."""
        old = self.before.plan
        if self.after.plan == old:
            return (
                f"The plan has {', '.join(f'{name}={new}' for name, new in self.asked.items())} already: {self.before}"
            )
        asked = ", ".join(
            f"{name}={new} instead of {_said(name, getattr(old, name))}" for name, new in self.asked.items()
        )
        also = ", ".join(f"{name}={new} instead of {was}" for name, (was, new) in self.changed.items())
        kept = "" if not self.missing else (
            f" With fewer changes it would need {self.missing / 1e9:.0f} GB, and {self.room / 1e9:.0f} GB may be used."
        )  # fmt: skip
        follows = f" also changes {also}" if also else " changes nothing else"
        return f"{asked}{follows}.{kept} A step {_speed(self.after, self.before)}: {bill(self.after, self.before)}"


def _differ(pairs: dict, name: str) -> bool:
    return name in pairs and pairs[name][0] != pairs[name][1]


def _said(name: str, value):
    return NAMED[name][value] if name in NAMED else value


def _speed(one: Choice, other: Choice) -> str:
    share = one.step.total / other.step.total - 1
    how = f"is {abs(share):.1%} {'slower' if share > 0 else 'faster'}" if share else "is as fast"
    return f"{how}, {one.step.total:.2f} s instead of {other.step.total:.2f} s"


def what_if(planned: "Planned", sizes: dict) -> WhatIf:
    """The plan nearest to the best one among all that have these sizes and fit: the fewest other fields change, d not
    counted; of equally near ones the fastest.

    raises  ValueError if no plan has them, or none fits, with the sentence of `reasons.reason`
    """
    best, wide = planned.best, _with(planned, sizes)
    if not wide.fits.any():
        raise ValueError(reason(wide, sizes))
    near = _changes(wide, best.plan, sizes)
    fewest, legal = near[wide.fits].min(), near.min()
    bare = wide.bytes[near == legal].min() if fewest > legal else 0.0
    there = np.flatnonzero(wide.fits & (near == fewest))
    after = wide.choice(wide.one(int(there[wide.seconds[there].argmin()])))
    return WhatIf(best, after, sizes, float(bare), planned.room)


def _with(planned: "Planned", sizes: dict) -> "Planned":
    """All plans with these sizes, also where the given plans were fixed to others."""
    now = {name: getattr(planned.best.plan, name) for name in Plan._fields if name not in FOLLOWS}
    then = now | {name: getattr(named(sizes), name) for name in sizes}
    wanted = {switch: any(beyond(name, now) or beyond(name, then) for name in ASKED[switch]) for switch in ASKED}
    wanted["stages"] = unequal(planned.shape, now) or unequal(planned.shape, then)
    found = {name: then[name] for name in CONDITIONS}
    every, legal = grid(planned.shape, planned.devices, planned.batch, **wanted, given=sizes, **found)
    if not legal.any():
        raise ValueError(reason(planned, sizes))
    return planned.again(every, legal)


def _changes(wide: "Planned", old: Plan, sizes: dict) -> np.ndarray:
    """For each plan, the number of fields that differ from the old plan; those that follow are not counted."""
    counted = [name for name in Plan._fields if name not in (*sizes, *FOLLOWS)]
    plans = at(wide.every, wide.places)
    return np.sum([np.not_equal(getattr(plans, name), getattr(old, name)) for name in counted], axis=0)
