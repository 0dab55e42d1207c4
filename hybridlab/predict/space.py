"""The space of plans: every legal way to divide a model and its batch among n devices, as one plan of arrays."""

from itertools import product

import numpy as np

from hybridlab.core.shape import Shape
from hybridlab.predict.activations import RECOMPUTE
from hybridlab.predict.plan import Plan, named

STAGES = range(4)  # of ZeRO
CUTS = ((0, 0), (1, 0), (0, 1))  # sequence parallelism, scatter/gather: none, or one of them


def divisors(n: int) -> list[int]:
    """The whole numbers that divide n, upwards.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


def space(shape: Shape, devices: int, batch: int) -> Plan:
    """All plans with p·t·d devices that `check_plan` lets through, every choice of recomputation, ZeRO, sequence
    parallelism and scatter/gather that makes a difference.

    ZeRO needs copies; sequence parallelism and scatter/gather need tp, scatter/gather stages too, and where the
    sequence is cut anyway it changes nothing.

    >>> few = space(Shape(layers=4, heads=4), devices=2, batch=2)
    >>> len(few.p), str(few.one(0))
    (33, 'p=1 t=1 d=2 b=1')
    """
    sizes = [
        (p, t, d, b, v)
        for t in divisors(max(shape.heads, 1))
        if devices % t == 0
        for p in divisors(shape.layers)
        if devices % (t * p) == 0
        for d in [devices // (t * p)]
        if batch % d == 0
        for b in divisors(batch // d)
        for v in (divisors(shape.layers // p) if p > 1 and batch // (b * d) % p == 0 else [1])
    ]
    if not sizes:
        return Plan(*(np.zeros(0, int) for _ in Plan._fields))
    choices = np.array([(how, zero, *cut) for how, zero, cut in product(range(len(RECOMPUTE)), STAGES, CUTS)])
    columns = np.repeat(np.array(sizes, int), len(choices), axis=0).T
    p, t, d, b, v = columns
    how, zero, sequence, scatter = np.tile(choices, (len(sizes), 1)).T
    legal = ((zero == 0) | (d > 1)) & ((sequence == 0) | (t > 1)) & ((scatter == 0) | ((t > 1) & (p > 1)))
    switches = (sequence[legal] > 0, scatter[legal] > 0)
    return Plan(*(column[legal] for column in (p, t, d, b, v, how, zero)), *switches)


def having(every: Plan, sizes: dict) -> np.ndarray:
    """For each plan, whether its fields have these values; recomputation by its name, or its place in RECOMPUTE.

    raises  ValueError when a plan has no such field

    >>> having(Plan(p=np.array([1, 2]), t=np.array([2, 1])), {"t": 2})
    array([ True, False])
    """
    wanted, kept = named(sizes), np.ones(len(every.p), bool)
    for name in sizes:
        kept = kept & (getattr(every, name) == getattr(wanted, name))
    return kept
