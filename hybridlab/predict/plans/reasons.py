"""Explain why a plan is slower, in one sentence whose seconds add up to the full difference."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from hybridlab.core.added import added
from hybridlab.predict.plans.plan import ASKED, CONDITIONS, Plan, check_plan, named

if TYPE_CHECKING:
    from hybridlab.predict.plans.planner import Choice, Planned

WORDS = {  # each term of a step in words
    "multiply": "GEMMs",
    "pointwise": "memory-bound kernels",
    "tensor": "tp all-reduces",
    "launch": "kernel launches",
    "context": "keys and values along cp",
    "experts": "tokens to their experts and back",
    "head": "the head on the last stage",
    "messages": "messages between stages",
    "bubble": "the pipeline bubble",
    "data": "gradients over copies",
    "optimizer": "the optimizer",
}
FACTORS = ("p", "t", "x", "cp", "ep", "d")  # of the number of devices
WORTH = 0.05  # fraction of the largest change: smaller changes are not named


def reason(planned: "Planned", sizes: dict) -> str:
    """The sentence about the best plan with these sizes, among all plans of a `planner.Planned`."""
    asked, mine = ", ".join(f"{name}={value}" for name, value in sizes.items()), planned.having(sizes)
    if not len(mine.places):
        return _unlawful(planned, sizes, asked)
    if not mine.fits.any():
        one = mine.choice(mine.one(int(mine.bytes.argmin())))
        return (
            f"{asked} does not fit: at least {one.memory.total / 1e9:.0f} GB on one device, most of it "
            f"{one.memory.most}, and {planned.room / 1e9:.0f} of {planned.machine.capacity / 1e9:.0f} GB may be used"
        )
    one, best = mine.best, planned.best
    if one.plan == best.plan:
        return f"{asked} is the best: {one}"
    return f"{asked} {_slower(one, best)}{_leaving(one, best, planned.machine.node, sizes)}{bill(one, best)}"


def _slower(one, best) -> str:
    mine, its = one.step.total, best.step.total
    share = mine / its - 1
    told = f"is {share:.0%} slower" if share >= 0.005 else f"is slower by {share:.2%}"
    return f"{told}, {mine:.2f} s in place of {its:.2f} s"


def _changes(one, best) -> dict[str, float]:
    """The extra seconds of each term compared with the best plan, with the largest change first."""
    more = {name: mine - its for name, mine, its in zip(one.step._fields, one.step, best.step)}
    return dict(sorted(more.items(), key=lambda item: -abs(item[1])))


def waterfall(one: "Choice", best: "Choice") -> dict[str, float]:
    """{what: seconds}: first the best plan, then the changes of all terms in words, then the other plan."""
    changes = {WORDS[name]: change for name, change in _changes(one, best).items() if change}
    return {"the best plan": best.step.total, **changes, "this plan": one.step.total}


def _leaving(one, best, node: int, sizes: dict) -> str:
    """The clause which says that tensor groups leave their node, if their all-reduces are the reason; it names t,
    unless t was given.
    """
    more = _changes(one, best)
    if max(more, key=more.__getitem__) != "tensor" or one.plan.t <= node:
        return ": "
    who = "its tensor groups leave" if "t" in sizes else f"its best plan has t={one.plan.t}, which leaves"
    return f"; {who} the node of {node}: "


def bill(one: "Choice", best: "Choice") -> str:
    """The changes of the terms; the printed numbers add up to the printed difference of the two steps."""
    more = _changes(one, best)
    least = WORTH * max(map(abs, more.values()))
    named = [(WORDS[name], round(change, 2)) for name, change in more.items() if abs(change) >= least]
    whole = round(one.step.total, 2) - round(best.step.total, 2)
    rest = round(whole - added(change for _, change in named), 2)
    return ", ".join(f"{name} {change:+.2f} s" for name, change in [*named, ("all else", rest)] if change)


def _usual(planned, name: str) -> bool:
    """Whether a field has its default value in all plans."""
    return bool(np.all(getattr(planned.space, name) == Plan._field_defaults[name]))


def factors(sizes: Collection[str]) -> list[str]:
    """The sizes whose product is the number of devices: p, t and d, and any others that were given."""
    return [name for name in FACTORS if name in ("p", "t", "d") or name in sizes]


def _unlawful(planned, sizes: dict, asked: str) -> str:
    """The reason why no plan has these sizes: which number must divide which."""
    for name in CONDITIONS:
        if name in sizes:
            return f"{asked} is not a field of the search: hl.plan(..., {name}={sizes[name]}) plans with it"
    for switch, names in ASKED.items():
        if not sizes.keys().isdisjoint(names) and all(_usual(planned, name) for name in names):
            return f"{asked} was not searched: hl.plan(..., {switch}=True) does"
    varied = {name for names in ASKED.values() for name in names if not _usual(planned, name)}
    whole = {name: sizes.get(name) for name in factors(sizes.keys() | varied)}
    given = [size for size in whole.values() if size is not None]
    product, rest = "·".join(whole), planned.devices
    for size in given:
        if rest % size:
            return f"{asked} is impossible: {product} must be {planned.devices}"
        rest //= size
    if None not in whole.values() and rest > 1:
        return f"{asked} is impossible: {product} must be {planned.devices}"
    copies, z = sizes.get("d", rest), sizes.get("z") or 1
    if copies % z:
        divides = "is" if "d" in sizes else "divides"
        return f"{asked} is impossible: z must divide d, which {divides} {copies}"
    one = named({"zero": 3 if z > 1 else 0, "sync_every": planned.every.sync_every} | sizes)
    if len(given) == len(whole) - 1:
        one = one._replace(**{name: rest for name, size in whole.items() if size is None})
    try:
        check_plan(one, planned.shape, planned.batch)
    except ValueError as error:
        return f"{asked} is impossible: {error}"
    return f"{asked} is impossible: no legal plan for {planned.devices} devices has these sizes"
