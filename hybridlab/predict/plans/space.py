"""List every legal way to divide a model and its batch among n devices, as one plan of arrays."""

import functools
import math
import operator
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hybridlab.core.added import added
from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape
from hybridlab.core.what.valid_sizes import divisors as all_divisors
from hybridlab.predict.bytes.activations import NONE, RECOMPUTE, SELECTIVE
from hybridlab.predict.bytes.context import GATHER, RING, ULYSSES, USP, passes
from hybridlab.predict.bytes.experts import ALL_GATHER, ALL_TO_ALL
from hybridlab.predict.plans.divisions import holds
from hybridlab.predict.plans.equal_parts import layers_of
from hybridlab.predict.plans.partition import most_stages
from hybridlab.predict.plans.plan import Plan, named

divisors = functools.cache(all_divisors)  # of few numbers, and each of them many times
STAGES = range(4)  # of ZeRO
SHORTEST = 2048  # tokens of a slice that is searched: the fit has no GEMM of fewer rows
SLAB = 1 << 18  # plans whose formulas are computed at once: with fewer it is slower, with more it needs more memory
CUTS = ((0, 0), (1, 0), (0, 1))  # sequence parallelism, scatter/gather: none, or one of them

# the method of attention, the ranks that exchange heads with usp, and whether in zigzag order
MEETINGS = ((GATHER, 1, False), (GATHER, 1, True), (RING, 1, False), (RING, 1, True), (ULYSSES, 1, False))
# the method of dispatch, and whether experts are folded
SENDINGS = ((ALL_TO_ALL, False), (ALL_GATHER, False), (ALL_TO_ALL, True))


class Slab(NamedTuple):
    """A part of a grid: sizes that have the same effective options, without the options that have no effect.

    plans   its plans;  legal  whether each is legal
    index   for each axis of the full grid, where the slab is;  sizes  the lengths of these axes
    """

    plans: Plan
    legal: np.ndarray
    index: list[np.ndarray]
    sizes: tuple[int, ...]

    @property
    def places(self) -> np.ndarray:
        """The flat indices of its legal plans in the full grid."""
        strides = [math.prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes))]
        flat = added(stride * index for stride, index in zip(strides, np.ix_(*self.index)))
        return np.asarray(flat)[self.legal]


def grid(
    shape: Shape,
    devices: int,
    batch: int,
    grids: bool = False,
    contexts: bool = False,
    experts: bool = False,
    stages: bool = False,
    slices: bool = False,
    given: dict | None = None,
    **found: Any,
) -> tuple[Plan, list[Slab]]:
    """(plans, slabs): all sizes that `check_plan` accepts, combined with all options that save memory.

    Fields have one axis for each choice, sizes × recomputation × ZeRO × tensor options × attention × dispatch. The axis
    has length 1 if a field does not vary with it. So a formula is computed once for each value that it depends on, not
    once for each plan. The slabs have all legal plans, without most of the others.

    Options without effect are not legal: ZeRO and local steps need copies; sequence parallelism needs tp;
    scatter/gather needs tp and stages, and an unsharded sequence; selective recomputation needs saved scores.

    grids  also AxoNN's grids: x shards the width, and ZeRO 3 shards among only z of the copies
    contexts  also cp, with all methods of attention;  experts  also ep, with both methods of dispatch, and folding
    stages  also p·v that does not divide the layers, so that some stages have an extra block
    slices  also token slices of a row
    given  fields that are fixed: no other value of these sizes is listed
    found  fields that are not searched: `plan.CONDITIONS`
    """
    sizes = _sizes(shape, devices, batch, grids, contexts, experts, stages, slices, given or {})
    columns: list[Amount] = list(np.array(sizes, int).reshape(-1, 10).T.copy().reshape(10, -1, 1, 1, 1, 1, 1))
    (p, t, d, b, v, x, z), switches = columns[:7], (contexts, experts, slices)
    cp, ep, n = (_if(asked, column) for asked, column in zip(switches, columns[7:]))
    ways = [how for how in range(len(RECOMPUTE)) if how != SELECTIVE or not found.get("fused")]
    how, zero = _along(1, np.array(ways)), _along(2, np.array(STAGES))
    sequence, scatter = (_along(3, cut) for cut in np.array(CUTS, bool).T)
    meetings = _meetings(shape, devices, given or {}) if contexts and shape.heads else MEETINGS[:1]
    attend, ulysses, zigzag = (_along(4, np.array(way)) for way in zip(*meetings))
    dispatch, fold = (_along(5, np.array(way)) for way in zip(*SENDINGS[: None if experts else 1]))
    inside, uneven = (x, z, cp, attend, ulysses, zigzag, ep, dispatch, fold), shape.layers % (p * v) > 0
    every = Plan(p, t, d, b, v, how, zero, sequence, scatter, *inside, uneven, n, **found)
    lengths = np.broadcast_shapes(*map(np.shape, every))
    return every, [_slab(_taken(every, part), part, lengths, shape, given or {}) for part in _parts(every, shape)]


def _slab(plans: Plan, index: list[np.ndarray], lengths: tuple[int, ...], shape: Shape, given: dict) -> Slab:
    effective = functools.reduce(operator.and_, _effective(plans, shape)) & _matters(plans, shape)
    legal = effective & holds(shape.sizes, plans.division(shape)) & having(plans, given)
    return Slab(plans, np.broadcast_to(legal, [len(one) for one in index]), index, lengths)


def _parts(every: Plan, shape: Shape) -> Iterator[list[np.ndarray]]:
    """Indices along each axis for sizes with the same effective options, at most SLAB plans or one size.

    Formulas then skip most plans that are not legal: with all switches, more than nine of ten plans of a grid.
    """
    sizes = np.broadcast_shapes(*map(np.shape, every))
    if math.prod(sizes) <= SLAB:  # a call for each kind of sizes would take longer
        yield [np.arange(length) for length in sizes]
        return
    effective = (
        np.broadcast_to(one, (sizes[0], *_only(axis, sizes))) for axis, one in enumerate(_effective(every, shape), 1)
    )
    bits = np.concatenate([one.reshape(sizes[0], math.prod(one.shape[1:])) for one in effective], axis=1)
    kind = np.unique(bits @ (1 << np.arange(bits.shape[1])), return_inverse=True)[1]
    bounds = np.cumsum([0, *sizes[1:]])
    for rows in (np.flatnonzero(kind.ravel() == one) for one in range(kind.max(initial=-1) + 1)):
        options = [np.flatnonzero(bits[rows[0], low:high]) for low, high in pairwise(bounds)]
        many = max(1, SLAB // max(1, math.prod(map(len, options))))
        for some in np.array_split(rows, range(many, len(rows), many)):
            yield [some, *options]


def _taken(every: Plan, index: list[np.ndarray]) -> Plan:
    """The plans of a grid at these indices along each axis."""
    return Plan._make(field if np.ndim(field) == 0 else _of(np.asarray(field), index) for field in every)


def _of(field: np.ndarray, index: list[np.ndarray]) -> np.ndarray:
    for axis, length in enumerate(field.shape):
        field = field.take(index[axis], axis) if length > 1 else field
    return field


def _only(axis: int, shape: tuple[int, ...]) -> list[int]:
    return [length if place == axis else 1 for place, length in enumerate(shape)][1:]


def _sizes(shape: Shape, devices: int, batch: int, grids, contexts, experts, stages, slices, given: dict):
    """All (p, t, d, b, v, x, z, cp, ep, n) that divide their dims, and have the given values."""
    only = lambda name, sizes: [one for one in sizes if one == given[name]] if name in given else sizes
    return [
        (p, t, d, b, v, x, z, cp, ep, n)
        for t in only("t", divisors(max(shape.heads, 1)))
        if devices % t == 0
        for p in only("p", range(1, most_stages(shape.layers) + 1) if stages else divisors(shape.layers))
        if devices % (t * p) == 0
        for x in only("x", divisors(shape.width) if grids and shape.experts == 1 else [1])
        if devices % (t * p * x) == 0
        for cp in only("cp", divisors(shape.context) if contexts else [1])
        if devices % (t * p * x * cp) == 0
        for ep in only("ep", divisors(shape.experts) if experts else [1])
        if devices % (t * p * x * cp * ep) == 0
        for d in only("d", [devices // (t * p * x * cp * ep)])
        if batch % (d * ep) == 0
        for b in only("b", divisors(batch // (d * ep)))
        for n in (_slices(shape, given) if slices and p > 1 and cp == 1 else only("n", [1]))
        for v in only("v", _chunks(shape, p, stages) if p > 1 and n * batch // (b * d * ep) % p == 0 else [1])
        if n == 1 or p * v <= shape.layers
        for z in only("z", [0, *divisors(d)[1:-1]] if grids else [0])
    ]


def _slices(shape: Shape, given: dict) -> list[int]:
    """The numbers of token slices: the given one, or powers of two, for slices of SHORTEST tokens or more."""
    if "n" in given:
        return [given["n"]]
    return [1, *(1 << power for power in range(1, (shape.context // SHORTEST).bit_length()))]


def _chunks(shape: Shape, p: int, stages: bool) -> list[int]:
    """The numbers of chunks on each of p ranks."""
    return [*range(1, most_stages(shape.layers) // p + 1)] if stages else divisors(shape.layers // p)


def _meetings(shape: Shape, devices: int, given: dict) -> list[tuple[int, int, bool]]:
    """All methods of attention: with usp, u ranks exchange KV heads, and a ring needs 2·u ranks or more.

    The ring is in zigzag order unless the other order is given: without the zigzag it is never quicker, and each
    further method makes the grid larger.
    """
    zigzag = given.get("zigzag", True)
    inner = [u for u in divisors(shape.key_heads) if 1 < u <= devices // 2]
    return [*MEETINGS, *((USP, u, zigzag) for u in inner)]


def _effective(every: Plan, shape: Shape) -> list[np.ndarray]:
    """For each axis of options, whether an option is legal and has an effect with these sizes."""
    p, t, cp, zero = every.p, every.t, every.cp, every.zero
    options = ("recompute", "zero", "sequence", "scatter", "attend", "ulysses", "zigzag", "dispatch", "fold")
    plain = every._replace(**{name: Plan._field_defaults[name] for name in options})

    def legal(asks: str, *names: str):
        """Whether options are legal by the rules of an axis."""
        one = plain._replace(**{name: getattr(every, name) for name in names})
        return holds(shape.sizes, one.division(shape), asks)

    further = (t * cp > 1) & (shape.experts > 1) & (shape.experts % every.expert_ways == 0)
    return [
        np.full(np.shape(every.recompute), True),
        ((zero == 0) | (every.copies[1] > 1)) & ((every.z == 0) | (zero == 3)),
        (~every.sequence | (t > 1)) & (~every.scatter | ((t > 1) & (p > 1))) & legal("tp", "sequence", "scatter"),
        ((cp > 1) | ((every.attend == GATHER) & ~every.zigzag)) & legal("cp", "attend", "ulysses", "zigzag"),
        ((every.dispatch == ALL_TO_ALL) | (every.ep > 1)) & (~np.asarray(every.fold) | further),
    ]


def _matters(every: Plan, shape: Shape):
    """For each plan, whether its options have an effect together, and every fragment has a layer."""
    p, how, cp = every.p, every.recompute, every.cp
    free = ((p > 1) & (every.v == 1) & ~every.sequence) | np.logical_not(every.spread_head)
    free = free & ((every.n == 1) | ((p > 1) & (every.n <= shape.context) & np.logical_not(every.spread_head)))
    free = free & (np.equal(every.further, 0) | ((every.n == 1) & np.logical_not(every.spread_head)))
    free = free & ((every.sequence & (every.x == 1)) | np.logical_not(every.overlap))
    free = free & (np.equal(every.directions, 1) | (np.equal(every.directions, 2) & every.overlap))
    free = free & (np.equal(every.redone, 1) | (how != NONE))
    free = free & (np.equal(every.sync_every, 0) | (every.d > 1)) & (every.fragments <= layers_of(shape, every))
    return free & ((how != SELECTIVE) | ~(passes(every.attend) & (cp > 1)))


def _along(axis: int, values: np.ndarray) -> Amount:
    """Values along one axis of the grid."""
    return values.reshape([-1 if place == axis else 1 for place in range(6)])


def _if(asked: bool, column: np.ndarray) -> Amount:
    """A size for each plan; a single number if it is not searched, so that formulas do not repeat it."""
    return column if asked else np.ones((1,) * 6, int)


def space(shape: Shape, devices: int, batch: int) -> Plan:
    """All plans with p·t·d devices that `check_plan` accepts, with every effective choice of recomputation, ZeRO,
    sequence parallelism and scatter/gather: the legal plans of a `grid`, one after another.

    >>> few = space(Shape(layers=4, heads=4), devices=2, batch=2)
    >>> len(few.p), str(few.one(0))
    (33, 'p=1 t=1 d=2 b=1')
    """
    return chosen(*grid(shape, devices, batch))


def chosen(every: Plan, slabs: list[Slab]) -> Plan:
    """The legal plans of a grid, in order."""
    return at(every, legal_of(slabs))


def legal_of(slabs: list[Slab]) -> np.ndarray:
    """The flat indices of all legal plans of a grid, in order."""
    places = np.empty(added(np.count_nonzero(one.legal) for one in slabs), int)
    for one, here in in_order(slabs):
        places[here] = one.places
    return places


def in_order(slabs: list[Slab]) -> Iterator[tuple[Slab, np.ndarray]]:
    """Each slab, and the numbers of its legal plans among those of all slabs, in the order of the grid.

    All plans of a size are in one slab, so to count them is enough: to sort millions of indices takes longer.
    """
    counts = [np.count_nonzero(one.legal, axis=(1, 2, 3, 4, 5)) for one in slabs]
    before = np.zeros(slabs[0].sizes[0] + 1, int)  # for each size, the plans of all sizes before it
    for one, many in zip(slabs, counts):
        before[one.index[0] + 1] = many
    before = before.cumsum()
    for one, many in zip(slabs, counts):
        earlier = before[one.index[0]] - (many.cumsum() - many)  # of these, those in other slabs
        yield one, np.repeat(earlier, many) + np.arange(many.sum())


def at(every: Plan, places: np.ndarray) -> Plan:
    """The plans of a grid at these flat indices; each field has their length.

    >>> at(Plan(p=np.array([[1], [2]]), t=np.array([[1, 3, 5]])), np.array([0, 5]))[:2]
    (array([1, 2]), array([1, 5]))
    """
    where = np.unravel_index(places, np.broadcast_shapes(*map(np.shape, every)))
    return Plan(*(_picked(np.asarray(field), where, len(places)) for field in every))


def _picked(field: np.ndarray, where: tuple[np.ndarray, ...], length: int) -> Amount:
    """The values of a field at these indices; axes of length 1 are broadcast."""
    index = tuple(there if many != 1 else 0 for there, many in zip(where[-field.ndim :], field.shape))
    return np.broadcast_to(field[index], length)


def having(every: Plan, sizes: dict) -> np.ndarray:
    """For each plan, whether its fields have these values; named values are given by name, or by index in their lists.

    raises  ValueError if a plan has no such field

    >>> having(Plan(p=np.array([1, 2]), t=np.array([2, 1])), {"t": 2})
    array([ True, False])
    """
    wanted, kept = named(sizes), np.ones(np.shape(every.p), bool)
    for name in sizes:
        kept = kept & (getattr(every, name) == getattr(wanted, name))
    return kept
