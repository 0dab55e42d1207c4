"""What if: change a few sizes of a plan and as few other fields as possible, and say which fields follow.

`reasons` compares the best plan with the best plan of other sizes, which may differ in every field. Here the rest of
the plan stays as it is where that is legal and fits.

Relatives: `predict.plans.planner`, `predict.plans.reasons`, notebook 41.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hybridlab.predict.bytes.activations import NONE
from hybridlab.predict.plans.choice import Choice
from hybridlab.predict.plans.equal_parts import refuse_without_effect
from hybridlab.predict.plans.given import saves_scores, wider
from hybridlab.predict.plans.plan import ASKED, CONDITIONS, NAMED, Plan, named
from hybridlab.predict.plans.reasons import bill, reason
from hybridlab.predict.plans.refusals import illegal
from hybridlab.predict.plans.space import at, grid

if TYPE_CHECKING:
    from hybridlab.predict.plans.planner import Planned

FOLLOWS = ("d", "uneven")  # fields that are free to follow: the other sizes determine them
OF_LOCAL_STEPS = ("fragments", "sync_delay")  # fields that follow if there are no local steps
SILENT = ("uneven",)  # fields that p and v already imply


@dataclass(frozen=True)
class WhatIf:
    """A plan with other sizes, and the plan that it was made from.

    asked   {field: its new value}
    missing  bytes that it would need with fewer changes, if these do not fit; else 0
    room    bytes that it may use
    """

    before: Choice
    after: Choice
    asked: dict
    missing: float
    room: float

    @property
    def changed(self) -> dict[str, tuple]:
        """{field: (old value, new value)} for every field that changed without being requested; a value that has a name
        is given by its name."""
        return {name: pair for name, pair in self._pairs.items() if name not in self.asked}

    @property
    def _pairs(self) -> dict[str, tuple]:
        """{field: (old value, new value)} of all fields that differ."""
        plans = self.before.plan, self.after.plan
        pairs = {name: tuple(_said(name, getattr(plan, name)) for plan in plans) for name in Plan._fields}
        shown = lambda name: name in self.asked or name not in SILENT
        return {name: (was, new) for name, (was, new) in pairs.items() if was != new and shown(name)}

    def __repr__(self) -> str:
        """The changes and their seconds in two or three sentences."""
        pairs, told = self._pairs, bill(self.after, self.before)
        said = {name: f"{name}={new} instead of {was}" for name, (was, new) in pairs.items()}
        asked = ", ".join(text for name, text in said.items() if name in self.asked)
        if not asked:
            same = ", ".join(f"{name}={new}" for name, new in self.asked.items())
            return f"The plan has {same} already: {self.before}"
        also = ", ".join(text for name, text in said.items() if name not in self.asked)
        kept = "" if not self.missing else (
            f" With fewer changes it would need {self.missing / 1e9:.0f} GB, and {self.room / 1e9:.0f} GB may be used."
        )  # fmt: skip
        follows = f" also changes {also}" if also else " changes nothing else"
        return f"{asked}{follows}.{kept} A step {_speed(self.after, self.before)}{f': {told}' if told else ''}"


def _said(name: str, value):
    return NAMED[name][value] if name in NAMED else value


def _speed(one: Choice, other: Choice) -> str:
    share = one.step.total / other.step.total - 1
    how = f"is {abs(share):.1%} {'slower' if share > 0 else 'faster'}" if share else "is as fast"
    return f"{how}, {one.step.total:.2f} s instead of {other.step.total:.2f} s"


def what_if(planned: "Planned", sizes: dict) -> WhatIf:
    """The plan nearest to the best one among all that have these sizes and fit: the fewest other fields change, not
    counting d; among equally near plans, the fastest.

    raises  ValueError if no plan has these sizes, or none fits; the error says why
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
    """All plans with these sizes, even if the given plans were fixed to other sizes."""
    now = {name: getattr(planned.best.plan, name) for name in Plan._fields if name not in FOLLOWS}
    then = now | {name: getattr(named(sizes), name) for name in sizes}
    if not then["sync_every"]:
        then |= {name: Plan._field_defaults[name] for name in OF_LOCAL_STEPS if name not in sizes}
    if not then["overlap"] and "directions" not in sizes:
        then["directions"] = 1
    if then.get("recompute") == NONE and "redone" not in sizes:
        then["redone"] = 1.0
    refuse_without_effect(named(then), planned.shape)
    either = wider(planned.shape, now), wider(planned.shape, then)
    wanted = {switch: any(one[switch] for one in either) for switch in ASKED}
    found = {name: then[name] for name in CONDITIONS}
    found["fused"] = found["fused"] and ("fused" in sizes or not saves_scores(sizes))
    every, slabs = grid(planned.shape, planned.devices, planned.batch, **wanted, given=sizes, **found)
    if not any(one.legal.any() for one in slabs):
        raise ValueError(illegal(planned.shape, planned.devices, planned.batch, wanted, found, sizes))
    return planned.again(every, slabs)


def _changes(wide: "Planned", old: Plan, sizes: dict) -> np.ndarray:
    """For each plan, the number of fields that differ from the old plan; those that follow are not counted."""
    counted = [name for name in Plan._fields if name not in (*sizes, *FOLLOWS)]
    plans = at(wide.every, wide.places)
    return np.sum([np.not_equal(getattr(plans, name), getattr(old, name)) for name in counted], axis=0)
