"""The planner: every legal plan for n devices, those that fit in memory by time, and why each other is not the best.

    plan("gpt3-175b", "a100", gpus=1024, batch=1536).best

Nothing is searched by rule or by chance: the whole space is evaluated at once, as arrays, so the best is the best of
all. What a rule of thumb says ("tensor parallelism inside a node") has to come out as a result.

Relatives: `predict.plans.space`, `predict.plans.performance`, `predict.plans.footprint`, notebook 41.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hybridlab.core import catalog
from hybridlab.core.catalog import Machine
from hybridlab.core.shape import Shape
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.plans.arithmetic import DAY, flops
from hybridlab.predict.plans.footprint import Footprint, footprint, states
from hybridlab.predict.plans.performance import Step, step
from hybridlab.predict.plans.plan import ASKED, CONDITIONS, NAMED, Plan
from hybridlab.predict.plans.rates import FITTED, Fit
from hybridlab.predict.plans.reasons import factors, reason
from hybridlab.predict.plans.space import chosen, grid, having

ROOM = 0.95  # of the memory; the rest is left to the runtime and to fragments


class Choice(NamedTuple):
    """One plan with its predicted step and its memory."""

    plan: Plan
    step: Step
    memory: Footprint
    rate: float  # FLOP/s of one device, all that it does counted
    model_rate: float  # the same, of the model's own

    @property
    def facts(self) -> dict:
        """The plan's fields, and what was predicted of it, units in the names."""
        names = {field: names[getattr(self.plan, field)] for field, names in NAMED.items()}
        fields = self.plan._asdict() | names
        return fields | {
            "step_seconds": self.step.total,
            "tflops_per_gpu": self.rate / 1e12,
            "bubble_fraction": self.step.idle,
            "communication": self.step.communication,
            "memory_gb": self.memory.total / 1e9,
        }

    def __repr__(self):
        return (
            f"{self.plan}: {self.step.total:.2f} s a step, {self.rate / 1e12:.0f} TFLOP/s a device, "
            f"{self.memory.total / 1e9:.1f} GB"
        )


@dataclass(frozen=True)
class Planned:
    """All plans for a model on n devices of a machine, and what was found about them.

    space  the plans, as one of arrays;  seconds, bytes  of each;  fits  those whose memory is enough
    """

    shape: Shape
    machine: Machine
    devices: int
    batch: int
    fit: Fit
    space: Plan
    seconds: np.ndarray
    bytes: np.ndarray

    @property
    def room(self) -> float:
        """Bytes of a device that a plan may use."""
        return ROOM * self.machine.memory

    @cached_property
    def fits(self) -> np.ndarray:
        """For each plan, whether its memory is enough."""
        return self.bytes <= self.room

    @cached_property
    def order(self) -> np.ndarray:
        """Places of the plans that fit, the quickest first; of equally quick ones, the one that needs less memory."""
        there = np.flatnonzero(self.fits)
        return there[np.lexsort((self.bytes[there], self.seconds[there]))]

    @property
    def best(self) -> Choice:
        """The quickest plan that fits."""
        return self.choice(self.space.one(self.order[0]))

    def top(self, count: int = 20) -> list[Choice]:
        """The quickest plans that fit, each (p, t, x, cp, ep, d, b, v) once."""
        found = {}
        for place in self.order:
            one = self.space.one(place)
            found.setdefault((*one[:5], one.x, one.cp, one.ep), place)
            if len(found) == count:
                break
        return [self.choice(self.space.one(place)) for place in found.values()]

    @cached_property
    def front(self) -> list[Choice]:
        """The Pareto front of time and memory, quickest first: who is quicker than each needs more memory."""
        lowest = np.minimum.accumulate(self.bytes[self.order])
        better = np.flatnonzero(np.diff(lowest, prepend=np.inf) < 0)
        return [self.choice(self.space.one(place)) for place in self.order[better]]

    @property
    def rejected(self) -> dict[str, int]:
        """How many legal plans do not fit, by what weighs most in them."""
        parts = footprint(self.shape, chosen(self.space, ~self.fits), self.batch)
        most = np.argmax(np.stack(np.broadcast_arrays(*parts)), axis=0)
        return {name: int((most == place).sum()) for place, name in enumerate(parts._fields)}

    def choice(self, one: Plan) -> Choice:
        """A plan with its time and memory."""
        time = Step(*map(float, step(self.shape, one, self.batch, self.machine, self.fit)))
        memory = Footprint(*map(float, footprint(self.shape, one, self.batch)))
        each = time.total * one.devices
        done, own = (flops(self.shape, self.batch, how).total / each for how in (RECOMPUTE[one.recompute], "none"))
        return Choice(one, time, memory, done, own)

    def why(self, **sizes) -> str:
        """One sentence: why the best plan with these sizes (p=…, t=…, d=…, any field of a plan) is not the best of all.

        raises  ValueError when a plan has no such field
        """
        return reason(self, sizes)

    def only(self, **sizes) -> "Planned":
        """The same with those plans alone that have these sizes; there may be none."""
        kept = having(self.space, sizes)
        return replace(self, space=chosen(self.space, kept), seconds=self.seconds[kept], bytes=self.bytes[kept])


def plan(
    model: str | Shape,
    machine: str | Machine,
    gpus: int,
    batch: int,
    fit: Fit = FITTED,
    grids: bool = False,
    contexts: bool = False,
    experts: bool = False,
    **given,
) -> Planned:
    """All plans for a model on so many devices of a machine, with a batch of so many sequences.

    grids  AxoNN's too: x ways of cutting the width, z copies that share what ZeRO 3 shares; so where one is given
    contexts  the sequence too, cut along cp, and how queries meet keys; so where cp, attend or zigzag is given
    experts  their parallelism too: ep ways of sharing them out, and their dispatch; so where one is given
    given  fields of a plan that are fixed: p, t, d, b, v, zero, sequence, scatter, x, z, cp, zigzag, ep, and recompute,
           attend, dispatch by name; skew of the experts' popularity, and fused attention

    raises  ValueError when the catalog lacks a name, no division is legal, or none fits: with what is missing

    >>> planned = plan("gpt3-175b", "a100", gpus=1024, batch=1536, zero=0, recompute="full")
    >>> planned.best.plan.t, planned.machine.node
    (4, 8)
    >>> planned.why(p=1)
    'p=1 does not fit: at least 88 GB on one device, most of it optimizer, and 76 of 80 GB may be used'
    """
    shape = model if isinstance(model, Shape) else catalog.model(model).shape
    kind = machine if isinstance(machine, Machine) else catalog.machine(machine)
    for name, size in (("gpus", gpus), ("batch", batch)):
        if size < 1:
            raise ValueError(f"{name}={size} is no number of {name}: give 1 or more")
    if missing := _too_few(shape, kind, gpus):
        raise ValueError(missing)
    wanted = {"grids": grids, "contexts": contexts, "experts": experts}
    wanted = {switch: on or bool(given.keys() & {*ASKED[switch]}) for switch, on in wanted.items()}
    every, legal = grid(shape, gpus, batch, **wanted, **{name: given[name] for name in CONDITIONS if name in given})
    legal = legal & having(every, given)
    if not legal.any():
        raise ValueError(_illegal(shape, gpus, batch, wanted, given))
    each = step(shape, every, batch, kind, fit).total, footprint(shape, every, batch).total
    seconds, bytes_ = (np.broadcast_to(one, legal.shape)[legal] for one in each)
    found = Planned(shape, kind, gpus, batch, fit, chosen(every, legal), seconds, bytes_)
    if not found.fits.any():
        raise ValueError(_too_little(found))
    return found


def _illegal(shape, gpus, batch, wanted, given) -> str:
    """The sentence that says which number each size must divide."""
    fixed = ", ".join(f"{name}={value}" for name, value in given.items())
    asked = {name for switch, on in wanted.items() if on for name in ASKED[switch]}
    width, context, experts = f"a width of {shape.width}", f"{shape.context} positions", f"{shape.experts} experts"
    others = {"x": (width, shape.width), "cp": (context, shape.context), "ep": (experts, shape.experts)}
    others = {name: both for name, both in others.items() if name in asked}
    more = "".join(f", {name} {what}" for name, (what, _) in others.items()) + f", d a batch of {batch}"
    most = shape.layers * max(shape.heads, 1) * batch * math.prod(size for _, size in others.values())
    return (
        f"no {'·'.join(factors(asked))} = {gpus} divides this model and batch{f' with {fixed}' if fixed else ''}: "
        f"t must divide {shape.heads} heads, p {shape.layers} layers{more}{', z d' if 'z' in given else ''}; choose a "
        f"number of gpus that is such a product (at most {most})"
    )


def _too_few(shape: Shape, machine: Machine, gpus: int) -> str:
    """The sentence that says how many devices the states alone need; empty when these are enough."""
    alone = float(states(shape.parameters).total)
    if alone <= gpus * machine.memory:
        return ""
    return (
        f"needs ≥ {math.ceil(alone / machine.memory)} GPUs of {machine.memory / 1e9:.0f} GB: weights, gradients and "
        f"Adam's state of {shape.parameters / 1e9:.1f} billion parameters take 16 bytes each, {alone / 1e9:.0f} GB, "
        f"and {gpus} have {gpus * machine.memory / 1e9:.0f} GB; give more GPUs"
    )


def _too_little(found: Planned) -> str:
    """The sentence that says how much is missing where no plan fits."""
    one = found.choice(found.space.one(int(found.bytes.argmin())))
    return (
        f"no plan fits into {ROOM:.0%} of {found.machine.memory / 1e9:.0f} GB: the smallest, {one.plan}, needs "
        f"{one.memory.total / 1e9:.0f} GB on one device, most of it {one.memory.most}; give more GPUs or a smaller "
        "batch"
    )


def days(choice: Choice, shape: Shape, batch: int, tokens: float) -> float:
    """The days that so many tokens take, at one step for every batch.

    >>> best = plan("gpt3-175b", "a100", gpus=1024, batch=1536, zero=0, recompute="full").best
    >>> round(days(best, catalog.model("gpt3-175b").shape, 1536, 300e9))
    29
    """
    return tokens / (batch * shape.context) * choice.step.total / DAY
