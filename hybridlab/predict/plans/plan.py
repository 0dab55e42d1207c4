"""A plan: the division of a model and its batch among n = p·t·x·cp·ep·d devices, and its options to save memory.

Relatives: `predict.plans.performance` (time), `predict.plans.footprint` (memory), `predict.plans.planner` (search),
notebook 41.
"""

from typing import NamedTuple

import numpy as np

from hybridlab.core.amount import Amount, where
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.activations import NONE, RECOMPUTE
from hybridlab.predict.bytes.context import ATTEND, GATHER
from hybridlab.predict.bytes.experts import ALL_GATHER, ALL_TO_ALL, DISPATCH
from hybridlab.predict.bytes.local_steps import Rounds
from hybridlab.predict.plans import divisions
from hybridlab.predict.plans.divisions import Division
from hybridlab.predict.plans.equal_parts import (
    choice,
    refuse_experts,
    refuse_further,
    refuse_overlap,
    refuse_rounds,
    refuse_slices,
    refuse_stages,
    ways,
)
from hybridlab.predict.plans.meanings import MEANINGS
from hybridlab.signatures import Argument


class Plan(NamedTuple):
    """One plan, or many if its fields are arrays of equal length.

    p stages, t ways of tensor parallelism, d copies;  b sequences in a microbatch;  v chunks of layers on each rank
    recompute  index in RECOMPUTE, the activations to recompute;  zero  ZeRO's stage, the states that the copies shard
    sequence  with sequence parallelism;  scatter  each rank of tp sends only its part to the next stage, which
              gathers the parts
    x  ways of sharding the width: with t, AxoNN's grid;  z  copies that shard weights in ZeRO's stage 3; 0: all
    cp  ways of sharding the sequence;  attend  index in ATTEND: the method of attention;  ulysses  neighbouring
        ranks that exchange heads with usp;  zigzag  balanced causal attention
    ep  ways of sharding experts, with b sequences on each rank;  dispatch  index in DISPATCH: the method of dispatch
    fold  whole experts are distributed over t and cp too
    uneven  some stages have one more block (`partition.dealt`);  n  token slices of a row (`scheduling.token_slices`)

    Fourteen more are given, not searched: skew, Zipf's exponent of the experts' popularity, 0 for equal; fused, whether
    attention is one kernel that stores no scores; redone, the fraction of the layers that `recompute` applies to;
    offload, the fraction of the layers whose saved activations are offloaded to the host; spread_head, whether each
    stage has a piece of the head (vocabulary parallelism over the stages); two_levels, whether all copies shard the
    optimizer's state although only z of them shard the weights; secondary, how many neighbours have a second copy of
    weights that all copies shard; further, how many more tokens are predicted at each position (multi-token
    prediction: each has a block on the last rank, and uses the head once more); optimizer, an index in OPTIMIZERS;
    sync_every, the steps between two exchanges of the d copies, which train alone; 0: gradients are summed in every
    step; fragments, the groups of layers that these copies exchange at different steps; sync_delay, the steps that hide
    an exchange; overlap, whether tp's messages are sent in pieces during their matmuls, with sequence parallelism;
    directions, in which these pieces travel, 1 or 2.

    Ranks are numbered as in Megatron: the order is tp (neighbours), x, cp, ep, copies, stages.

    >>> Plan(p=8, t=8, d=2, b=1).devices, Plan(p=8, t=8, d=2, b=1).microbatches(batch=64)
    (128, 32)
    """

    p: int = 1
    t: int = 1
    d: int = 1
    b: int = 1
    v: int = 1
    recompute: int = NONE
    zero: int = 0
    sequence: bool = False
    scatter: bool = False
    x: int = 1
    z: int = 0
    cp: int = 1
    attend: int = GATHER
    ulysses: int = 1
    zigzag: bool = False
    ep: int = 1
    dispatch: int = ALL_TO_ALL
    fold: bool = False
    uneven: bool = False
    n: int = 1
    skew: float = 0.0
    fused: bool = False
    redone: float = 1.0
    offload: float = 0.0
    spread_head: bool = False
    two_levels: bool = False
    secondary: int = 0
    further: int = 0
    optimizer: int = 0
    sync_every: int = 0
    fragments: int = 1
    sync_delay: int = 0
    overlap: bool = False
    directions: int = 1

    @property
    def devices(self) -> Amount:
        """n = p·t·x·cp·ep·d."""
        return self.p * self.t * self.x * self.cp * self.ep * self.d

    @property
    def expert_ways(self) -> Amount:
        """The number of ranks among which the experts of a block are distributed.

        >>> print(Plan(t=2, cp=2, ep=4).expert_ways, Plan(t=2, cp=2, ep=4, fold=True).expert_ways)
        4 16
        """
        return self.ep * where(self.fold, self.cp * self.t, 1)

    @property
    def expert_shards(self) -> Amount:
        """The number of ranks along tp that shard one expert."""
        return where(self.fold, 1, self.t)

    @property
    def copies(self) -> tuple[Amount, Amount]:
        """(number of ranks with the same expert weights, number with the same other weights); they see different
        tokens. With local steps, the d copies have different weights."""
        d = where(self.sync_every, 1, self.d)
        return where(self.fold, 1, self.cp) * d, self.cp * self.ep * d

    @property
    def sharers(self) -> tuple[Amount, Amount]:
        """For both kinds of copies, the number of ranks among which ZeRO shards weights: z, or all."""
        its, others = (where(self.z, self.z, copies) for copies in self.copies)
        return its, others

    @property
    def updaters(self) -> tuple[Amount, Amount]:
        """For both kinds of copies, the number of ranks among which ZeRO shards the optimizer state: the same, or all
        with two levels.

        >>> print(*Plan(d=8, zero=3, z=2).updaters, *Plan(d=8, zero=3, z=2, two_levels=True).updaters)
        2 2 8 8
        """
        its, others = (where(self.two_levels, copies, few) for copies, few in zip(self.copies, self.sharers))
        return its, others

    @property
    def rounds(self) -> Rounds:
        """The steps after which copies that train alone exchange their updates."""
        every = where(self.sync_every, self.sync_every, 1)
        return Rounds._make((every, self.fragments, self.sync_delay))  # perhaps arrays, of many plans

    def division(self, shape: Shape) -> Division:
        """How a plan, or each of many plans, divides a model, in the form of the rules in `predict.plans.divisions`."""
        return Division(
            self.t,
            self.x,
            self.cp,
            self.copies[1],
            self.zero,
            self.z,
            self.sequence,
            self.scatter,
            self.attend,
            self.ulysses,
            self.zigzag,
            self.recompute,
            shape.heads > 0,
            shape.experts > 1,
            shape.experts > 1 and shape.routing.capacity is not None,
            self.fold,
            np.equal(self.dispatch, ALL_GATHER),
            np.logical_and(self.spread_head, shape.tied),
            self.two_levels,
            self.secondary,
            self.n,
            np.greater(self.sync_every, 0),
        )

    def microbatches(self, batch: int) -> Amount:
        """The microbatches of one copy: m = B/(b·d·ep)."""
        return batch // (self.b * self.d * self.ep)

    def passes(self, batch: int) -> Amount:
        """n·m: the forwards of a chunk in a step, one for each slice of a microbatch."""
        return self.n * self.microbatches(batch)

    def near(self, axes: str, node: int) -> Amount:
        """The number of ranks of a group in one node: along an axis, or along several joined by "+".

        >>> print(Plan(t=2, cp=2, ep=4).near("ep", node=8), Plan(cp=2, ep=8, d=4).near("cp+d", node=8))
        2 2
        """
        found, below = 1, 1
        for name in INSIDE_OUT:
            if name in axes.split("+"):
                found = found * np.clip(node // below, 1, getattr(self, name))
            below = below * getattr(self, name)
        return found

    def one(self, place: int) -> "Plan":
        """The plan at an index of the arrays."""
        return Plan(*(kind(field[place]) for kind, field in zip(_KINDS, map(np.asarray, self))))

    def __str__(self) -> str:
        more = [f"p={self.p} t={self.t} d={self.d} b={self.b}"]
        more += [f"x={self.x}"] * (self.x > 1) + [f"z={self.z}"] * (self.z > 0)
        mixed = f" ulysses={self.ulysses}" * (self.ulysses > 1)
        more += [f"cp={self.cp} {ATTEND[self.attend]}{mixed}" + " zigzag" * bool(self.zigzag)] * (self.cp > 1)
        more += [f"ep={self.ep} {DISPATCH[self.dispatch]}"] * (self.ep > 1) + ["folded experts"] * bool(self.fold)
        more += [f"{self.n} slices of a row"] * (self.n > 1)
        more += [f"skew={self.skew:g}"] * (self.skew > 0)
        more += ["uneven stages"] * bool(self.uneven) + [f"further={self.further}"] * (self.further > 0)
        more += ["head on all stages"] * bool(self.spread_head)
        more += ["two levels"] * bool(self.two_levels) + [f"secondary={self.secondary}"] * (self.secondary > 0)
        more += [f"v={self.v}"] * (self.v > 1) + [f"{RECOMPUTE[self.recompute]} recomputation"] * (
            self.recompute > NONE
        )
        more += [f"offload={self.offload:g}"] * (self.offload > 0)
        more += [OPTIMIZERS[self.optimizer]] * (self.optimizer > 0)
        more += [f"local steps, sums every {self.rounds}"] * (self.sync_every > 0)
        more += [f"ZeRO {self.zero}"] * (self.zero > 0) + ["sequence parallel"] * bool(self.sequence)
        more += ["overlapped" + " in two directions" * (self.directions > 1)] * bool(self.overlap)
        return ", ".join(more + ["scatter/gather"] * bool(self.scatter) + ["fused attention"] * bool(self.fused))


def arguments() -> dict[str, Argument]:
    """The fields of a plan, as arguments; all of them given, so fixed."""
    kind = lambda name: "str" if name in NAMED else type(Plan._field_defaults[name]).__name__
    return {name: Argument(f"{kind(name)} | None", None, told) for name, told in MEANINGS.items()}


INSIDE_OUT = ("t", "x", "cp", "ep", "d", "p")  # ranks that differ along the first of them are neighbours
# given, not searched
CONDITIONS = ("skew", "fused", "redone", "offload", "spread_head", "two_levels", "secondary", "further", "optimizer",
              "sync_every", "fragments", "sync_delay", "overlap", "directions")  # fmt: skip
ASKED = {  # by a switch
    "grids": ("x", "z", "two_levels"),
    "contexts": ("cp", "attend", "ulysses", "zigzag"),
    "experts": ("ep", "dispatch", "fold"),
    "stages": ("uneven",),
    "slices": ("n",),
}
OPTIMIZERS = ("adamw", "muon")
# fields that are indices in a list of names
NAMED = {"recompute": RECOMPUTE, "attend": ATTEND, "dispatch": DISPATCH, "optimizer": OPTIMIZERS}
_KINDS = tuple(type(default) for default in Plan._field_defaults.values())


def check_plan(plan: Plan, shape: Shape, batch: int) -> Plan:
    """The plan itself, if it can divide the model and the batch.

    raises  ValueError that says which number must divide which

    >>> check_plan(Plan(p=3), Shape(layers=4), batch=8)
    Traceback (most recent call last):
    ValueError: p·v = 3 must divide the model's 4 layers: choose p from 1, 2, 4, or allow unequal \
stages with uneven=True
    """
    for name in ("p", "t", "d", "b", "v", "x", "cp", "ep", "n"):
        if getattr(plan, name) < 1:
            raise ValueError(f"{name}={getattr(plan, name)} is not a valid size: give a whole number, 1 or more")
    refuse_stages(plan, shape)
    refuse_slices(plan, shape)
    refuse_further(plan, shape)
    refuse_rounds(plan, shape)
    refuse_overlap(plan)
    if max(shape.heads, 1) % plan.t:
        raise ValueError(
            f"t = {plan.t} must divide the {shape.heads} heads: choose it from {ways(max(shape.heads, 1))}"
        )
    if shape.width % plan.x:
        raise ValueError(f"x = {plan.x} must divide the width of {shape.width}: choose it from {ways(shape.width)}")
    if shape.context % plan.cp:
        raise ValueError(
            f"cp = {plan.cp} must divide the {shape.context} positions: choose it from {ways(shape.context)}"
        )
    refuse_experts(plan, shape)
    if plan.z and (plan.zero != 3 or plan.d % plan.z):
        raise ValueError(
            f"z = {plan.z} cannot shard the weights over d = {plan.d} replicas: give zero=3, and z from {ways(plan.d)}"
        )
    rows = plan.b * plan.d * plan.ep
    if batch % rows:
        raise ValueError(
            f"b·d{'·ep' * (plan.ep > 1)} = {rows} must divide the batch of {batch}: "
            f"choose {choice(batch, d=plan.d, b=plan.b, ep=plan.ep)}"
        )
    if plan.v > 1 and (plan.p == 1 or plan.passes(batch) % plan.p):
        raise ValueError(
            f"with v = {plan.v} chunks, the {plan.passes(batch)} {'slices' if plan.n > 1 else 'microbatches'} do not "
            f"fit p = {plan.p}: make them a multiple of p, and give p = 2 or more"
        )
    for name, names in NAMED.items():
        if getattr(plan, name) not in range(len(names)):
            raise ValueError(f"{name}={getattr(plan, name)} is not an index in {names}: choose one")
    divisions.refuse(shape.sizes, plan.division(shape))
    return plan


def named(sizes: dict) -> Plan:
    """A plan from its fields; recomputation, attention and dispatch by name, or by index in their lists.

    raises  ValueError when a plan has no such field

    >>> print(named({"p": 2, "recompute": "full"}))
    p=2 t=1 d=1 b=1, full recomputation
    """
    return Plan(**{name: _value(name, value) for name, value in sizes.items()})


def _value(name: str, value):
    if name not in Plan._fields:
        raise ValueError(f"a plan has no {name!r}: choose from {', '.join(Plan._fields)}")
    if not isinstance(value, str):
        return value
    if name not in NAMED:
        raise ValueError(f"{name}={value!r} is not a number: give one")
    if value not in NAMED[name]:
        raise ValueError(f"{name}={value!r} is not known: choose one of {', '.join(NAMED[name])}")
    return NAMED[name].index(value)
