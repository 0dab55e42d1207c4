"""List every legal way to divide a model and its batch among n devices, as one plan of arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hybridlab.core.amount import Amount
from hybridlab.core.what.shape import Shape, divisors
from hybridlab.predict.bytes.activations import RECOMPUTE, SELECTIVE
from hybridlab.predict.bytes.context import GATHER, RING, ULYSSES, USP, passes
from hybridlab.predict.bytes.experts import ALL_GATHER, ALL_TO_ALL
from hybridlab.predict.plans.divisions import holds
from hybridlab.predict.plans.partition import most_stages
from hybridlab.predict.plans.plan import Plan, named

STAGES = range(4)  # of ZeRO
SHORTEST = 2048  # tokens of a slice that is searched: the fit has seen no GEMM of fewer rows
SLAB = 1 << 19  # plans whose formulas are computed at once: fewer are slower, more need memory
CUTS = ((0, 0), (1, 0), (0, 1))  # sequence parallelism, scatter/gather: none, or one of them

# the method of attention, the ranks that exchange heads with usp, and whether in zigzag order
MEETINGS = ((GATHER, 1, False), (GATHER, 1, True), (RING, 1, False), (RING, 1, True), (ULYSSES, 1, False))
# the method of dispatch, and whether experts are folded
SENDINGS = ((ALL_TO_ALL, False), (ALL_GATHER, False), (ALL_TO_ALL, True))


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
) -> tuple[Plan, np.ndarray]:
    """(plans, legal): all sizes that `check_plan` accepts, combined with all options that save memory.

    Fields have one axis for each choice, sizes × recomputation × ZeRO × tensor options × attention × dispatch. The axis
    has length 1 if a field does not vary with it. So a formula is computed once for each value that it depends on, not
    once for each plan. `legal` has the full shape.

    Options without effect are not legal: ZeRO needs copies; sequence parallelism needs tp; scatter/gather needs tp and
    stages, and an unsharded sequence; selective recomputation needs saved scores.

    grids  also AxoNN's grids: x shards the width, and ZeRO 3 shards among only z of the copies
    contexts  also cp, with all methods of attention;  experts  also ep, with both methods of dispatch, and folding
    stages  also p·v that does not divide the layers, so that some stages have an extra block
    slices  also token slices of a row
    given  fields that are fixed: no other value of these sizes is listed
    found  fields that are not searched: `plan.CONDITIONS`
    """
    sizes = _sizes(shape, devices, batch, grids, contexts, experts, stages, slices, given or {})
    columns: list[Amount] = list(np.array(sizes, int).reshape(-1, 10)[:, :, None, None, None, None, None].swapaxes(0, 1))
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
    legal = _matters(every) & _shared_out(every, shape) & holds(shape.sizes, every.division(shape))
    return every, np.broadcast_to(legal & having(every, given or {}), np.broadcast_shapes(*map(np.shape, every)))


def _sizes(shape: Shape, devices: int, batch: int, grids, contexts, experts, stages, slices, given: dict):
    """All (p, t, d, b, v, x, z, cp, ep, n) that divide their dims, and have the given values."""
    only = lambda name, sizes: [one for one in sizes if given.get(name, one) == one]
    return [
        (p, t, d, b, v, x, z, cp, ep, n)
        for t in only("t", divisors(max(shape.heads, 1)))
        if devices % t == 0
        for p in only("p", range(1, most_stages(shape.layers) + 1) if stages else divisors(shape.layers))
        if devices % (t * p) == 0
        for x in only("x", divisors(shape.width) if grids else [1])
        if devices % (t * p * x) == 0
        for cp in only("cp", divisors(shape.context) if contexts else [1])
        if devices % (t * p * x * cp) == 0
        for ep in only("ep", divisors(shape.experts) if experts and x == 1 else [1])
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
    """The numbers of token slices: powers of two, for slices of SHORTEST tokens or more on average; or the given one."""
    if "n" in given:
        return [given["n"]]
    return [1 << power for power in range(shape.context.bit_length()) if power == 0 or shape.context >> power >= SHORTEST]


def _chunks(shape: Shape, p: int, stages: bool) -> list[int]:
    """The numbers of chunks on each of p ranks."""
    return [*range(1, most_stages(shape.layers) // p + 1)] if stages else divisors(shape.layers // p)


def _meetings(shape: Shape, devices: int, given: dict) -> list[tuple[int, int, bool]]:
    """All methods of attention: with usp, u ranks exchange heads of keys, and a ring needs 2·u ranks or more.

    Its ring is in zigzag order unless the other order is given: in order it is never quicker, and each further method
    makes the grid larger.
    """
    zigzag = given.get("zigzag", True)
    inner = [u for u in divisors(shape.key_heads) if 1 < u <= devices // 2]
    return [*MEETINGS, *((USP, u, zigzag) for u in inner)]


def _matters(every: Plan):
    """For each plan, whether all its options have an effect."""
    p, t, how, cp = every.p, every.t, every.recompute, every.cp
    free = (every.z == 0) | (every.zero == 3)
    free = free & (~every.sequence | (t > 1)) & (~every.scatter | ((t > 1) & (p > 1)))
    free = (
        free
        & ((every.dispatch == ALL_TO_ALL) | (every.ep > 1))
        & ((cp > 1) | ((every.attend == GATHER) & ~every.zigzag))
    )
    free = free & (((p > 1) & (every.v == 1) & ~every.sequence) | np.logical_not(every.spread_head))
    free = free & ((every.n == 1) | ((p > 1) & np.logical_not(every.spread_head)))
    return free & ((how != SELECTIVE) | ~(passes(every.attend) & (cp > 1)))


def _shared_out(every: Plan, shape: Shape):
    """For each plan, whether folded experts, if it has them, are distributed over further ranks, equally."""
    further = (every.t * every.cp > 1) & (shape.experts > 1) & (shape.experts % every.expert_ways == 0)
    return ~np.asarray(every.fold) | further


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


def chosen(every: Plan, which: np.ndarray) -> Plan:
    """The plans of a grid where a mask is true."""
    return at(every, np.flatnonzero(which))


def at(every: Plan, places: np.ndarray) -> Plan:
    """The plans of a grid at these flat indices; each field has their length.

    >>> at(Plan(p=np.array([[1], [2]]), t=np.array([[1, 3, 5]])), np.array([0, 5]))[:2]
    (array([1, 2]), array([1, 5]))
    """
    where = np.unravel_index(places, np.broadcast_shapes(*map(np.shape, every)))
    return Plan(*(_picked(np.asarray(field), where, len(places)) for field in every))


def slabs(every: Plan, legal: np.ndarray) -> Iterator[tuple[Plan, np.ndarray]]:
    """A grid in parts of at most SLAB plans, or of one size, in order: formulas of all plans at once need much memory.

    >>> many = Plan(p=np.arange(1, 6)[:, None], t=np.array([[1, 2]]))
    >>> [one.p.ravel().tolist() for one, _ in slabs(many, np.ones((5, 2 * SLAB // 5), bool))]
    [[1, 2], [3, 4], [5]]
    """
    rows = max(1, SLAB * len(legal) // max(legal.size, 1))
    for begin in range(0, len(legal), rows):
        part = slice(begin, begin + rows)
        yield Plan(*(_rows(field, part, legal) for field in every)), legal[part]


def _rows(field: Any, part: slice, legal: np.ndarray) -> Any:
    """These sizes of a field of a grid; a field that does not vary with the sizes is returned unchanged."""
    varies = np.ndim(field) == legal.ndim and len(field) == len(legal) > 1
    return field[part] if varies else field


def _picked(field: np.ndarray, where: tuple[np.ndarray, ...], length: int) -> Amount:
    """The values of a field there; axes of length 1 are broadcast."""
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
