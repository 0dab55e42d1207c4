"""Explain in one sentence why no plan exists: which number must divide which, or the missing memory."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.shape import Shape
from hybridlab.doors import MOST
from hybridlab.predict.plans.equal_parts import ways
from hybridlab.predict.plans.footprint import states
from hybridlab.predict.plans.heaviest import in_matrices
from hybridlab.predict.plans.partition import most_stages
from hybridlab.predict.plans.plan import ASKED, Plan
from hybridlab.predict.plans.reasons import factors
from hybridlab.predict.plans.space import grid

if TYPE_CHECKING:
    from hybridlab.predict.plans.planner import Planned


SIZES = {"p", "t", "d", "b", "v", "x", "z", "cp", "ep"}  # the factors of a number of devices, and b and v
NEAR = 16  # numbers of devices, or of batches, among which a legal one is looked for, below and above


def illegal(shape: Shape, gpus: int, batch: int, wanted: dict, found: dict, given: dict) -> str:
    """The sentence that says which number each size must divide, and names the nearest legal numbers of devices."""
    fixed = ", ".join(f"{name}={value}" for name, value in given.items())
    if given.get("v", 1) > 1 and given.get("p") == 1:
        return f"v={given['v']} chunks need several stages, but p=1 is one: give p=2 or more, or leave out v"
    if batch % given.get("b", 1):
        return f"b={given['b']} does not divide a batch of {batch}: choose b from {ways(batch)}, or another batch"
    if blamed := _blamed(shape, gpus, batch, wanted, found, given):
        others = ", ".join(f"{name}={value}" for name, value in given.items() if name != blamed)
        with_them = f" with {others}" if others else ""
        return f"{blamed}={given[blamed]} excludes every plan of {gpus} devices{with_them}: leave out {blamed}"
    asked = {name for switch, on in wanted.items() if on for name in ASKED[switch]}
    width, context, experts = f"a width of {shape.width}", f"{shape.context} positions", f"{shape.experts} experts"
    others = {"x": (width, shape.width), "cp": (context, shape.context), "ep": (experts, shape.experts)}
    others = {name: both for name, both in others.items() if name in asked}
    more = "".join(f", {name} {what}" for name, (what, _) in others.items()) + f", d a batch of {batch}"
    equal = f"p {shape.layers} layers (stages=True also searches unequal stages)"
    layers = f"p·v be at most {most_stages(shape.layers)}" if wanted["stages"] else equal
    most = (
        (most_stages(shape.layers) if wanted["stages"] else shape.layers)
        * max(shape.heads, 1)
        * batch
        * math.prod(size for _, size in others.values())
    )
    return (
        f"no {'·'.join(factors(asked))} = {gpus} divides this model and batch{f' with {fixed}' if fixed else ''}: "
        f"t must divide {shape.heads} heads, {layers}{more}{', z d' if 'z' in given else ''}; choose a "
        f"number of gpus that is such a product (at most {most}){_nearest(shape, gpus, batch, wanted, found, given)}"
    )


def _blamed(shape: Shape, gpus: int, batch: int, wanted: dict, found: dict, given: dict) -> str:
    """The given field, other than a number of ranks, without which plans exist; "" if there is none."""
    for name in (one for one in given if one not in SIZES):
        rest, other = ({one: its for one, its in of.items() if one != name} for of in (given, found))
        if any(len(one.places) for one in grid(shape, gpus, batch, given=rest, **wanted, **other)[1]):
            return name
    return ""


def _nearest(shape: Shape, gpus: int, batch: int, wanted: dict, found: dict, given: dict) -> str:
    """The nearest legal numbers of devices and the nearest legal batches, below and above, in words; empty if they are
    far, or take long to find."""
    if any(wanted.values()):
        return ""

    def possible(devices: int, rows: int) -> bool:
        return any(len(one.places) for one in grid(shape, devices, rows, given=given, **found)[1])

    devices = _around(gpus, 1, lambda one: possible(one, batch))
    batches = _around(batch, _rows(gpus, given), lambda one: possible(gpus, one))
    return (f", such as {devices}" if devices else "") + (f", or a batch of {batches}" if batches else "")


def _around(size: int, step: int, possible: Callable[[int], bool]) -> str:
    """The nearest possible multiples of a step below and above a size, joined by "or"; empty if there are none near."""
    first, far = size // step * step, NEAR * step
    ways = range(first, max(first - far, 0), -step), range(first + step, first + step + far, step)
    near = (next((one for one in way if one != size and one <= MOST and possible(one)), None) for way in ways)
    return " or ".join(str(one) for one in near if one)


def _rows(gpus: int, given: dict) -> int:
    """The number of sequences that must divide a batch, as far as given sizes determine it: d·ep·b."""
    apart = math.prod(given.get(name, 1) for name in ("p", "t", "x", "cp", "ep"))
    copies = given.get("d", gpus // apart if {"p", "t"} <= given.keys() else 1)
    return max(1, copies * given.get("ep", 1) * given.get("b", 1))


def too_few(shape: Shape, machine: Machine, gpus: int, plan: Plan) -> str:
    """A sentence with the number of devices that weights, gradients and optimizer alone need; empty if it suffices."""
    few = in_matrices(shape, Plan(optimizer=plan.optimizer)).total if plan.optimizer else 0
    alone = float(states(shape.parameters, matrices=few).total)
    if alone <= gpus * machine.memory:
        return ""
    whose = "Muon's" if plan.optimizer else "Adam's"
    has = "has" if gpus == 1 else "have"
    return (
        f"needs ≥ {math.ceil(alone / machine.memory)} GPUs of {machine.memory / 1e9:.0f} GB: weights, gradients and "
        f"{whose} state of {shape.parameters / 1e9:.1f} billion parameters take {alone / shape.parameters:.3g} bytes "
        f"each, {alone / 1e9:.0f} GB, and {gpus} {has} {gpus * machine.memory / 1e9:.0f} GB; give more GPUs"
    )


def too_little(found: "Planned", room: float) -> str:
    """The sentence that says how much memory is missing if no plan fits."""
    one = found.choice(found.one(int(found.bytes.argmin())))
    return (
        f"no plan fits into {room:.0%} of {found.machine.capacity / 1e9:.0f} GB: the smallest, {one.plan}, needs "
        f"{one.memory.total / 1e9:.0f} GB on one device, most of it {one.memory.most}; give more GPUs or a smaller "
        "batch"
    )
