"""Find the rates of your own machine, from a row in your logs or from five minutes of measurements.

    fit = by_step(shape, "h100", Plan(p=4, t=8, d=2), batch=64, seconds=9.1, software="megatron-2024")
    fit = by_products("h100", [(8192, 8192, 8192, 1.7e-3), (4096, 8192, 28672, 3.1e-3)])
    kind = by_sums("h100", ranks=8, sizes=[1e6, 1e9], seconds=[6e-5, 4.3e-3])
    plan(shape, kind, gpus=64, batch=64, fit=fit)

A row of a log and a list of GEMMs determine the same number, the fraction of the peak that GEMMs reach. It depends on
the machine, its power limit and the library. A sweep of all-reduces determines a link. Other numbers keep their fitted
values.

Relatives: `predict.plans.rates`, `predict.judged.calibrated`, notebook 41.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from hybridlab.core.added import added
from hybridlab.core.what import catalog
from hybridlab.core.what.catalog import Machine
from hybridlab.core.what.machines import machine_of
from hybridlab.core.what.shape import Shape
from hybridlab.predict.bytes.collectives import Link, hierarchical
from hybridlab.predict.plans.performance import step
from hybridlab.predict.plans.plan import Plan
from hybridlab.predict.plans.ranges import refuse_sizes
from hybridlab.predict.plans.rates import FITTED, Fit
from hybridlab.predict.plans.software import Software, programs
from hybridlab.predict.plans.usual import usual

NEAR = 1e-9  # an error that counts as 0
MOST = 1.0  # of a peak


def by_step(
    model: str | Shape,
    machine: str | Machine,
    plan: Plan,
    batch: int,
    seconds: float,
    software: str | Software | None = None,
    precision: str = "bf16",
) -> Fit:
    """The fit that reproduces the measured time of a step of this plan.

    model      its name in the catalog, or its `Shape`
    machine    its name in the catalog, or a `Machine`
    plan       the plan that was run
    batch      sequences in the global batch
    seconds    of one step, measured
    software   a name in SOFTWARE, or its terms; None: the machine's usual one
    precision  of matmuls with weights: "bf16", "fp8", "fp4"

    A fraction above 1 means that the run did less work, or hid more time, than we assume for this software; `plan`
    refuses it.

    raises  ValueError if no fraction does that, since our prediction is longer than the measured time even without any
    matmul: this happens for real runs too

    >>> row = Plan(p=8, t=8, d=24, b=2, v=2, recompute=2, scatter=True)  # of SC'21's table 1
    >>> round(by_step("gpt-145.6b", "a100", row, batch=2304, seconds=24.82).multiply, 3)
    0.725
    """
    shape, kind = catalog.shape_of(model), machine_of(machine)
    runs = programs(software or usual(kind).software, precision)
    refuse_sizes(plan._asdict())
    if batch % (rows := plan.b * plan.d * plan.ep):
        raise ValueError(f"a batch of {batch} is not a multiple of b·d = {rows} sequences: correct batch, b or d")
    took = lambda share: float(step(shape, plan, batch, kind, FITTED._replace(multiply=share), runs).total)
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds={seconds:g} is not a time: give the seconds of one step of all {batch} sequences")
    if seconds <= (rest := took(math.inf)):
        raise ValueError(
            f"seconds={seconds:g} determines no fraction of the peak of {kind.name}: outside of matmuls we predict "
            f"{rest:.3g} s for this plan, so our prediction is too slow with any fraction; choose software that hides "
            "more, or correct the plan, the batch or the machine"
        )
    return FITTED._replace(multiply=at_zero(lambda share: seconds / took(share) - 1))


def by_products(
    machine: str | Machine,
    products: list[tuple[int, int, int, float]],
    software: str | Software | None = None,
) -> Fit:
    """The fit for a device with these measured times of matmuls: (m, k, n, seconds) of an m×k by a k×n matrix.

    Measure the matmuls of a block at your sizes, twenty times each after a warm-up.

    raises  ValueError if the matmuls were faster than the machine's peak allows

    >>> round(by_products("a100", [(2048, 12288, 36864, 8.3e-3), (2048, 12288, 49152, 11.0e-3)]).multiply, 2)
    0.72
    """
    kind = machine_of(machine)
    library = programs(software or usual(kind).software).library
    operations, took = added(2 * m * k * n for m, k, n, _ in products), added(seconds for *_, seconds in products)
    if not 0 < operations <= MOST * kind.peak * took:
        raise ValueError(
            f"the matmuls were measured at {took:.3g} s, but {kind.name} needs {operations / kind.peak:.3g} s at its "
            "peak: synchronize with the device before you read the clock, or name the right machine"
        )
    return FITTED._replace(multiply=operations / took / kind.peak / library)


def by_sums(
    machine: str | Machine,
    ranks: int,
    sizes: list[float],
    seconds: list[float],
    software: str | Software | None = None,
) -> Machine:
    """The machine, with a link fitted to the times of all-reduces over this number of neighbouring ranks.

    sizes  bytes of the tensors, from small to large: the small ones give the latency;  seconds  the seconds of each

    Ranks on one node measure the link inside the node. All ranks of several nodes measure the link between nodes, if
    the link inside is known.

    raises  ValueError if the times do not determine a link

    >>> kind = by_sums("h100", ranks=8, sizes=[1e6, 1e8, 1e9], seconds=[5.0e-5, 5.0e-4, 4.8e-3])
    >>> f"{kind.inside / 1e9:.0f} GB/s after {1e6 * kind.latency[0]:.1f} µs"
    '470 GB/s after 3.2 µs'
    """
    kind = machine_of(machine)
    runs = programs(software or usual(kind).software)
    if ranks < 2 or len(set(sizes)) < 2 or len(sizes) != len(seconds):
        raise ValueError(
            f"{len(sizes)} sizes with {len(seconds)} times on {ranks} ranks do not determine a link: give two sizes or "
            "more, one time for each, and two ranks or more"
        )
    if ranks <= kind.node:
        link = Link.fit("all_reduce", ranks, sizes, seconds)
        return _linked(kind, "inside", link, runs.inside)
    if ranks % kind.node:
        raise ValueError(
            f"{ranks} ranks do not fill whole nodes of {kind.node}: measure over a multiple of {kind.node}"
        )
    nodes, own = ranks // kind.node, Link(kind.latency[0], 1 / (kind.inside * runs.inside))
    left = [took - own.price(hierarchical(nodes, kind.node, size).inside) for size, took in zip(sizes, seconds)]
    if min(left) <= 0:
        raise ValueError(
            "the all-reduces took no longer than the predicted time inside a node: measure the link inside a node "
            "first, with by_sums"
        )
    return _linked(
        kind, "across", Link.fit("all_reduce", nodes, [size / kind.node for size in sizes], left), runs.network
    )


def at_zero(off: Callable[[float], float]) -> float:
    """The fraction of the peak with error 0, by the secant method; the error is a concave, growing function of it."""
    before, now = FITTED.multiply, 0.9 * FITTED.multiply
    was, found = off(before), off(now)
    while abs(found) > NEAR and found != was:
        before, now, was = now, max(now - found * (now - before) / (found - was), now / 2), found
        found = off(now)
    return now


def _linked(kind: Machine, name: str, link: Link, reached: float) -> Machine:
    if not link.beta:
        raise ValueError(
            "larger tensors took no longer, so the bandwidth cannot be estimated: use sizes up to a gigabyte"
        )
    place = ("inside", "across").index(name)
    latency = tuple(link.alpha if place == at else one for at, one in enumerate(kind.latency))
    return replace(kind, latency=latency, **{name: 1 / link.beta / reached})
