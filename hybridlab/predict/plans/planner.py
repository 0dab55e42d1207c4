"""Find the best plan for n devices among all valid plans, and say why another plan is not the best.

    plan("gpt3-175b", "a100", gpus=1024, batch=1536).best

The search uses no heuristic and no randomness: all plans are evaluated at once, as arrays, so the best is the optimum.
Rules of thumb ("tensor parallelism inside a node") are results, not assumptions.

Relatives: `predict.plans.space`, `predict.plans.performance`, `predict.plans.footprint`, notebook 41.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.machines import machine_of
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import RECOMPUTE
from hybridlab.predict.plans.arithmetic import flops
from hybridlab.predict.plans.choice import Choice
from hybridlab.predict.plans.equal_parts import refuse_empty_slices
from hybridlab.predict.plans.footprint import ROOM, Footprint, footprint, room_of
from hybridlab.predict.plans.given import summed, wider
from hybridlab.predict.plans.link_needed import told
from hybridlab.predict.plans.performance import Step, step
from hybridlab.predict.plans.plan import CONDITIONS, Plan, arguments, named
from hybridlab.predict.plans.ranges import refuse_numbers, refuse_question, refuse_sizes
from hybridlab.predict.plans.rates import Fit
from hybridlab.predict.plans.reasons import reason, waterfall
from hybridlab.predict.plans.refusals import illegal, too_few, too_little
from hybridlab.predict.plans.software import MEGATRON_2021, Software, programs
from hybridlab.predict.plans.space import Slab, at, grid, having, in_order, legal_of
from hybridlab.predict.plans.trust import Error, error_of, kind_of
from hybridlab.predict.plans.usual import assumptions, fit_of, refuse_fit, usual
from hybridlab.predict.plans.what_if import WhatIf, what_if
from hybridlab.predict.plans.with_schedule import fixed_by, found_none, runs_with
from hybridlab.signatures import spelled, typed

PARTS = (1.01, 1.1)  # plans that take at most this many times the shortest step are sorted first


@dataclass(frozen=True)
class Planned:
    """All plans for a model on n devices of a machine, with their predictions.

    every, places  a grid of plans, and the indices of these plans in it (`space.at`);  seconds, bytes  of each
    calibrated  whether the caller gave the fit, as measured on this machine
    """

    shape: Shape
    machine: Machine
    devices: int
    batch: int
    fit: Fit
    every: Plan
    places: np.ndarray
    seconds: np.ndarray
    bytes: np.ndarray
    software: Software = MEGATRON_2021
    calibrated: bool = False
    nothing: str = ""

    def __repr__(self) -> str:
        """The five fastest plans, as the command line prints them."""
        legal, fit = f"{len(self.seconds)} legal plans", int(self.fits.sum())
        if not fit:
            return f"{legal}, none of them fits: {self.nothing}"
        lines = [f"{legal}, {fit} of them fit; the quickest:", *(f"  {one}" for one in self.top(5))]
        many = len(self.ties)
        equal = f"the first {many} are as good as equal" if many > 1 else "none is as good as the first"
        equal = f"Predictions err by {self.error}: {equal}"
        return "\n".join([*lines, *([told(self)] if self.best.plan.sync_every else []), equal, self.assumed])

    @property
    def assumed(self) -> str:
        """The assumptions of the prediction in a sentence, and the arguments that change them."""
        return assumptions(self.shape.context, self.software, self.best.plan, self.fit)

    @property
    def room(self) -> float:
        """Bytes of a device that a plan may use."""
        return room_of(self.machine)

    @cached_property
    def space(self) -> Plan:
        """All plans as a single `Plan`, whose fields are arrays with one entry for each plan."""
        return at(self.every, self.places)

    def one(self, place: int) -> Plan:
        """The plan at an index of the arrays."""
        if not 0 <= place < len(self.places):
            raise ValueError(f"there is no plan {place}: choose from 0 to {len(self.places) - 1}")
        return at(self.every, self.places[[place]]).one(0)

    @cached_property
    def fits(self) -> np.ndarray:
        """For each plan, whether it fits in memory."""
        return self.bytes <= self.room

    @cached_property
    def order(self) -> np.ndarray:
        """Indices of the plans that fit, the fastest first; of equally fast plans, the one with less memory comes
        first.
        """
        there = np.flatnonzero(self.fits)
        return there[np.lexsort((self.bytes[there], self.seconds[there]))]

    @cached_property
    def best(self) -> Choice:
        """The fastest plan that fits.

        raises  ValueError if none is left after `only`, with the sentence of `why`
        """
        if not self.fits.any():
            raise ValueError(self.nothing)
        least = self.seconds.min(where=self.fits, initial=np.inf)  # without a copy: there may be millions
        quickest = np.flatnonzero(self.fits & (self.seconds == least))
        return self.choice(self.one(quickest[self.bytes[quickest].argmin()]))

    @typed
    def top(self, count: int = 20) -> list[Choice]:
        """The fastest plans that fit, one for each (p, t, x, cp, ep, d, b, v, n)."""
        refuse_numbers(count=count)
        found = {}
        for place in self._from_the_fastest():
            one = self.one(place)
            found.setdefault((*one[:5], one.x, one.cp, one.ep, one.n), place)
            if len(found) == count:
                break
        return [self.choice(self.one(place)) for place in found.values()]

    def _from_the_fastest(self) -> Iterator[int]:
        """The same indices as `order`, sorted part by part: most of millions of plans are never needed."""
        least, was = self.seconds.min(where=self.fits, initial=np.inf), 0.0
        for most in (*(least * factor for factor in PARTS), np.inf):
            there = np.flatnonzero(self.fits & (self.seconds > was) & (self.seconds <= most))
            yield from there[np.lexsort((self.bytes[there], self.seconds[there]))]
            was = most

    @property
    def error(self) -> Error:
        """The usual error of predictions for a plan of this kind on this machine."""
        kind = kind_of(self.shape, self.best.plan, self.software)
        return error_of(self.machine, kind, self.software, calibrated=self.calibrated)

    @property
    def ties(self) -> list[Choice]:
        """The top plans that cannot be distinguished from the best."""
        return [one for one in self.top() if self.as_good(one.step.total)]

    def as_good(self, seconds: float) -> bool:
        """Whether a step time, in seconds, differs from that of the best plan by no more than the usual error."""
        return bool(seconds <= self.best.step.total * (1 + self.error.median))

    @cached_property
    def front(self) -> list[Choice]:
        """The Pareto front of time and memory, fastest first: every plan that is faster than one of these needs more
        memory."""
        lowest = np.minimum.accumulate(self.bytes[self.order])
        better = np.flatnonzero(np.diff(lowest, prepend=np.inf) < 0)
        return [self.choice(self.one(place)) for place in self.order[better]]

    @property
    def rejected(self) -> dict[str, int]:
        """The number of legal plans that do not fit, by the largest part of their memory."""
        parts = footprint(self.shape, at(self.every, self.places[~self.fits]), self.batch, self.software)
        most = np.argmax(np.stack(np.broadcast_arrays(*parts)), axis=0)
        return {name: int((most == place).sum()) for place, name in enumerate(parts._fields)}

    def choice(self, one: Plan) -> Choice:
        """A plan with its time and memory."""
        time = Step(*map(float, step(self.shape, one, self.batch, self.machine, self.fit, self.software)))
        memory = Footprint(*map(float, footprint(self.shape, one, self.batch, self.software)))
        each = time.total * one.devices
        full, own = (
            flops(self.shape, self.batch, how, one.further).total / each for how in (RECOMPUTE[one.recompute], "none")
        )
        return Choice(one, time, memory, own + one.redone * (full - own), own, self.shape, self.batch)

    def why(self, **sizes: Any) -> str:
        """One sentence: why the best plan with these sizes (p=…, t=…, d=…, any field of a plan) is not the best of all.

        raises  ValueError when no size is given, or a plan has no such field
        """
        refuse_question(sizes)
        return reason(self, sizes)

    def waterfall(self, **sizes: Any) -> dict[str, float]:
        """The steps from the best plan's seconds to those of the best plan with these sizes: the change of each term.

        raises  ValueError if no plan has them, or none fits

        >>> steps = plan("gpt-39.1b", "a100", gpus=512, batch=1536).waterfall(t=16)
        >>> first, *between, last = steps.values()
        >>> abs(first + sum(between) - last) < 1e-9
        True
        """
        return waterfall(self.only(**sizes).best, self.best)

    def what_if(self, **sizes: Any) -> WhatIf:
        """The best plan with these sizes and as few other changes as possible; the result lists these changes.

        raises  ValueError when a plan has no such field, or no plan has these sizes, or none fits

        >>> plan("gpt-39.1b", "a100", gpus=512, batch=1536, zero=0).what_if(p=8).changed
        {'d': (32, 16)}
        """
        refuse_question(sizes)
        return what_if(self, sizes)

    def only(self, **sizes: Any) -> "Planned":
        """The same request, restricted to plans with these sizes; if there are none, `best` gives the reason."""
        found = self.having(sizes)
        return found if found.fits.any() else replace(found, nothing=reason(self, sizes))

    def having(self, sizes: dict) -> "Planned":
        """The same request, restricted to plans with these sizes."""
        shape = np.broadcast_shapes(*map(np.shape, self.every))
        return self.kept(np.broadcast_to(having(self.every, sizes), shape).ravel()[self.places])

    def again(self, every: Plan, slabs: list[Slab]) -> "Planned":
        """The same request with the legal plans of another grid."""
        places = legal_of(slabs)
        seconds, bytes_ = np.empty((2, len(places)))
        for one, here in in_order(slabs):
            seconds[here], bytes_[here] = self._totals(one)
        return replace(self, every=every, places=places, seconds=seconds, bytes=bytes_)

    def _totals(self, slab: Slab) -> list[np.ndarray]:
        """Seconds and bytes of the legal plans of a slab."""
        time = step(self.shape, slab.plans, self.batch, self.machine, self.fit, self.software).total
        memory = footprint(self.shape, slab.plans, self.batch, self.software).total
        return [np.broadcast_to(one, slab.legal.shape)[slab.legal] for one in (time, memory)]

    def kept(self, which: np.ndarray) -> "Planned":
        """The same request, restricted to the plans for which the condition is true."""
        return replace(self, places=self.places[which], seconds=self.seconds[which], bytes=self.bytes[which])


@spelled(arguments)
def plan(
    model: str | Shape,
    machine: str | Machine,
    gpus: int,
    batch: int,
    fit: Fit | None = None,
    software: str | Software | None = None,
    precision: str = "bf16",
    grids: bool = False,
    contexts: bool = False,
    experts: bool = False,
    stages: bool = False,
    slices: bool = False,
    schedule: str | None = None,
    sums: str | None = None,
    **given: Any,
) -> Planned:
    """All plans for a model on `gpus` devices of a machine, with a global batch of `batch` sequences.

    model, machine  names in the catalog, or a Shape and a Machine;  gpus, batch  devices, and sequences in a batch
    fit        the three fitted numbers of a machine; None: those fitted to published runs, see `plans.usual`
    software   overlap and fusion of the program: a name in SOFTWARE, or its terms; None: the machine's usual one
    precision  of matmuls with weights: "bf16", "fp8", "fp4"
    grids      also search AxoNN's grids: x shards of the width, z copies that shard; implied by x=2 or more, or z
    contexts   also search context parallelism: cp and its method of attention; implied by cp=2 or more
    experts    also search expert parallelism: ep and its dispatch; implied by ep=2 or more
    stages     also search values of p·v that do not divide the number of layers; implied by such p and v, or by
               uneven=True
    slices     also search token slices of rows: n of equal cost, none shorter than 2,048 tokens on average; implied by
               n=2 or more
    schedule   only plans that run with it: 1f1b, interleaved, seq1f1b or vocabulary_1f1b; None: the one that the other
               fields imply
    sums       "local", as for a job: copies train alone; without sync_every, they sum their updates every 2 steps. With
               fragments and sync_delay, it is streaming DiLoCo

    Fields of a plan that you give are fixed; the others are searched:

    {arguments}

    raises  ValueError for an unknown name, or if no plan is legal or none fits; the error names what is missing

    >>> import hybridlab as hl
    >>> planned = hl.plan("gpt3-175b", "a100", gpus=1024, batch=1536, zero=0, recompute="full")
    >>> planned.best.plan.t, planned.machine.node
    (4, 8)
    >>> planned.why(p=1)
    'p=1 does not fit: at least 88 GB on one device, most of it optimizer, and 76 of 80 GB may be used'
    """
    shape, kind = catalog.shape_of(model), machine_of(machine)
    assumed = usual(kind)
    given = {name: value for name, value in given.items() if value is not None}
    refuse_numbers(gpus=gpus, batch=batch)
    refuse_sizes(given)
    refuse_empty_slices(given.get("n", 1), shape)
    given = summed(sums, shape, fixed_by(schedule, given))
    if missing := too_few(shape, kind, gpus, named(given)):
        raise ValueError(missing)
    wanted = {"grids": grids, "contexts": contexts, "experts": experts, "stages": stages}
    wanted["slices"] = slices or schedule == "seq1f1b"
    wanted = {switch: on or wanted[switch] for switch, on in wider(shape, given).items()}
    found = {"fused": assumed.fuses(given)}
    found |= {name: getattr(named(given), name) for name in CONDITIONS if name in given}
    every, slabs = grid(shape, gpus, batch, **wanted, given=given, **found)
    if not any(one.legal.any() for one in slabs):
        raise ValueError(illegal(shape, gpus, batch, wanted, found, given))
    runs = programs(software or assumed.software, precision)
    rates = refuse_fit(fit, runs) if fit else fit_of(kind, runs)
    none = np.zeros(0)
    found = Planned(shape, kind, gpus, batch, rates, every, none, none, none, runs, fit is not None).again(every, slabs)
    if schedule and not len((found := found.kept(runs_with(schedule, found.space))).places):
        raise ValueError(found_none(schedule, shape, given))
    if not found.fits.any():
        raise ValueError(too_little(found, ROOM))
    return found
